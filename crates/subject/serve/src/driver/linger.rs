//! How long input is discarded after the last answer, before a connection is closed.
//!
//! A byte that the peer sends to a closed socket resets the connection, and the reset destroys what
//! the peer has not acknowledged (RFC 9112, section 9.6). So the writing half is ended, and input
//! is discarded until the peer has acknowledged that end. A server that is ending waits for nothing
//! else, and for the end alone no longer than [`LINGER`]. A running server gives the peer that long
//! to notice. What the peer has acknowledged is looked up from time to time.

use std::time::{Duration, Instant};

use plimsoll_reactor::progress::{SendProgress, Sent, Verdict};

/// How long a peer's input is discarded after the last answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// The first look of a server that is ending comes after this: a peer nearby acknowledges sooner.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// A peer that has acknowledged everything is closed after this at the latest.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Linger {
    since: Instant,
    progress: SendProgress,
}

/// What a look decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Look again then.
    LookAgain(Instant),
    /// The connection can be closed.
    Over,
    /// The peer acknowledges nothing.
    GiveUp,
}

impl Linger {
    /// The writing half is ended now.
    pub(crate) fn begin(now: Instant) -> Linger {
        Linger { since: now, progress: SendProgress::begin(now) }
    }

    /// When to look first.
    pub(crate) fn first_look(&self, draining: bool) -> Instant {
        self.next_look(self.since, draining)
    }

    /// Looks. `unacknowledged` counts the end of the stream as a byte (tcp_send_fin in the kernel's
    /// tcp_output.c). Without a time-out the peer is not given up.
    pub(crate) fn look(&mut self, now: Instant, sent: Sent, timeout: Option<Duration>, draining: bool) -> Looked {
        let waited = now >= self.since + LINGER;
        let over = match sent.unacknowledged {
            0 => draining || waited,
            // The end alone: a peer without a word may be gone for good, and has all the rest.
            1 => draining && waited,
            _ => false,
        };
        if over {
            return Looked::Over;
        }
        let next = self.next_look(now, draining);
        match timeout.map(|timeout| self.progress.look(now, sent, timeout)) {
            None => Looked::LookAgain(next),
            Some(Verdict::LookAgain(at)) => Looked::LookAgain(next.min(at)),
            // The peer has all but the end.
            Some(Verdict::GiveUp) if draining && sent.unacknowledged == 1 => Looked::Over,
            Some(Verdict::GiveUp) => Looked::GiveUp,
        }
    }

    /// Each wait is a quarter of the time so far, so that few looks find nothing.
    fn next_look(&self, now: Instant, draining: bool) -> Instant {
        if !draining && now < self.since + LINGER {
            return self.since + LINGER;
        }
        now + (now.saturating_duration_since(self.since) / 4).clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

    /// Looks whenever it is time to, while `unacknowledged` says what the kernel holds after each
    /// time; returns what ends it, when, and after how many looks.
    fn ends(draining: bool, unacknowledged: impl Fn(Duration) -> usize) -> (Looked, Duration, u32) {
        let start = Instant::now();
        let mut linger = Linger::begin(start);
        let (mut now, mut looks) = (linger.first_look(draining), 1);
        loop {
            let held = unacknowledged(now - start);
            match linger.look(now, Sent::new(1 << 40, held), TIMEOUT, draining) {
                Looked::LookAgain(at) => now = at,
                ended => return (ended, now - start, looks),
            }
            looks += 1;
        }
    }

    #[test]
    fn a_server_that_ends_closes_soon_after_the_last_byte_is_acknowledged() {
        for taken_after in [0, 1, 40, 1000, 3_600_000].map(Duration::from_millis) {
            let (ended, after, looks) = ends(true, |now| (taken_after.saturating_sub(now)).as_millis() as usize);
            assert_eq!(ended, Looked::Over);
            assert!(after >= taken_after && after <= taken_after + LONGEST_WAIT, "{after:?} of {taken_after:?}");
            assert!(u128::from(looks) <= 40 + taken_after.as_millis() / 100, "{looks} looks in {taken_after:?}");
        }
    }

    #[test]
    fn a_server_that_runs_gives_the_peer_time_to_notice_and_waits_for_what_is_on_its_way() {
        assert_eq!(ends(false, |_| 0), (Looked::Over, LINGER, 1));
        let (ended, after, _) = ends(false, |now| 10_000_usize.saturating_sub(now.as_millis() as usize));
        assert_eq!(ended, Looked::Over);
        assert!(after >= Duration::from_secs(10) && after <= Duration::from_secs(10) + LONGEST_WAIT, "{after:?}");
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_is_given_up_after_its_time() {
        for draining in [false, true] {
            let (ended, after, _) = ends(draining, |_| 7);
            assert_eq!(ended, Looked::GiveUp);
            assert!(after >= Duration::from_secs(60) && after <= Duration::from_secs(63), "{after:?}");
        }
    }

    #[test]
    fn a_server_that_ends_waits_for_an_answer_to_its_end_alone_only_so_long() {
        let (ended, after, _) = ends(true, |_| 1);
        assert_eq!(ended, Looked::Over);
        assert!(after >= LINGER && after <= LINGER + LONGEST_WAIT, "{after:?}");
    }

    #[test]
    fn a_server_that_ends_gives_nobody_up_for_its_end_alone() {
        let (start, timeout) = (Instant::now(), Duration::from_millis(500));
        for (draining, ended) in [(true, Looked::Over), (false, Looked::GiveUp)] {
            let mut linger = Linger::begin(start);
            linger.look(start, Sent::new(9, 1), Some(timeout), draining);
            assert_eq!(linger.look(start + 3 * timeout, Sent::new(9, 1), Some(timeout), draining), ended);
        }
    }

    #[test]
    fn a_drain_that_begins_meanwhile_looks_often() {
        let start = Instant::now();
        let mut linger = Linger::begin(start);
        let now = start + Duration::from_millis(400);
        assert_eq!(linger.look(now, Sent::new(9, 1), None, true), Looked::LookAgain(now + LONGEST_WAIT));
        assert_eq!(linger.look(now + LONGEST_WAIT, Sent::new(9, 0), None, true), Looked::Over);
    }
}
