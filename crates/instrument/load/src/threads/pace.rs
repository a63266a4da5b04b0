//! When a connection's thread begins its requests: after the start, by its think time, or as an
//! open loop's requests fall due.

use std::thread;
use std::time::Duration;

use plimsoll_measure::arrivals::Think;

use crate::config::{Pace, Phase as Start, Recovery, StopCondition};
use crate::ledger::Request;
use crate::protocol::{After, Protocol, Reply};
use crate::record::Phase;
use crate::shared::Shared;

use super::STOP_POLL_INTERVAL;
use super::client::{Client, End};

impl<P: Protocol> Client<'_, P> {
    /// Waits until the run starts, and connects; whether requests can be sent.
    pub(super) fn wait_for_start(&mut self) -> bool {
        let control = &self.shared.control;
        while control.starts.get().is_none() {
            if self.is_over() {
                return false;
            }
            thread::park_timeout(STOP_POLL_INTERVAL);
        }
        let turn = self.shared.config.opening.rate.map_or(0.0, |rate| self.number as f64 / rate * 1e9);
        if !self.sleep_until_opening(control.starts.get().unwrap_or(0).saturating_add(turn as u64)) {
            return false;
        }
        if self.shared.config.opening.reconnect {
            control.settle();
        } else if !self.reopen() {
            return false;
        }
        self.free = self.now();
        while !control.gate.has_come(control.now()) {
            if self.is_over() {
                return false;
            }
            // A start that was given lies ahead.
            let gate = control.gate.get().map(|at| Duration::from_nanos(at.saturating_sub(control.now())));
            thread::park_timeout(gate.unwrap_or(STOP_POLL_INTERVAL).min(STOP_POLL_INTERVAL));
        }
        self.ledger.follow_clock(control.unix(0));
        let now = self.now();
        self.cross_boundaries(now);
        true
    }

    /// Stays until no other connection has anything to do, where that matters.
    pub(super) fn stay_until_all_have_finished(&mut self) {
        if self.shared.config.keeps_all_open() {
            self.shared.control.finish();
        } else if self.shared.config.stop_condition.is_count() || self.shared.control.peak() == 0 {
            return;
        }
        // A window of a set length is measured to its end, also by a connection that was given up.
        while self.sleep_until(u64::MAX) {}
    }

    pub(super) fn carry_requests(&mut self) {
        match self.shared.config.pace {
            Pace::Closed { think, phase } => self.carry_closed_loop(think, phase),
            Pace::Open { .. } => self.carry_open_loop(),
        }
        self.show_free(false);
    }

    /// Whether the run has another request for this connection. A counted run claims it now, so
    /// that no think time precedes a request that is never sent.
    fn may_go_on(&mut self) -> bool {
        if self.ledger.phase() != Phase::Window {
            return !self.is_closed();
        }
        match self.shared.config.stop_condition {
            StopCondition::Time(_) => true,
            StopCondition::Each(_) => self.left > 0,
            // An open loop claims by arrival: any connection may send it.
            StopCondition::Requests(_) if self.shared.config.pace.is_open() => true,
            StopCondition::Requests(_) => {
                if self.left == 0 && self.shared.control.claim() {
                    self.left = 1;
                }
                self.left > 0
            }
        }
    }

    fn carry_closed_loop(&mut self, think: Think, phase: Start) {
        let mut due = self.now();
        if phase == Start::Spread {
            due += think.draw_phase_ns(&mut self.random);
        } else if self.shared.config.opening.barrier {
            due = self.shared.control.gate.get().unwrap_or(due);
        }
        while self.may_go_on() && self.sleep_until(due) && self.look_at_idle_connection() {
            let now = self.now();
            // Asked again at the instant of the request: the window may have opened since, and a
            // count claims what goes out in it.
            self.open_window_by(now);
            if !self.may_go_on() {
                return;
            }
            let intended = if self.shared.config.pace.has_schedule() { due } else { now };
            if !self.carry(intended, intended.max(self.free), now) {
                return;
            }
            due = self.free + think.draw_ns(&mut self.random);
        }
    }

    /// Sends requests of an open loop: a free connection takes the next of them all, and sends it
    /// when it is due.
    fn carry_open_loop(&mut self) {
        self.shared.schedule.begin(self.shared.control.gate.get().unwrap_or(0));
        let timeout = self.timeout_ns();
        while self.may_go_on() {
            let Some(due) = self.shared.schedule.take(self.shared.control.closes.get()) else { return };
            self.reserved = Some(due);
            if due.at > self.now() {
                self.show_free(true);
            }
            if !(self.claim_arrival() && self.sleep_until(due.at) && self.claim_arrival()) {
                return;
            }
            if !self.look_at_idle_connection() {
                return;
            }
            let now = self.now();
            self.open_window_by(now);
            if !self.claim_arrival() {
                return;
            }
            // The connection may have been away, and another has taken the request.
            let Some(due) = self.reserved.take() else { continue };
            self.show_free(false);
            let Shared { control, schedule, .. } = self.shared;
            let held_up = control.held_up(due.at, self.free, None);
            let backoff = schedule.backoff_within(due.at + held_up, self.free);
            let free = self.free - held_up;
            if free <= due.at {
                self.gauge().hold_up_until(now);
            }
            if due.at.saturating_add(timeout) <= now {
                self.ledger.expired(due.at, free, now, backoff);
                self.miss();
                self.show();
                continue;
            }
            self.ledger.waited(free.saturating_sub(due.at), backoff);
            if !self.carry(due.at, due.at.max(free), now) {
                return;
            }
        }
    }

    /// A request timed out before the connection meant for it was free: as in the event loop.
    fn miss(&mut self) {
        let counts = self.ledger.phase() == Phase::Window && self.shared.config.recovery == Recovery::GiveUp;
        if counts && self.left > 0 {
            self.left -= 1;
            self.ledger.missed(0);
        }
    }

    /// Reads what came while no request was under way, as an event loop does when it comes; whether
    /// there is more to do.
    fn look_at_idle_connection(&mut self) -> bool {
        if !self.shared.config.pace.has_schedule() {
            // The connection was not idle: the answer before has just come.
            return true;
        }
        while let Some(reply) = self.receive_idle() {
            if let Reply::Failed(cause) = reply {
                let goes_on = self.lose(cause);
                self.free = self.now();
                return goes_on;
            }
        }
        true
    }

    /// Claims the arrival that was taken, of a run's count; false where none is left.
    fn claim_arrival(&mut self) -> bool {
        let counts = matches!(self.shared.config.stop_condition, StopCondition::Requests(_))
            && self.ledger.phase() == Phase::Window;
        let Some(due) = self.reserved.as_mut().filter(|due| counts && !due.claimed) else { return true };
        due.claimed = self.shared.control.claim();
        if !due.claimed {
            self.reserved = None;
        }
        self.reserved.is_some()
    }

    /// Sends one request `now`, due at `intended`, that could have been sent at `possible`, and
    /// waits for its answer. Returns whether there is more to do. The caller has opened the window
    /// if it opens by `now`.
    fn carry(&mut self, intended: u64, possible: u64, now: u64) -> bool {
        if self.shared.control.closes.has_come(intended) {
            self.cross_boundaries(now);
        }
        if self.is_closed() {
            return false;
        }
        if self.ledger.phase() == Phase::Window {
            self.left = self.left.saturating_sub(1);
        }
        self.ledger.begun(now);
        self.ledger.sent(possible, now);
        self.under_way = Some(Request { place: 0, intended, sent: now, counted: true, last: self.left == 0 });
        if self.socket.is_none() {
            if let Err(number) = self.open() {
                let goes_on = self.lose_unopened(number);
                self.free = self.now();
                return goes_on;
            }
            let sent = self.now();
            self.under_way = self.under_way.map(|request| Request { sent, ..request });
        }
        let (goes_on, free) = match self.exchange(intended) {
            End::Complete { answer, after, at } => {
                self.count_answer(answer, at);
                let after = if self.shared.config.opening.reconnect { After::Ends } else { after };
                match after {
                    After::Lost(cause) if !self.is_closed() && self.may_go_on() => (self.lose(cause), self.now()),
                    After::Usable => (!self.is_closed(), at),
                    After::Ends | After::Lost(_) => {
                        self.disconnect();
                        (!self.is_closed(), at)
                    }
                }
            }
            End::Lost(cause) => (self.lose(cause), self.now()),
            End::Stopped => (false, 0),
        };
        self.free = free;
        goes_on
    }
}
