//! Turns of connections that move bulk, kept apart.
//!
//! A fast sender is heard of at every packet. Relaying each at once costs a wake-up here and, as the other side is told of it at once too, one there: together more than the moving
//! of the bytes. So while a connection goes through pipes its readiness is reported once, and its next turn comes a moment after the last: by then there is more to move. A
//! turn that comes later than that anyway is not put off.

use std::time::Duration;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::epoll::Trigger;
use plimsoll_sys::readiness::Interest;

use super::{SERVER, Table};
use crate::log::Ending;
use crate::relay::Side;

/// Between two turns. At 3 GB/s a pipe's 1 MiB arrives; nobody notices it in a transfer of so many bytes. Without it bulk costs a third more CPU, with 100 us a quarter more, and
/// with 1 ms a quarter less (docs/results/forward-bulk.txt).
const REST: Duration = Duration::from_micros(300);

impl Table<'_> {
    /// Puts a connection's turn off if its last one is too recent, and says whether it did.
    pub(super) fn rest(&mut self, key: Key) -> bool {
        let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.paced) else {
            return false;
        };
        let until = connection.active + REST;
        if !connection.rests && until > self.now {
            connection.rests = true;
            self.resting.push_back((until, key.to_raw()));
        }
        connection.rests
    }

    /// Has those whose rest is over take their turn.
    pub(super) fn end_rests(&mut self) {
        while let Some(&(until, key)) = self.resting.front() {
            if until > self.now {
                return;
            }
            self.resting.pop_front();
            let key = Key::from_raw(key);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.rests = false;
                self.advance(key);
            }
        }
    }

    /// Asks for what a connection waits for: each time anew while it moves bulk, and once for all when it does no more.
    pub(super) fn pace(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.paced = connection.is_moving();
        let paced = connection.paced;
        let mut lost = false;
        for (side, mark) in [(Side::Client, 0), (Side::Server, SERVER)] {
            let Some(leg) = connection.leg(side) else { continue };
            let (interest, trigger) = if paced {
                (Interest { read: !leg.readable, write: !leg.writable }, Trigger::Once)
            } else {
                (Interest::BOTH, Trigger::Edge)
            };
            lost |= self.epoll.modify(&leg.socket, key.to_raw() | mark, interest, trigger).is_err();
        }
        if lost {
            self.cut(key, Ending::Limit);
        }
    }
}
