//! Bulk connections, read together after a delay instead of after every packet.
//!
//! Reading after every packet costs one wake-up per packet on both sides: together more than
//! moving the bytes. So a connection that moves bulk gets its next turn after a delay, and no event
//! of it counts until then. The turn reads both of its sides, and more has arrived by then. All
//! delays end at the same moment, for which the loop wakes once. A turn that is later than that
//! anyway is not delayed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::Key;
use plimsoll_sys::epoll::Trigger;
use plimsoll_sys::readiness::Interest;

use super::{EventLoop, SERVER};
use crate::connection::{DELAY, NextTurn};
use crate::relay::Side;

/// One or two connections wait for [`DELAY`]: with more a single connection gets less throughput.
/// Longer by this for each more that waits: they share the machine and the link, so that as much
/// takes longer to come for each.
const DELAY_FOR_EACH_MORE: Duration = Duration::from_micros(150);
const LONGEST_DELAY: Duration = Duration::from_micros(750);

/// Connections whose next turn is put off.
#[derive(Debug)]
pub(super) struct Delayed {
    keys: VecDeque<u64>,
    since: Instant,
    /// So many of them, from the front, are due and have not had their turn yet.
    due: usize,
}

impl Delayed {
    pub(super) fn new(now: Instant) -> Delayed {
        Delayed { keys: VecDeque::new(), since: now, due: 0 }
    }

    /// When the next turn is due.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.keys.len() {
            0 => None,
            _ if self.due > 0 => Some(self.since),
            count => Some(self.since + delay_of(count)),
        }
    }

    /// Adds one whose last turn was at `active`.
    fn add(&mut self, key: Key, active: Instant) {
        if self.keys.is_empty() {
            self.since = active;
        }
        self.keys.push_back(key.to_raw());
    }

    /// One whose delay is over.
    fn next_due(&mut self, now: Instant) -> Option<Key> {
        if self.due == 0 && self.until()? <= now {
            (self.due, self.since) = (self.keys.len(), now);
        }
        self.due = self.due.checked_sub(1)?;
        self.keys.pop_front().map(Key::from_raw)
    }
}

/// How long so many connections wait.
fn delay_of(connections: usize) -> Duration {
    let more = u32::try_from(connections.saturating_sub(2)).unwrap_or(u32::MAX);
    (DELAY + DELAY_FOR_EACH_MORE.saturating_mul(more)).min(LONGEST_DELAY)
}

impl EventLoop<'_> {
    /// Puts a connection's next turn off.
    pub(super) fn delay_turn(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.next_turn == NextTurn::WhenReady {
            connection.next_turn = NextTurn::Delayed;
            self.delayed.add(key, connection.active());
        }
    }

    /// Has one whose delay is over take its turn: what other connections wait for is looked at in
    /// between.
    pub(super) fn take_delayed_turn(&mut self) {
        let Some(key) = self.delayed.next_due(self.now) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.next_turn = NextTurn::WhenReady;
        for side in [Side::Client, Side::Server] {
            if let Some(endpoint) = connection.endpoint(side) {
                // There may be something, or the end: a read says.
                endpoint.readable = true;
            }
        }
        self.advance(key);
    }

    /// Puts off the next turn of a connection that has moved bulk. Of any other it asks for what it
    /// waits for: each time anew while it goes through pipes, and once for all when it does no
    /// more.
    pub(super) fn pace(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let moved = connection.bulk_detector.note(connection.read_bytes());
        let (before, paced) = (connection.paced, connection.is_spliced());
        connection.paced = paced;
        let stuck = [Side::Client, Side::Server]
            .into_iter()
            .any(|side| connection.endpoint(side).is_some_and(|endpoint| !endpoint.writable));
        // A connection that was not paced until now is still registered for every edge.
        if before && paced && !stuck && moved && connection.bulk_detector.is_bulk() {
            return self.delay_turn(key);
        }
        let mut failure = None;
        for (side, mark) in [(Side::Client, 0), (Side::Server, SERVER)] {
            let Some(endpoint) = connection.endpoint(side) else { continue };
            let (interest, trigger) = if paced {
                (Interest { read: !endpoint.readable, write: !endpoint.writable }, Trigger::Once)
            } else {
                (Interest::BOTH, Trigger::Edge)
            };
            let outcome = self.epoll.modify(&endpoint.socket, key.to_raw() | mark, interest, trigger);
            failure = outcome.err().or(failure);
        }
        if let Some(error) = failure {
            self.fail(key, &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn one_connection_waits_as_two_do_and_more_wait_longer_up_to_a_bound() {
        for (count, us) in [(1, 300), (2, 300), (3, 450), (4, 600), (5, 750), (1000, 750), (usize::MAX, 750)] {
            assert_eq!(delay_of(count), us * US, "{count} connections");
        }
    }

    #[test]
    fn all_rest_until_the_same_moment_and_then_have_a_turn_each() {
        let start = Instant::now();
        let mut delayed = Delayed::new(start);
        assert_eq!(delayed.until(), None);
        delayed.add(Key::from_raw(1), start + US);
        delayed.add(Key::from_raw(2), start + 200 * US);
        let until = start + US + DELAY;
        assert_eq!(delayed.until(), Some(until));
        assert_eq!(delayed.next_due(until - US), None);
        let late = until + 50 * US;
        assert_eq!(delayed.next_due(late), Some(Key::from_raw(1)));
        // It has had its turn, and waits again: it is not due before the second, nor within this
        // round.
        delayed.add(Key::from_raw(1), late);
        assert!(delayed.until().is_some_and(|until| until <= late), "the second is due at once");
        assert_eq!(delayed.next_due(late + US), Some(Key::from_raw(2)));
        assert_eq!(delayed.until(), Some(late + DELAY));
        assert_eq!(delayed.next_due(late + US), None);
        assert_eq!(delayed.next_due(late + DELAY), Some(Key::from_raw(1)));
        assert_eq!(delayed.until(), None);
        assert_eq!(delayed.next_due(late + 2 * DELAY), None);
    }
}
