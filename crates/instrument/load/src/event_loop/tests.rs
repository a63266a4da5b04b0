//! An event loop over sockets that only count: no kernel, and no server.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::tally::{Cause, Requests};
use plimsoll_reactor::source::Rotation;
use plimsoll_sys::readiness::Ready;

use super::exchange::Received;
use super::sockets::Arrival;
use super::*;
use crate::config::tests::config;
use crate::config::{Config, Pace, Part, Phase as Start, StopCondition};
use crate::control::Gauge;
use crate::echo::Echo;
use crate::ledger::{Answer, Books};
use crate::protocol::After;
use crate::shared::tests::{echo, shared};

mod windows;

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn a_million_connections_have_slots_well_under_200_bytes() {
    assert!(slot_bytes::<Echo, Epoll>() <= 144, "{}", slot_bytes::<Echo, Epoll>());
    assert!(slot_bytes::<crate::http::Http, Epoll>() <= 192, "{}", slot_bytes::<crate::http::Http, Epoll>());
}

/// Sockets that are connected at once and take every byte unless they are full, and at which
/// nothing ever arrives.
#[derive(Default)]
struct Silent<const DEFERS: bool = false> {
    sent: usize,
    /// Those of them that the loop has not asked for yet.
    untold: usize,
    /// There is room for a part of each message only.
    is_full: bool,
    /// No connection can be opened.
    refuses: bool,
    /// Where each was connected from.
    sources: Vec<Option<IpAddr>>,
    /// The last message that was sent.
    message: Vec<u8>,
    /// So much of what has not come back of it comes back, once.
    returns: usize,
    returned: Vec<u8>,
}

impl<const DEFERS: bool> Sockets for Silent<DEFERS> {
    const DEFERS: bool = DEFERS;
    const SLEEPS: bool = false;

    type Socket = ();

    fn room(descriptors: usize) -> usize {
        descriptors
    }

    fn new(_connections: usize, _wake: BorrowedFd<'_>, _stamped: bool) -> io::Result<Silent<DEFERS>> {
        Ok(Silent::default())
    }

    fn has_place(&self) -> bool {
        true
    }

    fn connect(&mut self, _key: Key, _target: SocketAddr, source: Option<IpAddr>) -> io::Result<()> {
        self.sources.push(source);
        if self.refuses { Err(ErrorKind::AddrNotAvailable.into()) } else { Ok(()) }
    }

    fn connected(&mut self, _socket: &()) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, _socket: &(), bytes: &[u8]) -> io::Result<usize> {
        let count = if self.is_full { bytes.len() / 2 } else { bytes.len() };
        self.message = bytes[..count].to_vec();
        self.sent += count;
        self.untold += count;
        Ok(count)
    }

    fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.untold)
    }

    fn has_sent_all(&self) -> bool {
        true
    }

    fn read(&mut self, _socket: &()) -> io::Result<Arrival<'_>> {
        match std::mem::take(&mut self.returns) {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => {
                self.returned = self.message.drain(..count).collect();
                Ok(Arrival { bytes: &self.returned, more: false, at: None })
            }
        }
    }

    fn close(&mut self, _socket: ()) {}

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn was_interrupted(&self) -> bool {
        false
    }

    fn may_have_left(&self) -> bool {
        false
    }

    fn sleep(&mut self, _wake: BorrowedFd<'_>, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    fn report(&mut self) -> Option<Ready> {
        None
    }
}

/// An open loop whose requests are due a nanosecond after one another from the run's origin on, so
/// that there are always some; with its connections up, and the gate open.
fn open_loop(change: impl FnOnce(&mut Config)) -> EventLoop<Echo, Silent> {
    open_loop_of(1, change)
}

/// One of so many event loops.
fn open_loop_of<const DEFERS: bool>(loops: usize, change: impl FnOnce(&mut Config)) -> EventLoop<Echo, Silent<DEFERS>> {
    let mut config = config(Pace::Open { rate: Rate::constant(1e9), spacing: Spacing::Fixed });
    change(&mut config);
    let mut shared = shared(config, echo());
    shared.control.gauges.resize_with(loops, Gauge::default);
    let mut event_loop = EventLoop::new(Arc::new(shared), 0, 0, Silent::default());
    event_loop.open_connections();
    for key in event_loop.slab.keys().collect::<Vec<_>>() {
        event_loop.connected(key);
    }
    event_loop.take_up();
    let control = &event_loop.shared.control;
    control.gate.set(0);
    event_loop.pass_openings(event_loop.now());
    event_loop
}

