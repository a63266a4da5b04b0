//! Connections whose next turn no event brings: they have more to do, or they move bulk.
//!
//! Fresh events come first in each round of the loop, and what they bring is sent. Then
//! connections of this list take turns, first come, first served, until [`TURNS_TIME`] is over. So
//! a small message waits for that time and one turn at most, however many connections move bulk.
//! [`ReadyList`] is pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::Key;

use super::EventLoop;
use crate::connection::NextTurn;

/// No turn of a round begins after this. A wait of the loop that finds events costs a few
/// microseconds, so that more rounds cost more, and a turn through a pipe takes up to 70 us.
const TURNS_TIME: Duration = Duration::from_micros(50);

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    keys: VecDeque<Key>,
    /// So many of them, from the front, may have a turn in this round.
    due: usize,
}

impl ReadyList {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn add(&mut self, key: Key) {
        self.keys.push_back(key);
    }

    /// Begins the turns of a round. Those that are added from now on have none in it.
    pub(super) fn begin_round(&mut self) {
        self.due = self.keys.len();
    }

    /// Which connection has the next turn, if those of this round have taken `spent` so far.
    pub(super) fn next(&mut self, spent: Duration) -> Option<Key> {
        if spent >= TURNS_TIME {
            return None;
        }
        self.due = self.due.checked_sub(1)?;
        self.keys.pop_front()
    }
}

impl EventLoop<'_> {
    /// Has a connection take its next turn from the ready list, unless it waits for one already.
    pub(super) fn list(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.next_turn == NextTurn::WhenReady {
            connection.next_turn = NextTurn::Listed;
            self.ready_list.add(key);
        }
    }

    /// Adds those to the ready list whose wait for their rule's bandwidth is over. The first to
    /// read uses it up, and the others wait on: so who has waited longest comes first.
    pub(super) fn list_resumed(&mut self) {
        let mut resumed = std::mem::take(&mut self.resumed);
        let waits_since = |key: &Key| self.connections.get(*key).map_or(0, |found| found.waits_since(&self.pool));
        resumed.sort_by_cached_key(|key| std::cmp::Reverse(waits_since(key)));
        resumed.drain(..).for_each(|key| self.list(key));
        self.resumed = resumed;
    }

    /// Gives connections of the ready list their turns.
    pub(super) fn take_listed_turns(&mut self) {
        if self.ready_list.is_empty() {
            return;
        }
        self.ready_list.begin_round();
        let (begun, mut spent) = (Instant::now(), Duration::ZERO);
        while let Some(key) = self.ready_list.next(spent) {
            // A key of a connection that has closed since finds nothing.
            if let Some(connection) = self.connections.get_mut(key) {
                connection.next_turn = NextTurn::WhenReady;
                self.advance(key);
            }
            spent = begun.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which connections take turns in each of several rounds, and how long those of the round
    /// take, in microseconds. A turn of connection K takes `turns_us[K]`, and each of them has more
    /// to do after it.
    fn rounds(turns_us: &[u64], count: usize) -> Vec<(Vec<usize>, u64)> {
        let mut list = ReadyList::default();
        (0..turns_us.len()).for_each(|key| list.add(Key::from_raw(key as u64)));
        let round = |_| {
            let (mut had, mut spent) = (Vec::new(), 0);
            list.begin_round();
            while let Some(key) = list.next(Duration::from_micros(spent)) {
                list.add(key);
                had.push(key.to_raw() as usize);
                spent += turns_us[key.to_raw() as usize];
            }
            (had, spent)
        };
        (0..count).map(round).collect()
    }

    #[test]
    fn long_turns_are_one_a_round_and_go_round() {
        let wanted = [0, 1, 2, 0, 1, 2].map(|key| (vec![key], 70));
        assert_eq!(rounds(&[70; 3], 6), wanted);
    }

    #[test]
    fn short_turns_share_a_round_and_each_connection_has_one_at_most() {
        assert_eq!(rounds(&[1; 3], 2), [(vec![0, 1, 2], 3), (vec![0, 1, 2], 3)]);
        let wanted = [(vec![0, 1, 2], 60), (vec![3, 4, 0], 60), (vec![1, 2, 3], 60)];
        assert_eq!(rounds(&[20; 5], 3), wanted);
    }

    #[test]
    fn a_round_is_at_most_one_turn_longer_than_its_time_however_many_connections_there_are() {
        for connections in [1, 2, 16, 1000] {
            let turns_us: Vec<u64> = (0..connections).map(|key| 1 + key % 70).collect();
            let most = TURNS_TIME.as_micros() as u64 + 70;
            let rounds = rounds(&turns_us, 1000);
            assert!(rounds.iter().all(|(had, us)| !had.is_empty() && *us < most), "{connections} connections");
            // Nobody is left out, and nobody comes twice before all have come once.
            let turns: Vec<usize> = rounds.into_iter().flat_map(|(had, _)| had).collect();
            let in_order = (0..turns_us.len()).cycle().take(turns.len());
            assert!(turns.len() >= turns_us.len() && in_order.eq(turns), "{connections} connections");
        }
    }
}
