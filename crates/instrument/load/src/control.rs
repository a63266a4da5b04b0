//! What the coordinator and the event loops tell each other, without locks: instants to act at,
//! what is left to do, how far things are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_sys::event::Event;

/// An instant that has not been set yet.
const NEVER: u64 = u64::MAX;

/// An instant of the run, in nanoseconds from its origin, set by the coordinator; anew where a
/// signal, or the end of all work, comes before it.
#[derive(Debug)]
pub(crate) struct SharedInstant(AtomicU64);

impl SharedInstant {
    pub(crate) fn unset() -> SharedInstant {
        SharedInstant(AtomicU64::new(NEVER))
    }

    pub(crate) fn set(&self, at: u64) {
        self.0.store(at, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at| *at != NEVER)
    }

    pub(crate) fn has_come(&self, now: u64) -> bool {
        self.0.load(Ordering::Acquire) <= now
    }
}

/// Connections that are up in all processes of a run together, and the most that were at once.
#[derive(Clone, Copy, Debug)]
pub struct UpTogether(&'static [AtomicU64; 2]);

impl UpTogether {
    /// For this process and those that it forks from now on.
    pub fn shared() -> std::io::Result<UpTogether> {
        plimsoll_sys::shared::numbers().map(UpTogether)
    }

    /// The most that were up at once.
    pub fn peak(&self) -> u64 {
        let UpTogether([_, peak]) = self;
        peak.load(Ordering::Acquire)
    }

    fn add(&self) {
        let UpTogether([up, peak]) = self;
        peak.fetch_max(up.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
    }

    fn remove(&self, count: u64) {
        let UpTogether([up, _]) = self;
        up.fetch_sub(count, Ordering::AcqRel);
    }
}

/// What all share.
#[derive(Debug)]
pub(crate) struct Control {
    origin: Instant,
    /// The origin, in nanoseconds since 1970.
    unix_origin: AtomicU64,
    /// From here on connections may be opened.
    pub(crate) starts: SharedInstant,
    /// From here on requests may be sent.
    pub(crate) gate: SharedInstant,
    /// The window.
    pub(crate) opens: SharedInstant,
    pub(crate) closes: SharedInstant,
    /// Requests that no connection has claimed yet.
    budget: AtomicU64,
    /// Requests of the run's count that have not ended, and the latest instant at which one did.
    outstanding: AtomicU64,
    last_end: AtomicU64,
    /// Connections that have been up or have finally failed.
    settled: AtomicU64,
    /// Connections of [`crate::config::Config::keeps_all_open`] that have nothing more to do.
    finished: AtomicU64,
    requested: u64,
    up: AtomicU64,
    peak: AtomicU64,
    /// The same of all processes, where there are several.
    pub(crate) up_together: Option<UpTogether>,
    /// Raised when every connection has settled, and when every one has finished.
    pub(crate) news: Event,
    pub(crate) gauges: Vec<Gauge>,
    /// An event loop could not go on.
    given_up: AtomicBool,
}

impl Control {
    /// For so many connections, which share `count` requests where they share any, of which nobody
    /// has claimed `unclaimed`.
    pub(crate) fn new(requested: usize, count: Option<u64>, unclaimed: u64, tables: usize) -> std::io::Result<Control> {
        let (origin, unix_origin) = common_instant();
        Ok(Control {
            origin,
            unix_origin: AtomicU64::new(unix_origin),
            starts: SharedInstant::unset(),
            gate: SharedInstant::unset(),
            opens: SharedInstant::unset(),
            closes: SharedInstant::unset(),
            budget: AtomicU64::new(unclaimed),
            outstanding: AtomicU64::new(count.unwrap_or(u64::MAX)),
            last_end: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            requested: requested as u64,
            up: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            up_together: None,
            news: Event::new()?,
            gauges: (0..tables).map(|_| Gauge::default()).collect(),
            given_up: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since the origin.
    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Nanoseconds since 1970.
    pub(crate) fn unix(&self, at: u64) -> u64 {
        self.unix_origin.load(Ordering::Acquire) + at
    }

    /// By the wall clock.
    pub(crate) fn wall_clock(&self, at: u64) -> SystemTime {
        UNIX_EPOCH + std::time::Duration::from_nanos(self.unix(at))
    }

    /// Reads the wall clock anew, as it may have been set since the run began. Called before the
    /// instant of a start is translated: all generators of a load begin at it by their own clocks.
    /// Records follow as requests may begin; what happened before keeps the clock that it was
    /// recorded with.
    pub(crate) fn follow_wall_clock(&self) {
        let (at, unix) = common_instant();
        let passed = at.duration_since(self.origin).as_nanos() as u64;
        self.unix_origin.store(unix.saturating_sub(passed), Ordering::Release);
    }

    /// As if the wall clock had been set back by so much since the run began.
    #[cfg(test)]
    pub(crate) fn set_wall_clock_back(&self, by: std::time::Duration) {
        self.unix_origin.fetch_add(by.as_nanos() as u64, Ordering::AcqRel);
    }

    /// The run's instant of one of the wall clock; its origin, where that is earlier.
    pub(crate) fn run_time(&self, at: SystemTime) -> u64 {
        let unix = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        u64::try_from(unix).unwrap_or(u64::MAX).saturating_sub(self.unix_origin.load(Ordering::Acquire))
    }

    pub(crate) fn instant(&self, at: u64) -> Instant {
        self.origin + std::time::Duration::from_nanos(at)
    }

    /// A signal ends the window, unless it has ended: a window that lasted longer than it was
    /// counted would make every rate too low.
    pub(crate) fn interrupt(&self, now: u64) {
        if self.closes.has_come(now) {
            return;
        }
        let is_open = self.opens.has_come(now);
        // The end is set first: a loop that sees the window open then also sees that it is closed.
        self.closes.set(now);
        if !is_open {
            self.opens.set(now);
        }
    }

    /// Whether the window closes before it opens, or as it does, as after a signal in the warm-up:
    /// nothing is of it.
    pub(crate) fn has_no_window(&self) -> bool {
        self.closes.get().is_some_and(|closes| self.opens.get().is_none_or(|opens| closes <= opens))
    }

    /// Claims a request of the run's count, if one is left. One at a time: a loop that claimed more
    /// would keep them from another loop's free connections.
    pub(crate) fn claim(&self) -> bool {
        self.budget.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
    }

    /// Gives back a claim that will not be used.
    pub(crate) fn give_back(&self) {
        self.budget.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unclaimed(&self) -> u64 {
        self.budget.load(Ordering::Acquire)
    }

    /// Says that so many requests of the run's count have ended, the last of them at this instant.
    /// With the last of all the window ends.
    pub(crate) fn end_requests(&self, count: u64, last: u64) {
        self.last_end.fetch_max(last, Ordering::AcqRel);
        if self.outstanding.fetch_sub(count, Ordering::AcqRel) == count {
            let last = self.last_end.load(Ordering::Acquire);
            // An answer that had come before the window opened is one of it if it was read after.
            let is_within = self.opens.get().is_some_and(|opens| opens < last);
            self.closes.set(if is_within { last } else { self.now() });
            self.news.raise();
        }
    }

    /// Whether the last request of the run's count has ended.
    pub(crate) fn has_ended_count(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) == 0
    }

    /// Says that one more connection is up for the first time, or never will be.
    pub(crate) fn settle(&self) {
        if self.settled.fetch_add(1, Ordering::AcqRel) + 1 == self.requested {
            self.news.raise();
        }
    }

    pub(crate) fn all_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire) >= self.requested
    }

    /// Says that one more connection has nothing more to do, and stays up.
    pub(crate) fn finish(&self) {
        if self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.requested {
            self.news.raise();
        }
    }

    pub(crate) fn all_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) >= self.requested
    }

    /// Says that an event loop cannot go on, which ends the run.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.news.raise();
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    pub(crate) fn connection_up(&self) {
        let up = self.up.fetch_add(1, Ordering::AcqRel) + 1;
        if up > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(up, Ordering::AcqRel);
        }
        if let Some(together) = self.up_together {
            together.add();
        }
    }

    /// Open loop: how much of a request's wait for a connection, from `due` to `free`, was the
    /// generator's own. All of it, where another loop or thread than `own` has a connection free:
    /// it is late. Otherwise the time until requests were sent that were due before, and had a
    /// connection free: until then this one could have been sent as well.
    pub(crate) fn held_up(&self, due: u64, free: u64, own: Option<usize>) -> u64 {
        let others = self.gauges.iter().zip(0..).filter(|(_, number)| Some(*number) != own);
        if others.into_iter().any(|(gauge, _)| gauge.free.load(Ordering::Relaxed) > 0) {
            return free.saturating_sub(due);
        }
        let until = self.gauges.iter().map(|gauge| gauge.held_up_until.load(Ordering::Relaxed)).max();
        until.unwrap_or(0).min(free).saturating_sub(due)
    }

    pub(crate) fn connection_down(&self) {
        self.up.fetch_sub(1, Ordering::AcqRel);
        if let Some(together) = self.up_together {
            together.remove(1);
        }
    }

    pub(crate) fn up(&self) -> u64 {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire)
    }
}

