//! Each rule's part of the connections that the whole forwarder may have.
//!
//! An eighth of `max_connections` is kept for rules that have fewer than their share of that
//! eighth, so that one rule's clients cannot keep all others out.

use plimsoll_reactor::limit::ConnectionLimit;

/// The part of the whole that is kept: one in so many.
const KEPT: u64 = 8;

/// Whether a rule may accept a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A place is taken for it: it is given back by [`ConnectionLimit::release`] or
    /// [`ConnectionLimit::closed`].
    Taken,
    /// Not this rule: the rest is kept for others.
    KeptForOthers,
    /// No rule.
    Full,
}

/// Takes a place for a connection of a rule that has `own` open. `all` has the count of every rule.
/// Both are read after the number of free places: a connection that ends is counted off before it
/// gives its place back.
pub(crate) fn acquire<I: ExactSizeIterator<Item = u64>>(
    limit: &ConnectionLimit,
    own: impl Fn() -> u64,
    all: impl Fn() -> I,
) -> Room {
    let (most, mut refused) = (limit.most(), Room::Full);
    let acquired = limit.acquire_if(|left| {
        let kept = left <= most / KEPT && is_kept_for_others(left, most, own(), all());
        refused = if kept { Room::KeptForOthers } else { Room::Full };
        !kept
    });
    if acquired { Room::Taken } else { refused }
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
        (0..open.iter().sum()).for_each(|_| limit.force());
        for &rule in order {
            while acquire(&limit, || open[rule], || open.clone().into_iter()) == Room::Taken {
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
}
