//! The event loop over one descriptor table: accept, connect, relay, and enforce time limits.
//!
//! Edge-triggered: each socket is registered once, for everything, and readiness is remembered. So
//! a blocked direction costs no call, and an ended one does not spin. When the table is full, or
//! something is exhausted, accepting pauses, and connections stay in the listeners' queues.

mod accepting;
mod connecting;
mod pacing;
mod ready_list;
mod sending;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::{Pause, Turns};
use plimsoll_reactor::handoff::HandoffQueue;
use plimsoll_reactor::leaked::Leaked;
use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_reactor::timer::Wheel;
use plimsoll_reactor::worker_group::{LoopHandle, Phase};
use plimsoll_sys::batch::Batch;
use plimsoll_sys::descriptor;
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::readiness::{Interest, Ready};

use self::pacing::Delayed;
use self::ready_list::ReadyList;
use crate::connection::{Action, Connection, ConnectionState, Context};
use crate::ending::Ending;
use crate::log::{LoopNumber, Record};
use crate::outbox::MESSAGES;
use crate::pool::Pool;
use crate::relay::Side;
use crate::route::Route;
use crate::shared::{Handed, ListenerNumber, Shared};
use crate::totals::Totals;

/// Reported in one wait.
const EVENT_BATCH: usize = 256;
/// Accepted in a row at one listener before connections are relayed again, so that a burst is
/// shared by the workers.
const ACCEPT_BATCH: usize = 16;
/// Descriptors of a table that are neither a listener nor a connection nor a pipe: the standard
/// three, epoll, mailbox, wake-ups, and a few to spare.
const OTHER_DESCRIPTORS: usize = 16;

const WAKE: u64 = Key::RESERVED;
const MAILBOX: u64 = Key::RESERVED + 1;
const HANDOFF: u64 = Key::RESERVED + 2;
const FIRST_LISTENER: u64 = Key::RESERVED + 3;
/// Set in the key of a server's socket; slots stay far below it.
const SERVER: u64 = 1 << 31;

/// Relays until the group stops.
pub(crate) fn run(handle: &LoopHandle, shared: &Shared) -> io::Result<Totals> {
    let descriptors_before = descriptor::count_open();
    let epoll = handle.set_up(|| {
        let mailbox = handle.mailbox().ok_or_else(|| io::Error::other("a table without a mailbox"))?;
        let epoll = Epoll::new(EVENT_BATCH)?;
        epoll.add(handle.wake(), WAKE, Interest::READ, Trigger::Level)?;
        epoll.add(mailbox, MAILBOX, Interest::READ, Trigger::Level)?;
        Ok(epoll)
    })?;
    // A sixteenth of the table for pipes: directions of which more are busy at once than that are
    // copied.
    let descriptors = descriptor::limit();
    let most_pipes = (descriptors / 32).min(512);
    let mut event_loop = EventLoop {
        handle,
        shared,
        epoll,
        listeners: HashMap::new(),
        handoff: None,
        queue: shared.queues.as_ref().map(|queues| &queues[handle.worker()]),
        connections: Slab::default(),
        wheel: Wheel::new(Instant::now()),
        pool: Pool::new(shared.splices, most_pipes),
        batch: Batch::new(MESSAGES as u32),
        outcomes: Vec::with_capacity(MESSAGES),
        descriptors,
        most_pipes,
        ready_list: ReadyList::default(),
        delayed: Delayed::new(Instant::now()),
        resumed: Vec::new(),
        listening: false,
        full: false,
        lacks_listeners: false,
        pause: Pause::default(),
        waiting: Vec::new(),
        wait: Pause::default(),
        awaits_place: false,
        turns: Turns::default(),
        draining: false,
        now: Instant::now(),
        totals: Totals::default(),
    };
    event_loop.say_fault();
    if let Err(error) = event_loop.serve() {
        // Both sides of each connection are reset, and the log gets its row.
        let _run_lock = handle.run_lock();
        event_loop.cut_all();
        return Err(error);
    }
    Ok(event_loop.finish(descriptors_before))
}

/// A listener in this table, and the route of connections accepted there.
struct Listener {
    socket: OwnedFd,
    route: Arc<Route>,
}

struct EventLoop<'a> {
    handle: &'a LoopHandle,
    shared: &'a Shared,
    epoll: Epoll,
    listeners: HashMap<ListenerNumber, Listener>,
    /// Where connections are handed over, instead of listeners; and what comes with them.
    handoff: Option<OwnedFd>,
    queue: Option<&'a HandoffQueue<Handed>>,
    connections: Slab<Connection>,
    wheel: Wheel,
    pool: Pool,
    batch: Batch,
    /// Of the sends of a round.
    outcomes: Vec<io::Result<usize>>,
    /// What the table may hold.
    descriptors: usize,
    most_pipes: usize,
    ready_list: ReadyList,
    delayed: Delayed,
    /// Connections whose wait for their rule's bandwidth is over.
    resumed: Vec<Key>,
    listening: bool,
    full: bool,
    /// There was no room in the table for listeners that were sent.
    lacks_listeners: bool,
    /// Something has run out.
    pause: Pause,
    /// Listeners that wait, as their rule has its part of the connections or epoll has no room for
    /// them, and for how long.
    waiting: Vec<ListenerNumber>,
    wait: Pause,
    /// A rule found no place for a connection: the loop is woken when one is given back.
    awaits_place: bool,
    turns: Turns,
    draining: bool,
    now: Instant,
    totals: Totals,
}