impl Drop for Control {
    /// The run is over, and the connections that were up are closed.
    fn drop(&mut self) {
        if let Some(together) = self.up_together {
            together.remove(self.up());
        }
    }
}

/// Readings of both clocks, of which the closest count: a thread that loses its CPU between them
/// would move every instant of the records.
const READINGS: usize = 16;

/// One instant by the monotonic clock, and by the wall clock in nanoseconds since 1970.
fn common_instant() -> (Instant, u64) {
    let read = || {
        let before = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        (before.elapsed(), before, wall)
    };
    let closest = (1..READINGS).fold(read(), |closest, _| closest.min(read()));
    (closest.1, closest.2)
}

/// How many requests have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Completed and failed in the whole run.
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Completed in the window: what a count is of.
    pub(crate) in_window: u64,
}

/// What an event loop shows of its progress, once a round. Each has a cache line pair of its own,
/// so that writing it slows no other loop down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gauge {
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Completed in the window.
    pub(crate) in_window: AtomicU64,
    /// Open loop: connections that are free; of threads, those that wait for a request to fall due.
    pub(crate) free: AtomicU64,
    /// Open loop: until when the last request was held up for which a connection was free as it
    /// fell due.
    held_up_until: AtomicU64,
}

impl Gauge {
    /// For one of several that share it: what it showed before, and what it shows now.
    pub(crate) fn add(&self, before: Shown, now: Shown) {
        self.completed.fetch_add(now.completed - before.completed, Ordering::Relaxed);
        self.failed.fetch_add(now.failed - before.failed, Ordering::Relaxed);
        self.in_window.fetch_add(now.in_window - before.in_window, Ordering::Relaxed);
    }

