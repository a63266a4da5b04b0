//! When the emulator was not the network that was asked for: late, or at fault for lost frames.
//!
//! Pure: instants are arguments. Troubles that follow one another closely are one disturbance,
//! which is reported once it is over.

use std::time::{Duration, Instant};

/// Troubles closer together than this are one disturbance.
const GAP: Duration = Duration::from_millis(100);

/// A time during which frames were late or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disturbance {
    /// When it began: the first late frame's due time, or the latest instant before the first loss.
    pub(crate) from: Instant,
    /// When its last frame was handed over or lost.
    pub(crate) to: Instant,
    /// Frames handed over late.
    pub(crate) late_frames: u64,
    /// Frames lost.
    pub(crate) lost_frames: u64,
    /// By how much the worst was late.
    pub(crate) worst: Duration,
}

/// The disturbance under way, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Disturbances(Option<Disturbance>);

impl Disturbances {
    /// Notes a frame that was due at `due`, and was handed over at `now`.
    pub(crate) fn late(&mut self, due: Instant, now: Instant) {
        let current = self.extend(due, now);
        current.late_frames += 1;
        current.worst = current.worst.max(now.saturating_duration_since(due));
    }

    /// Notes frames that were lost between two instants.
    pub(crate) fn lost(&mut self, from: Instant, to: Instant, frames: u64) {
        self.extend(from, to).lost_frames += frames;
    }

    /// Whether a disturbance is under way.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// When the disturbance is over, if no further trouble comes.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.0.map(|current| current.to + GAP)
    }

    /// The disturbance that is over by `now`.
    pub(crate) fn take_over(&mut self, now: Instant) -> Option<Disturbance> {
        if self.ends_at()? <= now { self.0.take() } else { None }
    }

    /// The disturbance so far, over or not.
    pub(crate) fn take(&mut self) -> Option<Disturbance> {
        self.0.take()
    }

    fn extend(&mut self, from: Instant, to: Instant) -> &mut Disturbance {
        let none = Disturbance { from, to, late_frames: 0, lost_frames: 0, worst: Duration::ZERO };
        let current = self.0.get_or_insert(none);
        current.from = current.from.min(from);
        current.to = current.to.max(to);
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn troubles_within_a_tenth_of_a_second_are_one_disturbance() {
        let start = Instant::now();
        let mut disturbances = Disturbances::default();
        disturbances.late(start, start + 2 * MS);
        disturbances.lost(start + 50 * MS, start + 60 * MS, 7);
        disturbances.late(start + 90 * MS, start + 95 * MS);
        assert_eq!(disturbances.ends_at(), Some(start + 195 * MS));
        assert_eq!((disturbances.take_over(start + 194 * MS), disturbances.is_open()), (None, true));
        let whole = Disturbance { from: start, to: start + 95 * MS, late_frames: 2, lost_frames: 7, worst: 5 * MS };
        assert_eq!(disturbances.take_over(start + 195 * MS), Some(whole));
        assert_eq!((disturbances.take(), disturbances.ends_at(), disturbances.is_open()), (None, None, false));
    }

    #[test]
    fn a_loss_that_is_noticed_late_reaches_back_to_when_it_may_have_begun() {
        let start = Instant::now();
        let mut disturbances = Disturbances::default();
        disturbances.late(start + 900 * MS, start + 901 * MS);
        disturbances.lost(start, start + 1000 * MS, 1);
        let current = disturbances.take().expect("one");
        assert_eq!((current.from, current.to), (start, start + 1000 * MS));
    }
}
