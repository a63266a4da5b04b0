//! Since when answers may have been there that a wait reports: what passes from then on until one
//! is handled is the generator's own time. Pure.

/// A wait that took longer than this slept: to find events takes a system call, to sleep and to be
/// woken two changes of context besides.
const AT_ONCE: u64 = 4_000;

/// Instants in nanoseconds from the run's origin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unhandled {
    /// Since when the answers under way may have been there.
    pub(super) since: u64,
    /// When the wait returned.
    returned: u64,
    /// When the wait was entered that was interrupted since then.
    interrupted: Option<u64>,
}

impl Unhandled {
    /// A wait has returned that ends with the first event. Where it slept nothing had come before.
    /// Where it did not, its events may have come at any time since the wait before.
    pub(super) fn waited(&mut self, entered: u64, returned: u64) {
        self.since = match self.interrupted.take() {
            // With many events it takes long as well, and it cannot be told whether it slept.
            Some(interrupted) => interrupted,
            None if returned - entered > AT_ONCE => returned,
            None => self.returned,
        };
        self.returned = returned;
    }

    /// A wait has returned that was interrupted: it, or the next one, may find what came since it
    /// was entered, however long ago that is (a stop, signal(7)).
    pub(super) fn interrupted(&mut self, entered: u64) {
        self.since = *self.interrupted.get_or_insert(entered);
    }

    /// One has returned that may have left events of the wait before unreported, so that the next
    /// ones have been there for as long.
    pub(super) fn waited_with_more(&mut self, returned: u64) {
        self.returned = returned;
    }

    /// One has returned that events do not end.
    pub(super) fn slept(&mut self, entered: u64, returned: u64) {
        (self.since, self.returned) = (self.interrupted.take().unwrap_or(entered), returned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_after_an_interrupted_wait_may_have_come_since_that_was_entered() {
        let mut unhandled = Unhandled::default();
        unhandled.waited(1_000, 500_000);
        unhandled.interrupted(600_000);
        assert_eq!(unhandled.since, 600_000, "a ring may have found it already");
        // The generator was stopped for a while, twice.
        unhandled.interrupted(2_000_000);
        unhandled.waited(3_000_000, 3_008_000);
        assert_eq!(unhandled.since, 600_000);
        unhandled.waited(3_100_000, 3_101_000);
        assert_eq!(unhandled.since, 3_008_000);
        unhandled.interrupted(7_000_000);
        unhandled.slept(8_000_000, 8_000_000);
        assert_eq!(unhandled.since, 7_000_000);
    }

    #[test]
    fn what_a_wait_finds_at_once_may_have_come_since_the_wait_before() {
        let mut unhandled = Unhandled::default();
        unhandled.waited(1_000, 500_000);
        assert_eq!(unhandled.since, 500_000, "it slept");
        unhandled.waited(600_000, 602_000);
        assert_eq!(unhandled.since, 500_000);
        unhandled.waited(700_000, 701_000);
        assert_eq!(unhandled.since, 602_000);
        unhandled.waited_with_more(790_000);
        assert_eq!(unhandled.since, 602_000, "more had been there already");
        unhandled.waited(900_000, 900_500);
        assert_eq!(unhandled.since, 790_000);
        unhandled.slept(910_000, 990_000);
        assert_eq!(unhandled.since, 910_000);
    }
}