/// Brings about the connects that are under way.
fn connect_all(event_loop: &mut EventLoop<Echo, Silent>) {
    for key in event_loop.slab.keys().collect::<Vec<_>>() {
        if event_loop.slab.get(key).is_some_and(|connection| connection.state == State::Connecting) {
            event_loop.connected(key);
        }
    }
    event_loop.take_up();
}

fn books(event_loop: EventLoop<Echo, Silent>) -> Books {
    event_loop.finish().books.expect("it came to its end")
}

#[test]
fn answers_do_not_stay_unread_where_a_request_has_to_wait_for_room() {
    let mut event_loop = open_loop(|_| ());
    event_loop.deferred_reads.answered(64, true, false);
    let allows = |event_loop: &EventLoop<Echo, Silent>| event_loop.deferred_reads.allows(Duration::from_micros(100));
    event_loop.dispatch(1);
    assert!(allows(&event_loop), "all of it was written");
    event_loop.sockets.is_full = true;
    event_loop.dispatch(1);
    assert_eq!((event_loop.sockets.sent, allows(&event_loop)), (64 + 32, false));
}

#[test]
fn answers_do_not_stay_unread_where_one_of_them_came_in_part() {
    let mut event_loop = open_loop(|_| ());
    event_loop.deferred_reads.answered(64, true, false);
    event_loop.dispatch(1);
    let is_busy = |key: &Key| event_loop.slab.get(*key).is_some_and(|each| each.state == State::Busy);
    let key = event_loop.slab.keys().find(is_busy).expect("its request is under way");
    assert!(event_loop.deferred_reads.allows(Duration::from_micros(100)));
    for (has_answered, allowed) in [(false, true), (true, false)] {
        if has_answered {
            let rules = event_loop.rules;
            event_loop.slab.get_mut(key).expect("it is there").history.answered(rules);
        }
        event_loop.sockets.returns = 8;
        assert!(matches!(event_loop.read(key, false), Received::Part));
        assert_eq!(event_loop.deferred_reads.allows(Duration::from_micros(100)), allowed);
    }
}

#[test]
fn processes_that_share_a_load_reach_their_servers_from_every_source_address() {
    let addresses: Vec<IpAddr> = (1..=2).map(|last| IpAddr::from([127, 0, 0, last])).collect();
    for number in 0..2 {
        let mut config = config(Pace::Closed { think: Think::None, phase: Start::Spread });
        (config.connections, config.part) = (1, Part { number, of: 2 });
        config.targets = vec![([127, 0, 0, 1], 7).into(), ([127, 0, 0, 1], 8).into()];
        config.opening.reconnect = true;
        let mut shared = shared(config, echo());
        shared.rotations = vec![Rotation::Listed(addresses.clone()); 2];
        let mut event_loop: EventLoop<Echo, Silent> = EventLoop::new(Arc::new(shared), 0, 0, Silent::default());
        event_loop.open_connections();
        let key = event_loop.slab.keys().next().expect("it is there");
        assert!(event_loop.connect(key) && event_loop.connect(key));
        let used = &event_loop.sockets.sources;
        assert!(addresses.iter().all(|address| used.contains(&Some(*address))), "process {number}: {used:?}");
    }
}

#[test]
fn nothing_is_sent_on_a_free_connection_before_what_came_on_it_during_a_sleep_is_read() {
    let mut event_loop = open_loop(|_| ());
    let sent = |event_loop: &EventLoop<Echo, Silent>| -> u64 {
        event_loop.slab.keys().filter_map(|key| event_loop.slab.get(key)).map(|each| each.begun).sum()
    };
    event_loop.dispatch(1);
    let is_busy = |key: &Key| event_loop.slab.get(*key).is_some_and(|each| each.state == State::Busy);
    let first = event_loop.slab.keys().find(is_busy).expect("its request is under way");
    let slept_at = event_loop.now();
    (event_loop.slept_at, event_loop.entered) = (slept_at, slept_at);
    event_loop.complete(first, Answer { payload: 1, status: 0 }, After::Usable, false, None);
    assert_eq!(sent(&event_loop), 1);
    // Events are left for the next turn.
    event_loop.backlog.pass_turn(slept_at, true);
    event_loop.dispatch(2);
    assert_eq!(sent(&event_loop), 1);
    event_loop.backlog.pass_turn(slept_at, false);
    event_loop.dispatch(1);
    assert_eq!(sent(&event_loop), 2);
    let key =
        event_loop.slab.keys().find(|key| event_loop.slab.get(*key).is_some_and(|each| each.state == State::Busy));
    event_loop.complete(key.expect("it is under way"), Answer { payload: 1, status: 0 }, After::Usable, false, None);
    assert_eq!(sent(&event_loop), 3, "without a sleep an answer makes room at once");
}

