//! How much may go through a rule in a second. Pure but for one counter, which all event loops
//! share: time is an argument.
//!
//! The counter is the instant at which all that went through so far would have ended at the rate
//! given (a virtual clock; ITU-T I.371's generic cell rate algorithm).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A rate, and how much of it is used.
#[derive(Debug)]
pub(crate) struct Meter {
    begun: Instant,
    /// A unit's share of a second.
    nanoseconds_each: f64,
    /// What a burst is worth, in nanoseconds.
    burst: u64,
    /// Nanoseconds since `begun`.
    used_until: AtomicU64,
}

/// After a pause as much as goes through in this time may go at once, or one unit where that takes
/// longer.
const BURST: Duration = Duration::from_secs(1);
/// So much time is made up for in which bytes could have gone through and did not, as a loop was
/// late: without it each read would lose what its wake-up is late by.
const MADE_UP: Duration = Duration::from_millis(100);

impl Meter {
    /// A meter of so many units a second, which is above 0.
    pub(crate) fn new(each_second: f64, now: Instant) -> Meter {
        // Begun a burst ago: the first burst may go at once.
        let nanoseconds_each = 1e9 / each_second;
        let burst = BURST.max(Duration::from_nanos(nanoseconds_each as u64));
        let begun = now.checked_sub(burst).unwrap_or(now);
        Meter { begun, nanoseconds_each, burst: burst.as_nanos() as u64, used_until: AtomicU64::new(0) }
    }

    /// Counts one unit if the rate allows for it now.
    pub(crate) fn admit(&self, now: Instant) -> bool {
        let now = self.since(now);
        let earliest = now.saturating_sub(self.burst);
        let next = |used: u64| {
            let end = used.max(earliest).saturating_add(self.nanoseconds_each as u64);
            (end <= now).then_some(end)
        };
        self.used_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// How long to wait before more may go through; none where it may now.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.used_until.load(Ordering::Relaxed).checked_sub(self.since(now))?;
        (wait > 0).then(|| Duration::from_nanos(wait))
    }

    /// How many units may go through together: a tenth of a second's worth, so that a low rate has
    /// no long pauses, and at least `least`.
    pub(crate) fn together(&self, least: usize) -> usize {
        least.max((MADE_UP.as_nanos() as f64 / self.nanoseconds_each) as usize)
    }

    /// So many units went through.
    pub(crate) fn count(&self, units: u64, now: Instant) {
        let earliest = self.since(now).saturating_sub(MADE_UP.as_nanos() as u64);
        let _ = self.used_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            Some(used.max(earliest).saturating_add((units as f64 * self.nanoseconds_each) as u64))
        });
    }

    fn since(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let start = Instant::now();
        let meter = Meter::new(100.0, start);
        let admitted = |now| (0..1000).filter(|_| meter.admit(now)).count();
        assert_eq!(admitted(start), 100);
        assert_eq!(admitted(start), 0);
        assert_eq!(admitted(start + Duration::from_millis(50)), 5);
        assert_eq!(admitted(start + Duration::from_secs(10)), 100, "a pause is worth one burst, however long");
        let in_ten_seconds: usize =
            (0..1000).map(|step| admitted(start + Duration::from_millis(20_000 + step * 10))).sum();
        assert_eq!(in_ten_seconds, 100 + 999);
    }

    #[test]
    fn a_rate_of_less_than_one_a_second_admits_one_whenever_it_is_due() {
        let start = Instant::now();
        let meter = Meter::new(0.5, start);
        let admitted: Vec<u64> = (0..10).filter(|second| meter.admit(start + Duration::from_secs(*second))).collect();
        assert_eq!(admitted, [0, 2, 4, 6, 8]);
    }

    #[test]
    fn a_tenth_of_a_second_goes_together_or_a_little() {
        let meter = |rate| Meter::new(rate, Instant::now());
        assert_eq!([1e6, 20e3, 100.0].map(|rate| meter(rate).together(1024)), [100_000, 2000, 1024]);
    }

    #[test]
    fn bytes_wait_until_those_before_them_have_had_their_time() {
        let start = Instant::now();
        let meter = Meter::new(1000.0, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(meter.wait(start), None);
        meter.count(600, start);
        assert_eq!(meter.wait(start), Some(Duration::from_millis(500)));
        assert_eq!(meter.wait(at(400)), Some(Duration::from_millis(100)));
        assert_eq!(meter.wait(at(500)), None);
        meter.count(101, at(9000));
        assert_eq!(meter.wait(at(9000)), Some(Duration::from_millis(1)), "a pause is worth a bounded time");
    }

    #[test]
    fn a_rate_holds_although_each_read_is_late_and_never_by_more() {
        const READ: u64 = 64 * 1024;
        for (rate, late_us) in [(8_000_000_u64, 40_000), (500_000_000, 200), (500_000_000, 20_000)] {
            let start = Instant::now();
            let meter = Meter::new(rate as f64, start);
            let (mut now, mut moved) = (start, 0);
            while now < start + Duration::from_secs(10) {
                match meter.wait(now) {
                    None => {
                        meter.count(READ, now);
                        moved += READ;
                    }
                    Some(wait) => now += wait + Duration::from_micros(late_us),
                }
            }
            let share = moved as f64 / (10 * rate) as f64;
            assert!((0.97..=1.02).contains(&share), "{share} of {rate} where a read is {late_us} us late");
        }
    }
}
