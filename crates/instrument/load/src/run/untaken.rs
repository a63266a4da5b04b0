//! An open loop's requests that no connection takes, because none is free: they time out where they
//! wait, in the [schedule](crate::schedule). Pure: the instants are arguments.

use crate::config::{Config, StopCondition};
use crate::control::Control;
use crate::ledger::{Books, Ledger};
use crate::record::{Phase, Recorder, Records};
use crate::schedule::Schedule;

/// The counts of these requests. In a counted run the loop that claims a request counts it, and
/// nothing is counted here.
pub(super) struct Untaken {
    ledger: Ledger,
    timeout: u64,
    counts: bool,
}

impl Untaken {
    pub(super) fn new(config: &Config, control: &Control) -> Untaken {
        let records = Records { seconds: config.records.seconds.clone(), ..Records::default() };
        let recorder = Recorder::new(&records, control.unix(0), std::iter::empty());
        Untaken {
            ledger: Ledger::new(config, false, 0, recorder),
            timeout: config.timeout.as_nanos() as u64,
            counts: matches!(config.stop_condition, StopCondition::Time(_)) && config.pace.is_open(),
        }
    }

    /// Counts those that have timed out by now, each in the span and the second in which it did.
    pub(super) fn pass(&mut self, now: u64, control: &Control, schedule: &Schedule) {
        let end = control.closes.get().unwrap_or(u64::MAX).min(now);
        if !self.counts || self.ledger.phase() == Phase::Drain {
            return;
        }
        while let Some(due) = end.checked_sub(self.timeout).and_then(|end| schedule.take(Some(end))) {
            let at = due.at.saturating_add(self.timeout);
            self.advance(at, control);
            // A loop or a thread that has shown a free connection since before the request was due
            // did not get to it in time.
            let held_up = control.held_up(due.at, at, None);
            let backoff = schedule.backoff_within(due.at + held_up, at);
            self.ledger.expired(due.at, at - held_up, at, backoff);
        }
        self.advance(end, control);
    }

    /// Requests may begin, by the wall clock as it is now.
    pub(super) fn follow_clock(&mut self, control: &Control) {
        self.ledger.follow_clock(control.unix(0));
    }

    /// How many have timed out so far in the whole run.
    pub(super) fn timed_out(&self) -> u64 {
        self.ledger.shown().failed
    }

    /// Counts those that are left when the window has closed, and returns the counts.
    pub(super) fn finish(mut self, end: u64, control: &Control, schedule: &Schedule) -> Option<Books> {
        if !self.counts {
            return None;
        }
        self.pass(end, control, schedule);
        while let Some(due) = schedule.take(Some(end)) {
            let held_up = control.held_up(due.at, end, None);
            let backoff = schedule.backoff_within(due.at + held_up, end);
            self.ledger.overdue(due.at, end - held_up, end, backoff);
        }
        self.ledger.close(end, std::iter::empty());
        Some(self.ledger.finish())
    }

