//! The open loop: requests due at instants of their own meet connections that are free.
//!
//! A loop with a free connection takes the next arrival from the [schedule](crate::schedule) of all
//! loops, and sends it when it is due. An arrival that no loop has taken waits there, and is sent
//! on the first connection that becomes free: the time until then is *pool wait*, the server's
//! doing. What is lost after both were there is *schedule lag*, the generator's, and so is the time
//! for which it was late with requests before, though a connection was free for them.

use plimsoll_reactor::slab::Key;

use super::deferred_reads::send_together_at;
use super::{BEGIN_BATCH, EventLoop, Sockets, State};
use crate::config::{Recovery, StopCondition};
use crate::protocol::Protocol;
use crate::record::Phase;
use crate::schedule::Due;
use crate::shared::Shared;

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// A connection is free for a request.
    pub(super) fn wait_in_pool(&mut self, key: Key) {
        if self.exhausted { self.close(key) } else { self.pool.push_back(key) }
    }

    /// When to send the next requests. Where no connection is free that is when the next request
    /// falls due: answers that free one are of no use before.
    pub(super) fn next_dispatch(&self, now: u64) -> Option<u64> {
        let config = &self.shared.config;
        if !config.pace.is_open() || !self.gate_passed {
            return None;
        }
        let (schedule, control) = (&self.shared.schedule, &self.shared.control);
        let end = control.closes.get();
        let Some(more_free) = self.pool.len().checked_sub(1) else {
            // The last answer of a counted run ends it, and is not kept waiting.
            let lasts = matches!(config.stop_condition, StopCondition::Time(_));
            let next = self.reserved.map_or_else(|| schedule.look_ahead(0, end), |due| Some(due.at));
            return next.filter(|at| lasts && *at > now);
        };
        // A turn sends no more than a batch. Where it sent as many, the next has not been taken
        // yet.
        let Some(Due { at: first, .. }) = self.reserved else { return schedule.look_ahead(0, end) };
        let max_lag = config.max_lag.as_nanos() as u64;
        if max_lag == 0 {
            return Some(first);
        }
        let last = match more_free.min(BEGIN_BATCH - 1) {
            0 => Some(first),
            more => schedule.look_ahead(more - 1, end),
        };
        let boundary = if self.ledger.phase() == Phase::WarmUp { control.opens.get() } else { end };
        Some(send_together_at(first, last, max_lag, boundary))
    }

    /// Sends up to `most` requests that are due, once all that came in a sleep is read: on a
    /// connection that is free something may lie that is no answer to what would be sent on it.
    pub(super) fn dispatch(&mut self, most: usize) {
        if self.backlog.is_handled(self.slept_at, self.entered) {
            self.send_due(most);
        }
    }

    /// Sends up to `most` requests that are due, and takes the next for the connections that are
    /// free.
    pub(super) fn send_due(&mut self, most: usize) {
        if !self.shared.config.pace.is_open() || !self.gate_passed || self.is_closed() {
            return;
        }
        for _ in 0..most {
            let Some(key) = self.first_free() else { return self.give_back_reserved() };
            let Some(due) = self.take_arrival() else { return };
            let now = self.now();
            if due.at > now || self.shared.control.closes.has_come(due.at) {
                return;
            }
            self.reserved = None;
            let Some(connection) = self.slab.get(key) else { continue };
            let Shared { control, schedule, .. } = &*self.shared;
            let held_up = control.held_up(due.at, connection.intended, Some(self.number));
            let backoff = schedule.backoff_within(due.at + held_up, connection.intended);
            // What the generator held it up for is no wait for a connection.
            let free = connection.intended - held_up;
            if free <= due.at {
                control.gauges[self.number].hold_up_until(now);
            }
            let timeout = self.timeout_ns();
            if due.at.saturating_add(timeout) <= now {
                self.ledger.expired(due.at, free, now, backoff);
                self.miss(key);
                continue;
            }
            self.pool.pop_front();
            self.ledger.waited(free.saturating_sub(due.at), backoff);
            self.begin(key, due.at, free, now);
        }
    }

    /// A request timed out before the connection meant for it was free. It counts as one of the
    /// connection's `--each`, except where sequences start over after a failure.
    fn miss(&mut self, key: Key) {
        let counts = self.ledger.phase() == Phase::Window && self.shared.config.recovery == Recovery::GiveUp;
        let Some(connection) = self.slab.get_mut(key).filter(|connection| counts && connection.left > 0) else {
            return;
        };
        connection.left -= 1;
        let (is_last, number) = (connection.left == 0, connection.number);
        self.ledger.missed(self.place(number));
        if is_last {
            self.retire(key);
        }
    }

    /// The connection that has been free for longest; others may have been lost while they waited.
    fn first_free(&mut self) -> Option<Key> {
        while let Some(&key) = self.pool.front() {
            if self.slab.get(key).is_some_and(|connection| connection.state == State::Idle) {
                return Some(key);
            }
            self.pool.pop_front();
        }
        None
    }

    /// The arrival that this loop is to send next, claimed of the run's count where there is one.
    fn take_arrival(&mut self) -> Option<Due> {
        let control = &self.shared.control;
        let mut due = match self.reserved {
            Some(due) => due,
            None => self.shared.schedule.take(control.closes.get())?,
        };
        // What is due in the warm-up is no part of the count.
        let counts = matches!(self.shared.config.stop_condition, StopCondition::Requests(_))
            && self.ledger.phase() == Phase::Window;
        if counts && !due.claimed {
            if !control.claim() {
                self.exhaust();
                return None;
            }
            due.claimed = true;
        }
        self.reserved = Some(due);
        Some(due)
    }

    /// No connection is free here: another loop may have one.
    fn give_back_reserved(&mut self) {
        if self.shared.control.gauges.len() > 1
            && let Some(due) = self.reserved.take()
        {
            self.shared.schedule.give_back(due);
        }
    }

    /// Every request there was to send is sent: connections close as they become free.
    fn exhaust(&mut self) {
        self.exhausted = true;
        self.reserved = None;
        for key in std::mem::take(&mut self.pool) {
            if self.slab.get(key).is_some_and(|connection| connection.state == State::Idle) {
                self.close(key);
            }
        }
    }

    /// Accounts for the request that was taken, due by the window's end, and not sent.
    pub(super) fn end_pool(&mut self, end: u64) {
        self.pool.clear();
        let Some(due) = self.reserved.take() else { return };
        if self.shared.config.stop_condition.is_count() {
            // Requests that are never sent count among the unclaimed ones.
            if due.claimed {
                self.shared.control.give_back();
            }
        } else if due.at < end {
            let held_up = self.shared.control.held_up(due.at, end, Some(self.number));
            let backoff = self.shared.schedule.backoff_within(due.at + held_up, end);
            self.ledger.overdue(due.at, end - held_up, end, backoff);
        }
    }
}
