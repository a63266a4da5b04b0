//! A connection's thread over one end of a pair of sockets, whose other end is the test's.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::tally::Requests;

use super::*;
use crate::config::tests::config;
use crate::config::{Config, Pace, Phase as Start};
use crate::ledger::Books;
use crate::shared::tests::{echo, shared};

const HOUR: u64 = 3_600_000_000_000;

/// An open loop whose requests are due a nanosecond after one another from the run's origin on, so
/// that there are always some.
fn open() -> Config {
    config(Pace::Open { rate: Rate::constant(1e9), spacing: Spacing::Fixed })
}

/// The counts of a thread that sends requests over this socket until it has no more to do.
fn carry<P: Protocol>(shared: &Shared<P>, socket: Option<UnixStream>) -> Books {
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    let mut client = Client::new(shared, &phase, 0);
    client.socket = socket.map(OwnedFd::from);
    client.carry_requests();
    if !client.is_closed() {
        client.close_window(client.now());
    }
    client.ledger.finish()
}

/// One end for the generator, which does not block, and the other for the test.
fn pair() -> (UnixStream, UnixStream) {
    let (own, peer) = UnixStream::pair().expect("two descriptors");
    own.set_nonblocking(true).expect("a socket");
    (own, peer)
}

#[test]
fn nothing_is_sent_as_a_signal_ends_the_warm_up_and_nothing_of_it_is_in_the_window() {
    let shared = shared(Config { timeout: Duration::from_secs(1), ..open() }, echo());
    let control = &shared.control;
    control.gate.set(0);
    control.opens.set(HOUR);
    control.closes.set(2 * HOUR);
    control.interrupt(control.now());
    let (own, mut peer) = pair();
    let books = carry(&shared, Some(own));
    assert_eq!(peer.read(&mut [0; 64]).expect("the other end is closed"), 0, "nothing was sent");
    assert_eq!((books.window.sent, books.window.requests), (0, Requests::default()));
}

#[test]
fn a_wall_clock_that_was_set_before_requests_begin_is_that_of_their_log() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let (rows, received) = std::sync::mpsc::channel();
    let targets = vec![listener.local_addr().expect("it is bound")];
    let mut config = Config { targets, ..config(Pace::Closed { think: Think::None, phase: Start::Spread }) };
    config.records.requests = Some(rows);
    let shared = shared(config, echo());
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    let mut client = Client::new(&shared, &phase, 0);
    shared.control.set_wall_clock_back(Duration::from_secs(60));
    shared.control.starts.set(0);
    shared.control.gate.set(0);
    assert!(client.wait_for_start());
    let now = client.now();
    client.ledger.begun(now);
    let request = Request { place: 0, intended: now, sent: now, counted: true, last: true };
    client.ledger.request_lost(request, Cause::Read, now);
    drop(client.ledger.finish());
    let row = received.try_iter().flatten().next().expect("it is logged");
    assert_eq!(row.at, shared.control.unix(now));
}

#[test]
fn a_request_that_times_out_before_a_connection_is_free_is_one_of_those_of_each() {
    let timeout = Duration::from_nanos(1);
    let shared = shared(Config { stop_condition: StopCondition::Each(3), timeout, ..open() }, echo());
    shared.control.gate.set(0);
    shared.control.opens.set(0);
    // A thousand are due.
    shared.control.closes.set(1000);
    let requests = carry(&shared, None).window.requests;
    assert_eq!((requests.scheduled, requests.timed_out), (3, 3));
}

#[test]
fn a_request_that_times_out_though_its_connection_is_free_waited_for_the_generator() {
    let timeout = Duration::from_micros(1);
    let shared = shared(Config { stop_condition: StopCondition::Each(3), timeout, ..open() }, echo());
    shared.control.gate.set(0);
    shared.control.opens.set(0);
    shared.control.closes.set(1000);
    let window = carry(&shared, None).window;
    let (wait, lag) = (window.pool_wait.summary(), window.schedule_lag.summary());
    assert_eq!((window.requests.timed_out, wait.count, wait.max, lag.count), (3, 3, 0.0, 3), "{wait:?} {lag:?}");
}

#[test]
fn a_request_that_waits_behind_those_that_the_generator_was_late_with_waited_for_it() {
    let timeout = Duration::from_micros(10);
    let shared = shared(Config { stop_condition: StopCondition::Each(1), timeout, ..open() }, echo());
    shared.control.gate.set(0);
    shared.control.opens.set(0);
    shared.control.closes.set(1000);
    // Another thread was late until then.
    shared.control.gauges[0].hold_up_until(600);
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    let mut client = Client::new(&shared, &phase, 0);
    client.free = 1000;
    client.carry_requests();
    if !client.is_closed() {
        client.close_window(1000);
    }
    let window = client.ledger.finish().window;
    let (wait, lag) = (window.pool_wait.summary(), window.schedule_lag.summary());
    assert_eq!((window.requests.timed_out, wait.max, lag.max), (1, 0.4, 9.6), "{wait:?} {lag:?}");
}

