//! The loop that select, poll, epoll and epoll-et share: ask which sockets are ready, then read and
//! write until nothing moves.
//!
//! A connection is read only while none of its output waits. So a peer that does not read fills at
//! most one buffer here, and TCP's flow control stops it. When something is exhausted (descriptors,
//! memory), accepting pauses until a connection closes or a short time has passed; connections stay
//! in the listener's queue.
//!
//! The system call that finds the ready sockets is a [`Selector`]'s, one for each model.

mod connection;
mod selector;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::{Key, Slab};
use plimsoll_reactor::timer::Wheel;
use plimsoll_reactor::worker_group::{LoopHandle, Phase};
use plimsoll_sys::readiness::{Interest, Ready};
use plimsoll_sys::{descriptor, net, poll};

use super::conversation::{Conversation, ConversationState};
use super::environment::Workspace;
use super::limit::Limit;
use super::unsent::{Room, Unsent};
use crate::accept::ConnectionSource;
use crate::accept::intake::{Intake, Taken};
use crate::service::Service;
use crate::state::ServerState;
use crate::totals::{SEND_TIMEOUT, Totals};
use connection::{Connection, Outcome};
pub(crate) use selector::{NotAdded, Selector};

/// Every connection of a loop reads into the same buffer: 64 KiB takes what a default receive
/// window usually holds in one call.
const INPUT_BYTES: usize = 64 * 1024;
/// Accepted in a row before connections are served again.
const ACCEPT_BATCH: usize = 64;
/// Reads in a row on one connection before the others are served, where the selector does not
/// report the same readiness again.
const READ_BATCH: usize = 4;

const WAKE: u64 = Key::RESERVED;
const FIRST_LISTENER: u64 = Key::RESERVED + 1;

/// Serves connections from `source` until the group stops.
pub(crate) fn run<S: Selector, P: Service>(
    handle: &LoopHandle,
    source: ConnectionSource<'_>,
    prototype: &P,
    state: &ServerState,
) -> io::Result<Totals> {
    let selector = handle.set_up(|| {
        let mut selector = S::new()?;
        selector.add(handle.wake().as_fd(), WAKE, Interest::READ)?;
        Ok(selector)
    })?;
    let mut table = EventLoop::<S, P> {
        handle,
        intake: Intake::new(handle, source, state),
        prototype,
        state,
        selector,
        connections: Slab::default(),
        input: vec![0; INPUT_BYTES].into_boxed_slice(),
        workspace: Workspace::new(state.root(), prototype.is_timed()),
        wheel: Wheel::new(Instant::now()),
        ready_list: Vec::new(),
        listening: false,
        draining: false,
        totals: Totals::default(),
    };
    let outcome = table.serve();
    if outcome.is_err() {
        table.close_all();
    }
    outcome?;
    let EventLoop { mut totals, connections, wheel, .. } = table;
    totals.leaked.slots += connections.len() as u64;
    totals.leaked.timers += wheel.len() as u64;
    Ok(totals)
}

struct EventLoop<'a, S, P> {
    handle: &'a LoopHandle,
    intake: Intake<'a>,
    prototype: &'a P,
    state: &'a ServerState,
    selector: S,
    connections: Slab<Connection<P>>,
    input: Box<[u8]>,
    workspace: Workspace,
    wheel: Wheel,
    /// Keys with more to do that the selector will not report again.
    ready_list: Vec<u64>,
    listening: bool,
    draining: bool,
    totals: Totals,
}