#[test]
fn a_request_that_times_out_though_a_connection_is_free_waited_for_the_generator() {
    let mut config = config(Pace::Open { rate: Rate::constant(1e9), spacing: Spacing::Fixed });
    config.timeout = Duration::from_micros(1);
    let mut event_loop: EventLoop<Echo, Silent> =
        EventLoop::new(Arc::new(shared(config, echo())), 0, 0, Silent::default());
    event_loop.open_connections();
    connect_all(&mut event_loop);
    // Every request is due after its connection was free.
    let start = event_loop.now();
    event_loop.shared.control.gate.set(start);
    event_loop.shared.control.opens.set(start);
    event_loop.pass_openings(event_loop.now());
    std::iter::from_fn(|| Some(event_loop.now())).find(|now| *now > start + 5000).expect("time passes");
    event_loop.dispatch(10);
    let window = books(event_loop).window;
    let (wait, lag) = (window.pool_wait.summary(), window.schedule_lag.summary());
    assert_eq!((window.requests.timed_out, window.sent), (10, 0));
    assert_eq!((wait.count, wait.max, lag.count), (10, 0.0, 10), "{wait:?} {lag:?}");
    assert!(lag.min > 0.9 && lag.max < 1.1, "{lag:?}");
}

#[test]
fn a_request_that_waits_behind_those_that_the_generator_was_late_with_waited_for_it() {
    let pace = Pace::Open { rate: Rate::constant(1e9), spacing: Spacing::Fixed };
    let mut event_loop: EventLoop<Echo, Silent> =
        EventLoop::new(Arc::new(shared(config(pace), echo())), 0, 0, Silent::default());
    event_loop.open_connections();
    connect_all(&mut event_loop);
    let start = event_loop.now();
    event_loop.shared.control.gate.set(start);
    event_loop.shared.control.opens.set(start);
    event_loop.pass_openings(event_loop.now());
    // Ten connections are free, and the loop comes a millisecond late.
    let late = std::iter::from_fn(|| Some(event_loop.now())).find(|now| *now > start + 1_000_000);
    let late = late.expect("time passes");
    event_loop.dispatch(11);
    // The next request has to wait for one of them.
    let key = event_loop.slab.keys().next().expect("it is there");
    let free = event_loop.now();
    let connection = event_loop.slab.get_mut(key).expect("it is there");
    (connection.state, connection.intended) = (State::Idle, free);
    event_loop.wait_in_pool(key);
    event_loop.dispatch(1);
    let window = books(event_loop).window;
    let (wait, lag) = (window.pool_wait.summary(), window.schedule_lag.summary());
    assert_eq!((window.sent, wait.count, lag.count), (11, 11, 11));
    assert!(wait.max <= (free - late) as f64 / 1000.0, "{wait:?} of {} ns", free - late);
    assert!(lag.min > 990.0, "{lag:?}");
}

#[test]
fn the_wait_of_a_request_that_is_never_sent_is_due_to_connections_that_waited_to_be_opened_again() {
    for times_out in [true, false] {
        let mut event_loop = open_loop(|config| {
            if times_out {
                config.timeout = Duration::from_nanos(1);
            }
        });
        event_loop.shared.control.opens.set(0);
        event_loop.pass_openings(event_loop.now());
        // All of them have waited since before it was due.
        for _ in 0..10 {
            event_loop.shared.schedule.backs_off(0);
        }
        if times_out {
            event_loop.dispatch(1);
        } else {
            event_loop.pool.clear();
            event_loop.reserved = event_loop.shared.schedule.take(None);
        }
        let window = books(event_loop).window;
        let ends = (window.requests.timed_out, window.requests.unsent);
        assert_eq!(ends, if times_out { (1, 0) } else { (0, 1) });
        let (wait, backoff) = (window.pool_wait.summary(), window.backoff_wait.summary());
        assert_eq!((wait.count, wait.max, backoff.count), (1, 0.0, 1), "{wait:?} {backoff:?}");
    }
}

