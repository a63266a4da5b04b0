//! One event loop over the connections of one descriptor table, whichever way its engine moves
//! bytes ([`sockets`]).
//!
//! An idle connection is a slot and nothing else: payloads are shared, received bytes are checked
//! where they lie in the engine's own buffers.
//!
//! Calls go one way: [`turn`](EventLoop::turn) drives [`pacing`] (when requests begin and end),
//! which drives [`opening`] (a connection's life), and both use [`exchange`] (bytes of one
//! request). What goes the other way waits in a queue for the same turn: `established`, `freed`.
//! Between two turns it waits for events or for the next instant ([`timing`]).

mod backlog;
mod boundary;
mod deferred_reads;
mod epoll;
mod exchange;
mod opening;
mod pacing;
mod pool;
mod sockets;
mod timing;
mod unhandled;
mod uring;

pub(crate) use epoll::Epoll;
pub(crate) use sockets::Sockets;
pub(crate) use uring::Uring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_reactor::timer::{Timer, Wheel};
use plimsoll_reactor::worker_group::{LoopHandle, Phase};
use plimsoll_sys::clock;
use plimsoll_sys::readiness::Ready;
use rand::rngs::StdRng;

use crate::backoff::{History, Rules};
use crate::ledger::{Ledger, Request};
use crate::protocol::Protocol;
use crate::record::{self, Recorder};
use crate::schedule::Due;
use crate::seed::{Purpose, stream};
use crate::shared::{Shared, ThreadResult, Usage, pin};
use backlog::Backlog;
use deferred_reads::{DeferredReads, WallClock, wall_time};
use sockets::{EVENT_BATCH, WAKE};
use unhandled::Unhandled;

/// Full reads on one connection before the others have their turn.
const READ_BUDGET: usize = 16;
/// Requests begun, and connections opened, between two waits: answers that have come meanwhile are
/// not kept waiting for longer than these take.
const BEGIN_BATCH: usize = 64;
const OPEN_BATCH: usize = 16;
/// Connections under way to being established, over all loops. A server's full backlog drops what
/// comes on top (listen(2)), and each that is dropped waits a second for the kernel to try again;
/// so no more are added than a usual backlog holds.
const PENDING: usize = 1024;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Without a socket, until it is opened (again).
    BackingOff,
    /// Its connect is under way.
    Connecting,
    /// Connected, and the protocol's handshake is under way.
    Handshaking,
    /// Nothing is due on it. Without a socket where each request opens one.
    Idle,
    /// Its next request is due at `intended`.
    Due,
    /// A request is under way on it.
    Busy,
    /// It has nothing more to do, and stays up until no other has, or until it may close.
    Finished,
}

struct Connection<P: Protocol, S: Sockets> {
    state: State,
    /// What it has gone through, for the back-off.
    history: History,
    /// A request is under way, and waits for the connect.
    request_pending: bool,
    /// Whether the request under way is counted ([`Request::counted`]).
    counted: bool,
    /// Whether it can be used, or opened for a request at once.
    available: bool,
    /// Its number among all connections.
    number: u32,
    socket: Option<S::Socket>,
    timer: Option<Timer>,
    /// When `timer` fires. It may be set for earlier than needed, and is then set again: a time-out
    /// that moves with every request costs nothing.
    timer_at: u64,
    /// The intended start of the request that is due or under way; the end of the back-off; since
    /// when it is idle.
    intended: u64,
    /// When the request under way was sent, the connect call was made, or the connection was
    /// established.
    sent: u64,
    /// Bytes of it that are written.
    written: usize,
    /// When the next request of a connection that was lost before it is due: losing an idle
    /// connection shortens no pause.
    resumes_at: Option<u64>,
    /// Requests begun on it.
    begun: u64,
    /// Requests still to be begun on it: those of `--each`, or one claimed of the run's `-n`.
    left: u64,
    session: P::Session,
    exchange: P::Exchange,
}