#[test]
fn the_wait_of_a_request_that_is_never_sent_is_due_to_connections_that_waited_to_be_opened_again() {
    for times_out in [true, false] {
        let mut config = open();
        if times_out {
            (config.stop_condition, config.timeout) = (StopCondition::Each(1), Duration::from_nanos(1));
        }
        let shared = shared(config, echo());
        shared.schedule.begin(0);
        shared.control.opens.set(0);
        shared.control.closes.set(1000);
        // All of them have waited since before it was due.
        for _ in 0..10 {
            shared.schedule.backs_off(0);
        }
        let phase = AtomicU8::new(worker_group::Phase::Run as u8);
        let mut client = Client::new(&shared, &phase, 0);
        if times_out {
            client.free = 1000;
            client.carry_requests();
        } else {
            client.open_window_by(0);
            client.reserved = shared.schedule.take(None);
        }
        if !client.is_closed() {
            client.close_window(1000);
        }
        let window = client.ledger.finish().window;
        let ends = (window.requests.timed_out, window.requests.unsent);
        assert_eq!(ends, if times_out { (1, 0) } else { (0, 1) });
        let (wait, backoff) = (window.pool_wait.summary(), window.backoff_wait.summary());
        assert_eq!((wait.count, wait.max, backoff.count), (1, 0.0, 1), "{wait:?} {backoff:?}");
    }
}

#[test]
fn a_connection_is_shown_free_while_its_request_is_yet_to_fall_due_and_no_longer() {
    let free = |shared: &Shared<_>| shared.control.gauges[0].free.load(Ordering::Relaxed);
    let shared = shared(open(), echo());
    shared.control.gate.set(HOUR);
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Client::new(&shared, &phase, 0).carry_requests());
        let begun = Instant::now();
        while free(&shared) == 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        let shown = free(&shared);
        phase.store(worker_group::Phase::Stop as u8, Ordering::Release);
        waiting.join().expect("it ends");
        assert_eq!((shown, free(&shared)), (1, 0));
    });
}

#[test]
fn a_connection_with_a_request_under_way_is_not_shown_free() {
    let shared = shared(open(), echo());
    shared.control.gate.set(0);
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    let (own, mut peer) = pair();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::new(&shared, &phase, 0);
            client.socket = Some(OwnedFd::from(own));
            client.show_free(true);
            client.carry_requests();
        });
        peer.read_exact(&mut [0; 64]).expect("a request");
        let shown = shared.control.gauges[0].free.load(Ordering::Relaxed);
        phase.store(worker_group::Phase::Stop as u8, Ordering::Release);
        assert_eq!(shown, 0);
    });
}

#[test]
fn a_connection_that_is_lost_is_not_shown_free() {
    let shared = shared(Config { stop_condition: StopCondition::Each(1), ..open() }, echo());
    let phase = AtomicU8::new(worker_group::Phase::Run as u8);
    let mut client = Client::new(&shared, &phase, 0);
    client.show_free(true);
    assert!(!client.lose(Cause::Closed), "it is given up");
    assert_eq!(shared.control.gauges[0].free.load(Ordering::Relaxed), 0);
}

#[test]
fn the_connection_of_a_count_is_opened_though_another_has_sent_the_last_request() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let targets = vec![listener.local_addr().expect("it is bound")];
    let pace = Pace::Closed { think: Think::None, phase: Start::Spread };
    let shared = shared(Config { targets, stop_condition: StopCondition::Requests(1), ..config(pace) }, echo());
    let control = &shared.control;
    for moment in [&control.starts, &control.gate, &control.opens] {
        moment.set(0);
    }
    control.end_requests(1, 1);
    let books = Client::new(&shared, &AtomicU8::new(worker_group::Phase::Run as u8), 1)
        .live()
        .books
        .expect("it came to its end");
    assert_eq!((books.connections.established, books.connections.failed), (1, 0));
    assert_eq!((books.ended_at, books.connections.unavailable_ns, books.window.requests.scheduled), (1, 1, 0));
}

/// A protocol whose answers are whole once so many bytes have come.
struct Bytes(usize);

impl Protocol for Bytes {
    /// Bytes that came with the handshake.
    type Session = usize;
    /// Bytes of the answer so far.
    type Exchange = usize;

    const TELLS_TRANSMISSION: bool = false;

    fn begin(&self, _session: &mut usize, _context: RequestContext, _written: usize) -> usize {
        0
    }

    fn output<'a>(&'a self, _session: &'a usize, _exchange: &'a usize, written: usize) -> &'a [u8] {
        &b"request"[written..]
    }

    fn input(&self, session: &mut usize, exchange: &mut usize, bytes: &[u8]) -> Reply {
        *exchange += std::mem::take(session) + bytes.len();
        if *exchange < self.0 {
            return Reply::Partial;
        }
        Reply::Complete { payload: *exchange as u64, after: After::Usable, status: 0 }
    }

    fn holds_input(&self, session: &usize) -> bool {
        *session > 0
    }

    fn end(&self, _session: &mut usize, _exchange: &mut usize) -> Reply {
        Reply::Failed(Cause::Closed)
    }
}

#[test]
fn an_answer_counts_where_the_server_has_gone_before_the_request_is_written_however_it_came() {
    let pace = Pace::Closed { think: Think::None, phase: Start::Spread };
    // With the end of the handshake, and after it.
    for (handshake, after) in [(100, 0), (0, 100), (60, 40), (0, 100_000), (100_000, 60_000)] {
        let shared = shared(config(pace), Bytes(handshake + after));
        let (own, mut peer) = pair();
        peer.write_all(&vec![0; after]).expect("there is room");
        drop(peer);
        let phase = AtomicU8::new(worker_group::Phase::Run as u8);
        let mut client = Client::new(&shared, &phase, 0);
        client.socket = Some(own.into());
        client.session = handshake;
        let end = client.exchange(client.now());
        let payload = if let End::Complete { answer, .. } = end { Some(answer.payload) } else { None };
        assert_eq!(payload, Some((handshake + after) as u64), "{handshake} and {after}");
    }
}
