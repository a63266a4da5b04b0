//! When requests are due: pure values drawn from a seeded source, in nanoseconds.

use std::time::Duration;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Exp1};

/// Closed loop: the pause between a completion and the next send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// None: the next request is sent at once.
    None,
    /// The same each time.
    Fixed(Duration),
    /// Drawn anew from an exponential distribution with this mean, so that requests come as from
    /// independent people.
    Exponential(Duration),
}

impl Think {
    /// The next pause, in nanoseconds.
    pub fn draw_ns(self, random: &mut impl Rng) -> u64 {
        match self {
            Think::None => 0,
            Think::Fixed(pause) => pause.as_nanos() as u64,
            Think::Exponential(mean) => ((mean.as_nanos() as f64 * exponential(random)) as u64).min(CENTURY_NS),
        }
    }

    /// How long after its start a connection sends its first request, so that connections which
    /// start together do not go on together: as if it had been thinking for a while already.
    pub fn draw_phase_ns(self, random: &mut impl Rng) -> u64 {
        match self {
            Think::None => 0,
            Think::Fixed(pause) => random.random_range(0..=pause.as_nanos() as u64),
            // An exponential pause has no memory: what is left of one is distributed as the whole.
            Think::Exponential(_) => self.draw_ns(random),
        }
    }
}

/// A pause is no longer than a duration can be written: added to an instant it must not overflow.
const CENTURY_NS: u64 = 3_200_000_000_000_000_000;

fn exponential(random: &mut impl Rng) -> f64 {
    Exp1.sample(random)
}

/// Open loop: how many requests a second are due, changing evenly from one rate to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second until the ramp begins, and as it does.
    pub from: f64,
    /// Requests a second as the ramp ends, and from then on.
    pub to: f64,
    /// When the ramp begins.
    pub ramp_start: Duration,
    /// How long it takes.
    pub ramp: Duration,
}

impl Rate {
    /// The same rate all the time.
    pub fn constant(rate: f64) -> Rate {
        Rate { from: rate, to: rate, ramp_start: Duration::ZERO, ramp: Duration::ZERO }
    }

    /// The mean rate over the ramp.
    pub fn mean(&self) -> f64 {
        self.mean_of_first(1.0)
    }

    /// The mean rate over the first part (0 to 1) of the ramp.
    pub fn mean_of_first(&self, part: f64) -> f64 {
        self.from + (self.to - self.from) * part / 2.0
    }

    /// When `expected` requests are expected to have become due, in seconds: the inverse of the
    /// rate's integral. Infinite where that many never are.
    fn time_of(&self, expected: f64) -> f64 {
        let (start, ramp) = (self.ramp_start.as_secs_f64(), self.ramp.as_secs_f64());
        let before = self.from * start;
        if expected < before {
            return expected / self.from;
        }
        let within = expected - before;
        if within <= 0.0 {
            // Also where the rate starts at 0, which the division below could not bear.
            return start;
        }
        let over_ramp = self.mean() * ramp;
        if within <= over_ramp {
            // from * t + (to - from) / (2 * ramp) * t^2 = within, solved in the form that loses no
            // digits where the two rates are near each other.
            let root = (self.from * self.from + 2.0 * (self.to - self.from) / ramp * within).max(0.0).sqrt();
            return start + 2.0 * within / (self.from + root);
        }
        start + ramp + (within - over_ramp) / self.to
    }
}

/// How arrivals are spaced around their rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At equal distances.
    Fixed,
    /// As from many independent people: a Poisson process, whose gaps are exponential.
    Poisson,
}

/// The instants at which requests are due, one after the other: one event loop's part of an open
/// loop.
///
/// Nothing is stored: an instant is drawn when the previous one is taken, however late that is. So
/// the memory of a generator that cannot keep up does not grow.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rate: Rate,
    spacing: Spacing,
    /// This loop's part of all arrivals.
    share: f64,
    /// Requests of this loop expected to be due by the next arrival.
    expected: f64,
}

impl Arrivals {
    /// Arrivals for a loop with this share of all (above 0, at most 1). At fixed distances, `phase`
    /// (0 to 1) is by how much of a distance they are moved, so that several loops do not send
    /// together.
    pub fn new(rate: Rate, spacing: Spacing, share: f64, phase: f64, random: &mut impl Rng) -> Arrivals {
        let expected = match spacing {
            Spacing::Fixed => phase,
            Spacing::Poisson => exponential(random),
        };
        Arrivals { rate, spacing, share, expected }
    }

    /// When the next request is due, in nanoseconds from the start; `u64::MAX` where none ever is.
    pub fn next_ns(&self) -> u64 {
        // A float beyond the range becomes the largest integer.
        (self.rate.time_of(self.expected / self.share) * 1e9) as u64
    }

