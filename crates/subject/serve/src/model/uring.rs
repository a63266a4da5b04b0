//! io_uring(7), Linux 5.1 (2019): the program submits requests to do something, instead of asking
//! which sockets are ready, and gets their completions, many with one call.
//!
//! The rule: the buffer or socket of a request is the kernel's until the request completes,
//! whatever happens to the connection meanwhile. A connection is closed only when its last request
//! has completed, so its slot is not reused while a completion is still to come.
//!
//! The classic mistakes are to lose a buffer (every path gives it back), a completion (each is
//! matched, errors too), or the re-arm of a request that ended without the flag `more`; and to let
//! a peer that does not read keep the buffers that all connections need. Here a send from the pool
//! never waits: bytes without room move to the connection's own memory, and its receive is
//! cancelled until they are sent. Another is to assume that it is always faster: it saves calls,
//! and does more behind each.

mod arriving;
mod connection;
mod expiring;
mod leaving;
mod receiving;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use plimsoll_reactor::sparse_vec::SparseVec;
use plimsoll_reactor::timer::Wheel;
use plimsoll_reactor::worker_group::{LoopHandle, Phase};
use plimsoll_sys::descriptor;
use plimsoll_sys::ring::{Completion, Ring, Sizes, Slot};

use connection::{Connection, Lifecycle, Receive};

use crate::accept::ConnectionSource;
use crate::accept::intake::Intake;
use crate::driver::conversation::ConversationState;
use crate::driver::environment::Workspace;
use crate::driver::unsent;
use crate::service::Service;
use crate::state::ServerState;
use crate::totals::Totals;

/// A connection whose unsent bytes reach this is not received from until they are sent.
const UNSENT_BYTES: usize = 64 * 1024;
/// Bytes of a body in one send, where it is no file or sendfile(2) is not available.
const PIECE_BYTES: usize = 128 * 1024;
/// Buffers kept for what is sent next, so that an answer allocates nothing.
const SPARES: usize = 64;

/// The sizes of a table's ring. A buffer takes a message of 4,000 bytes in one piece, and is back
/// with the same turn of the loop, so there need to be as many as connections have bytes in flight
/// at one moment. A worker's further tables have mostly idle connections, whose memory counts more:
/// there buffers weigh 26 bytes a slot.
pub(crate) fn sizes(table: usize) -> Sizes {
    // A table of direct descriptors may have as many as an ordinary one (io_uring/rsrc.c,
    // io_sqe_files_register).
    let slots = u32::try_from(descriptor::limit()).unwrap_or(u32::MAX).min(1 << 15);
    let buffers = if table == 0 { 512 } else { 128 };
    Sizes { submissions: 256, completions: 2048, slots, buffers, buffer_bytes: 4096, accepts: 32 }
}

/// Serves connections from `source` until the group stops.
pub(crate) fn run<P: Service>(
    handle: &LoopHandle,
    source: ConnectionSource<'_>,
    prototype: &P,
    state: &ServerState,
    sizes: Sizes,
) -> io::Result<Totals> {
    // Each listener needs a waiting accept of its own.
    let accepts = sizes.accepts.max(u16::try_from(source.descriptors().len()).unwrap_or(u16::MAX));
    let ring = handle.set_up(|| {
        let mut ring = Ring::new(Sizes { accepts, ..sizes })?;
        ring.watch(handle.wake().as_fd())?;
        Ok(ring)
    })?;
    let mut table = EventLoop {
        handle,
        intake: Intake::new(handle, source, state),
        watched: vec![false; source.descriptors().len()],
        armed: vec![0; source.descriptors().len()],
        prototype,
        state,
        ring,
        connections: SparseVec::default(),
        open: 0,
        capacity: sizes.slots as usize,
        accepts: usize::from(accepts),
        workspace: Workspace::new(state.root(), prototype.is_timed()),
        wheel: Wheel::new(Instant::now()),
        free_buffers: Vec::new(),
        awaiting_buffer: VecDeque::new(),
        accepting: false,
        draining: false,
        watches_wake: true,
        installs: true,
        totals: Totals::default(),
    };
    let outcome = table.serve();
    if outcome.is_err() {
        let _ = table.stop();
    }
    outcome?;
    table.finish()
}

