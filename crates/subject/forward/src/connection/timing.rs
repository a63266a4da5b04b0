//! When a connection has taken too long. The time is an argument.

use std::time::{Duration, Instant};

use plimsoll_sys::net;

use super::{Connection, Stage};
use crate::ending::Ending;
use crate::stall::{self, Stall};

/// The kernel tells nobody when it has delivered what it holds for a side, so it is looked at again
/// and again: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);

impl Connection {
    /// When to look whether the stage that it is in has taken too long, if nothing comes until
    /// then.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let limits = &self.route.rule.limits;
        match &self.stage {
            Stage::Header => self.opened + limits.connect.min(limits.idle),
            Stage::Connecting(attempts) => {
                attempts.again_at.unwrap_or(attempts.until).min(attempts.until).min(self.opened + limits.idle)
            }
            Stage::Relaying => {
                let silence = (self.active + self.silence_limit()).max(now);
                let look = self.stall.as_ref().and_then(|stall| stall.next_look(limits.send));
                look.map_or(silence, |look| look.min(silence))
            }
            Stage::Dismissing { since, progress, .. } => {
                let passed = now.saturating_duration_since(*since);
                (*progress + limits.half_close).min(now + (passed / 4).clamp(FIRST_LOOK, LATER_LOOKS))
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
        let (limits, silence) = (self.route.rule.limits, self.silence_limit());
        let is_silent = now >= self.active + silence;
        if !is_silent && self.stall.is_none() {
            return Ok(self.deadline(now));
        }
        let stall = self.stall.get_or_insert_with(|| Box::new(Stall::new(now)));
        let mut first_look = false;
        for (direction, sink, written) in
            [(0, &self.server, self.relay.up.bytes), (1, &self.client, self.relay.down.bytes)]
        {
            let Some(sink) = sink else { continue };
            let waits = net::unacknowledged(&sink.socket).unwrap_or(0) as u64;
            stall.count(direction, written);
            match stall.look(direction, waits, self.active, now) {
                Some(true) => self.active = now,
                Some(false) => {}
                None => first_look |= waits > 0,
            }
        }
        if stall.is_over(limits.send, now) {
            return Err(Ending::SendTimeout);
        }
        if now < self.active + silence {
            if !stall.is_blocked() {
                self.stall = None;
            }
            return Ok(self.deadline(now));
        }
        if first_look {
            // Whether a side takes what the kernel holds for it the next look tells.
            return Ok(now + stall::look_interval(silence));
        }
        Err(if self.is_half() { Ending::HalfClose } else { Ending::Idle })
    }
}
