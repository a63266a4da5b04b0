//! Whether a side takes what is sent to it. Pure: time and what the kernel knows are arguments.
//!
//! A write that succeeds says only that the kernel's buffer had room, and of a buffer of some
//! megabytes a third must drain before there is room again. So progress is a byte that the peer has
//! acknowledged, looked up (SIOCOUTQ, tcp(7)) some times while a side is waited for.

use std::time::{Duration, Instant};

/// Looks at a side within the time that it may take.
const LOOKS: u32 = 8;

/// What is known of one direction.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// Bytes wait that the sink does not take.
    blocked: bool,
    /// Bytes written so far.
    written: u64,
    /// When it was not blocked last, or a byte was written or acknowledged.
    progress: Instant,
    /// Bytes acknowledged at the last look, and when that was. Below zero where the kernel counts
    /// more than bytes, as for a Unix socket.
    looked: Option<(i64, Instant)>,
}

/// Both directions of a connection: to the server, and to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall([Course; 2]);

impl Stall {
    pub(crate) fn new(now: Instant) -> Stall {
        Stall([Course { blocked: false, written: 0, progress: now, looked: None }; 2])
    }

    /// Takes note of how a direction is after a turn.
    pub(crate) fn note(&mut self, direction: usize, blocked: bool, written: u64, now: Instant) {
        let course = &mut self.0[direction];
        if !blocked || !course.blocked || written != course.written {
            course.progress = now;
        }
        (course.blocked, course.written) = (blocked, written);
    }

    /// Takes note of how many bytes were written so far.
    pub(crate) fn count(&mut self, direction: usize, written: u64) {
        self.0[direction].written = written;
    }

    /// Takes note of how many bytes the sink of a direction has not acknowledged. Returns whether
    /// it has acknowledged some since it was last looked at, and None where that was before
    /// `since`, so that this is the first look.
    pub(crate) fn look(&mut self, direction: usize, unacknowledged: u64, since: Instant, now: Instant) -> Option<bool> {
        let course = &mut self.0[direction];
        let acknowledged = course.written as i64 - unacknowledged as i64;
        let (before, at) = course.looked.replace((acknowledged, now))?;
        let advanced = acknowledged > before;
        if advanced {
            course.progress = now;
        }
        (at >= since).then_some(advanced)
    }

    /// Whether any direction is blocked.
    pub(crate) fn is_blocked(&self) -> bool {
        self.0.iter().any(|course| course.blocked)
    }

    /// Whether a blocked direction made no progress for so long.
    pub(crate) fn is_over(&self, limit: Duration, now: Instant) -> bool {
        self.0.iter().any(|course| course.blocked && now >= course.progress + limit)
    }

    /// When to look next at what is blocked.
    pub(crate) fn next_look(&self, limit: Duration) -> Option<Instant> {
        let next = |course: &Course| {
            // The last look is when the time is over.
            let looked = course.looked.map_or(course.progress, |(_, at)| at.max(course.progress));
            (looked + limit / LOOKS).min(course.progress + limit)
        };
        self.0.iter().filter(|course| course.blocked).map(next).min()
    }
}

/// From one look to the next while silence is waited for that a peer's acknowledgements would
/// break.
pub(crate) fn look_interval(limit: Duration) -> Duration {
    limit / LOOKS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Has a peer acknowledge `bytes` a second of a megabyte that was written, and says when it is
    /// given up.
    fn given_up_after(bytes: impl Fn(u64) -> u64) -> Option<u64> {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        stall.note(1, true, 1 << 20, start);
        let mut due = stall.next_look(LIMIT).expect("it is blocked");
        loop {
            let seconds = (due - start).as_secs();
            if seconds > 600 {
                return None;
            }
            let acknowledged = bytes(seconds).min(1 << 20);
            stall.look(1, (1 << 20) - acknowledged, start, due);
            if stall.is_over(LIMIT, due) {
                return Some(seconds);
            }
            let next = stall.next_look(LIMIT).expect("it is blocked");
            assert!(next > due, "it looks at the same moment again");
            due = next;
        }
    }

    #[test]
    fn a_peer_that_takes_little_is_waited_for_and_one_that_takes_nothing_is_given_up_in_time() {
        assert_eq!(given_up_after(|_| 0), Some(60));
        assert_eq!(given_up_after(|seconds| seconds * 1000), None);
        assert_eq!(given_up_after(|seconds| seconds / 50), None, "a byte is enough");
        let stops = given_up_after(|seconds| 1000 * seconds.min(100)).expect("it takes no more");
        assert!((160..=168).contains(&stops), "{stops}");
    }

    #[test]
    fn a_direction_that_moves_is_not_blocked_for_long_whatever_the_other_does() {
        let start = Instant::now();
        let mut stall = Stall::new(start);
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            stall.note(0, true, second, now);
            stall.note(1, second % 50 < 49, 7, now);
            assert!(!stall.is_over(LIMIT, now), "after {second} s");
        }
        // The first goes on, and the second does not: what the one takes is no progress of the
        // other.
        for second in 300..358 {
            stall.note(0, true, second, start + Duration::from_secs(second));
            stall.note(1, true, 7, start + Duration::from_secs(second));
        }
        assert!(!stall.is_over(LIMIT, start + Duration::from_secs(358)));
        stall.note(0, true, 999, start + Duration::from_secs(360));
        assert!(stall.is_over(LIMIT, start + Duration::from_secs(360)));
    }

    #[test]
    fn nothing_is_looked_at_while_nothing_is_blocked() {
        let stall = Stall::new(Instant::now());
        assert!(!stall.is_blocked());
        assert_eq!(stall.next_look(LIMIT), None);
    }
}
