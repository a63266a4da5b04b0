//! A connection's time limit: a value that is changed for nothing, over a timer that follows it lazily.
//!
//! Most limits are moved on long before they are reached. So the timer is left where it is as long as it fires early enough, and is set anew when it
//! has fired too early: once a limit's length, not once a request.

use std::time::Instant;

use plimsoll_reactor::timer::{Timer, Wheel};

/// Until when something must happen. Where nothing ever had to, it is one empty pointer.
#[derive(Debug, Default)]
pub(crate) struct Limit(Option<Box<Limited>>);

#[derive(Debug, Default)]
struct Limited {
    until: Option<Instant>,
    /// And when it fires.
    timer: Option<(Timer, Instant)>,
}

impl Limit {
    /// Changes the limit.
    pub(crate) fn set(&mut self, until: Option<Instant>, wheel: &mut Wheel, key: u64) {
        if until.is_none() && self.0.is_none() {
            return;
        }
        let limited = self.0.get_or_insert_default();
        limited.until = until;
        let Some(until) = until else { return };
        match limited.timer {
            Some((_, fires)) if fires <= until => {}
            late => {
                if let Some((timer, _)) = late {
                    wheel.cancel(timer);
                }
                limited.timer = Some((wheel.set(until, key), until));
            }
        }
    }

    /// Its timer has fired; returns whether the limit is reached.
    pub(crate) fn is_reached(&mut self, now: Instant, wheel: &mut Wheel, key: u64) -> bool {
        let Some(limited) = &mut self.0 else { return false };
        limited.timer = None;
        let until = limited.until;
        let reached = until.is_some_and(|until| until <= now);
        if !reached {
            self.set(until, wheel, key);
        }
        reached
    }

    /// Takes the timer back, at the connection's end.
    pub(crate) fn cancel(self, wheel: &mut Wheel) {
        if let Some((timer, _)) = self.0.and_then(|limited| limited.timer) {
            wheel.cancel(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_limit_that_moves_on_keeps_one_timer_and_is_reached_when_it_stops() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut wheel, mut limit, mut due) = (Wheel::new(start), Limit::default(), Vec::new());
        for second in 1..5 {
            limit.set(Some(at(second + 5)), &mut wheel, 7);
            assert_eq!(wheel.len(), 1);
        }
        wheel.expire(at(7), &mut due);
        assert_eq!(due, [7]);
        assert!(!limit.is_reached(at(7), &mut wheel, 7));
        assert_eq!(wheel.len(), 1);
        limit.set(Some(at(8)), &mut wheel, 7);
        wheel.expire(at(8) + Duration::from_millis(1), &mut due);
        assert!(limit.is_reached(at(8) + Duration::from_millis(1), &mut wheel, 7));
        limit.set(Some(at(20)), &mut wheel, 7);
        limit.cancel(&mut wheel);
        assert!(wheel.is_empty());
    }
}
