//! What went through one rule so far, kept where everybody can read it while the forwarder runs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ending::Ending;

/// Counts of one listener. Event loops add to them; a reload that keeps the listener keeps them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Connections accepted.
    pub(crate) accepted: AtomicU64,
    /// Connections open.
    pub(crate) open: AtomicU64,
    /// Of these, those that are or will be connected to a server: `limit.connections` bounds them.
    admitted: AtomicU64,
    /// Bytes written to servers, and to clients.
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
    ends: [AtomicU64; Ending::ALL.len()],
}

impl Counts {
    /// Admits a connection where fewer than `most` are admitted, and returns whether it did. Of
    /// several that come at once, as many are as there is room for.
    pub(crate) fn admit(&self, most: u64) -> bool {
        let admit = |admitted: u64| (admitted < most).then_some(admitted + 1);
        self.admitted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).is_ok()
    }

    /// A connection that was admitted is over.
    pub(crate) fn left(&self) {
        self.admitted.fetch_sub(1, Ordering::Relaxed);
    }

    /// A connection ended.
    pub(crate) fn ended(&self, ending: Ending) {
        self.ends[ending as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections ended in each way.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Ending, u64)> {
        Ending::ALL.into_iter().zip(&self.ends).map(|(ending, count)| (ending, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_admitted_as_there_is_room_for_and_who_leaves_makes_room() {
        let counts = Counts::default();
        assert_eq!([2, 2, 2, 3, 3].map(|most| counts.admit(most)), [true, true, false, true, false]);
        counts.left();
        // A reload has lowered the limit.
        assert_eq!([2, 3, 3, u64::MAX].map(|most| counts.admit(most)), [false, true, false, true]);
        assert!(!Counts::default().admit(0));
    }

    #[test]
    fn each_end_is_counted_for_itself() {
        let counts = Counts::default();
        for ending in [Ending::Idle, Ending::Drained, Ending::Idle] {
            counts.ended(ending);
        }
        let ended: Vec<(Ending, u64)> = counts.ends().filter(|(_, count)| *count > 0).collect();
        assert_eq!(ended, [(Ending::Idle, 2), (Ending::Drained, 1)]);
    }
}