impl<P: Protocol, S: Sockets> Connection<P, S> {
    /// Whether a request of it is under way, sent or yet to be: its connect may have failed.
    fn has_request(&self) -> bool {
        self.state == State::Busy || self.request_pending
    }
}

/// What an idle connection takes in an event loop's memory.
pub(crate) fn slot_bytes<P: Protocol, S: Sockets>() -> u64 {
    size_of::<Connection<P, S>>() as u64
}

/// One event loop, with all state that no other loop reads.
struct EventLoop<P: Protocol, S: Sockets> {
    shared: Arc<Shared<P>>,
    number: usize,
    sockets: S,
    wheel: Wheel,
    slab: Slab<Connection<P, S>>,
    random: StdRng,
    rules: Rules,
    ledger: Ledger,
    /// Keys whose requests are due now, in order.
    due: VecDeque<Key>,
    /// Connections that became usable in this round, and connections that may go on without a
    /// socket.
    established: Vec<Key>,
    freed: Vec<Key>,
    /// Connections that are being opened, and wait for a place for their socket.
    placeless: VecDeque<Key>,
    /// Open loop: connections that wait for a request, the longest idle first; the request taken
    /// for the first of them.
    pool: VecDeque<Key>,
    reserved: Option<Due>,
    /// Open loop: every request there was to send is sent.
    exhausted: bool,
    /// Connections whose sockets may hold more than was read, and whether the end of the stream is
    /// part of it: no further event reports that.
    unread: Vec<(Key, bool)>,
    /// What was queued for the kernel since the last wait. For a request, also the instant from
    /// which it could have been sent. It is stamped when it is submitted.
    unsubmitted: Vec<(Key, Option<u64>)>,
    /// Since when the events under way may have been there.
    unhandled: Unhandled,
    /// When the last wait was entered.
    entered: u64,
    /// Up to when everything that came has been handled.
    backlog: Backlog,
    /// Where the kernel's times of arrivals lie in the run's.
    clock: WallClock,
    /// Whether answers may stay unread until the next request is due.
    deferred_reads: DeferredReads,
    /// When they last began to.
    slept_at: u64,
    /// Connections of this loop's share that have not been opened yet, counted from the front of
    /// the share.
    opened: usize,
    share: usize,
    pending: usize,
    /// Connects made to each target.
    connects: Vec<usize>,
    gate_passed: bool,
    /// Whether the window is being closed.
    closing: bool,
    /// Whether connections stay up after it, until they may close.
    holds: bool,
    usage_at_open: Option<Usage>,
    /// The thread's CPU time before the wait under way, where it polls.
    polls_since: Option<Duration>,
    result: ThreadResult,
}