#[test]
fn a_request_times_out_though_every_turn_leaves_events() {
    let mut event_loop: EventLoop<Echo, Silent<true>> = open_loop_of(1, |config| {
        config.pace = Pace::Closed { think: Think::None, phase: Start::Spread };
        config.timeout = Duration::from_nanos(1);
    });
    let key = event_loop.due.pop_front().expect("its request is due");
    event_loop.begin_due(key);
    event_loop.note_submitted();
    // Between two looks at its time-out there are many turns.
    for _ in 0..2 {
        for _ in 0..10 {
            event_loop.entered = event_loop.now();
            event_loop.backlog.pass_turn(event_loop.entered, true);
        }
        event_loop.fire(key);
    }
    event_loop.shared.control.opens.set(0);
    event_loop.pass_openings(event_loop.now());
    let warm_up = event_loop.finish().books.and_then(|books| books.warm_up).expect("there was one");
    assert_eq!((warm_up.requests.timed_out, warm_up.requests.in_flight), (1, 0));
}

#[test]
fn a_request_is_sent_when_it_is_submitted_and_not_when_it_is_queued() {
    let mut event_loop: EventLoop<Echo, Silent<true>> = open_loop_of(1, |_| ());
    event_loop.dispatch(1);
    let queued = event_loop.now();
    let submitted = std::iter::from_fn(|| Some(event_loop.now())).find(|now| *now > queued).expect("time passes");
    event_loop.note_submitted();
    let busy = event_loop.slab.keys().filter_map(|key| event_loop.slab.get(key)).find(|one| one.state == State::Busy);
    assert!(busy.is_some_and(|connection| connection.sent >= submitted), "queued at {queued}");
}

#[test]
fn a_request_that_is_due_at_no_instant_begins_as_it_is_submitted() {
    for (phase, begins_with_send) in [(Start::Spread, true), (Start::Lockstep, false)] {
        let mut event_loop: EventLoop<Echo, Silent<true>> =
            open_loop_of(1, |config| config.pace = Pace::Closed { think: Think::None, phase });
        let key = event_loop.due.pop_front().expect("its request is due");
        event_loop.begin_due(key);
        let queued = event_loop.now();
        std::iter::from_fn(|| Some(event_loop.now())).find(|now| *now > queued).expect("time passes");
        event_loop.note_submitted();
        let connection = event_loop.slab.get(key).expect("it is there");
        assert_eq!(connection.intended == connection.sent, begins_with_send, "{phase:?}");
    }
}

#[test]
fn a_wall_clock_that_was_set_before_requests_begin_is_that_of_their_log() {
    let (rows, received) = std::sync::mpsc::channel();
    let mut config = config(Pace::Closed { think: Think::None, phase: Start::Spread });
    config.records.requests = Some(rows);
    let mut event_loop: EventLoop<Echo, Silent> =
        EventLoop::new(Arc::new(shared(config, echo())), 0, 0, Silent::default());
    event_loop.open_connections();
    connect_all(&mut event_loop);
    event_loop.shared.control.set_wall_clock_back(Duration::from_secs(60));
    event_loop.shared.control.gate.set(0);
    event_loop.pass_openings(event_loop.now());
    let key = event_loop.due.pop_front().expect("its request is due");
    let shared = Arc::clone(&event_loop.shared);
    let begun = shared.control.unix(shared.control.now());
    event_loop.begin_due(key);
    event_loop.lose(key, Cause::Closed);
    drop(books(event_loop));
    let row = received.try_iter().flatten().next().expect("it is logged");
    assert!((begun..=shared.control.unix(shared.control.now())).contains(&row.at), "{} from {begun}", row.at);
}

#[test]
fn a_wait_for_a_connection_while_another_loop_has_one_free_is_the_generators_own() {
    for (free, waits) in [(0, true), (1, false)] {
        let mut event_loop: EventLoop<Echo, Silent> = open_loop_of(2, |_| ());
        event_loop.shared.control.gauges[1].free.store(free, Ordering::Relaxed);
        event_loop.shared.control.opens.set(0);
        event_loop.pass_openings(event_loop.now());
        // Due long before its connection was up.
        event_loop.dispatch(1);
        let window = books(event_loop).window;
        let (wait, lag) = (window.pool_wait.summary(), window.schedule_lag.summary());
        assert_eq!((wait.count, wait.max > 0.0, lag.max > 0.0), (1, waits, true), "{wait:?} {lag:?}");
    }
}
