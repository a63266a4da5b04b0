//! The open loop's requests, as they fall due: what is next, and what becomes of those that no connection was free for in time.

use std::time::Duration;

use plimsoll_measure::arrivals::{Arrivals, Rate};
use plimsoll_measure::tally::{Cause, Tally};
use rand::rngs::StdRng;

use crate::config::{Config, Extent, Pace};

/// When requests are due: the part of an open loop that one event loop, or one connection with a thread of its own, carries.
pub(crate) struct Stream {
    arrivals: Arrivals,
    /// When the stream began.
    start: u64,
    /// When the next request is due.
    next: u64,
}

impl Stream {
    /// A stream that begins at `start`, with this share of all requests; `phase` (0 to 1) keeps those at fixed distances from coming together. `None` in a closed loop.
    pub(crate) fn begin(config: &Config, share: f64, phase: f64, start: u64, random: &mut StdRng) -> Option<Stream> {
        let Pace::Open { rate, spacing } = config.pace else { return None };
        // A ramp takes up the window; during the warm-up its first rate holds.
        let ramp = if let Extent::Lasts(length) = config.extent { length } else { Duration::ZERO };
        let rate = Rate { ramp_start: config.warm_up, ramp, ..rate };
        let arrivals = Arrivals::new(rate, spacing, share, phase, random);
        let next = start.saturating_add(arrivals.next_ns());
        Some(Stream { arrivals, start, next })
    }

    /// When the next request is due, in nanoseconds from the run's origin.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Goes on to the request after the next.
    pub(crate) fn advance(&mut self, random: &mut StdRng) {
        self.arrivals.advance(random);
        self.next = self.start.saturating_add(self.arrivals.next_ns());
    }

    /// Counts what was due by the window's end and had not been sent. Returns how many of these had timed out.
    pub(crate) fn count_unsent(mut self, end: u64, timeout: u64, random: &mut StdRng, tally: &mut Tally) -> u64 {
        let mut expired = 0;
        while self.next <= end {
            let age = end - self.next;
            self.advance(random);
            if age >= timeout {
                count_expired(timeout, tally);
                expired += 1;
                continue;
            }
            tally.requests.scheduled += 1;
            tally.requests.unsent += 1;
            tally.pool_wait.record_ns(age);
            tally.unanswered.record_ns(age);
        }
        expired
    }
}

/// Counts a request that timed out before any connection was free for it.
pub(crate) fn count_expired(age: u64, tally: &mut Tally) {
    tally.errors.count(Cause::Timeout);
    tally.requests.scheduled += 1;
    tally.requests.timed_out += 1;
    tally.pool_wait.record_ns(age);
    tally.unanswered.record_ns(age);
}
