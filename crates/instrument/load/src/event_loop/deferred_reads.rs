//! Answers that an open loop reads when its next request is due. Being woken for each answer and
//! for each request costs two wake-ups where one is enough: the kernel notes when an answer came.
//! Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Answers that are not read fill the socket's buffer and hold up the server. Linux gives a
/// connection 64 KiB before the reader has read anything (tcp(7), tcp_rmem), so a quarter of that
/// is safe.
const MOST_BYTES: u64 = 16 * 1024;
/// A longer sleep would save next to nothing, and would hide how connections end.
const LONGEST: Duration = Duration::from_millis(10);

/// What is known of the answers.
#[derive(Debug, Default)]
pub(super) struct DeferredReads {
    /// Whether the kernel noted when the last of them came. It begins to a moment after it is asked
    /// to.
    stamped: bool,
    /// Whether one was large, or ended with its connection, of whose end the kernel notes no time:
    /// it would be taken for as late as it is read. Or a request had no room in its socket: the
    /// server would wait for the rest of it. Or an answer came in part.
    needs_waking: bool,
}

impl DeferredReads {
    /// An answer of so many bytes came; `stamped` says whether the kernel noted when. Without that
    /// the end of the connection may have been its own (`ended`).
    pub(super) fn answered(&mut self, bytes: u64, stamped: bool, ended: bool) {
        self.needs_waking |= bytes > MOST_BYTES || ended && !stamped;
        self.stamped = stamped;
    }

    /// The rest of a request waits for room in its socket, which is reported as answers are.
    pub(super) fn awaits_room(&mut self) {
        self.needs_waking = true;
    }

    /// Of an answer only a part has come. Where a server writes it in pieces, Nagle's algorithm
    /// (RFC 1122, section 4.2.3.4) may keep the next one until this one is acknowledged, and Linux
    /// acknowledges it as it is read: the answer would seem to take until the next request is due.
    pub(super) fn came_in_part(&mut self) {
        self.needs_waking = true;
    }

    /// Whether answers may stay unread for this long.
    pub(super) fn allows(&self, time: Duration) -> bool {
        self.stamped && !self.needs_waking && time <= LONGEST && !time.is_zero()
    }
}

/// When to send requests of which the `first` is due, where they may be up to `max_lag` late: at
/// once when the `last` is due for which a connection is free, so that none waits for a connection
/// because others were late. All that is due before a `boundary` of the run is sent before it.
pub(super) fn send_together_at(first: u64, last: Option<u64>, max_lag: u64, boundary: Option<u64>) -> u64 {
    let latest = first.saturating_add(max_lag);
    if boundary.is_some_and(|boundary| latest >= boundary) {
        return first;
    }
    last.map_or(latest, |last| last.clamp(first, latest))
}

/// Translates the wall clock's times into the run's.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// The run's origin, since 1970, by the wall clock as it is now.
    origin: Option<Duration>,
    /// Whether it was set since the wait before. What came meanwhile may have its time by either.
    was_set: bool,
}

/// Readings at most until two agree.
const READINGS: usize = 4;
/// More than the wall clock is slewed by during a sleep, and than two readings are apart.
const AGREES: Duration = Duration::from_micros(20);
/// More than the wall clock is slewed by in a second (adjtimex(2): 500 us), and a loop seldom waits
/// for longer.
const SET: Duration = Duration::from_millis(1);

