//! The time, as a service needs it.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

/// The time, read from the clock once a turn of a driver's loop, not once a request.
#[derive(Clone, Debug)]
pub struct CachedTime {
    /// For limits.
    pub now: Instant,
    /// The server is to end: answer what is under way and begin nothing new.
    pub draining: bool,
    /// The date in the form of HTTP (RFC 9110, section 5.6.7), which always has this length.
    date: [u8; 29],
    /// The second that the date names.
    wall: SystemTime,
    /// When the date is next another.
    stale: Instant,
}

impl CachedTime {
    /// The time that both clocks show.
    pub fn new(now: Instant, wall: SystemTime) -> CachedTime {
        let mut time = CachedTime { now, draining: false, date: [0; 29], wall, stale: now };
        time.show(wall);
        time
    }

    /// Moves on to `now`. Reads the wall clock only if the date may have changed.
    pub fn advance(&mut self, now: Instant, wall: impl FnOnce() -> SystemTime) {
        self.now = now;
        if now >= self.stale {
            self.show(wall());
        }
    }

    /// The date, for a `Date` field.
    pub fn date(&self) -> &[u8] {
        &self.date
    }

    /// The second that the date names.
    pub fn wall(&self) -> SystemTime {
        self.wall
    }

    fn show(&mut self, wall: SystemTime) {
        let _ = write!(&mut self.date[..], "{}", httpdate::HttpDate::from(wall));
        let into_second = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.wall = wall - Duration::from_nanos(u64::from(into_second));
        self.stale = self.now + Duration::from_secs(1) - Duration::from_nanos(u64::from(into_second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_changes_with_the_second_and_not_before() {
        let (start, wall) = (Instant::now(), SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_400));
        let mut time = CachedTime::new(start, wall);
        assert_eq!(time.date(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        time.advance(start + Duration::from_millis(599), || panic!("the second has not passed"));
        time.advance(start + Duration::from_millis(600), || wall + Duration::from_millis(600));
        assert_eq!(time.date(), b"Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
