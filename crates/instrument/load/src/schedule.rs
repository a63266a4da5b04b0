//! The open loop's requests as they fall due: one schedule for all event loops of a process.
//!
//! A loop, or a thread, with a free connection takes the next arrival and sends it when it is due.
//! So no request waits in one loop while another loop has a connection free, and the instants do
//! not depend on the number of loops. A request that no loop takes waits here: that is *pool wait*.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_measure::arrivals::{Arrivals, Rate};
use rand::rngs::StdRng;

use crate::config::{Config, Pace, StopCondition};
use crate::seed::{Purpose, phase, stream};

/// The schedule of an open loop; without arrivals in a closed one.
pub(crate) struct Schedule {
    state: Mutex<State>,
    /// How long a request may wait.
    timeout: u64,
}

struct State {
    /// The arrivals, before they began to count from the start and after.
    plan: Option<(Arrivals, StdRng)>,
    /// Arrivals that were looked at ahead of their turn, in order.
    ahead: VecDeque<u64>,
    /// When they began, in nanoseconds from the run's origin.
    start: Option<u64>,
    /// Taken by a loop that then had no connection for them, in order.
    returned: VecDeque<Due>,
    waits: Waits,
}

/// A request that is or will be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When, in nanoseconds from the run's origin.
    pub(crate) at: u64,
    /// Whether it is counted among the run's `-n` already.
    pub(crate) claimed: bool,
}

impl Schedule {
    pub(crate) fn new(config: &Config) -> Schedule {
        let plan = if let Pace::Open { rate, spacing } = config.pace {
            // A ramp takes up the window; during the warm-up its first rate holds.
            let ramp = if let StopCondition::Time(length) = config.stop_condition { length } else { Duration::ZERO };
            let rate = Rate { ramp_start: config.warm_up, ramp, ..rate };
            let mut random = stream(config.seed, Purpose::Arrivals, config.part, 0);
            let phase = phase(config.seed, config.part);
            Some((Arrivals::new(rate, spacing, 1.0, phase, &mut random), random))
        } else {
            None
        };
        let state = State {
            plan,
            ahead: VecDeque::new(),
            start: None,
            returned: VecDeque::new(),
            waits: Waits::of(config.connections),
        };
        Schedule { state: Mutex::new(state), timeout: config.timeout.as_nanos() as u64 }
    }

    /// Begins at this instant, unless another loop has begun it.
    pub(crate) fn begin(&self, start: u64) {
        self.lock().start.get_or_insert(start);
    }

    /// Takes the next arrival; none before the schedule begins, and none that falls due at `end` or
    /// later.
    pub(crate) fn take(&self, end: Option<u64>) -> Option<Due> {
        self.lock().take(end.unwrap_or(u64::MAX))
    }

    /// When the arrival is due that comes after `before` other arrivals that no loop has taken.
    /// `None` before the schedule begins, and if it falls due at `end` or later.
    pub(crate) fn look_ahead(&self, before: usize, end: Option<u64>) -> Option<u64> {
        self.lock().look_ahead(before).filter(|at| *at < end.unwrap_or(u64::MAX))
    }

    /// Gives back an arrival that was taken and not sent.
    pub(crate) fn give_back(&self, due: Due) {
        let returned = &mut self.lock().returned;
        let place = returned.partition_point(|other| other.at <= due.at);
        returned.insert(place, due);
    }

    /// A connection begins to wait until it is opened again.
    pub(crate) fn backs_off(&self, now: u64) {
        self.lock().waits.begin(now);
    }

    /// It has waited.
    pub(crate) fn returns(&self, now: u64) {
        self.lock().waits.end(now);
    }

    /// A connection takes no further request: it was given up, or has had all of its own.
    pub(crate) fn leaves(&self, now: u64) {
        self.lock().waits.leave(now);
    }

    /// How much of a request's wait is due to connections that waited to be opened again: at each
    /// instant the share of them that did. It has waited for no longer than its time-out.
    pub(crate) fn backoff_within(&self, from: u64, to: u64) -> u64 {
        let to = to.min(from.saturating_add(self.timeout));
        if from >= to { 0 } else { self.lock().waits.within(from, to) }
    }

    /// How many requests of the run's count were taken, given back, and not taken again.
    pub(crate) fn claimed_and_returned(&self) -> u64 {
        self.lock().returned.iter().filter(|due| due.claimed).count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, end: u64) -> Option<Due> {
        if self.returned.front().is_some_and(|due| due.at < end) {
            return self.returned.pop_front();
        }
        let at = self.look_ahead_of_new(0).filter(|at| *at < end)?;
        self.ahead.pop_front();
        Some(Due { at, claimed: false })
    }

    fn look_ahead(&mut self, before: usize) -> Option<u64> {
        match self.returned.get(before) {
            Some(due) => Some(due.at),
            None => self.look_ahead_of_new(before - self.returned.len()),
        }
    }