/// The wall clock's time since 1970.
pub(super) fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl WallClock {
    /// Takes the run's time and the wall clock's from `read`. Called after each wait, as the wall
    /// clock may be set or slewed meanwhile. Reads again where the two are not as far apart as they
    /// were: a thread that loses its CPU between both readings would take answers for earlier than
    /// they are.
    pub(super) fn set(&mut self, mut read: impl FnMut() -> (u64, Duration)) {
        let before = self.origin;
        for _ in 0..READINGS {
            let (run, wall) = read();
            let origin = wall.saturating_sub(Duration::from_nanos(run));
            let known = self.origin.replace(origin);
            if known.is_some_and(|known| origin.abs_diff(known) <= AGREES) {
                break;
            }
        }
        let moved = self.origin.zip(before).map(|(origin, before)| origin.abs_diff(before));
        self.was_set = moved.is_some_and(|moved| moved > SET);
    }

    /// The run's time of an instant since 1970, at which something came since the wait before. It
    /// is not known where the wall clock was set meanwhile.
    pub(super) fn run(&self, at: Duration) -> Option<u64> {
        let origin = self.origin.filter(|_| !self.was_set)?;
        Some(at.saturating_sub(origin).as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stay_unread_for_a_short_time_and_only_where_all_were_small() {
        let mut reads = DeferredReads::default();
        let short = Duration::from_micros(100);
        assert!(!reads.allows(short), "the size of an answer is not known yet");
        reads.answered(MOST_BYTES, false, false);
        assert!(!reads.allows(short), "nobody noted when it came");
        reads.answered(MOST_BYTES, true, false);
        assert!(reads.allows(short) && reads.allows(LONGEST));
        assert!(!reads.allows(LONGEST + Duration::from_nanos(1)) && !reads.allows(Duration::ZERO));
        reads.answered(MOST_BYTES + 1, true, false);
        reads.answered(1, true, false);
        assert!(!reads.allows(short), "one large answer is enough");
    }

    #[test]
    fn answers_do_not_stay_unread_where_one_of_them_ended_with_its_connection() {
        let short = Duration::from_micros(100);
        for (stamped, allowed) in [(true, true), (false, false)] {
            let mut reads = DeferredReads::default();
            reads.answered(1, stamped, true);
            reads.answered(1, true, false);
            assert_eq!(reads.allows(short), allowed);
        }
    }

    #[test]
    fn requests_wait_for_each_other_no_longer_than_allowed_nor_for_a_connection_nor_over_a_boundary() {
        for (last, max_lag, boundary, at) in [
            (None, 50, None, 150),
            (Some(400), 50, None, 150),
            (Some(120), 50, None, 120),
            (Some(100), 50, None, 100),
            (None, 50, Some(151), 150),
            (None, 50, Some(150), 100),
            (Some(120), 50, Some(130), 100),
            (None, 0, None, 100),
        ] {
            assert_eq!(send_together_at(100, last, max_lag, boundary), at, "{last:?} {max_lag} {boundary:?}");
        }
    }

    #[test]
    fn an_instant_of_the_wall_clock_is_found_in_the_run() {
        let mut clock = WallClock::default();
        clock.set(|| (5_000_000_000, Duration::from_secs(1005)));
        assert_eq!(clock.run(Duration::from_secs(1006)), Some(6_000_000_000));
        assert_eq!(clock.run(Duration::from_secs(1)), Some(0), "an instant before the run");
        assert!(wall_time() > Duration::from_secs(1_700_000_000));
    }

    #[test]
    fn a_reading_that_was_interrupted_is_made_again_and_a_clock_that_was_set_is_followed() {
        let mut clock = WallClock::default();
        let mut taken = 0;
        // Of each, by how much the wall clock seems to be ahead.
        let mut set = |readings: &[u64]| {
            let mut readings = readings.iter();
            clock.set(|| {
                taken += 1;
                (0, Duration::from_micros(1_000_000 + readings.next().expect("no more are needed")))
            });
            clock.run(Duration::from_secs(2))
        };
        let origin = set(&[0, 0]).expect("it is known");
        assert_eq!(set(&[15]), Some(origin - 15_000), "slewed");
        assert_eq!(set(&[3_000, 15, 15]), Some(origin - 15_000), "interrupted once");
        assert_eq!(set(&[500_000, 500_000]), None, "set: what came before has its time by the old clock");
        assert_eq!(set(&[500_000]), Some(origin - 500_000_000), "what comes now has it by the new one");
        assert_eq!(taken, 9);
    }
}
