//! A connection's time limit: until when its peer must send something, or, while output waits, take
//! something.

use std::time::{Duration, Instant};

use plimsoll_reactor::deadline::Deadline;
use plimsoll_reactor::progress::{SendProgress, Sent, Verdict};
use plimsoll_reactor::timer::Wheel;

/// Where nothing ever had to happen, it is one empty pointer.
#[derive(Debug, Default)]
pub(crate) struct Limit(Option<Box<Limited>>);

#[derive(Debug, Default)]
struct Limited {
    deadline: Deadline,
    /// While output waits.
    sending: Option<SendProgress>,
}

impl Limit {
    /// No output waits: the peer has until then to send something.
    pub(crate) fn receive_until(&mut self, until: Option<Instant>, wheel: &mut Wheel, key: u64) {
        if until.is_none() && self.0.is_none() {
            return;
        }
        let limited = self.0.get_or_insert_default();
        limited.sending = None;
        limited.deadline.set(until, wheel, key);
    }

    /// Output waits. What the peer has taken is looked up from time to time, not where it is sent.
    pub(crate) fn send_within(&mut self, timeout: Option<Duration>, now: Instant, wheel: &mut Wheel, key: u64) {
        let Some(timeout) = timeout else { return self.receive_until(None, wheel, key) };
        let limited = self.0.get_or_insert_default();
        if limited.sending.is_none() {
            let progress = SendProgress::begin(now);
            limited.sending = Some(progress);
            limited.deadline.set(Some(progress.next_look(now, timeout)), wheel, key);
        }
    }

    /// Its timer has fired; returns whether the limit is reached, or while output waits, whether it
    /// is time to look.
    pub(crate) fn is_reached(&mut self, now: Instant, wheel: &mut Wheel, key: u64) -> bool {
        self.0.as_mut().is_some_and(|limited| limited.deadline.is_reached(now, wheel, key))
    }

    /// Whether output waits.
    pub(crate) fn is_sending(&self) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.sending.is_some())
    }

    /// Looks at what the peer has taken; returns whether it is given up.
    pub(crate) fn gives_up(
        &mut self,
        sent: Sent,
        timeout: Duration,
        now: Instant,
        wheel: &mut Wheel,
        key: u64,
    ) -> bool {
        let Some(limited) = &mut self.0 else { return false };
        let Some(progress) = &mut limited.sending else { return false };
        match progress.look(now, sent, timeout) {
            Verdict::LookAgain(at) => limited.deadline.set(Some(at), wheel, key),
            Verdict::GiveUp => return true,
        }
        false
    }

    /// Takes the timer back, at the connection's end.
    pub(crate) fn cancel(self, wheel: &mut Wheel) {
        if let Some(limited) = self.0 {
            limited.deadline.cancel(wheel);
        }
    }
}
