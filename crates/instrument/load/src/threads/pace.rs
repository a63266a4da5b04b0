//! When a connection's thread begins its requests: after the start, by its think time, or as its part of an open loop falls due.

use std::thread;

use plimsoll_measure::arrivals::Think;
use plimsoll_measure::tally::Cause;

use crate::config::{Pace, Phase as Start};
use crate::protocol::{Protocol, Reply};
use crate::stream::{Stream, count_expired};

use super::GLANCE;
use super::client::{Client, End};

impl<P: Protocol> Client<'_, P> {
    /// Waits until the run starts, and connects; whether requests can be sent.
    pub(super) fn wait_for_start(&mut self) -> bool {
        let control = &self.shared.control;
        while control.starts.get().is_none() {
            if self.is_over() {
                return false;
            }
            thread::park_timeout(GLANCE);
        }
        let turn = self.shared.config.opening.rate.map_or(0.0, |rate| self.number as f64 / rate * 1e9);
        if !self.sleep_until(control.starts.get().unwrap_or(0).saturating_add(turn as u64)) {
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
            thread::park_timeout(GLANCE);
        }
        true
    }

    pub(super) fn stay_until_all_have_finished(&mut self) {
        if self.shared.config.stays_whole() {
            self.shared.control.finish();
            while self.sleep_until(u64::MAX) {}
        }
    }

    pub(super) fn carry_requests(&mut self) {
        match self.shared.config.pace {
            Pace::Closed { think, phase } => self.carry_closed_loop(think, phase),
            Pace::Open { .. } => self.carry_open_loop(),
        }
    }

    fn carry_closed_loop(&mut self, think: Think, phase: Start) {
        let mut due = self.now();
        if phase == Start::Spread {
            due += think.draw_phase_ns(&mut self.random);
        } else if self.shared.config.opening.barrier {
            due = self.shared.control.gate.get().unwrap_or(due);
        }
        while self.sleep_until(due) && self.look_at_idle_connection() && self.claim() {
            let now = self.now();
            let scheduled = self.shared.config.pace.has_schedule();
            if scheduled {
                self.tally.schedule_lag.record_ns(now - due);
            }
            if !self.carry(if scheduled { due } else { now }) {
                return;
            }
            due = self.now() + think.draw_ns(&mut self.random);
        }
    }

    /// Sends this connection's part of the requests of an open loop. One that is due while another is under way waits for this connection: no other could take it.
    fn carry_open_loop(&mut self) {
        let config = &self.shared.config;
        let phase = config.part.phase(self.number, config.connections);
        let start = self.shared.control.gate.get().unwrap_or(0);
        let timeout = config.timeout.as_nanos() as u64;
        self.stream = Stream::begin(config, 1.0 / config.connections as f64, phase, start, &mut self.random);
        while let Some(due) = self.stream.as_ref().map(Stream::next) {
            if !self.sleep_until(due) || !self.look_at_idle_connection() || !self.claim() {
                return;
            }
            if let Some(stream) = &mut self.stream {
                stream.advance(&mut self.random);
            }
            let now = self.now();
            if due.saturating_add(timeout) <= now {
                count_expired(timeout, &mut self.tally);
                self.show(0, 1);
                continue;
            }
            self.tally.pool_wait.record_ns(self.free.saturating_sub(due));
            self.tally.schedule_lag.record_ns(now - due.max(self.free));
            if !self.carry(due) {
                return;
            }
            self.free = self.now();
        }
    }

    /// Reads what came while no request was under way, as an event loop does when it comes; whether there is more to do.
    fn look_at_idle_connection(&mut self) -> bool {
        if !self.shared.config.pace.has_schedule() {
            // The connection was not idle: the answer before has just come.
            return true;
        }
        while let Some(reply) = self.receive_idle() {
            if let Reply::Failed(cause) = reply {
                return self.lose(cause);
            }
        }
        true
    }

    /// Carries one request, due at `intended`; whether there is more to do.
    fn carry(&mut self, intended: u64) -> bool {
        let now = self.now();
        self.left = self.left.saturating_sub(1);
        self.tally.requests.scheduled += 1;
        self.tally.sent += 1;
        self.under_way = Some(intended);
        let on_demand = self.socket.is_none();
        let (end, sent) = if on_demand && !self.open() {
            (End::Lost(Cause::Connect), now)
        } else {
            let sent = self.now();
            (self.exchange(intended), sent)
        };
        match end {
            End::Whole { payload, keep, status } => self.complete(payload, status, intended, sent, keep),
            End::Lost(cause) => self.lose(cause),
            End::Stopped => false,
        }
    }
}