struct EventLoop<'a, P> {
    handle: &'a LoopHandle,
    intake: Intake<'a>,
    /// By listener: it is watched.
    watched: Vec<bool>,
    /// By listener: how many accepts wait there.
    armed: Vec<usize>,
    prototype: &'a P,
    state: &'a ServerState,
    ring: Ring,
    /// By slot.
    connections: SparseVec<Connection<P>>,
    /// Slots taken, from the accept until the close has completed.
    open: usize,
    capacity: usize,
    /// Accepts that wait at once, over all listeners.
    accepts: usize,
    workspace: Workspace,
    wheel: Wheel,
    /// Empty buffers.
    free_buffers: Vec<Vec<u8>>,
    /// Connections whose receive ended for want of a buffer, in this order.
    awaiting_buffer: VecDeque<Slot>,
    /// Accepts are kept waiting.
    accepting: bool,
    draining: bool,
    /// The ring watches the wake-up.
    watches_wake: bool,
    /// The kernel may be able to give a socket of the ring a descriptor of the thread's table.
    installs: bool,
    totals: Totals,
}

impl<P: Service> EventLoop<'_, P> {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.update_listening()?;
            if !self.handle.is_alone() {
                // Submitted requests are done in this call, so it holds the run lock; waiting does
                // not.
                let _run_lock = self.handle.run_lock();
                self.ring.submit()?;
            }
            let timeout = self.timeout();
            self.ring.wait(timeout)?;
            let _run_lock = self.handle.run_lock();
            self.workspace.environment.look();
            while let Some(completion) = self.ring.next_completion() {
                self.take(completion)?;
            }
            if !self.wheel.is_empty() {
                let now = self.workspace.environment.now();
                while let Some(slot) = self.wheel.next_due(now) {
                    self.expire(slot as usize)?;
                }
            }
            self.workspace.environment.end_turn();
            self.rearm_receives()?;
            if self.intake.resumes() {
                self.report_room();
            }
            if self.draining && self.open == 0 && self.ring.accepts_waiting() + self.ring.adoptions_waiting() == 0 {
                return Ok(());
            }
            if self.handle.phase() == Phase::Stop {
                return self.stop();
            }
        }
    }

    /// Ends every connection at once. One whose output is not all in the kernel is reset.
    fn stop(&mut self) -> io::Result<()> {
        // Each has taken its place before.
        for _ in 0..self.ring.adoptions_waiting() {
            self.state.release();
            self.intake.source().left();
        }
        let EventLoop { ring, connections, .. } = self;
        let resets = connections.values().filter(|connection| connection.is_cut_short());
        let reset = resets.map(|connection| connection.slot).try_for_each(|slot| ring.reset(slot));
        // Of what a send that waits was to take the kernel may have taken a part.
        let ended = ring.end_all(|slot, sent| {
            if let Some(connection) = connections.get_mut(slot.index()) {
                connection.conversation.counts.bytes_sent += sent as u64;
            }
        });
        for connection in self.connections.drain() {
            connection.limit.cancel(&mut self.wheel);
            self.state.closed(connection.peer, &connection.conversation.counts, &mut self.totals);
            self.intake.source().left();
        }
        self.open = 0;
        reset.and(ended)?;
        self.watched.fill(false);
        self.watches_wake = false;
        Ok(())
    }

    /// Counts what was not given back. What waits for a wake-up or a connection is no leak: it
    /// goes with the ring.
    fn finish(mut self) -> io::Result<Totals> {
        let standing = usize::from(self.watches_wake) + self.watched.iter().filter(|watched| **watched).count();
        let leaked = &mut self.totals.leaked;
        leaked.slots += (self.open + self.connections.values().count()) as u64;
        leaked.timers += self.wheel.len() as u64;
        leaked.buffers += (self.ring.buffers() - self.ring.free_buffers()) as u64;
        leaked.requests += self.ring.outstanding().abs_diff(standing) as u64;
        Ok(self.totals)
    }

    /// How long to wait for something to happen.
    fn timeout(&self) -> Option<Duration> {
        let paused = self.intake.wait();
        if self.wheel.is_empty() {
            return paused;
        }
        paused.into_iter().chain(self.wheel.wait(Instant::now())).min()
    }

    fn take(&mut self, completion: Completion) -> io::Result<()> {
        match completion {
            Completion::Woken { more } => {
                self.handle.wake().lower();
                self.intake.on_wake();
                if !more {
                    self.ring.watch(self.handle.wake().as_fd())?;
                }
                if self.handle.phase() == Phase::Drain && !self.draining {
                    self.drain()?;
                }
                Ok(())
            }
            Completion::Ready(listener) => self.on_acceptable(listener),
            Completion::Accepted { listener, outcome } => {
                self.armed[listener as usize] -= 1;
                self.arrived(outcome)
            }
            Completion::Adopted(outcome) => self.arrived(outcome),
            Completion::Installed { slot, outcome } => self.installed(slot, outcome),
            Completion::Room(slot) => self.has_room_to_send(slot),
            Completion::Unacknowledged { slot, outcome } => self.look(slot, outcome),
            // A server makes no connects.
            Completion::Connected { .. } => Ok(()),
            Completion::Received { slot, outcome, more } => self.received(slot, outcome, more),
            Completion::Sent { slot, outcome, payload } => self.sent(slot, outcome, payload),
            Completion::Closed(_) => {
                self.open -= 1;
                self.report_room();
                self.intake.connection_ended();
                Ok(())
            }
        }
    }

    /// Starts or ends whatever the connection's state asks for, now that something of it has
    /// changed.
    fn drive(&mut self, slot: Slot) -> io::Result<()> {
        loop {
            if self.connections.get_mut(slot.index()).expect(OUTSTANDING).has_more_to_say() {
                self.converse(slot, None)?;
            }
            self.send_next(slot)?;
            let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
            if !connection.has_more_to_say() {
                break;
            }
            // A file was sent at once, so no completion comes back here. If the client has sent
            // more requests, other connections are served first.
            if connection.conversation.held() > 0 {
                connection.sending = true;
                self.ring.await_room(slot)?;
                break;
            }
        }
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if !connection.sending && connection.life == Lifecycle::Open {
            if self.draining && connection.conversation.state == ConversationState::Closing {
                connection.conversation.close_in_stages();
            }
            if connection.conversation.state == ConversationState::Lingering {
                connection.conversation.discard(self.workspace.environment.now(), self.draining);
                self.ring.end_writing(slot)?;
            }
        }
        if self.workspace.environment.timed() {
            let (key, now) = (slot.index() as u64, self.workspace.environment.now());
            // Bytes that came in time have moved it on.
            connection.is_overdue &= connection.conversation.is_overdue(now);
            if connection.sending {
                connection.limit.send_within(connection.conversation.send_timeout(), now, &mut self.wheel, key);
            } else {
                connection.limit.receive_until(connection.conversation.until, &mut self.wheel, key);
            }
        }
        let over = match connection.life {
            Lifecycle::Open => connection.conversation.state == ConversationState::Closing && !connection.sending,
            Lifecycle::Ended => !connection.sending,
            Lifecycle::Failed => true,
        };
        // The close of a socket that has bytes is a reset: it is looked at first.
        let looks = over && connection.life == Lifecycle::Open && connection.needs_look();
        let unwanted = over && connection.life != Lifecycle::Ended || connection.conversation.held() >= UNSENT_BYTES;
        match connection.receive {
            Receive::Armed if unwanted => {
                connection.receive = Receive::Ending;
                self.ring.cancel_receive(slot)
            }
            Receive::Off if connection.life == Lifecycle::Open && !over && !connection.sending => {
                connection.receive = Receive::Armed;
                let at_once = self.draining || connection.is_overdue;
                if at_once && connection.conversation.state == ConversationState::Receiving {
                    self.ring.receive_arrived(slot)
                } else if connection.conversation.counts.bytes_received == 0 {
                    // A connection of one request closes after it, with no receive to end first.
                    self.ring.receive_once(slot)
                } else {
                    self.ring.receive(slot)
                }
            }
            Receive::Off if looks => {
                connection.receive = Receive::Armed;
                self.ring.receive_arrived(slot)
            }
            Receive::Off | Receive::AwaitingBuffer if over && !looks && !connection.sending && !connection.asking => {
                self.close(slot)
            }
            _ => Ok(()),
        }
    }

    /// Ends a connection after an error: no more bytes move. A reset ends the requests outstanding
    /// on its socket too.
    fn fail(&mut self, slot: Slot, error: &io::Error) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if connection.life == Lifecycle::Failed {
            return Ok(());
        }
        connection.life = Lifecycle::Failed;
        self.totals.count_io_error(error);
        if unsent::needs_reset(error) { self.ring.reset(slot) } else { Ok(()) }
    }

    fn close(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.remove(slot.index()).expect(OUTSTANDING);
        connection.limit.cancel(&mut self.wheel);
        self.state.closed(connection.peer, &connection.conversation.counts, &mut self.totals);
        self.intake.source().left();
        self.ring.close(slot)
    }

    /// Has each connection end when it has answered what has arrived, and its peer has the answers.
    fn drain(&mut self) -> io::Result<()> {
        self.take_what_was_handed()?;
        self.draining = true;
        self.workspace.environment.drain();
        for slot in self.connections.values().map(|connection| connection.slot).collect::<Vec<_>>() {
            let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
            connection.conversation.hasten(self.workspace.environment.now());
            // A receive that waits ends, and one that does not wait takes its place.
            if connection.receive == Receive::Armed && connection.conversation.state != ConversationState::Discarding {
                connection.receive = Receive::Ending;
                self.ring.cancel_receive(slot)?;
            }
            self.drive(slot)?;
        }
        Ok(())
    }
}

/// Why a completion always finds its connection.
const OUTSTANDING: &str = "a connection is there until its last request has completed";

#[cfg(test)]
mod tests;
