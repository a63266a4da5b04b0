//! When a connection has taken too long. The time is an argument.

use std::time::{Duration, Instant};

use plimsoll_reactor::progress::{LOOKS, Sent};
use plimsoll_sys::net;

use super::delivery::Finding;
use super::{Connection, ConnectionState};
use crate::ending::Ending;
use crate::transfer::Endpoint;

/// The kernel does not report when it has delivered the bytes that it holds for a side, so they are
/// looked at again and again: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);

impl Connection {
    /// When to look whether the stage that it is in has taken too long, if nothing comes until
    /// then.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let limits = &self.route.rule.limits;
        match &self.state {
            ConnectionState::Header => self.active + limits.connect.min(limits.idle),
            ConnectionState::Connecting(attempts) => {
                attempts.again_at.unwrap_or(attempts.until).min(attempts.until).min(self.active + limits.idle)
            }
            ConnectionState::Relaying => {
                let silence = (self.active + self.silence_limit()).max(now);
                let look = self.delivery.as_ref().and_then(|delivery| delivery.next_look(now, limits.send));
                look.map_or(silence, |look| look.min(silence))
            }
            ConnectionState::Lingering { since, progress, .. } => {
                let passed = now.saturating_duration_since(*since);
                let look = progress.next_look(now, limits.half_close);
                look.min(now + (passed / 4).clamp(FIRST_LOOK, LATER_LOOKS))
            }
        }
    }

    fn silence_limit(&self) -> Duration {
        let limits = &self.route.rule.limits;
        if self.is_half() { limits.half_close.min(limits.idle) } else { limits.idle }
    }

    /// Whether a connection that is relayed has taken too long, or until when to wait before
    /// looking again. Bytes that a side acknowledges are a sign of life: the kernel may hold
    /// megabytes that a slow reader has yet to take.
    pub(crate) fn look(&mut self, now: Instant) -> Result<Instant, Ending> {
        if self.resumes.is_set() {
            // It waits for its rule's bandwidth, and not for a side.
            self.active = now;
        }
        let (limits, silence) = (self.route.rule.limits, self.silence_limit());
        let is_silent = now >= self.active + silence;
        if !is_silent && self.delivery.is_none() {
            return Ok(self.deadline(now));
        }
        let sent = |sink: &Option<Endpoint>, written| {
            let waits = sink.as_ref().and_then(|sink| net::unacknowledged(&sink.socket).ok());
            Sent::new(written, waits.unwrap_or(0))
        };
        let sent = [sent(&self.server, self.relay.up.bytes), sent(&self.client, self.relay.down.bytes)];
        let delivery = self.delivery.get_or_insert_default();
        let found = delivery.look(sent, self.active, limits.send, now);
        match found {
            Finding::GivesUp => return Err(Ending::SendTimeout),
            Finding::Takes => self.active = now,
            Finding::Unknown | Finding::Nothing => {}
        }
        if now < self.active + silence {
            if !delivery.is_blocked() {
                self.delivery = None;
            }
            return Ok(self.deadline(now));
        }
        if found == Finding::Unknown {
            return Ok(now + silence / LOOKS);
        }
        Err(if self.is_half() { Ending::HalfClose } else { Ending::Idle })
    }
}