impl<S: Selector, P: Service> EventLoop<'_, S, P> {
    fn serve(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        self.update_listening()?;
        loop {
            let timeout = self.timeout();
            if let Err(error) = self.selector.wait(timeout, &mut ready) {
                self.totals.count_io_error(&poll::retry_later(error)?);
            }
            let _run_lock = self.handle.run_lock();
            self.workspace.environment.look();
            for key in std::mem::take(&mut self.ready_list) {
                if let Some(connection) = self.connections.get_mut(Key::from_raw(key)) {
                    connection.is_listed = false;
                }
                self.dispatch(Ready { key, readable: false, writable: false, ended: false })?;
            }
            for event in ready.drain(..) {
                self.dispatch(event)?;
            }
            if !self.wheel.is_empty() {
                let now = self.workspace.environment.now();
                while let Some(key) = self.wheel.next_due(now) {
                    self.expire(Key::from_raw(key));
                }
            }
            self.workspace.environment.end_turn();
            if self.intake.resumes() {
                self.intake.report_room();
                self.update_listening()?;
            }
            if self.draining && self.connections.is_empty() {
                return Ok(());
            }
            if self.handle.phase() == Phase::Stop {
                self.close_all();
                return Ok(());
            }
        }
    }

    /// How long the selector may wait.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready_list.is_empty() {
            return Some(Duration::ZERO);
        }
        let paused = self.intake.wait();
        if self.wheel.is_empty() {
            return paused;
        }
        let limit = self.wheel.wait(Instant::now());
        paused.into_iter().chain(limit).min()
    }

    fn dispatch(&mut self, event: Ready) -> io::Result<()> {
        match event.key {
            WAKE => {
                self.handle.wake().lower();
                self.intake.on_wake();
                self.update_listening()?;
                if self.handle.phase() == Phase::Drain && !self.draining {
                    self.drain();
                }
            }
            FIRST_LISTENER.. => self.accept(event.key)?,
            key => self.advance(Key::from_raw(key), event),
        }
        Ok(())
    }

    /// Waits for the listeners while this table holds the accept token and nothing is exhausted,
    /// and not otherwise.
    fn update_listening(&mut self) -> io::Result<()> {
        let listen = self.intake.is_open();
        if listen == self.listening {
            return Ok(());
        }
        let listeners = self.intake.source().descriptors();
        if !listen {
            self.listening = false;
            return self.forget_listeners(listeners);
        }
        for (number, listener) in listeners.iter().enumerate() {
            let key = FIRST_LISTENER + number as u64;
            let added = if self.intake.source().is_shared() {
                self.selector.add_shared(listener.as_fd(), key)
            } else {
                self.selector.add(listener.as_fd(), key, Interest::READ)
            };
            match added {
                // What the machine is short of now it may have in a moment.
                Err(NotAdded::Refused(error)) if descriptor::is_exhaustion(&error) => {
                    self.intake.failed(&error, &mut self.totals);
                    return self.forget_listeners(&listeners[..number]);
                }
                added => added?,
            }
        }
        self.listening = true;
        Ok(())
    }

    fn forget_listeners(&mut self, listeners: &[OwnedFd]) -> io::Result<()> {
        listeners.iter().try_for_each(|listener| self.selector.remove(listener.as_fd()))
    }

    fn accept(&mut self, key: u64) -> io::Result<()> {
        if !self.listening {
            return Ok(());
        }
        let listener = (key - FIRST_LISTENER) as usize;
        for _ in 0..ACCEPT_BATCH {
            match self.intake.take(listener, &mut self.totals) {
                Taken::Connection(socket, peer) => self.open(socket, peer),
                Taken::Lost => {}
                Taken::Nothing => return self.update_listening(),
            }
        }
        if S::EDGE {
            self.ready_list.push(key);
        }
        Ok(())
    }

    fn open(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let interest = if S::EDGE { Interest::BOTH } else { Interest::READ };
        let conversation = Conversation::new(self.prototype, &self.workspace.environment);
        let key = self.connections.insert_with(|_| Connection {
            socket,
            peer,
            conversation,
            unsent: Unsent::default(),
            room: if S::EDGE { Room::EdgeTriggered } else { Room::LevelTriggered },
            limit: Limit::default(),
            interest,
            readable: false,
            is_listed: false,
            ended: false,
        });
        let connection = self.connections.get_mut(key).expect("just inserted");
        connection.limit.receive_until(connection.conversation.until, &mut self.wheel, key.to_raw());
        match self.selector.add(connection.socket.as_fd(), key.to_raw(), interest) {
            Ok(()) => self.state.opened(&mut self.totals),
            Err(NotAdded::PastLimit) => {
                self.refuse(key);
                self.totals.count_error("fd_setsize");
                self.state.notify_once(
                    "fd_setsize",
                    "select holds descriptors below 1024 only: further connections are closed at once; choose another \
                     model",
                );
            }
            Err(NotAdded::Refused(error)) => {
                connection.fail(&error, &mut self.totals);
                self.refuse(key);
            }
        }
    }

    fn refuse(&mut self, key: Key) {
        if let Some(connection) = self.connections.remove(key) {
            connection.limit.cancel(&mut self.wheel);
            self.state.release();
            self.intake.source().left();
            self.totals.refused += 1;
        }
    }

    /// Reads, serves and sends for one connection until it has to wait.
    fn advance(&mut self, key: Key, event: Ready) {
        // A key of a connection that closed earlier in this batch finds nothing.
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.readable |= event.readable;
        connection.ended |= event.ended;
        if connection.is_listed && !self.draining {
            // It has had its turn in this round, or will have it: a second for being ready as well
            // would be at the cost of the others.
            return;
        }
        // Where the selector reports again what is left, one read per round is fair and saves the
        // read that finds nothing.
        let reads = if S::EDGE || self.draining { READ_BATCH } else { 1 };
        let outcome = match connection.exchange(&mut self.input, &mut self.workspace, reads) {
            Ok(Outcome::Unread) if !S::EDGE && !self.draining => Outcome::Waits,
            Ok(outcome) => outcome,
            Err(error) => {
                connection.fail(&error, &mut self.totals);
                Outcome::Closes
            }
        };
        if self.workspace.environment.timed() {
            connection.set_limit(self.workspace.environment.now(), &mut self.wheel, key.to_raw());
        }
        match outcome {
            Outcome::Closes => self.close(key),
            Outcome::Yields | Outcome::Unread => {
                if !std::mem::replace(&mut connection.is_listed, true) {
                    self.ready_list.push(key.to_raw());
                }
            }
            Outcome::Waits if S::EDGE => {}
            Outcome::Waits => {
                let interest = if connection.unsent.is_empty() { Interest::READ } else { Interest::WRITE };
                if interest != connection.interest {
                    connection.interest = interest;
                    if let Err(error) = self.selector.modify(connection.socket.as_fd(), key.to_raw(), interest) {
                        connection.fail(&error, &mut self.totals);
                        self.close(key);
                    }
                }
            }
        }
    }

    /// A connection's timer has fired.
    fn expire(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let now = self.workspace.environment.now();
        if !connection.limit.is_reached(now, &mut self.wheel, key.to_raw()) {
            return;
        }
        if connection.limit.is_sending() {
            match connection.gives_up(now, &mut self.wheel, key.to_raw()) {
                Ok(false) => return,
                Ok(true) => {
                    self.totals.count_error(SEND_TIMEOUT);
                    // The peer does not take what the kernel holds for it either.
                    let _ = net::reset_on_close(&connection.socket);
                }
                Err(error) => connection.fail(&error, &mut self.totals),
            }
            return self.close(key);
        }
        if connection.conversation.state == ConversationState::Receiving {
            // A loop that is behind has not been told of all that has arrived in time.
            self.advance(key, Ready { key: key.to_raw(), readable: true, writable: false, ended: false });
            if !self.connections.get(key).is_some_and(|connection| connection.is_overdue(now)) {
                return;
            }
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.expire(&mut self.workspace) {
            Ok(()) => self.advance(key, Ready { key: key.to_raw(), readable: false, writable: false, ended: false }),
            Err(error) => {
                connection.fail(&error, &mut self.totals);
                self.close(key);
            }
        }
    }

    fn close(&mut self, key: Key) {
        let Some(connection) = self.connections.remove(key) else { return };
        self.selector.forget(connection.socket.as_fd());
        connection.limit.cancel(&mut self.wheel);
        self.state.closed(connection.peer, &connection.conversation.counts, &mut self.totals);
        self.intake.source().left();
        drop((connection.socket, connection.unsent));
        // The loop resumes when it has dealt with this batch.
        self.intake.connection_ended();
    }

    /// Serves what has arrived, and closes each connection once its peer has what was sent.
    fn drain(&mut self) {
        while let Some((socket, peer)) = self.intake.take_last_handed() {
            self.open(socket, peer);
        }
        self.draining = true;
        self.workspace.environment.drain();
        for key in self.connections.keys().collect::<Vec<_>>() {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.conversation.hasten(self.workspace.environment.now());
            }
            self.advance(key, Ready { key: key.to_raw(), readable: true, writable: true, ended: false });
        }
    }

    /// Ends every connection at once. One whose output is not all in the kernel is reset.
    fn close_all(&mut self) {
        for key in self.connections.keys().collect::<Vec<_>>() {
            if let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.is_cut_short()) {
                // It can only fail where the connection is no more.
                let _ = net::reset_on_close(&connection.socket);
            }
            self.close(key);
        }
    }
}

#[cfg(test)]
mod tests;