    /// The same of the arrivals that were never taken.
    fn look_ahead_of_new(&mut self, before: usize) -> Option<u64> {
        let start = self.start?;
        let (arrivals, random) = self.plan.as_mut()?;
        while self.ahead.len() <= before {
            self.ahead.push_back(start.saturating_add(arrivals.next_ns()));
            arrivals.advance(random);
        }
        self.ahead.get(before).copied()
    }
}

/// Which part of the connections waited to be opened again, summed up over time. A connection that
/// is lost again and again has its own share of a wait and no more: the rest is that of connections
/// which are busy.
#[derive(Debug)]
struct Waits {
    /// Connections that take requests, once they are up.
    wanted: usize,
    waiting: usize,
    /// The sum at the last change of either.
    last: Sum,
    /// The sums at changes before, the oldest first.
    past: Vec<Sum>,
}

/// The shares up to an instant, as the time for which all connections would have waited.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    at: u64,
    waited_ns: f64,
}

/// Changes kept. Where there are more, every other one is left out, so that the oldest are the
/// fewest: the sum is taken to rise evenly between two.
const CHANGES: usize = 4096;

impl Waits {
    fn of(connections: usize) -> Waits {
        Waits { wanted: connections, waiting: 0, last: Sum::default(), past: Vec::new() }
    }

    fn begin(&mut self, now: u64) {
        self.pass(now);
        self.waiting += 1;
    }

    fn end(&mut self, now: u64) {
        self.pass(now);
        self.waiting = self.waiting.saturating_sub(1);
    }

    fn leave(&mut self, now: u64) {
        self.pass(now);
        self.wanted = self.wanted.saturating_sub(1);
    }

    /// Sums up until now, where the numbers change.
    fn pass(&mut self, now: u64) {
        if self.past.len() == CHANGES {
            let mut keep = false;
            self.past.retain(|_| {
                keep = !keep;
                keep
            });
        }
        // A loop takes its time before it has the lock: the last change may be of a later instant.
        let at = now.max(self.last.at);
        let waited_ns = self.waited_ns(at);
        self.past.push(self.last);
        self.last = Sum { at, waited_ns };
    }