impl EventLoop<'_> {
    fn serve(&mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(EVENT_BATCH);
        loop {
            let wait = self.epoll.wait_urgent(self.timeout())?;
            ready.extend(wait);
            let _run_lock = self.handle.run_lock();
            self.now = Instant::now();
            // Before the events: a turn that one of them puts off is not due yet.
            self.list_due();
            for (event, urgent) in ready.drain(..) {
                self.dispatch(event, urgent)?;
            }
            while let Some(key) = self.wheel.next_due(self.now) {
                self.timed(key);
            }
            self.list_resumed();
            // What events brought goes out before any bulk is moved.
            self.send();
            self.take_listed_turns();
            self.send();
            if self.pause.ends(self.now) && !self.full {
                self.handle.report_room();
            }
            if self.wait.ends(self.now) {
                self.end_waiting()?;
            }
            self.follow_turn()?;
            match self.handle.phase() {
                Phase::Run => {}
                Phase::Drain if !self.connections.is_empty() => {}
                Phase::Drain if !self.draining => {}
                Phase::Drain => return Ok(()),
                Phase::Stop => {
                    self.cut_all();
                    return Ok(());
                }
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready_list.is_empty() {
            return Some(Duration::ZERO);
        }
        // A quiet loop may have waited for long: its deadlines are reckoned from now.
        let delayed = self.delayed.until(0);
        let paused = self.pause.until().into_iter().chain(self.wait.until()).min();
        let quiet = self.wheel.is_empty() && paused.is_none() && delayed.is_none();
        let now = if quiet { self.now } else { Instant::now() };
        let paused = paused.map(|until| until.saturating_duration_since(now));
        let delayed = delayed.map(|until| until.saturating_duration_since(now));
        [self.wheel.wait(now), paused, delayed].into_iter().flatten().min()
    }

    fn dispatch(&mut self, event: Ready, urgent: bool) -> io::Result<()> {
        match event.key {
            WAKE => {
                self.handle.wake().lower();
                if std::mem::take(&mut self.awaits_place) {
                    // The loop accepts again when it has dealt with this batch.
                    self.pause.end_soon(self.now);
                    self.wait.end_soon(self.now);
                }
                self.follow_turn()?;
                if self.handle.phase() == Phase::Drain && !self.draining {
                    // A loop that has just begun may not have its listeners yet.
                    self.read_messages()?;
                    self.draining = true;
                    self.leave(&self.listeners.keys().copied().collect::<Vec<_>>())?;
                    self.close_handoff()?;
                    self.shared.swept.fetch_add(1, Ordering::AcqRel);
                    self.handle.request_attention();
                }
            }
            MAILBOX => self.read_messages()?,
            HANDOFF => self.take_handed(ACCEPT_BATCH)?,
            FIRST_LISTENER.. => self.accept((event.key - FIRST_LISTENER) as ListenerNumber, ACCEPT_BATCH)?,
            key => {
                let (side, key) = if key & SERVER == 0 { (Side::Client, key) } else { (Side::Server, key ^ SERVER) };
                self.on_event(Key::from_raw(key), side, event, urgent);
            }
        }
        Ok(())
    }

    /// A side of a connection is ready for something.
    fn on_event(&mut self, key: Key, side: Side, event: Ready, urgent: bool) {
        self.take_turn(key, |connection, context| connection.on_event(side, event, urgent, context));
    }

    /// Relays what there is for one connection.
    fn advance(&mut self, key: Key) {
        self.take_turn(key, Connection::advance);
    }

    /// Gives a connection a turn, and does what it asks for.
    fn take_turn(&mut self, key: Key, turn: impl FnOnce(&mut Connection, &mut Context<'_>) -> Action) {
        if self.pool.outbox.is_full() {
            self.send();
        }
        // A key of a connection that closed earlier in this batch finds nothing.
        let Some(connection) = self.connections.get_mut(key) else { return };
        let by = LoopNumber { worker: self.handle.worker(), table: self.handle.table() };
        let mut context = Context { key, pool: &mut self.pool, log: &self.shared.log, by, now: self.now };
        match turn(connection, &mut context) {
            Action::Closes(ending) => return self.close(key, ending),
            Action::Aborts(ending) => return self.cut(key, ending),
            Action::Fails(error) => return self.fail(key, &error),
            Action::ReadsHeader => return self.read_header(key),
            Action::Answered { ended } => return self.answered(key, ended),
            Action::Delay => return self.delay_turn(key),
            Action::Yields => self.list(key),
            Action::Resumes(wait) => {
                // The mark in its key distinguishes this timer from the other one.
                // The other direction may wait for longer, since before.
                connection.resumes.fire_by(self.now + wait, &mut self.wheel, key.to_raw() | SERVER);
            }
            Action::Waits if connection.paced || connection.is_spliced() => self.pace(key),
            Action::Waits => {}
        }
        self.follow_deadline(key);
    }

    /// Makes sure that a timer fires when the connection is due. A timer that fires earlier stays,
    /// and the connection is looked at then.
    fn follow_deadline(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.timer.fire_by(connection.deadline(self.now), &mut self.wheel, key.to_raw());
    }

    /// A timer has fired: the one of a connection's deadline, or the one of its bandwidth.
    fn timed(&mut self, raw: u64) {
        let key = Key::from_raw(raw & !SERVER);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if raw & SERVER != 0 {
            connection.resumes(self.now);
            return self.resumed.push(key);
        }
        connection.timer.fired();
        match &connection.state {
            ConnectionState::Header if connection.deadline(self.now) <= self.now => self.header_is_due(key),
            ConnectionState::Header => self.follow_deadline(key),
            ConnectionState::Connecting(_) => self.attempt_is_due(key),
            ConnectionState::Relaying => match connection.look(self.now) {
                Err(ending @ (Ending::Idle | Ending::HalfClose)) => self.end_silent(key, ending),
                Err(ending) => self.cut(key, ending),
                Ok(due) => connection.timer.fire_by(due, &mut self.wheel, key.to_raw()),
            },
            ConnectionState::Lingering { .. } => match connection.check_delivery(self.now) {
                Action::Closes(ending) => self.close(key, ending),
                _ => self.follow_deadline(key),
            },
        }
    }

    /// Ends a connection that has been silent for too long, unless bytes have come in time, or were
    /// taken, and a loop that is behind has not been told of it.
    fn end_silent(&mut self, key: Key, ending: Ending) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.finds_events() {
            return self.cut(key, ending);
        }
        self.advance(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let ConnectionState::Relaying = connection.state else { return };
        match connection.look(self.now) {
            Err(ending) => self.cut(key, ending),
            Ok(due) => connection.timer.fire_by(due, &mut self.wheel, key.to_raw()),
        }
    }

    /// Ends a connection that neither side has ended: both get a reset, as an end of the stream
    /// would say that all was sent.
    fn cut(&mut self, key: Key, ending: Ending) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.reset(Side::Client);
        connection.reset(Side::Server);
        self.close(key, ending);
    }

    /// Ends a connection for which a call failed through no doing of its sides, and says why.
    fn fail(&mut self, key: Key, error: &io::Error) {
        self.totals.count_error(error);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.error = Some(descriptor::error_name(error));
        let listen = connection.route.listen();
        self.shared.failures.report(&format!("{listen}: a connection is cut off: {error}"), self.now);
        self.cut(key, Ending::Limit);
    }

    fn close(&mut self, key: Key, ending: Ending) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        connection.timer.cancel(&mut self.wheel);
        connection.resumes.cancel(&mut self.wheel);
        let counts = &connection.route.counts;
        counts.open.fetch_sub(1, Ordering::Relaxed);
        if connection.is_admitted {
            counts.left();
        }
        counts.ended(ending);
        let row = connection.into_row(ending, &mut self.pool, self.now);
        self.totals.bytes_up += row.up.bytes;
        self.totals.bytes_down += row.down.bytes;
        self.totals.count_end(ending);
        self.shared.limit.closed();
        if let Some(queue) = self.queue {
            queue.left();
        }
        if self.shared.log.wants_connections() {
            self.shared.log.hand(Record::Connection(row));
        }
        // The loop accepts again when it has dealt with this batch.
        self.pause.end_soon(self.now);
        self.wait.end_soon(self.now);
        self.report_room_if_any();
    }

    /// Closes what the loop had, and counts what was not given back.
    fn finish(self, descriptors_before: usize) -> Totals {
        let EventLoop { mut totals, pool, connections, wheel, batch, epoll, listeners, handoff, .. } = self;
        (totals.pipes_shrunk, totals.pipes_missed) = (pool.pipes_shrunk, pool.pipes_missed);
        totals.leaked = Leaked {
            descriptors: 0,
            pipes: pool.pipes_out(),
            slots: connections.len() as u64,
            timers: wheel.len() as u64,
            buffers: pool.buffers_out(),
            requests: batch.in_flight() as u64,
        };
        // A slot that leaked hides no descriptor: only what nothing here owns any more is left open
        // below.
        drop((pool, connections, batch, epoll, listeners, handoff));
        totals.leaked.descriptors = descriptor::count_open().saturating_sub(descriptors_before) as u64;
        totals
    }

    fn cut_all(&mut self) {
        for key in self.connections.keys().collect::<Vec<_>>() {
            self.cut(key, Ending::Drained);
        }
    }
}

fn key_of(number: ListenerNumber) -> u64 {
    FIRST_LISTENER + u64::from(number)
}
