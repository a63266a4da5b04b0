//! The end of a server: the first signal drains it, the second one or the end of the time stops it.
//!
//! The time is an argument, so the order of events is tested without a clock.

use std::time::{Duration, Instant};

/// What a coordinator is to begin now. Each comes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Accept nothing more, and finish what is under way.
    Drain,
    /// End everything at once.
    Stop,
}

/// How far the end has come.
#[derive(Debug)]
pub struct Shutdown {
    drain: Duration,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Draining { until: Instant },
    Stopping,
}

impl Shutdown {
    /// A server that runs. Draining takes at most `drain`.
    pub fn new(drain: Duration) -> Shutdown {
        Shutdown { drain, state: State::Running }
    }

    /// Whether no end has been requested yet.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// A signal asks for the end.
    pub fn on_signal(&mut self, now: Instant) -> Option<Step> {
        match self.state {
            State::Running => {
                self.state = State::Draining { until: now + self.drain.min(LONGEST) };
                Some(Step::Drain)
            }
            State::Draining { .. } => self.stop(),
            State::Stopping => None,
        }
    }

    /// Stops what cannot go on.
    pub fn stop(&mut self) -> Option<Step> {
        let before = std::mem::replace(&mut self.state, State::Stopping);
        (before != State::Stopping).then_some(Step::Stop)
    }

    /// Time has passed: the drain may be over.
    pub fn on_time(&mut self, now: Instant) -> Option<Step> {
        match self.state {
            State::Draining { until } if now >= until => self.stop(),
            _ => None,
        }
    }

    /// Until when a coordinator may wait, if anything here depends on the time. A wait for a time
    /// that has passed would spin, so there is none once the end has begun.
    pub fn until(&self) -> Option<Instant> {
        match self.state {
            State::Draining { until } => Some(until),
            State::Running | State::Stopping => None,
        }
    }
}

/// A longer drain is this one: a century is a time that the clock can count to.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_step_comes_once_and_no_wait_is_for_a_time_that_has_passed() {
        let start = Instant::now();
        let mut shutdown = Shutdown::new(5 * SECOND);
        assert!(shutdown.is_running());
        assert_eq!((shutdown.on_time(start), shutdown.until()), (None, None));
        assert_eq!(shutdown.on_signal(start), Some(Step::Drain));
        assert!(!shutdown.is_running());
        assert_eq!(shutdown.until(), Some(start + 5 * SECOND));
        assert_eq!(shutdown.on_time(start + 4 * SECOND), None);
        assert_eq!(shutdown.on_time(start + 5 * SECOND), Some(Step::Stop));
        assert_eq!(shutdown.until(), None, "waiting for the deadline again would spin");
        assert_eq!(shutdown.on_time(start + 6 * SECOND), None);
        assert_eq!(shutdown.on_signal(start + 7 * SECOND), None);
    }

    #[test]
    fn a_second_signal_stops_at_once() {
        let start = Instant::now();
        let mut shutdown = Shutdown::new(Duration::MAX);
        assert_eq!(shutdown.on_signal(start), Some(Step::Drain));
        assert_eq!(shutdown.until(), Some(start + Duration::from_secs(3_153_600_000)), "a century");
        assert_eq!(shutdown.on_signal(start), Some(Step::Stop));
        assert_eq!((shutdown.on_signal(start), shutdown.stop(), shutdown.until()), (None, None, None));
    }
}
