//! A deadline that moves often, over a timer that follows it lazily.
//!
//! Most deadlines move on long before they are reached. So the timer stays where it is while it
//! fires early enough, and is set anew when it has fired too early: once a deadline's length, not
//! once a change.

use std::time::Instant;

use crate::timer::{Timer, Wheel};

/// Until when something must happen.
#[derive(Debug, Default)]
pub struct Deadline {
    until: Option<Instant>,
    /// The timer, and when it fires.
    timer: Option<(Timer, Instant)>,
}

impl Deadline {
    /// Moves the deadline, or takes it away. `key` is what the wheel's timer hands back.
    pub fn set(&mut self, until: Option<Instant>, wheel: &mut Wheel, key: u64) {
        self.until = until;
        let Some(until) = until else { return };
        match self.timer {
            Some((_, fires)) if fires <= until => {}
            late => {
                if let Some((timer, _)) = late {
                    wheel.cancel(timer);
                }
                self.timer = Some((wheel.set(until, key), until));
            }
        }
    }

    /// Its timer has fired; returns whether the deadline is reached. If not, the timer is set anew.
    pub fn is_reached(&mut self, now: Instant, wheel: &mut Wheel, key: u64) -> bool {
        self.timer = None;
        let reached = self.until.is_some_and(|until| until <= now);
        if !reached {
            self.set(self.until, wheel, key);
        }
        reached
    }

    /// Takes the timer back.
    pub fn cancel(self, wheel: &mut Wheel) {
        if let Some((timer, _)) = self.timer {
            wheel.cancel(timer);
        }
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
        let (mut wheel, mut deadline, mut due) = (Wheel::new(start), Deadline::default(), Vec::new());
        for second in 1..5 {
            deadline.set(Some(at(second + 5)), &mut wheel, 7);
            assert_eq!(wheel.len(), 1);
        }
        wheel.expire(at(7), &mut due);
        assert_eq!(due, [7]);
        assert!(!deadline.is_reached(at(7), &mut wheel, 7));
        assert_eq!(wheel.len(), 1);
        deadline.set(Some(at(8)), &mut wheel, 7);
        wheel.expire(at(8) + Duration::from_millis(1), &mut due);
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
        let mut due = Vec::new();
        wheel.expire(later + Duration::from_secs(1), &mut due);
        assert!(!deadline.is_reached(later + Duration::from_secs(1), &mut wheel, 7));
        assert!(wheel.is_empty());
    }
}
