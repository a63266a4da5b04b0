//! What to do about a lost connection: open it again at once, after a while, or not at all. Pure.
//!
//! The rule: the generator waits only where connects fail, or where connections end without a
//! single answer. A server that ends each connection after an answer is asked again at once:
//! otherwise the wait would be measured, and not the server.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::config::{Config, Recovery};

/// Failed attempts in a row after which a connection that was never up is given up.
const FIRST_ATTEMPTS: u16 = 3;
/// Failed attempts in a row after which a connection that was up is given up.
const ATTEMPTS: u16 = 10;
/// The wait after the first failure; it doubles with each further one, up to the longest. Half of
/// it is random, so that connections lost together do not come back together.
const WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(3200);

/// The rules of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    recovery: Recovery,
    /// Whether a number of requests ends the run.
    counted: bool,
}

impl Rules {
    pub(crate) fn of(config: &Config) -> Rules {
        Rules { recovery: config.recovery, counted: config.stop_condition.is_count() }
    }
}

/// What a connection has gone through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// Connects since it last completed what resets their count.
    attempts: u16,
    /// Whether it was ever up.
    pub(crate) was_established: bool,
    /// Whether it is lost by a time-out of ours.
    timed_out: bool,
    /// Whether it was so the last time.
    was_timed_out: bool,
    /// Whether a request was answered since its last connect, and nothing lost since.
    pub(crate) answered: bool,
}

/// When to open a lost connection again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Open it again at once.
    AtOnce,
    /// Open it again after this many nanoseconds.
    After(u64),
    /// Never.
    Never,
}

impl History {
    pub(crate) fn connecting(&mut self) {
        // With `--reconnect` the next request of a sequence has a connection of its own, and that
        // is no further attempt at the sequence.
        let goes_on = std::mem::take(&mut self.answered);
        self.attempts = if goes_on { self.attempts.max(1) } else { self.attempts.saturating_add(1) };
    }

    /// It is up; whether for the first time.
    pub(crate) fn established(&mut self) -> bool {
        !std::mem::replace(&mut self.was_established, true)
    }

    pub(crate) fn answered(&mut self, rules: Rules) {
        self.answered = true;
        // tcpbenchmark counts the connects of a sequence, whatever was answered within it.
        if rules.recovery == Recovery::GiveUp {
            self.attempts = 0;
        }
    }

    /// Its request was not answered in time, and it is ended for that.
    pub(crate) fn timed_out(&mut self) {
        self.timed_out = true;
    }

    /// Whether it was up, and could not be opened again since, or was ended without an answer. One
    /// that was ended for a time-out can be.
    pub(crate) fn could_not_be_kept(&self) -> bool {
        self.was_established && self.attempts > 1 && !self.was_timed_out
    }

    /// What follows the loss of the connection, or the failure of a connect.
    pub(crate) fn after_loss(&mut self, rules: Rules, random: &mut impl Rng) -> Retry {
        let answered = std::mem::take(&mut self.answered);
        self.was_timed_out = std::mem::take(&mut self.timed_out);
        let tries = match rules.recovery {
            Recovery::Restart { attempts } => attempts,
            Recovery::GiveUp if self.was_established => ATTEMPTS,
            Recovery::GiveUp => FIRST_ATTEMPTS,
        };
        // In a run of a set length a connection that was up is tried for as long as the run lasts.
        if self.attempts >= tries && (rules.counted || !self.was_established) {
            return Retry::Never;
        }
        if answered {
            return Retry::AtOnce;
        }
        let doublings = u32::from(self.attempts.clamp(1, 10)) - 1;
        let wait = (WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT).as_nanos() as u64;
        Retry::After(wait / 2 + random.random_range(0..=wait / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const TIMED: Rules = Rules { recovery: Recovery::GiveUp, counted: false };
    const COUNTED: Rules = Rules { recovery: Recovery::GiveUp, counted: true };

    fn failing(history: &mut History, rules: Rules, times: usize) -> Vec<Retry> {
        let mut random = StdRng::seed_from_u64(1);
        (0..times)
            .map(|_| {
                history.connecting();
                history.after_loss(rules, &mut random)
            })
            .collect()
    }

    #[test]
    fn a_connection_that_ends_after_an_answer_is_opened_again_at_once_however_often() {
        let mut history = History::default();
        for _ in 0..1000 {
            history.connecting();
            history.established();
            history.answered(COUNTED);
            assert_eq!(history.after_loss(COUNTED, &mut StdRng::seed_from_u64(1)), Retry::AtOnce);
        }
    }

    #[test]
    fn connects_that_fail_wait_longer_each_time_up_to_a_bound() {
        let mut history = History { was_established: true, ..History::default() };
        let waits = failing(&mut history, TIMED, 12);
        for (wait, attempt) in waits.into_iter().zip(0_u32..) {
            let most = 100_000_000_u64 << attempt.min(5);
            assert!(matches!(wait, Retry::After(wait) if (most / 2..=most).contains(&wait)), "{attempt}: {wait:?}");
        }
    }

    #[test]
    fn a_connection_that_was_never_up_is_given_up_after_three_attempts_in_any_run() {
        for rules in [TIMED, COUNTED] {
            let next = failing(&mut History::default(), rules, 3);
            assert!(matches!(next[..], [Retry::After(_), Retry::After(_), Retry::Never]), "{next:?}");
        }
    }

    #[test]
    fn one_that_was_up_is_given_up_only_where_a_count_ends_the_run() {
        let up = || History { was_established: true, ..History::default() };
        assert_eq!(failing(&mut up(), COUNTED, 10).last(), Some(&Retry::Never));
        assert!(failing(&mut up(), TIMED, 100).iter().all(|next| matches!(next, Retry::After(_))));
    }

    #[test]
    fn a_connection_whose_requests_time_out_is_kept_as_long_as_it_can_be_opened_again() {
        let mut history = History::default();
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..3 {
            history.connecting();
            history.established();
            history.timed_out();
            history.after_loss(TIMED, &mut random);
            assert!(!history.could_not_be_kept());
        }
        history.connecting();
        assert!(!history.could_not_be_kept(), "the attempt is under way");
        history.after_loss(TIMED, &mut random);
        assert!(history.could_not_be_kept(), "it has failed");
        // As behind a balancer without a server: each comes up, and is ended.
        history.connecting();
        history.established();
        history.after_loss(TIMED, &mut random);
        assert!(history.could_not_be_kept());
    }

    #[test]
    fn with_restarts_an_answer_does_not_give_more_attempts() {
        let rules = Rules { recovery: Recovery::Restart { attempts: 2 }, counted: true };
        let mut history = History::default();
        history.connecting();
        history.answered(rules);
        assert_eq!(history.after_loss(rules, &mut StdRng::seed_from_u64(1)), Retry::AtOnce);
        history.connecting();
        history.answered(rules);
        assert_eq!(history.after_loss(rules, &mut StdRng::seed_from_u64(1)), Retry::Never);
    }
    #[test]
    fn with_restarts_the_connections_of_one_sequence_are_one_attempt() {
        let rules = Rules { recovery: Recovery::Restart { attempts: 2 }, counted: true };
        let mut history = History::default();
        for last in [false, true] {
            // As many requests as there are, each on a connection of its own.
            for _ in 0..5 {
                history.connecting();
                history.answered(rules);
            }
            history.connecting();
            let next = history.after_loss(rules, &mut StdRng::seed_from_u64(1));
            assert_eq!(next == Retry::Never, last, "{next:?}");
        }
    }
}
