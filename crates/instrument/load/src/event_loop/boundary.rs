//! The gate, the window's two ends, and the end of the run.

use plimsoll_reactor::slab::Key;

use super::{Connection, EventLoop, Sockets, State};
use crate::config::StopCondition;
use crate::ledger::Request;
use crate::protocol::Protocol;
use crate::record::Phase;
use crate::shared::{ThreadResult, Usage};

/// The states of a connection that is up and has no request under way.
const UP: [State; 3] = [State::Idle, State::Due, State::Finished];

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// Passes the gate and opens the window, once their instants have come.
    pub(super) fn pass_openings(&mut self, now: u64) {
        let gate = self.shared.control.gate.has_come(now);
        // The window is opened before the gate, so that where both are the same instant the first
        // request is in the window.
        self.open_window_by(now);
        if gate && !self.gate_passed {
            self.pass_gate();
        }
    }

    /// Opens and closes the window where either instant has come by that of what is to be counted
    /// next.
    pub(super) fn cross_boundaries(&mut self, at: u64) {
        self.open_window_by(at);
        self.close_window_by(at);
    }

    fn open_window_by(&mut self, at: u64) {
        let control = &self.shared.control;
        if self.ledger.phase() == Phase::WarmUp && control.opens.has_come(at) && !control.has_no_window() {
            self.open_window(at);
        }
    }

    /// Closes the window where its end has come.
    pub(super) fn close_window_by(&mut self, at: u64) {
        if !(self.closing || self.is_closed()) && self.shared.control.closes.has_come(at) {
            self.pass_openings(at);
            self.closing = true;
            // A signal in the warm-up leaves no window to send anything in.
            if !self.shared.control.has_no_window() {
                self.send_all_due();
            }
            self.close_window(at);
        }
    }

    fn pass_gate(&mut self) {
        self.gate_passed = true;
        self.ledger.follow_clock(self.shared.control.unix(0));
        let start = self.shared.control.gate.get().unwrap_or(0);
        self.shared.schedule.begin(start);
        for key in self.keys_in(&[State::Idle]) {
            self.enter(key, start);
        }
    }

    fn open_window(&mut self, now: u64) {
        self.usage_at_open = Some(Usage::now());
        let at = self.shared.control.opens.get().map_or(now, |opens| opens.min(now));
        let uncounted = self.claim_under_way();
        self.ledger.wrote(self.sockets.take_sent());
        self.ledger.open(at, uncounted);
    }

    /// A counted run claims the requests under way as its window opens: they end in it. Returns how
    /// many of them exceed the count, and are no part of the window.
    fn claim_under_way(&mut self) -> u64 {
        if !self.shared.config.stop_condition.is_count() || self.opened == 0 {
            return 0;
        }
        let mut uncounted = 0;
        let is_under_way = |key: &Key| self.slab.get(*key).is_some_and(Connection::has_request);
        for key in self.slab.keys().filter(is_under_way).collect::<Vec<_>>() {
            let Some(connection) = self.slab.get_mut(key) else { continue };
            if connection.left > 0 {
                connection.left -= 1;
            } else if matches!(self.shared.config.stop_condition, StopCondition::Each(_))
                || !self.shared.control.claim()
            {
                connection.counted = false;
                uncounted += 1;
            }
        }
        uncounted
    }

    /// Ends the window: what is under way stays so, for the record, and has a little time yet to
    /// come to an end that is not counted.
    fn close_window(&mut self, now: u64) {
        // A loop that comes late to it has had no more time than the others.
        let end = self.shared.control.closes.get().map_or(now, |closes| closes.min(now));
        if !self.shared.control.has_ended_count() {
            self.count_unfinished();
        }
        self.end_pool(end);
        let requests: Vec<Request> = self
            .slab
            .keys()
            .filter_map(|key| self.slab.get(key))
            .filter(|connection| connection.has_request())
            .map(|connection| self.request(connection))
            .collect();
        self.ledger.wrote(self.sockets.take_sent());
        self.ledger.close(end, requests.into_iter());
        // None of a loop that came to its end before: what it used is of no window.
        if let Some(usage) = self.usage_at_open {
            usage.note_since(&mut self.result);
        }
        if !self.shared.opens_after_window() {
            self.abandon_all(&[State::BackingOff, State::Connecting, State::Handshaking]);
        }
        self.due.clear();
        if self.holds {
            for key in self.keys_in(&UP) {
                self.stay(key);
            }
        } else {
            self.abandon_all(&UP);
        }
    }

    /// A connection has nothing more to do, and stays up until it may close: what the server does
    /// with it from here on is of no window.
    pub(super) fn stay(&mut self, key: Key) {
        if let Some(connection) = self.slab.get_mut(key) {
            connection.state = State::Finished;
        }
    }

    /// Closes the connections that stayed up after the window.
    pub(super) fn let_go(&mut self) {
        self.holds = false;
        if self.is_closed() {
            self.abandon_all(&UP);
        }
    }

    fn abandon_all(&mut self, states: &[State]) {
        for key in self.keys_in(states) {
            self.abandon(key);
        }
    }

    /// Sends what was due before the window's end and has a free connection: the generator comes to
    /// the end no earlier than a timer lets it, and later where it had no time. That is its lag.
    fn send_all_due(&mut self) {
        for key in self.keys_in(&[State::Due]) {
            let due = self.slab.get(key).map(|connection| connection.intended);
            if due.is_some_and(|due| !self.shared.control.closes.has_come(due)) {
                self.begin_due(key);
            }
        }
        // Of them nothing is left for the next turn.
        self.send_due(usize::MAX);
        self.note_submitted();
    }

    /// Accounts for the requests that will not be begun.
    fn count_unfinished(&mut self) {
        for key in self.slab.keys().collect::<Vec<_>>() {
            let Some(connection) = self.slab.get(key) else { continue };
            let left = connection.left;
            match connection.state {
                State::BackingOff | State::Connecting | State::Handshaking
                    if connection.history.could_not_be_kept() =>
                {
                    self.ledger.given_up();
                }
                _ => {}
            }
            self.ledger.never_sent(left);
        }
        for place in self.opened..self.share {
            let number = place * self.shared.control.gauges.len() + self.number;
            self.ledger.never_sent(self.shared.first_claim(number));
        }
    }

    /// The loop's last act.
    pub(super) fn finish(mut self) -> ThreadResult {
        self.ledger.wrote(self.sockets.take_sent());
        if !self.is_closed() {
            let now = self.now();
            self.close_window(now);
        }
        self.result.books = Some(self.ledger.finish());
        self.result
    }

    fn keys_in(&self, states: &[State]) -> Vec<Key> {
        let within = |key: &Key| self.slab.get(*key).is_some_and(|connection| states.contains(&connection.state));
        self.slab.keys().filter(within).collect()
    }
}
