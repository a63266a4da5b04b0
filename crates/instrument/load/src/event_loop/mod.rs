//! One event loop over the connections of one descriptor table, whichever way its engine moves bytes ([`sockets`]).
//!
//! An idle connection is a slot and nothing else: payloads are shared, received bytes are checked where they lie in the engine's own buffers.

mod boundary;
mod epoll;
mod exchange;
mod open_loop;
mod opening;
mod sockets;
mod uring;

pub(crate) use epoll::Epoll;
pub(crate) use opening::{ATTEMPTS, FIRST_ATTEMPTS, rest_ns};
pub(crate) use sockets::Sockets;
pub(crate) use uring::Uring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_measure::tally::{Cause, Tally};
use plimsoll_reactor::crew::{Phase, Seat};
use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_reactor::timer::{Timer, Wheel};
use plimsoll_sys::clock;
use plimsoll_sys::readiness::Ready;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::config::Extent;
use crate::protocol::Protocol;
use crate::record::{Recorder, Sequence};
use crate::shared::{Counted, ETIMEDOUT, Shared, Usage, pin};
use crate::stream::Stream;
use sockets::WAKE;

/// Full reads on one connection before the others have their turn.
const READ_BUDGET: usize = 16;
/// Requests begun, and connections opened, between two waits: answers that have come meanwhile are not kept waiting for longer than these take.
const BEGIN_BATCH: usize = 64;
const OPEN_BATCH: usize = 16;
/// Connections under way to being established, over all loops. A server's full backlog drops what comes on top (listen(2)), and each that is dropped waits a second
/// for the kernel to try again; so no more are added than a usual backlog holds.
const PENDING: usize = 1024;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Without a socket, until it is opened (again).
    Resting,
    /// Its connect is under way.
    Connecting,
    /// Connected, and the protocol's greeting is under way.
    Greeting,
    /// Nothing is due on it. Without a socket where each request opens one.
    Idle,
    /// Its next request is due at `intended`.
    Due,
    /// A request is under way on it.
    Busy,
    /// It has nothing more to do, and stays up until no other has.
    Finished,
}

struct Connection<P: Protocol, S: Sockets> {
    state: State,
    /// Whether it was ever up.
    proven: bool,
    /// A request is under way, and waits for the connect.
    carries: bool,
    /// Attempts since it last completed a request.
    attempts: u16,
    socket: Option<S::Socket>,
    /// Its number among all connections.
    number: u32,
    timer: Option<Timer>,
    /// When `timer` fires. It may be set for earlier than needed, and is then set again: a time-out that moves with every request costs nothing.
    timer_at: u64,
    /// The intended start of the request that is due or under way; the end of the rest; since when it is idle.
    intended: u64,
    /// When the request under way was sent, or the connect call was made.
    sent: u64,
    /// Bytes of it that are written.
    written: usize,
    /// Requests still to be begun on it (`--each`).
    left: u64,
    session: P::Session,
    exchange: P::Exchange,
}

/// What an idle connection takes in an event loop's memory.
pub(crate) fn slot_bytes<P: Protocol, S: Sockets>() -> u64 {
    size_of::<Connection<P, S>>() as u64
}

/// One event loop and everything it alone knows.
struct Table<P: Protocol, S: Sockets> {
    shared: Arc<Shared<P>>,
    number: usize,
    sockets: S,
    wheel: Wheel,
    slab: Slab<Connection<P, S>>,
    random: StdRng,
    /// Keys whose requests are due now, in order.
    due: VecDeque<Key>,
    /// Open loop: when requests are due, and the connections that wait for one, the longest idle first.
    stream: Option<Stream>,
    pool: VecDeque<Key>,
    /// Connections whose sockets may hold more than was read.
    unread: Vec<Key>,
    /// Connections of this table's share that have not been opened yet, counted from the front of the share.
    opened: usize,
    share: usize,
    pending: usize,
    busy: u64,
    /// Connects made.
    connects: usize,
    /// Requests claimed from the run's budget and not begun.
    claims: u64,
    sequence: u64,
    gate_passed: bool,
    window_open: bool,
    window_closed: bool,
    tally: Tally,
    counted: Counted,
    usage_at_open: Usage,
    recorder: Recorder,
    /// Completed and failed in the whole run, to show.
    shown: (u64, u64),
}

/// Runs one event loop until the run is over.
pub(crate) fn run<P: Protocol, S: Sockets>(seat: Seat, shared: Arc<Shared<P>>) -> io::Result<Counted> {
    clock::sharpen_timers();
    pin(&shared.config, seat.worker())?;
    let number = seat.worker() * shared.tables_per_worker + seat.table();
    let tables = shared.control.gauges.len();
    // Connections are dealt to tables in turn, so that each has its share of every target.
    let share = (shared.config.connections + tables - 1 - number) / tables;
    let table = Table::<P, S> {
        number,
        sockets: S::new(share, seat.wake().as_fd())?,
        wheel: Wheel::new(shared.control.instant(0)),
        slab: Slab::default(),
        random: StdRng::seed_from_u64(shared.config.seed.wrapping_add(number as u64)),
        due: VecDeque::new(),
        stream: None,
        pool: VecDeque::new(),
        unread: Vec::new(),
        opened: 0,
        share,
        pending: 0,
        busy: 0,
        connects: 0,
        claims: 0,
        sequence: 0,
        gate_passed: false,
        window_open: false,
        window_closed: false,
        tally: Tally::default(),
        counted: Counted::new(seat.worker()),
        usage_at_open: Usage::default(),
        recorder: Recorder::new(&shared.config.records, (0..share).map(|place| (place * tables + number) as u32)),
        shown: (0, 0),
        shared,
    };
    table.serve(&seat)
}

