//! Bulk connections, read together after a delay instead of after every packet.
//!
//! Reading after every packet costs one wake-up per packet on both sides: together more than
//! moving the bytes. So a connection that moves bulk gets its next turn after a delay, and no event
//! of it counts until then. The turn reads both of its sides, and more has arrived by then. All
//! delays end at the same moment, for which the loop wakes once, and all turns come from the ready
//! list then. A turn that is later than that anyway is not delayed.

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
    /// When the last delays ended, or a later turn that the present ones are reckoned from.
    since: Instant,
}

impl Delayed {
    pub(super) fn new(now: Instant) -> Delayed {
        Delayed { keys: VecDeque::new(), since: now }
    }

    /// When all delays end, if `listed` more connections have not taken their turn since the last
    /// ones did.
    pub(super) fn until(&self, listed: usize) -> Option<Instant> {
        let count = self.keys.len();
        (count > 0).then(|| self.since + delay_of(count + listed))
    }

    /// Adds one whose last turn was at `active`.
    fn add(&mut self, key: Key, active: Instant) {
        if self.keys.is_empty() {
            // One whose last turn was before the others' shortens no delay of theirs.
            self.since = self.since.max(active);
        }
        self.keys.push_back(key.to_raw());
    }

    /// Takes out those whose delay is over: all of them, or none.
    fn take_due(&mut self, now: Instant, listed: usize) -> impl Iterator<Item = Key> {
        let is_due = self.until(listed).is_some_and(|until| until <= now);
        let count = if is_due { self.keys.len() } else { 0 };
        if is_due {
            self.since = now;
        }
        self.keys.drain(..count).map(Key::from_raw)
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

    /// Adds those whose delay is over to the ready list.
    pub(super) fn list_due(&mut self) {
        for key in self.delayed.take_due(self.now, self.ready_list.len()) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.expect_bytes();
            connection.next_turn = NextTurn::Listed;
            self.ready_list.add(key);
        }
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
            // The kernel reports an end whatever is asked for, and at once.
            if paced && connection.is_known(side) {
                continue;
            }
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
    fn all_delays_end_at_the_same_moment() {
        let start = Instant::now();
        let mut delayed = Delayed::new(start);
        let due = |delayed: &mut Delayed, now, listed| -> Vec<u64> {
            delayed.take_due(now, listed).map(Key::to_raw).collect()
        };
        assert_eq!(delayed.until(0), None);
        delayed.add(Key::from_raw(1), start + US);
        delayed.add(Key::from_raw(2), start + 200 * US);
        let until = start + US + DELAY;
        assert_eq!([0, 1].map(|listed| delayed.until(listed)), [Some(until), Some(until + DELAY_FOR_EACH_MORE)]);
        assert!(due(&mut delayed, until - US, 0).is_empty());
        assert!(due(&mut delayed, until, 2).is_empty(), "four of them wait longer, wherever they wait");
        assert_eq!(due(&mut delayed, until, 0), [1, 2]);
        assert_eq!(delayed.until(0), None);
        // The first to wait again says when all of them do; but not one whose last turn was before.
        delayed.add(Key::from_raw(3), until - 200 * US);
        assert_eq!(delayed.until(0), Some(until + DELAY));
        assert_eq!(due(&mut delayed, until + DELAY, 0), [3]);
        let until = until + DELAY;
        delayed.add(Key::from_raw(2), until);
        delayed.add(Key::from_raw(1), until + 50 * US);
        assert_eq!(delayed.until(0), Some(until + DELAY));
        assert_eq!(due(&mut delayed, until + DELAY, 0), [2, 1]);
    }
}