    pub(crate) fn show(&self, now: Shown) {
        self.completed.store(now.completed, Ordering::Relaxed);
        self.failed.store(now.failed, Ordering::Relaxed);
        self.in_window.store(now.in_window, Ordering::Relaxed);
    }

    /// A request is sent, or found to have timed out, for which a connection was free as it fell
    /// due.
    pub(crate) fn hold_up_until(&self, now: u64) {
        self.held_up_until.fetch_max(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_window_and_does_not_move_an_end_that_has_come() {
        for (opens, closes, now, want) in [
            (100, 200, 150, (Some(100), Some(150))),
            (100, 200, 50, (Some(50), Some(50))),
            (100, 200, 200, (Some(100), Some(200))),
            (100, 200, 900, (Some(100), Some(200))),
            (NEVER, NEVER, 50, (Some(50), Some(50))),
        ] {
            let control = Control::new(1, None, 0, 1).expect("an event");
            control.opens.set(opens);
            control.closes.set(closes);
            control.interrupt(now);
            assert_eq!((control.opens.get(), control.closes.get()), want, "{opens} {closes} {now}");
            assert_eq!(control.has_no_window(), want.0 == want.1, "{opens} {closes} {now}");
        }
    }

    #[test]
    fn a_window_ends_with_the_last_request_of_the_count_whoever_tells_of_it_last() {
        for told in [[(2, 300), (1, 200)], [(1, 200), (2, 300)]] {
            let control = Control::new(1, Some(3), 0, 1).expect("an event");
            control.opens.set(100);
            for (count, last) in told {
                assert_eq!((control.closes.get(), control.has_ended_count()), (None, false));
                control.end_requests(count, last);
            }
            assert_eq!((control.closes.get(), control.has_ended_count()), (Some(300), true));
        }
    }

    #[test]
    fn a_wait_behind_requests_that_were_late_though_a_connection_was_free_is_the_generators() {
        let control = Control::new(1, None, 0, 2).expect("an event");
        control.gauges[1].hold_up_until(300);
        control.gauges[0].hold_up_until(100);
        for (due, free, held_up) in [(50, 400, 250), (250, 280, 30), (300, 400, 0), (350, 400, 0), (50, 20, 0)] {
            assert_eq!(control.held_up(due, free, Some(0)), held_up, "{due} to {free}");
        }
        control.gauges[0].free.store(1, Ordering::Relaxed);
        assert_eq!([Some(0), Some(1), None].map(|own| control.held_up(350, 400, own)), [0, 50, 50]);
    }

    #[test]
    fn the_window_of_a_count_has_a_length_where_its_only_answer_had_come_before_it() {
        let control = Control::new(1, Some(1), 0, 1).expect("an event");
        control.opens.set(100);
        control.end_requests(1, 90);
        assert!(control.closes.get().is_some_and(|closes| closes > 100));
    }
}
