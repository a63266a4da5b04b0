//! Random streams that are independent by construction: one seed, split by the path of its user.
//!
//! Sums such as `seed + loop` make the streams of neighbouring seeds equal: loop 1 of seed 1 draws
//! what loop 0 of seed 2 draws. Here each part of the path is mixed into the state by a generator
//! of its own (rand's `seed_from_u64`, whose PCG spreads 64 bits over ChaCha's key), so that any
//! two different paths give unrelated streams.

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::config::Part;

/// A seed for a run that was given none: runs, and generators on several hosts, then draw nothing
/// alike. Its 32 bits are a whole number in every reader of JSON.
pub fn drawn() -> u64 {
    rand::random::<u32>().into()
}

/// What a stream is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The instants of an open loop.
    Arrivals = 1,
    /// Think times, phases, payloads and back-off of one event loop or of one connection's thread.
    Worker = 2,
    /// When requests at fixed distances begin.
    Phase = 3,
}

/// The stream of one drawer: its purpose, the process it is in, and its number there.
pub(crate) fn stream(seed: u64, purpose: Purpose, part: Part, number: usize) -> StdRng {
    let path = [purpose as u64, part.number as u64, number as u64];
    let state = path.into_iter().fold(seed, |state, step| StdRng::seed_from_u64(state).next_u64() ^ step);
    StdRng::seed_from_u64(state)
}

/// By how much of a distance (0 to 1) a process moves its requests at fixed distances. The
/// processes of a run share the distances evenly, so all draw one number; generators on several
/// hosts draw different ones, or they would send at the same instants.
pub(crate) fn phase(seed: u64, part: Part) -> f64 {
    let offset: f64 = stream(seed, Purpose::Phase, Part::ALONE, 0).random();
    (part.number as f64 + offset) / part.of as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbouring_seeds_processes_and_loops_have_no_word_in_common() {
        let mut words = HashSet::new();
        let mut count = 0;
        for seed in 0..8 {
            for process in 0..8 {
                for number in 0..8 {
                    for purpose in [Purpose::Arrivals, Purpose::Worker, Purpose::Phase] {
                        let mut random = stream(seed, purpose, Part { number: process, of: 8 }, number);
                        words.extend((0..64).map(|_| random.next_u64()));
                        count += 64;
                    }
                }
            }
        }
        assert_eq!(words.len(), count);
    }

    #[test]
    fn streams_that_differ_in_one_step_are_not_correlated() {
        let mut bits = 0_u32;
        for seed in 0..100 {
            let words = |(seed, process, number)| {
                let mut random = stream(seed, Purpose::Worker, Part { number: process, of: 2 }, number);
                [(); 10].map(|()| random.next_u64())
            };
            let base = words((seed, 0, 0));
            for other in [(seed + 1, 0, 0), (seed, 1, 0), (seed, 0, 1)].map(words) {
                bits += base.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum::<u32>();
            }
        }
        // 192,000 fair bits: half of them differ, with a standard deviation of 219.
        assert!(bits.abs_diff(96_000) < 4 * 219, "{bits}");
    }

    #[test]
    fn seeds_that_are_drawn_differ() {
        // Two of a thousand would be alike once in 8,600 runs of this test; half of them never.
        let drawn: HashSet<u64> = (0..1000).map(|_| drawn()).collect();
        assert!(drawn.len() > 500, "{}", drawn.len());
    }

    #[test]
    fn fixed_distances_begin_at_an_offset_of_the_seeds_own_and_processes_share_them_evenly() {
        let offsets: Vec<f64> = (0..1000).map(|seed| phase(seed, Part::ALONE)).collect();
        assert!(offsets.iter().all(|offset| (0.0..1.0).contains(offset)));
        for tenth in 0..10 {
            let within = |offset: &&f64| (**offset * 10.0) as usize == tenth;
            // A hundred in each, give or take five standard deviations of a binomial count.
            assert!(offsets.iter().filter(within).count().abs_diff(100) < 48, "{tenth}");
        }
        let parts = [0, 1, 2, 3].map(|number| phase(7, Part { number, of: 4 }));
        for (number, part) in parts.iter().enumerate() {
            assert!((part - (number as f64 + offsets[7]) / 4.0).abs() < 1e-12, "{parts:?}");
        }
    }

    #[test]
    fn one_path_always_gives_one_stream() {
        let draw = || stream(7, Purpose::Arrivals, Part::ALONE, 3).next_u64();
        assert_eq!(draw(), draw());
    }
}
