//! Whether the two sides of a connection take what is sent to them. Pure: time and what the kernel
//! knows are arguments.
//!
//! Two limits depend on it. `send_timeout` ends a connection while bytes wait for a side that
//! acknowledges none. And what a side acknowledges is a sign of life, so that `idle_timeout` and
//! `half_close` do not end the connection of a slow reader: the kernel may hold megabytes for it.

use std::time::{Duration, Instant};

use plimsoll_reactor::progress::{Acknowledged, SendProgress, Sent, Verdict};

/// What is known of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    /// While bytes wait that its sink does not take.
    blocked: Option<SendProgress>,
    acknowledged: Acknowledged,
}

/// Both directions of a connection: to the server, and to the client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    directions: [Direction; 2],
    /// The last look.
    looked: Option<Instant>,
}

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Bytes wait for a side that has acknowledged none for as long as `send_timeout`.
    GivesUp,
    /// A side has acknowledged bytes since the last look.
    Takes,
    /// The kernel holds bytes for a side, and the next look shows whether it takes them.
    Unknown,
    /// None of the above.
    Nothing,
}

impl Delivery {
    /// Takes note of which directions are blocked after a turn.
    pub(super) fn note(&mut self, blocked: [bool; 2], now: Instant) {
        for (direction, blocked) in self.directions.iter_mut().zip(blocked) {
            let progress = direction.blocked.unwrap_or_else(|| SendProgress::begin(now));
            direction.blocked = blocked.then_some(progress);
        }
    }

    /// Whether any direction is blocked.
    pub(super) fn is_blocked(&self) -> bool {
        self.directions.iter().any(|direction| direction.blocked.is_some())
    }

    /// When to look at what is blocked.
    pub(super) fn next_look(&self, now: Instant, timeout: Duration) -> Option<Instant> {
        self.directions.iter().filter_map(|direction| direction.blocked).map(|each| each.next_look(now, timeout)).min()
    }

    /// Looks at what both directions have `sent`, `timeout` being the time-out of what is blocked.
    /// What was acknowledged since a look before `active` may be older than that.
    pub(super) fn look(&mut self, sent: [Sent; 2], active: Instant, timeout: Duration, now: Instant) -> Finding {
        let is_first = self.looked.replace(now).is_none_or(|looked| looked < active);
        let (mut gives_up, mut takes, mut holds) = (false, false, false);
        for (direction, sent) in self.directions.iter_mut().zip(sent) {
            takes |= direction.acknowledged.look(sent) == Some(true);
            holds |= sent.unacknowledged > 0;
            if let Some(progress) = &mut direction.blocked {
                gives_up |= progress.look(now, sent, timeout) == Verdict::GiveUp;
            }
        }
        match is_first {
            _ if gives_up => Finding::GivesUp,
            false if takes => Finding::Takes,
            true if holds => Finding::Unknown,
            _ => Finding::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    const WRITTEN: u64 = 1 << 20;

    /// A direction's side has acknowledged so many bytes.
    fn acknowledged(bytes: u64) -> Sent {
        Sent::new(WRITTEN, (WRITTEN - bytes) as usize)
    }

    /// When a blocked side that has acknowledged so many bytes after so many seconds is given up.
    fn given_up_after(bytes: impl Fn(u64) -> u64) -> Option<u64> {
        let start = Instant::now();
        let mut delivery = Delivery::default();
        delivery.note([false, true], start);
        let mut due = delivery.next_look(start, LIMIT)?;
        while due < start + 10 * LIMIT {
            let seconds = (due - start).as_secs();
            let sent = [acknowledged(WRITTEN), acknowledged(bytes(seconds))];
            if delivery.look(sent, start, LIMIT, due) == Finding::GivesUp {
                return Some(seconds);
            }
            delivery.note([false, true], due);
            let next = delivery.next_look(due, LIMIT)?;
            assert!(next > due, "it looks at the same moment again");
            due = next;
        }
        None
    }

    #[test]
    fn a_side_that_takes_little_is_waited_for_and_one_that_takes_nothing_is_given_up_in_time() {
        assert_eq!(given_up_after(|seconds| seconds * 1000), None);
        assert_eq!(given_up_after(|seconds| seconds / 50), None, "a byte is enough");
        for (stops, latest) in [(0, 68), (5, 68), (100, 168)] {
            let after = given_up_after(|seconds| 1000 * seconds.min(stops)).expect("it takes no more");
            assert!((stops + 60..=latest).contains(&after), "{after} where it stops after {stops}");
        }
    }

    #[test]
    fn what_one_side_takes_is_no_progress_of_the_other() {
        let start = Instant::now();
        let mut delivery = Delivery::default();
        delivery.note([true, true], start);
        let look = |delivery: &mut Delivery, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            delivery.look([acknowledged(seconds), acknowledged(7)], start, LIMIT, now)
        };
        assert_eq!(look(&mut delivery, 1), Finding::Unknown);
        for seconds in 2..61 {
            assert_eq!(look(&mut delivery, seconds), Finding::Takes, "after {seconds} s");
        }
        assert_eq!(look(&mut delivery, 61), Finding::GivesUp);
    }

    #[test]
    fn a_direction_that_is_blocked_anew_has_its_whole_time() {
        let (start, mut delivery) = (Instant::now(), Delivery::default());
        for second in 0..300 {
            let now = start + Duration::from_secs(second);
            delivery.note([false, second % 50 < 49], now);
            assert_ne!(delivery.look([acknowledged(7); 2], start, LIMIT, now), Finding::GivesUp, "after {second} s");
        }
    }

    #[test]
    fn nothing_is_looked_at_while_nothing_is_blocked() {
        let delivery = Delivery::default();
        assert!(!delivery.is_blocked());
        assert_eq!(delivery.next_look(Instant::now(), LIMIT), None);
    }
}
