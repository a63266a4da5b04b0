//! When the loop wakes: the connections' timers, and how long to wait for events.

use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;

use super::{EventLoop, Sockets, State};
use crate::protocol::Protocol;
use crate::record;
use crate::shared::ETIMEDOUT;

/// When a time-out that is held back is looked at again, in nanoseconds. Sooner would cost a loop
/// with many of them the time in which it catches up.
const HOLD: u64 = 2_000_000;

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// When to look again at a time-out that was due at `deadline`; `None` where it is over: what
    /// came before it is handled, and was no answer.
    fn next_look(&mut self, deadline: u64, now: u64) -> Option<u64> {
        let is_over = self.backlog.is_handled(deadline, self.entered);
        (!is_over).then(|| if self.entered < deadline { deadline } else { now + HOLD })
    }

    /// A connection's timer has fired; it may be early, as a deadline that moves away does not move
    /// its timer.
    pub(super) fn fire(&mut self, key: Key) {
        let now = self.now();
        let timeout = self.timeout_ns();
        let Some(connection) = self.slab.get_mut(key) else { return };
        connection.timer = None;
        let deadline = match connection.state {
            State::Idle | State::Finished => return,
            State::BackingOff | State::Due => connection.intended,
            State::Connecting | State::Handshaking if !connection.request_pending => {
                connection.sent.saturating_add(timeout)
            }
            State::Connecting | State::Handshaking | State::Busy => connection.intended.saturating_add(timeout),
        };
        if now < deadline {
            return self.set_timer(key, deadline);
        }
        let awaits_event = matches!(connection.state, State::Connecting | State::Handshaking | State::Busy);
        if awaits_event && let Some(at) = self.next_look(deadline, now) {
            return self.set_timer(key, at);
        }
        let Some(connection) = self.slab.get(key) else { return };
        match connection.state {
            State::Idle | State::Finished => {}
            State::BackingOff => self.return_to_service(key, now),
            State::Connecting | State::Handshaking => self.attempt_failed(key, ETIMEDOUT),
            State::Due => self.due.push_back(key),
            State::Busy => self.lose(key, Cause::Timeout),
        }
    }

    /// Makes sure that the connection's timer fires at `deadline` or before.
    pub(super) fn set_timer(&mut self, key: Key, deadline: u64) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        if let Some(timer) = connection.timer {
            if connection.timer_at <= deadline {
                return;
            }
            self.wheel.cancel(timer);
        }
        connection.timer = Some(self.wheel.set(self.shared.control.instant(deadline), key.to_raw()));
        connection.timer_at = deadline;
    }

    /// How long to wait for events: not at all while something is left to do here; and whether the
    /// wait is cut short by `--spin`, so that the loop polls.
    pub(super) fn timeout(&self, now: u64, dispatch: Option<u64>) -> (Option<Duration>, bool) {
        let work =
            !(self.due.is_empty() && self.unread.is_empty() && self.established.is_empty() && self.freed.is_empty());
        if work || self.may_open(now) {
            return (Some(Duration::ZERO), false);
        }
        let control = &self.shared.control;
        let until = |at: u64| Duration::from_nanos(at.saturating_sub(now));
        let phase = self.ledger.phase();
        let close = if phase == record::Phase::Drain { None } else { control.closes.get().map(until) };
        let opening = self.next_opening().map(until);
        let gate = if self.gate_passed { None } else { control.gate.get().map(until) };
        let window = if phase == record::Phase::WarmUp { control.opens.get().map(until) } else { None };
        let timer = self.wheel.wait(control.instant(now));
        // An open loop's timers are time-outs alone, which may fire late.
        let (timer, due) = if self.shared.config.pace.is_open() { (timer, dispatch.map(until)) } else { (None, timer) };
        let second = self.ledger.next_record().map(until);
        let wake = [close, opening, gate, window, timer, second].into_iter().flatten().min();
        let early = due.map(|wait| wait.saturating_sub(self.shared.config.spin));
        let polls = early.is_some_and(|wait| wait.is_zero()) && due.is_some_and(|wait| !wait.is_zero());
        (wake.into_iter().chain(early).min(), polls)
    }

    /// Whether answers may wait until a request is due next: the kernel notes when they come.
    pub(super) fn may_sleep(&self, time: Duration) -> bool {
        S::SLEEPS && self.pending == 0 && self.deferred_reads.allows(time)
    }
}
