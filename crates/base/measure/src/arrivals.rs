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
    /// Drawn anew from an exponential distribution with this mean, so that requests come as from independent people.
    Exponential(Duration),
}

impl Think {
    /// The next pause, in nanoseconds.
    pub fn draw_ns(self, random: &mut impl Rng) -> u64 {
        match self {
            Think::None => 0,
            Think::Fixed(pause) => pause.as_nanos() as u64,
            Think::Exponential(mean) => (mean.as_nanos() as f64 * exponential(random)) as u64,
        }
    }

    /// How long after its start a connection sends its first request, so that connections which start together do not go on together: as if it had
    /// been thinking for a while already.
    pub fn draw_phase_ns(self, random: &mut impl Rng) -> u64 {
        match self {
            Think::None => 0,
            Think::Fixed(pause) => random.random_range(0..=pause.as_nanos() as u64),
            // An exponential pause has no memory: what is left of one is distributed as the whole.
            Think::Exponential(_) => self.draw_ns(random),
        }
    }
}

fn exponential(random: &mut impl Rng) -> f64 {
    Exp1.sample(random)
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