    /// The sum up to an instant.
    fn waited_ns(&self, at: u64) -> f64 {
        let Sum { at: last, waited_ns } = self.last;
        if at >= last {
            let share = self.waiting as f64 / self.wanted.max(self.waiting).max(1) as f64;
            return waited_ns + (at - last) as f64 * share;
        }
        let place = self.past.partition_point(|sum| sum.at <= at);
        let Some(before) = place.checked_sub(1).map(|place| self.past[place]) else { return 0.0 };
        let after = self.past.get(place).unwrap_or(&self.last);
        let part = (at - before.at) as f64 / (after.at - before.at) as f64;
        before.waited_ns + part * (after.waited_ns - before.waited_ns)
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        let waited = self.waited_ns(to) - self.waited_ns(from);
        (waited.round() as u64).min(to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Part;
    use crate::config::tests::config;
    use plimsoll_measure::arrivals::Spacing;

    const SECOND: u64 = 1_000_000_000;

    fn schedule(spacing: Spacing, rate: f64) -> Schedule {
        Schedule::new(&config(Pace::Open { rate: Rate::constant(rate), spacing }))
    }

    #[test]
    fn a_fixed_rate_is_due_as_often_as_it_says_in_a_window() {
        let schedule = schedule(Spacing::Fixed, 200.0);
        schedule.begin(5 * SECOND);
        let taken = std::iter::from_fn(|| schedule.take(Some(7 * SECOND))).count();
        assert_eq!(taken, 400, "the end is not part of the window");
    }

    #[test]
    fn generators_at_a_fixed_rate_do_not_send_in_pairs_unless_they_share_a_seed() {
        let instants = |seed: u64, part: Part| {
            let pace = Pace::Open { rate: Rate::constant(100.0 / part.of as f64), spacing: Spacing::Fixed };
            let schedule = Schedule::new(&Config { seed, part, ..config(pace) });
            schedule.begin(0);
            std::iter::from_fn(|| schedule.take(Some(SECOND)).map(|due| due.at)).collect::<Vec<u64>>()
        };
        let [one, other] = [1, 3].map(|seed| instants(seed, Part::ALONE));
        assert_eq!((one.len(), other.len()), (100, 100));
        // A distance is ten milliseconds.
        assert!(one.iter().zip(&other).all(|(one, other)| one.abs_diff(*other) > SECOND / 1000), "{one:?} {other:?}");
        assert_eq!(one, instants(1, Part::ALONE));
        let mut shared: Vec<u64> = (0..4).flat_map(|number| instants(1, Part { number, of: 4 })).collect();
        shared.sort_unstable();
        assert!(shared.iter().zip(&one).all(|(shared, one)| shared.abs_diff(*one) <= 2), "{shared:?} {one:?}");
        assert_eq!(shared.len(), 100);
    }

    #[test]
    fn nothing_is_due_before_the_schedule_begins() {
        let schedule = schedule(Spacing::Poisson, 200.0);
        assert_eq!(schedule.take(None), None);
        schedule.begin(SECOND);
        schedule.begin(9 * SECOND);
        assert!(
            schedule.take(None).is_some_and(|due| (SECOND..2 * SECOND).contains(&due.at)),
            "the first start counts"
        );
    }

    #[test]
    fn what_is_given_back_is_taken_again_first_and_nothing_is_lost() {
        let schedule = schedule(Spacing::Fixed, 10.0);
        schedule.begin(0);
        let all: Vec<u64> = (0..5).filter_map(|_| schedule.take(None)).map(|due| due.at).collect();
        for at in [all[3], all[1]] {
            schedule.give_back(Due { at, claimed: true });
        }
        let again: Vec<Due> = (0..2).filter_map(|_| schedule.take(None)).collect();
        assert_eq!(again, [all[1], all[3]].map(|at| Due { at, claimed: true }));
        assert!(schedule.take(None).is_some_and(|due| due.at > all[4]));
    }

    #[test]
    fn looking_ahead_changes_nothing_and_sees_what_will_be_taken() {
        let (looked, plain) = (schedule(Spacing::Poisson, 100.0), schedule(Spacing::Poisson, 100.0));
        assert_eq!(looked.look_ahead(0, None), None, "the schedule has not begun");
        for schedule in [&looked, &plain] {
            schedule.begin(SECOND);
        }
        let seen: Vec<u64> = (0..6).rev().filter_map(|before| looked.look_ahead(before, None)).collect();
        let taken: Vec<u64> = (0..6).filter_map(|_| looked.take(None)).map(|due| due.at).collect();
        assert_eq!(taken.iter().rev().copied().collect::<Vec<_>>(), seen);
        assert_eq!((0..6).filter_map(|_| plain.take(None)).map(|due| due.at).collect::<Vec<_>>(), taken);
        let next = looked.look_ahead(0, None).expect("arrivals never end");
        looked.give_back(Due { at: taken[5], claimed: false });
        assert_eq!([0, 1].map(|before| looked.look_ahead(before, None)), [Some(taken[5]), Some(next)]);
        assert_eq!(looked.look_ahead(1, Some(next)), None, "the end is not part of the window");
        assert_eq!(looked.take(Some(taken[5])), None);
    }

    #[test]
    fn back_off_is_the_share_of_the_connections_that_waited_at_each_instant() {
        let mut waits = Waits::of(4);
        for (begin, end) in [(100, 200), (400, 500)] {
            // From 20 after the first on a second waits too, until 20 before the end.
            waits.begin(begin);
            waits.begin(begin + 20);
            waits.end(end - 20);
            waits.end(end);
        }
        let all = 20 / 4 + 60 * 2 / 4 + 20 / 4;
        for (from, to, want) in
            [(0, 1000, 2 * all), (200, 400, 0), (150, 450, all), (110, 120, 3), (0, 100, 0), (600, 900, 0)]
        {
            assert_eq!(waits.within(from, to), want, "{from} to {to}");
        }
        for begin in [1000; 4] {
            waits.begin(begin);
        }
        assert_eq!(waits.within(990, 1100), 100, "all wait");
        waits.end(1100);
        assert_eq!(waits.within(1100, 1200), 75);
        // One that was given up is not busy either.
        waits.leave(1100);
        assert_eq!(waits.within(1100, 1200), 100);
    }

    #[test]
    fn the_back_off_after_its_time_out_is_no_part_of_a_requests_wait() {
        let pace = Pace::Open { rate: Rate::constant(1.0), spacing: Spacing::Fixed };
        let timeout = Duration::from_nanos(100);
        let schedule = Schedule::new(&Config { connections: 1, timeout, ..config(pace) });
        schedule.backs_off(70);
        let waits = [(0, 60), (0, 90), (0, 1000), (80, 1000)].map(|(from, to)| schedule.backoff_within(from, to));
        assert_eq!(waits, [0, 20, 30, 100]);
    }

    #[test]
    fn no_back_off_is_longer_than_the_wait_it_is_a_part_of() {
        let mut waits = Waits::of(1);
        // The second comes from a loop that read its clock before the first span was over.
        for (begin, end) in [(10, 20), (18, 30), (29, 25), (28, 40)] {
            waits.begin(begin);
            waits.end(end);
        }
        assert_eq!(waits.within(15, 35), 20);
        assert_eq!(waits.within(0, 100), 30);
    }

    #[test]
    fn the_back_off_of_many_changes_is_that_of_each_of_them() {
        let mut waits = Waits::of(2);
        let changes = 5 * CHANGES as u64;
        for change in 0..changes {
            waits.begin(change * 10);
            waits.end(change * 10 + 5);
        }
        assert!(waits.past.len() <= CHANGES);
        // A quarter of all time: one of two, half of the time.
        for (from, to) in [(0, changes * 10), (changes * 5, changes * 10), (changes * 10 - 1000, changes * 10)] {
            let (told, want) = (waits.within(from, to), (to - from) / 4);
            assert!(told.abs_diff(want) <= want / 50, "{told} of {want}, from {from}");
        }
    }
}
