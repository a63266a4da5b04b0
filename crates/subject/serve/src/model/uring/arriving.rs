//! How connections come into a ring's table.
//!
//! As a rule the ring accepts: up to 32 accepts wait, and each completes with a socket in the
//! table. An accept that waits would hold a place that another worker's connection could have, and
//! a connection that the acceptor hands over is accepted already. So where places are counted or
//! connections are handed over, the ring reports that there is one, it is taken by an ordinary
//! call, and adopted into the table.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use plimsoll_sys::ring::{self, Slot};

use super::EventLoop;
use super::connection::{Connection, Lifecycle, Receive};
use crate::accept::intake::Taken;
use crate::driver::conversation::Conversation;
use crate::driver::limit::Limit;
use crate::service::Service;

/// Taken in a row before connections are served again.
const BATCH: usize = 64;

impl<P: Service> EventLoop<'_, P> {
    /// Waits for connections while this table holds the accept token and nothing is exhausted, and
    /// not otherwise.
    pub(super) fn update_listening(&mut self) -> io::Result<()> {
        if !self.intake.is_open() {
            return if std::mem::take(&mut self.accepting) { self.ring.cancel_accepts() } else { Ok(()) };
        }
        self.accepting = true;
        if self.accepts_by_call() {
            if !self.has_room() {
                self.intake.report_full();
            }
            return self.watch_listeners();
        }
        self.arm_accepts()
    }

    /// Keeps accepts waiting at every listener, as many at one as at another, and no more than
    /// there are free slots for: none is accepted that has no place. Where a listener must go
    /// without, another table gets the accept token.
    fn arm_accepts(&mut self) -> io::Result<()> {
        // The accepts of a quiet listener hold slots that a busy one cannot have: an eighth of the
        // table at most.
        let share = (self.accepts.min(self.capacity / 8) / self.armed.len().max(1)).max(1);
        let waiting = self.armed.iter().sum::<usize>();
        if waiting >= share * self.armed.len() {
            return Ok(());
        }
        let mut free = self.capacity.saturating_sub(self.open + waiting);
        for level in 0..share {
            for (number, listener) in (0_u32..).zip(self.intake.source().descriptors()) {
                let waiting = &mut self.armed[number as usize];
                if *waiting == level && free > 0 && self.ring.accept(listener.as_fd(), number)? {
                    *waiting += 1;
                    free -= 1;
                }
            }
        }
        if self.armed.contains(&0) {
            self.intake.report_full();
        }
        Ok(())
    }

    /// Reports room where each listener can have an accept that waits.
    pub(super) fn report_room(&mut self) {
        if self.capacity - self.open >= self.armed.len() {
            self.intake.report_room();
        }
    }

    /// Whether connections are accepted by an ordinary call rather than by the ring.
    fn accepts_by_call(&self) -> bool {
        self.intake.source().is_handed() || self.state.is_limited()
    }

    fn watch_listeners(&mut self) -> io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        for (number, listener) in (0_u32..).zip(self.intake.source().descriptors()) {
            if !std::mem::replace(&mut self.watched[number as usize], true) {
                self.ring.watch_once(listener.as_fd(), number)?;
            }
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.open + self.ring.adoptions_waiting() < self.capacity
    }

    /// A connection waits at a listener, or has waited there.
    pub(super) fn on_acceptable(&mut self, listener: u32) -> io::Result<()> {
        self.watched[listener as usize] = false;
        if !self.accepting {
            return Ok(());
        }
        for _ in 0..BATCH {
            if !self.has_room() {
                break;
            }
            match self.intake.take(listener as usize, &mut self.totals) {
                Taken::Connection(socket, peer) => self.ring.adopt(socket, peer)?,
                Taken::Lost => {}
                Taken::Nothing => break,
            }
        }
        Ok(())
    }

    /// Takes what was handed over before the end: it is served.
    pub(super) fn take_what_was_handed(&mut self) -> io::Result<()> {
        while self.has_room() {
            let Some((socket, peer)) = self.intake.take_last_handed() else { break };
            self.ring.adopt(socket, peer)?;
        }
        Ok(())
    }

    /// A connection is in the table, or could not be accepted or put there.
    pub(super) fn arrived(&mut self, outcome: io::Result<(Slot, SocketAddr)>) -> io::Result<()> {
        match outcome {
            Ok((slot, peer)) => self.opened(slot, peer),
            Err(error) => {
                self.on_accept_failed(&error);
                Ok(())
            }
        }
    }

    fn on_accept_failed(&mut self, error: &io::Error) {
        if self.accepts_by_call() {
            self.state.release();
            self.intake.source().left();
        }
        // A cancelled accept is no failure.
        if !ring::is_cancelled(error) {
            self.intake.failed(error, &mut self.totals);
        }
    }

    fn opened(&mut self, slot: Slot, peer: SocketAddr) -> io::Result<()> {
        self.open += 1;
        if !self.accepts_by_call() {
            self.state.force();
        }
        self.state.opened(&mut self.totals);
        let connection = Connection {
            slot,
            peer,
            conversation: Conversation::new(self.prototype, &self.workspace.environment),
            limit: Limit::default(),
            receive: Receive::Off,
            found_empty: false,
            sending: false,
            asking: false,
            is_overdue: false,
            has_unprocessed_input: false,
            life: Lifecycle::Open,
            unsent: Vec::new(),
            body: None,
            file_transfer: None,
        };
        self.connections.insert(slot.index(), connection);
        self.drive(slot)
    }
}
