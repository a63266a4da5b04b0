//! A deadline that moves often, over a timer that follows it lazily.
//!
//! Most deadlines move on long before they are reached. So the timer stays where it is while it
//! fires early enough, and is set anew when it has fired too early: once a deadline's length, not
//! once a change.

use std::time::Instant;

use crate::timer::{Timer, Wheel};

/// A timer that fires at a time or earlier: its owner then checks whether anything is due.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<(Timer, Instant)>);

impl LazyTimer {
    /// Sees that it fires at `due` at the latest. `key` is what the wheel's timer hands back.
    pub fn fire_by(&mut self, due: Instant, wheel: &mut Wheel, key: u64) {
        if self.0.is_some_and(|(_, fires)| fires <= due) {
            return;
        }
        self.cancel(wheel);
        self.0 = Some((wheel.set(due, key), due));
    }

    /// Whether it is to fire.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// It has fired.
    pub fn fired(&mut self) {
        self.0 = None;
    }

    /// Takes it back from the wheel.
    pub fn cancel(&mut self, wheel: &mut Wheel) {
        if let Some((timer, _)) = self.0.take() {
            wheel.cancel(timer);
        }
    }
}

/// Until when something must happen.
#[derive(Debug, Default)]
pub struct Deadline {
    until: Option<Instant>,
    timer: LazyTimer,
}

impl Deadline {
    /// Moves the deadline, or takes it away. `key` is what the wheel's timer hands back.
    pub fn set(&mut self, until: Option<Instant>, wheel: &mut Wheel, key: u64) {
        self.until = until;
        if let Some(until) = until {
            self.timer.fire_by(until, wheel, key);
        }
    }

    /// Its timer has fired; returns whether the deadline is reached. If not, the timer is set anew.
    pub fn is_reached(&mut self, now: Instant, wheel: &mut Wheel, key: u64) -> bool {
        self.timer.fired();
        let reached = self.until.is_some_and(|until| until <= now);
        if !reached {
            self.set(self.until, wheel, key);
        }
        reached
    }

    /// Takes the timer back.
    pub fn cancel(mut self, wheel: &mut Wheel) {
        self.timer.cancel(wheel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_deadline_that_moves_on_keeps_one_timer_and_is_reached_when_it_stops() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut wheel, mut deadline) = (Wheel::new(start), Deadline::default());
        for second in 1..5 {
            deadline.set(Some(at(second + 5)), &mut wheel, 7);
            assert_eq!(wheel.len(), 1);
        }
        assert_eq!(wheel.next_due(at(7)), Some(7));
        assert!(!deadline.is_reached(at(7), &mut wheel, 7));
        assert_eq!(wheel.len(), 1);
        deadline.set(Some(at(8)), &mut wheel, 7);
        assert_eq!(wheel.next_due(at(8) + Duration::from_millis(1)), Some(7));
        assert!(deadline.is_reached(at(8) + Duration::from_millis(1), &mut wheel, 7));
        deadline.set(Some(at(20)), &mut wheel, 7);
        deadline.cancel(&mut wheel);
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_deadline_that_was_taken_away_is_not_reached_when_its_timer_fires() {
        let start = Instant::now();
        let (mut wheel, mut deadline) = (Wheel::new(start), Deadline::default());
        let later = start + Duration::from_secs(1);
        deadline.set(Some(later), &mut wheel, 7);
        deadline.set(None, &mut wheel, 7);
        assert_eq!(wheel.next_due(later + Duration::from_secs(1)), Some(7));
        assert!(!deadline.is_reached(later + Duration::from_secs(1), &mut wheel, 7));
        assert!(wheel.is_empty());
    }
}