    fn advance(&mut self, now: u64, control: &Control) {
        if self.ledger.phase() == Phase::WarmUp
            && let Some(opens) = control.opens.get().filter(|opens| *opens <= now)
            && !control.has_no_window()
        {
            self.ledger.open(opens, 0);
        }
        if !control.closes.has_come(now) {
            self.ledger.record(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use plimsoll_measure::arrivals::{Rate, Spacing};
    use plimsoll_measure::times::Times;

    use super::*;
    use crate::config::Pace;
    use crate::config::tests::config;

    const SECOND: u64 = 1_000_000_000;

    /// A hundred requests a second from the origin on, which time out after half a second, for ten
    /// connections of one loop.
    fn begun(records: Records) -> (Config, Control, Schedule) {
        let pace = Pace::Open { rate: Rate::constant(100.0), spacing: Spacing::Fixed };
        let config = Config { timeout: Duration::from_millis(500), records, ..config(pace) };
        let schedule = Schedule::new(&config);
        schedule.begin(0);
        (config, Control::new(10, None, 0, 1).expect("an event"), schedule)
    }

    /// Those of a window of three seconds, after one of warm-up.
    fn run(steps: &[u64]) -> (Books, Vec<(u64, Phase, u64)>) {
        let (seconds, received) = channel();
        let records = Records { seconds: Some(seconds), ..Records::default() };
        let (config, control, schedule) = begun(records);
        control.opens.set(SECOND);
        control.closes.set(4 * SECOND);
        let mut untaken = Untaken::new(&config, &control);
        for now in steps {
            untaken.pass(*now, &control, &schedule);
        }
        let books = untaken.finish(4 * SECOND, &control, &schedule).expect("it counts");
        drop(config);
        let told = received.iter().filter(|second| second.timed_out > 0);
        (books, told.map(|second| (second.number, second.phase, second.timed_out)).collect())
    }

    #[test]
    fn what_nobody_takes_times_out_in_its_own_second_and_phase_whenever_it_is_looked_at() {
        let quarters: Vec<u64> = (0..=17).map(|quarter| quarter * SECOND / 4 + 3).collect();
        for steps in [&quarters[..], &[], &[SECOND * 5 / 2, 9 * SECOND]] {
            let (books, told) = run(steps);
            let window = [(1, 100), (2, 100), (3, 100)].map(|(second, count)| (second, Phase::Window, count));
            assert_eq!(told, [&[(0, Phase::WarmUp, 50)], &window[..]].concat(), "{steps:?}");
            let (warm_up, window) = (books.warm_up.expect("there was one").requests, books.window.requests);
            assert_eq!((warm_up.timed_out, window.timed_out, window.unsent), (50, 300, 50), "{steps:?}");
            assert!(warm_up.balance() && window.balance());
            assert_eq!(books.window.errors.timeout, 300);
        }
    }

    #[test]
    fn what_times_out_while_a_loop_has_a_connection_free_waited_for_the_generator() {
        for (free, [pool_ms, lag_ms]) in [(0, [500.0, 0.0]), (1, [0.0, 500.0])] {
            let (config, control, schedule) = begun(Records::default());
            control.opens.set(0);
            control.closes.set(4 * SECOND);
            control.gauges[0].free.store(free, Ordering::Relaxed);
            let mut untaken = Untaken::new(&config, &control);
            untaken.pass(3 * SECOND, &control, &schedule);
            untaken.ledger.close(3 * SECOND, std::iter::empty());
            let window = untaken.ledger.finish().window;
            assert_eq!(window.requests.timed_out, 250);
            let most = [&window.pool_wait, &window.schedule_lag].map(|times| times.summary().max / 1000.0);
            assert_eq!(most, [pool_ms, lag_ms], "{free} free");
        }
    }

    #[test]
    fn what_no_connection_takes_waited_for_the_generator_while_that_was_late_with_others() {
        let (config, control, schedule) = begun(Records::default());
        control.opens.set(0);
        control.closes.set(SECOND);
        // Until then requests were held up for which a connection was free.
        control.gauges[0].hold_up_until(SECOND * 9 / 10);
        let books = Untaken::new(&config, &control).finish(SECOND, &control, &schedule).expect("it counts");
        let window = books.window;
        assert_eq!((window.requests.timed_out, window.requests.unsent), (50, 50));
        let [wait, lag] = [&window.pool_wait, &window.schedule_lag].map(Times::summary);
        // Of ninety all but the last 100 ms of those that are left; of ten nothing.
        assert_eq!((wait.count, wait.max, lag.count), (100, 100_000.0, 90), "{wait:?} {lag:?}");
        assert!((399_000.0..=500_000.0).contains(&lag.max), "{lag:?}");
    }

    #[test]
    fn what_no_connection_takes_while_all_wait_to_be_opened_again_waited_for_that() {
        let (config, control, schedule) = begun(Records::default());
        for _ in 0..10 {
            schedule.backs_off(0);
        }
        control.opens.set(0);
        control.closes.set(SECOND);
        let books = Untaken::new(&config, &control).finish(SECOND, &control, &schedule).expect("it counts");
        let window = books.window;
        assert_eq!((window.requests.timed_out, window.requests.unsent), (50, 50));
        let (wait, backoff) = (window.pool_wait.summary(), window.backoff_wait.summary());
        assert_eq!((wait.max, backoff.count), (0.0, 100), "{wait:?} {backoff:?}");
    }

    #[test]
    fn of_a_window_that_never_opened_nothing_is_counted_but_as_the_warm_ups() {
        let (config, control, schedule) = begun(Records::default());
        control.opens.set(9 * SECOND);
        control.closes.set(12 * SECOND);
        let mut untaken = Untaken::new(&config, &control);
        untaken.pass(SECOND, &control, &schedule);
        control.interrupt(2 * SECOND);
        untaken.pass(2 * SECOND, &control, &schedule);
        let books = untaken.finish(2 * SECOND, &control, &schedule).expect("it counts");
        let warm_up = books.warm_up.expect("there was one").requests;
        assert_eq!((warm_up.scheduled, warm_up.timed_out, warm_up.unsent), (200, 150, 50));
        assert_eq!(books.window.requests, plimsoll_measure::tally::Requests::default());
    }

    #[test]
    fn of_a_counted_run_nothing_is_counted() {
        let pace = Pace::Open { rate: Rate::constant(100.0), spacing: Spacing::Fixed };
        let config = Config { stop_condition: StopCondition::Requests(10), ..config(pace) };
        let control = Control::new(10, Some(10), 0, 1).expect("an event");
        let schedule = Schedule::new(&config);
        schedule.begin(0);
        let mut untaken = Untaken::new(&config, &control);
        untaken.pass(100 * SECOND, &control, &schedule);
        assert!(untaken.finish(100 * SECOND, &control, &schedule).is_none());
        assert!(schedule.take(None).is_some_and(|due| due.at < SECOND / 100), "the first is still there");
    }
}
