//! How many connections there may be in the whole forwarder, and each rule's part of them.
//!
//! An eighth of `max_connections` is kept for rules that have fewer than their share of that
//! eighth, so that one rule's clients cannot keep all others out.

use std::sync::atomic::{AtomicU64, Ordering};

/// The part of the whole that is kept: one in so many.
const KEPT: u64 = 8;

/// The count of open connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    most: AtomicU64,
    /// Open, and about to be accepted.
    taken: AtomicU64,
    open: AtomicU64,
    peak: AtomicU64,
}

/// Whether a rule may accept a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A place is taken for it: it is given back by [`ConnectionLimit::give_back`] or
    /// [`ConnectionLimit::closed`].
    Taken,
    /// Not this rule: what is left is kept for others.
    KeptForOthers,
    /// No rule.
    Full,
}

impl ConnectionLimit {
    /// At most so many.
    pub(crate) fn new(most: u64) -> ConnectionLimit {
        let zero = || AtomicU64::new(0);
        ConnectionLimit { most: AtomicU64::new(most), taken: zero(), open: zero(), peak: zero() }
    }

    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// At most so many from now on.
    pub(crate) fn change(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Takes a place for a connection of a rule that has `own` open. `all` has the count of every
    /// rule.
    pub(crate) fn take<I: ExactSizeIterator<Item = u64>>(&self, own: u64, all: impl Fn() -> I) -> Room {
        let most = self.most();
        let mut room = Room::Taken;
        let outcome = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            let left = most.saturating_sub(taken);
            room = if left == 0 {
                Room::Full
            } else if left <= most / KEPT && is_kept_for_others(left, most, own, all()) {
                Room::KeptForOthers
            } else {
                Room::Taken
            };
            (room == Room::Taken).then_some(taken + 1)
        });
        debug_assert_eq!(outcome.is_ok(), room == Room::Taken);
        room
    }

    /// Takes a place whatever the limit: for what was promised before.
    pub(crate) fn take_anyway(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// There was no connection for the place.
    pub(crate) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection for which a place was taken is open.
    pub(crate) fn opened(&self) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(open, Ordering::Relaxed);
    }

    /// It is closed.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.give_back();
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Whether all of what is left is kept for rules with less than their share, and this one has its
/// share.
fn is_kept_for_others(left: u64, most: u64, own: u64, all: impl ExactSizeIterator<Item = u64>) -> bool {
    let share = most / KEPT / (all.len() as u64).max(1);
    own >= share && left <= all.map(|open| share.saturating_sub(open)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes places for these rules in turn until each is refused; how many each has then.
    fn fill(most: u64, mut open: Vec<u64>, order: &[usize]) -> Vec<u64> {
        let limit = ConnectionLimit::new(most);
        (0..open.iter().sum()).for_each(|_| limit.take_anyway());
        for &rule in order {
            while limit.take(open[rule], || open.clone().into_iter()) == Room::Taken {
                open[rule] += 1;
            }
        }
        open
    }

    #[test]
    fn one_rule_alone_may_have_all() {
        assert_eq!(fill(3, vec![0], &[0]), [3]);
        assert_eq!(fill(60_000, vec![0], &[0]), [60_000]);
    }

    #[test]
    fn a_rule_that_takes_all_it_can_leaves_every_other_its_part() {
        // An eighth of 80 is 10, and the half of that 5.
        assert_eq!(fill(80, vec![0, 0], &[0, 1, 0]), [75, 5]);
        assert_eq!(fill(80, vec![40, 40], &[0, 1]), [40, 40]);
        assert_eq!(fill(80, vec![0, 30], &[0, 1]), [50, 30], "who has its part keeps nothing from others");
    }

    #[test]
    fn with_fewer_places_than_rules_the_first_come_are_served() {
        assert_eq!(fill(3, vec![0; 5], &[0, 1]), [3, 0, 0, 0, 0]);
    }

    #[test]
    fn places_that_are_given_back_are_had_again_and_the_peak_is_of_connections() {
        let limit = ConnectionLimit::new(2);
        let take = || limit.take(0, || std::iter::once(0));
        assert_eq!((take(), take(), take()), (Room::Taken, Room::Taken, Room::Full));
        limit.opened();
        limit.give_back();
        assert_eq!(limit.peak(), 1);
        assert_eq!((take(), take()), (Room::Taken, Room::Full));
        limit.closed();
        assert_eq!((take(), limit.open()), (Room::Taken, 0));
    }
}