impl<P: Protocol, S: Sockets> Table<P, S> {
    fn serve(mut self, seat: &Seat) -> io::Result<Counted> {
        let mut fired: Vec<u64> = Vec::new();
        loop {
            let timeout = {
                let _baton = seat.baton();
                self.turn(seat, &mut fired);
                if self.is_finished() || seat.phase() == Phase::Stop {
                    self.finish();
                    return Ok(self.counted);
                }
                if !seat.is_alone() {
                    self.sockets.submit()?;
                }
                self.timeout(self.now())
            };
            self.sockets.wait(timeout)?;
        }
    }

    /// Handles what one wait brought.
    fn turn(&mut self, seat: &Seat, fired: &mut Vec<u64>) {
        let now = self.now();
        self.cross_boundaries(now);
        self.recorder.pass(now);
        while let Some(event) = self.sockets.report() {
            if event.key == WAKE {
                seat.wake().lower();
            } else {
                self.handle(Key::from_raw(event.key), event);
            }
        }
        for key in std::mem::take(&mut self.unread) {
            self.read(key, false);
        }
        self.wheel.expire(self.shared.control.instant(self.now()), fired);
        for key in fired.drain(..) {
            self.fire(Key::from_raw(key));
        }
        for _ in 0..BEGIN_BATCH {
            let Some(key) = self.due.pop_front() else { break };
            self.begin_due(key);
        }
        self.dispatch(BEGIN_BATCH);
        self.open_connections();
        self.shared.control.gauges[self.number].show(self.shown.0, self.shown.1);
    }

    fn handle(&mut self, key: Key, event: Ready) {
        let Some(connection) = self.slab.get(key) else { return };
        if connection.state == State::Connecting {
            if event.writable || event.ended {
                self.connected(key);
            }
            // Its first request is on its way already, if any was due; an answer will be an edge of its own.
            return;
        }
        if event.writable && matches!(connection.state, State::Busy | State::Greeting) {
            self.write(key);
        }
        if event.readable {
            self.read(key, event.ended);
        }
    }

    /// A connection's timer has fired; it may be early, as a deadline that moves away does not move its timer.
    fn fire(&mut self, key: Key) {
        let now = self.now();
        let timeout = self.timeout_ns();
        let Some(connection) = self.slab.get_mut(key) else { return };
        connection.timer = None;
        let deadline = match connection.state {
            State::Idle | State::Finished => return,
            State::Resting | State::Due => connection.intended,
            State::Connecting | State::Greeting if !connection.carries => connection.sent.saturating_add(timeout),
            State::Connecting | State::Greeting | State::Busy => connection.intended.saturating_add(timeout),
        };
        if now < deadline {
            return self.set_timer(key, deadline);
        }
        match connection.state {
            State::Idle | State::Finished => {}
            State::Resting => self.return_to_service(key, now),
            State::Connecting | State::Greeting => self.attempt_failed(key, ETIMEDOUT),
            State::Due => self.due.push_back(key),
            State::Busy => self.lose(key, Cause::Timeout),
        }
    }

    /// Makes sure that the connection's timer fires at `deadline` or before.
    fn set_timer(&mut self, key: Key, deadline: u64) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        if let Some(timer) = connection.timer {
            if connection.timer_at <= deadline {
                return;
            }
            self.wheel.cancel(timer);
        }
        connection.timer = Some(self.wheel.set(self.shared.control.instant(deadline), key.to_raw()));
        connection.timer_at = deadline;
    }

    /// How long to wait for events: not at all while something is left to do here.
    fn timeout(&self, now: u64) -> Option<Duration> {
        if !self.due.is_empty() || !self.unread.is_empty() || self.may_open(now) {
            return Some(Duration::ZERO);
        }
        let control = &self.shared.control;
        let until = |at: u64| Duration::from_nanos(at.saturating_sub(now));
        let close = if self.window_closed { None } else { control.closes.get().map(until) };
        let opening = self.next_opening().map(until);
        let gate = if self.gate_passed { None } else { control.gate.get().map(until) };
        let window = if self.window_open { None } else { control.opens.get().map(until) };
        let timer = self.wheel.wait(control.instant(now));
        let arrival = self.next_dispatch().map(until);
        let second = self.recorder.next_second().map(until);
        [close, opening, gate, window, timer, arrival, second].into_iter().flatten().min()
    }

    fn is_finished(&self) -> bool {
        // Also before a window of a set length ends: where every connection was given up nothing more can happen.
        self.slab.is_empty() && (self.opened == self.share || self.window_closed)
    }

    fn now(&self) -> u64 {
        self.shared.control.now()
    }

    fn timeout_ns(&self) -> u64 {
        self.shared.config.timeout.as_nanos() as u64
    }

    /// What is recorded of a connection, where that was asked for.
    fn sequence(&mut self, number: u32) -> Option<&mut Sequence> {
        // Connections are dealt to tables in turn.
        let tables = self.shared.control.gauges.len();
        self.recorder.sequences.get_mut(number as usize / tables)
    }

    /// Requests that each connection is to carry; 0 where the run is not counted that way.
    fn each(&self) -> u64 {
        match self.shared.config.extent {
            Extent::Each(requests) => requests,
            Extent::Lasts(_) | Extent::Requests(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_connections_have_slots_well_under_200_bytes() {
        assert!(slot_bytes::<crate::echo::Echo, Epoll>() <= 144, "{}", slot_bytes::<crate::echo::Echo, Epoll>());
        assert!(slot_bytes::<crate::http::Http, Epoll>() <= 192, "{}", slot_bytes::<crate::http::Http, Epoll>());
    }
}