    /// Goes on to the arrival after the next.
    pub fn advance(&mut self, random: &mut impl Rng) {
        self.expected += match self.spacing {
            Spacing::Fixed => 1.0,
            Spacing::Poisson => exponential(random),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_fixed_pause_is_the_same_each_time_and_its_phase_within_it() {
        let mut random = StdRng::seed_from_u64(1);
        let think = Think::Fixed(Duration::from_millis(3));
        let phases: Vec<u64> = (0..1000).map(|_| think.draw_phase_ns(&mut random)).collect();
        assert_eq!(think.draw_ns(&mut random), 3_000_000);
        assert!(phases.iter().all(|phase| *phase <= 3_000_000));
        let mean = phases.iter().sum::<u64>() / 1000;
        assert!((1_350_000..1_650_000).contains(&mean), "{mean}");
    }

    #[test]
    fn exponential_pauses_have_their_mean_and_deviation() {
        let mut random = StdRng::seed_from_u64(2);
        let think = Think::Exponential(Duration::from_millis(1));
        let pauses: Vec<f64> = (0..100_000).map(|_| think.draw_ns(&mut random) as f64).collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        let variance = pauses.iter().map(|pause| (pause - mean).powi(2)).sum::<f64>() / pauses.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / 1e6 - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn a_pause_of_any_mean_can_be_added_to_an_instant() {
        let mut random = StdRng::seed_from_u64(3);
        let think = Think::Exponential(Duration::from_nanos(CENTURY_NS));
        let century_after = |pause: u64| pause.checked_add(CENTURY_NS);
        assert!((0..10_000).all(|_| century_after(think.draw_ns(&mut random)).is_some()));
    }

    fn take(rate: Rate, spacing: Spacing, count: usize, seed: u64) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut arrivals = Arrivals::new(rate, spacing, 1.0, 0.0, &mut random);
        (0..count)
            .map(|_| {
                let at = arrivals.next_ns();
                arrivals.advance(&mut random);
                at as f64 / 1e9
            })
            .collect()
    }

    #[test]
    fn fixed_arrivals_are_equally_far_apart() {
        let arrivals = take(Rate::constant(1000.0), Spacing::Fixed, 1001, 1);
        for (number, at) in arrivals.iter().enumerate() {
            assert!((at - number as f64 / 1000.0).abs() < 2e-9, "{number}: {at}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_arrivals() {
        let draw = |seed| take(Rate::constant(1000.0), Spacing::Poisson, 100, seed);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    /// The largest distance between the samples' distribution and the exponential one
    /// (Kolmogorov-Smirnov).
    fn distance_from_exponential(mut gaps: Vec<f64>, rate: f64) -> f64 {
        gaps.sort_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distance = |(place, gap): (usize, &f64)| {
            let expected = 1.0 - (-rate * gap).exp();
            (expected - place as f64 / count).abs().max((expected - (place + 1) as f64 / count).abs())
        };
        gaps.iter().enumerate().map(distance).fold(0.0, f64::max)
    }

    #[test]
    fn poisson_gaps_are_exponential_and_their_counts_within_bounds() {
        // Each bound is passed by chance once in a thousand: seeds are fixed, so this either holds
        // or it does not.
        for seed in 0..20 {
            let arrivals = take(Rate::constant(5000.0), Spacing::Poisson, 20_000, seed);
            let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let critical = 1.95 / (gaps.len() as f64).sqrt();
            let distance = distance_from_exponential(gaps, 5000.0);
            assert!(distance < critical, "seed {seed}: {distance} is not below {critical}");
            let within_a_second = arrivals.iter().filter(|at| **at < 1.0).count() as f64;
            assert!((within_a_second - 5000.0).abs() < 3.3 * 5000_f64.sqrt(), "seed {seed}: {within_a_second}");
        }
    }

    #[test]
    fn loops_with_a_share_each_are_one_poisson_process_together() {
        let mut all = Vec::new();
        for (seed, share) in [(1, 0.5), (2, 0.3), (3, 0.2)] {
            let mut random = StdRng::seed_from_u64(seed);
            let mut arrivals = Arrivals::new(Rate::constant(5000.0), Spacing::Poisson, share, 0.0, &mut random);
            while arrivals.next_ns() < 4_000_000_000 {
                all.push(arrivals.next_ns() as f64 / 1e9);
                arrivals.advance(&mut random);
            }
        }
        all.sort_by(f64::total_cmp);
        let gaps: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let critical = 1.95 / (gaps.len() as f64).sqrt();
        assert!(distance_from_exponential(gaps, 5000.0) < critical);
    }

    #[test]
    fn a_rate_that_ends_at_none_ends() {
        let rate = Rate { from: 10.0, to: 0.0, ramp_start: Duration::ZERO, ramp: Duration::from_secs(2) };
        let arrivals = take(rate, Spacing::Fixed, 12, 1);
        // The last is due just as the ramp ends.
        assert!(arrivals[9] < 2.0 && arrivals[10] == 2.0 && arrivals[11] > 1e9, "{arrivals:?}");
    }

    #[test]
    fn a_rate_that_begins_at_none_begins_with_its_ramp() {
        let (ramp_start, ramp) = (Duration::from_secs(1), Duration::from_secs(2));
        let rate = Rate { from: 0.0, to: 10.0, ramp_start, ramp };
        assert_eq!(take(rate, Spacing::Fixed, 1, 1), [1.0]);
        assert_eq!((rate.mean_of_first(0.5), rate.mean()), (2.5, 5.0));
    }

    proptest! {
        #[test]
        fn a_ramp_has_as_many_arrivals_by_any_time_as_its_integral(
            from in 0.0_f64..1000.0,
            to in 1.0_f64..1000.0,
            start in 0.0_f64..3.0,
            ramp in 0.01_f64..10.0,
            at in 0.0_f64..20.0,
        ) {
            let duration = Duration::from_secs_f64;
            let rate = Rate { from, to, ramp_start: duration(start), ramp: duration(ramp) };
            let within = (at - start).clamp(0.0, ramp);
            let integral = from * at.min(start)
                + from * within
                + (to - from) / ramp * within * within / 2.0
                + to * (at - start - ramp).max(0.0);
            let arrivals = take(rate, Spacing::Fixed, integral as usize + 3, 1);
            let counted = arrivals.iter().filter(|time| **time <= at).count() as f64;
            // The first is due at once, so there is one more than the integral's whole part.
            prop_assert!((counted - integral).abs() <= 1.01, "{} for {}", counted, integral);
            prop_assert!(arrivals.is_sorted());
        }
    }
}
