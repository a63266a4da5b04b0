//! How connections come into a ring's table.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use plimsoll_reactor::crew::Phase;
use plimsoll_sys::ring::Slot;

use super::{ACCEPT_PAUSE, Connection, Life, Receive, Table};
use crate::driver::limit::Limit;
use crate::driver::talk::Talk;
use crate::service::Service;

impl<P: Service> Table<'_, P> {
    /// Keeps as many accepts waiting as there are places and free slots for, while it is this table's turn.
    pub(super) fn follow_turn(&mut self) -> io::Result<()> {
        if self.seat.phase() != Phase::Run || !self.seat.accepts() || self.paused_until.is_some() {
            return if std::mem::take(&mut self.accepting) { self.ring.cancel_accepts() } else { Ok(()) };
        }
        self.accepting = true;
        if self.open == self.capacity {
            self.seat.report_full();
        }
        while self.open + self.ring.accepts_waiting() < self.capacity {
            // An accept that waits has a place already. Where places are counted, more than one could keep them from another worker's connections.
            if self.ledger.is_limited() {
                if self.ring.accepts_waiting() > 0 {
                    break;
                }
                if !self.ledger.admit() {
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
            let listener = &self.listeners[self.next_listener % self.listeners.len()];
            if !self.ring.accept(listener.as_fd())? {
                break;
            }
            self.next_listener += 1;
        }
        Ok(())
    }

    pub(super) fn opened(&mut self, slot: Slot, peer: SocketAddr) -> io::Result<()> {
        self.open += 1;
        if !self.ledger.is_limited() {
            self.ledger.admit();
        }
        self.ledger.opened(&mut self.totals);
        let mut connection = Connection {
            slot,
            peer,
            talk: Talk::new(self.prototype, &self.desk.surroundings),
            limit: Limit::default(),
            receive: Receive::Armed,
            sending: false,
            unheard: false,
            life: Life::Open,
            unsent: Vec::new(),
            body: None,
        };
        connection.limit.set(connection.talk.until, &mut self.wheel, slot.index() as u64);
        self.connections.insert(slot.index(), connection);
        self.ring.receive(slot)?;
        if self.draining { self.ring.end_reading(slot) } else { Ok(()) }
    }
}
