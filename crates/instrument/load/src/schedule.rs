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
pub(crate) struct Schedule(Mutex<State>);

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
        Schedule(Mutex::new(State {
            plan,
            ahead: VecDeque::new(),
            start: None,
            returned: VecDeque::new(),
            waits: Waits::default(),
        }))
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

    /// For how long of a span a connection waited to be opened again.
    pub(crate) fn backoff_within(&self, from: u64, to: u64) -> u64 {
        if from >= to { 0 } else { self.lock().waits.overlap(from, to) }
    }

    /// How many requests of the run's count were taken, given back, and not taken again.
    pub(crate) fn claimed_and_returned(&self) -> u64 {
        self.lock().returned.iter().filter(|due| due.claimed).count() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can fail.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// When connections waited to be opened again: the union of the spans in which at least one did.
#[derive(Debug, Default)]
struct Waits {
    waiting: usize,
    since: u64,
    /// Spans that are over, the oldest first.
    past: VecDeque<(u64, u64)>,
}

/// Spans kept. A request that waited for longer than all of them has its older part called pool
/// wait.
const SPANS: usize = 1024;

impl Waits {
    fn begin(&mut self, now: u64) {
        if self.waiting == 0 {
            // A loop takes its time before it has the lock, so the last span may end after that.
            self.since = self.past.back().map_or(now, |(_, end)| now.max(*end));
        }
        self.waiting += 1;
    }

    fn end(&mut self, now: u64) {
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            if self.past.len() == SPANS {
                self.past.pop_front();
            }
            self.past.push_back((self.since, now.max(self.since)));
        }
    }

    fn overlap(&self, from: u64, to: u64) -> u64 {
        let current = (self.waiting > 0).then_some((self.since, u64::MAX));
        let spans = self.past.iter().copied().chain(current);
        spans.map(|(begin, end)| end.min(to).saturating_sub(begin.max(from))).sum()
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
    fn back_off_is_the_union_of_the_spans_within_a_wait() {
        let mut waits = Waits::default();
        for (begin, end) in [(10, 20), (40, 50)] {
            waits.begin(begin);
            waits.begin(begin + 2);
            waits.end(end - 2);
            waits.end(end);
        }
        waits.begin(90);
        assert_eq!(waits.overlap(15, 45), 10);
        assert_eq!(waits.overlap(0, 100), 30);
        assert_eq!(waits.overlap(20, 40), 0);
    }

    #[test]
    fn no_back_off_is_longer_than_the_wait_it_is_a_part_of() {
        let mut waits = Waits::default();
        // The second comes from a loop that read its clock before the first span was over.
        for (begin, end) in [(10, 20), (18, 30), (29, 25), (28, 40)] {
            waits.begin(begin);
            waits.end(end);
        }
        assert_eq!(waits.overlap(15, 35), 20);
        assert_eq!(waits.overlap(0, 100), 30);
    }
}
