//! Whether a peer still takes what is sent to it.
//!
//! A send succeeds when the kernel has room, and the kernel reports room only when a good part of
//! its buffer, some megabytes, is free again: neither says what the peer has taken. The bytes that
//! it has acknowledged do (SIOCOUTQ, tcp(7)). They are looked up several times per time-out, and
//! only while output waits.

use std::time::{Duration, Instant};

/// Looks per time-out. A peer is given up between one time-out and 1 + 1/8 time-outs after the last
/// byte that it has acknowledged.
pub const LOOKS: u32 = 8;

/// What a look at one connection finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that the peer has acknowledged. Only whether it changes matters: where the kernel has
    /// taken more than was counted yet, it is off by that.
    pub acknowledged: u64,
    /// Bytes that the kernel holds for it.
    pub unacknowledged: u64,
}

impl Sent {
    /// Of `written` bytes that the kernel took, it still holds `unacknowledged`.
    pub fn new(written: u64, unacknowledged: usize) -> Sent {
        let unacknowledged = unacknowledged as u64;
        Sent { acknowledged: written.wrapping_sub(unacknowledged), unacknowledged }
    }
}

/// How much a peer has acknowledged, from look to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acknowledged(Option<u64>);

impl Acknowledged {
    /// Looks; returns whether the peer has acknowledged bytes since the last look, and `None` at
    /// the first one.
    pub fn look(&mut self, sent: Sent) -> Option<bool> {
        let before = self.0.replace(sent.acknowledged)?;
        Some(sent.acknowledged != before)
    }
}

/// What a look decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Look again then.
    LookAgain(Instant),
    /// The time-out has passed without an acknowledged byte.
    GiveUp,
}

/// The progress of a connection whose output waits.
#[derive(Clone, Copy, Debug)]
pub struct SendProgress {
    acknowledged: Acknowledged,
    /// The last look that found progress.
    since: Instant,
}

impl SendProgress {
    /// Output begins to wait.
    pub fn begin(now: Instant) -> SendProgress {
        SendProgress { acknowledged: Acknowledged::default(), since: now }
    }

    /// When to look, if not before.
    pub fn next_look(&self, now: Instant, timeout: Duration) -> Instant {
        (self.since + timeout).min(now + timeout / LOOKS)
    }

    /// Looks. Where the peer has taken everything, whatever waits does not wait for it.
    pub fn look(&mut self, now: Instant, sent: Sent, timeout: Duration) -> Verdict {
        // Before the first look it may have taken some.
        let takes = self.acknowledged.look(sent).unwrap_or(true);
        if takes || sent.unacknowledged == 0 {
            self.since = now;
        } else if now.saturating_duration_since(self.since) >= timeout {
            return Verdict::GiveUp;
        }
        Verdict::LookAgain(self.next_look(now, timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Looks whenever it is time to, while `acknowledged` says what the peer has taken after each
    /// time; returns when it is given up, if within a day.
    fn given_up_after(timeout: Duration, acknowledged: impl Fn(Duration) -> u64) -> Option<Duration> {
        const WRITTEN: u64 = u64::MAX / 2;
        let start = Instant::now();
        let mut progress = SendProgress::begin(start);
        let mut now = progress.next_look(start, timeout);
        while now < start + Duration::from_secs(86_400) {
            let acknowledged = acknowledged(now - start);
            let sent = Sent { acknowledged, unacknowledged: WRITTEN - acknowledged };
            match progress.look(now, sent, timeout) {
                Verdict::GiveUp => return Some(now - start),
                Verdict::LookAgain(at) => now = at,
            }
        }
        None
    }

    #[test]
    fn a_reader_of_ten_kilobytes_a_second_is_served() {
        assert_eq!(given_up_after(TIMEOUT, |after| after.as_secs() * 10_000), None);
        // Its window opens only when a sixteenth of a 6 MiB buffer is free again (tcp_output.c,
        // __tcp_select_window): once in 39 seconds.
        assert_eq!(given_up_after(TIMEOUT, |after| after.as_secs() / 39 * 390_000), None);
    }

    #[test]
    fn a_peer_that_takes_everything_is_not_given_up_for_the_sake_of_a_slow_server() {
        let start = Instant::now();
        let mut progress = SendProgress::begin(start);
        for minute in 1..100 {
            let sent = Sent { acknowledged: 7, unacknowledged: 0 };
            assert_ne!(progress.look(start + Duration::from_secs(60 * minute), sent, TIMEOUT), Verdict::GiveUp);
        }
    }

    proptest! {
        #[test]
        fn a_peer_that_stops_is_given_up_not_early_and_an_eighth_late_at_most(
            timeout in 8_u64..100_000,
            stops in 0_u64..1_000_000,
        ) {
            let (timeout, stops) = (Duration::from_millis(timeout), Duration::from_millis(stops));
            let given_up = given_up_after(timeout, |after| after.min(stops).as_millis() as u64);
            let late = given_up.expect("it stops") - stops;
            prop_assert!(late >= timeout, "{:?} early", timeout - late);
            prop_assert!(late <= timeout + timeout / LOOKS + Duration::from_millis(1), "{:?} late", late - timeout);
        }
    }
}