/// Runs one event loop until the run is over.
pub(crate) fn run<P: Protocol, S: Sockets>(handle: LoopHandle, shared: Arc<Shared<P>>) -> io::Result<ThreadResult> {
    // Where it is refused, what it costs is counted as the generator's own lag.
    let _ = clock::sharpen_timers();
    pin(&shared.config, handle.worker())?;
    let number = handle.worker() * shared.tables_per_worker + handle.table();
    let sockets = S::new(shared.share(number), handle.wake().as_fd(), shared.config.pace.is_open())?;
    EventLoop::<P, S>::new(shared, handle.worker(), number, sockets).serve(&handle)
}

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    fn new(shared: Arc<Shared<P>>, worker: usize, number: usize, sockets: S) -> EventLoop<P, S> {
        let config = &shared.config;
        let (tables, share) = (shared.control.gauges.len(), shared.share(number));
        let numbers = (0..share).map(|place| (place * tables + number) as u32);
        let recorder = Recorder::new(&config.records, shared.control.unix(0), numbers);
        EventLoop {
            number,
            sockets,
            wheel: Wheel::new(shared.control.instant(0)),
            slab: Slab::default(),
            random: stream(config.seed, Purpose::Worker, config.part, number),
            rules: Rules::of(config),
            ledger: Ledger::new(config, P::TELLS_TRANSMISSION, share, recorder),
            due: VecDeque::new(),
            established: Vec::new(),
            freed: Vec::new(),
            placeless: VecDeque::new(),
            pool: VecDeque::new(),
            reserved: None,
            exhausted: false,
            unread: Vec::new(),
            unsubmitted: Vec::new(),
            unhandled: Unhandled::default(),
            entered: 0,
            backlog: Backlog::of(share),
            clock: WallClock::default(),
            deferred_reads: DeferredReads::default(),
            slept_at: 0,
            opened: 0,
            share,
            pending: 0,
            connects: vec![0; config.targets.len()],
            gate_passed: false,
            closing: false,
            holds: config.await_end,
            usage_at_open: None,
            polls_since: None,
            result: ThreadResult::new(worker),
            shared,
        }
    }

    fn serve(mut self, handle: &LoopHandle) -> io::Result<ThreadResult> {
        loop {
            let (timeout, sleep, full, entered) = {
                let _run_lock = handle.run_lock();
                let full = self.turn(handle);
                if self.holds && handle.phase() != Phase::Run {
                    self.let_go();
                }
                if self.is_finished() || handle.phase() == Phase::Stop {
                    return Ok(self.finish());
                }
                self.note_submitted();
                if !handle.is_alone() {
                    self.sockets.submit()?;
                }
                let now = self.now();
                let dispatch = self.next_dispatch(now);
                let (timeout, polls) = self.timeout(now, dispatch);
                self.polls_since = polls.then(clock::thread_cpu_time);
                let may_sleep = !full && dispatch.is_some();
                (timeout, timeout.filter(|time| may_sleep && self.may_sleep(*time)), full, now)
            };
            self.entered = entered;
            match sleep {
                Some(time) => {
                    self.slept_at = entered;
                    self.sockets.sleep(handle.wake().as_fd(), time)?;
                }
                None => self.sockets.wait(timeout)?,
            }
            let returned = self.now();
            match sleep {
                _ if self.sockets.was_interrupted() => self.unhandled.interrupted(entered),
                _ if full => self.unhandled.waited_with_more(returned),
                Some(_) => self.unhandled.slept(entered, returned),
                // What a ring does with the sends that it is given takes longer than many a sleep.
                None if S::DEFERS => self.unhandled.slept(returned, returned),
                None => self.unhandled.waited(entered, returned),
            }
            if self.shared.config.pace.is_open() {
                let control = &self.shared.control;
                self.clock.set(|| (control.now(), wall_time()));
            }
        }
    }

    /// Handles what one wait brought; whether that was as much as is taken at once.
    fn turn(&mut self, handle: &LoopHandle) -> bool {
        self.ledger.wrote(self.sockets.take_sent());
        let now = self.now();
        self.pass_openings(now);
        if self.shared.control.has_no_window() {
            self.close_window_by(now);
        }
        if self.is_closed() || !self.shared.control.closes.has_come(now) {
            self.ledger.record(now);
        }
        let mut events = 0;
        while events < EVENT_BATCH {
            let Some(event) = self.sockets.report() else { break };
            events += 1;
            if event.key == WAKE {
                handle.wake().lower();
            } else {
                self.handle(Key::from_raw(event.key), event);
            }
        }
        if let Some(since) = self.polls_since.take()
            && events == 0
            && self.ledger.phase() == record::Phase::Window
        {
            self.result.polled += clock::thread_cpu_time().saturating_sub(since);
        }
        for (key, ended) in std::mem::take(&mut self.unread) {
            self.receive(key, ended);
        }
        let full = events == EVENT_BATCH;
        self.backlog.pass_turn(self.entered, self.sockets.may_have_left());
        let now = self.shared.control.instant(self.now());
        while let Some(key) = self.wheel.next_due(now) {
            self.fire(Key::from_raw(key));
        }
        // After the events: some of them happened before the window closed.
        self.close_window_by(self.now());
        for _ in 0..BEGIN_BATCH {
            let Some(key) = self.due.pop_front() else { break };
            self.begin_due(key);
        }
        self.connect_placeless();
        self.open_connections();
        self.take_up();
        self.dispatch(BEGIN_BATCH);
        self.tell_ended();
        let gauge = &self.shared.control.gauges[self.number];
        gauge.show(self.ledger.shown());
        gauge.free.store(self.pool.len() as u64, Ordering::Relaxed);
        full
    }

    /// Tells the others of requests of the run's count that have ended, once it is known how much
    /// of them was sent: the window closes with the last of all.
    fn tell_ended(&mut self) {
        if !self.sockets.has_sent_all() {
            return;
        }
        if let Some((count, last)) = self.ledger.take_ended() {
            self.shared.control.end_requests(count, last);
        }
    }

    fn handle(&mut self, key: Key, event: Ready) {
        let Some(connection) = self.slab.get(key) else { return };
        if connection.state == State::Connecting {
            if !(event.writable || event.ended) {
                return;
            }
            self.connected(key);
            self.take_up();
            // No further edge reports bytes, or the end of the stream, that came before the connect
            // was handled. They are read once the first request is begun, if one is due.
            if event.readable {
                self.begin_at_once(key);
                self.unread.push((key, event.ended));
            }
            return;
        }
        if event.writable
            && matches!(connection.state, State::Busy | State::Handshaking)
            && let Err(cause) = self.write(key)
        {
            return self.lose_unless_answered(key, cause);
        }
        if event.readable {
            self.receive(key, event.ended);
        }
    }

    /// A request or a connect of this connection goes to the kernel. `possible` is when the request
    /// could have been sent.
    fn stamp(&mut self, key: Key, possible: Option<u64>) {
        if S::DEFERS {
            self.unsubmitted.push((key, possible));
        } else if let Some(possible) = possible {
            let now = self.slab.get(key).map_or(possible, |connection| connection.sent);
            self.ledger.sent(possible, now);
        }
    }

    /// What was queued is about to be submitted: that is when it is sent. A request that is due at
    /// no instant of its own is not due before: what this loop did since is no part of its time.
    fn note_submitted(&mut self) {
        if self.unsubmitted.is_empty() {
            return;
        }
        let now = self.now();
        let has_schedule = self.shared.config.pace.has_schedule();
        for (key, possible) in self.unsubmitted.drain(..) {
            let Some(connection) = self.slab.get_mut(key) else { continue };
            if matches!(connection.state, State::Busy | State::Connecting) {
                connection.sent = now;
                if possible.is_some() && !has_schedule {
                    connection.intended = now;
                }
            }
            if let Some(possible) = possible {
                self.ledger.sent(possible, now);
            }
        }
    }

    /// The request under way on a connection, for the ledger.
    fn request(&self, connection: &Connection<P, S>) -> Request {
        Request {
            place: self.place(connection.number),
            intended: connection.intended,
            sent: connection.sent,
            counted: connection.counted,
            last: connection.left == 0,
        }
    }

    /// A connection's place in this loop's share.
    fn place(&self, number: u32) -> usize {
        number as usize / self.shared.control.gauges.len()
    }

    fn is_finished(&self) -> bool {
        // A window of a set length is measured to its end, also over connections that were given
        // up; where not one was ever up nothing more can happen.
        let may_end = self.shared.config.stop_condition.is_count() || self.shared.control.peak() == 0;
        let is_idle = self.slab.is_empty() && self.sockets.has_sent_all();
        is_idle && (self.opens_no_more() || self.opened == self.share && may_end)
    }

    fn is_closed(&self) -> bool {
        self.ledger.phase() == record::Phase::Drain
    }

    /// Whether connections are neither opened nor opened again any more.
    fn opens_no_more(&self) -> bool {
        self.is_closed() && !self.shared.opens_after_window()
    }

    fn now(&self) -> u64 {
        self.shared.control.now()
    }

    fn timeout_ns(&self) -> u64 {
        self.shared.config.timeout.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests;
