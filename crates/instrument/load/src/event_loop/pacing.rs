//! When requests begin, and what follows their end: the pace of a run.

use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;

use super::exchange::Received;
use super::{Connection, EventLoop, Sockets, State};
use crate::config::{Pace, Phase, StopCondition};
use crate::ledger::Answer;
use crate::protocol::{After, Protocol};
use crate::record;

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// Takes what has arrived on a connection, and does what follows from it.
    pub(super) fn receive(&mut self, key: Key, ended: bool) {
        loop {
            match self.read(key, ended) {
                Received::Part => return,
                Received::Unread => return self.unread.push((key, ended)),
                Received::Lost(cause) => return self.lose(key, cause),
                Received::HandshakeDone { more } => {
                    self.establish(key);
                    self.take_up();
                    if !more {
                        return;
                    }
                    self.begin_at_once(key);
                }
                Received::Answered { answer, after, ended, more, at } => {
                    self.complete(key, answer, after, ended, at);
                    if !(more || ended) {
                        return;
                    }
                }
            }
        }
    }

    /// Goes on with the connections that have become usable, or free without a socket.
    pub(super) fn take_up(&mut self) {
        while let Some(key) = self.established.pop() {
            let now = self.now();
            let Some(connection) = self.slab.get_mut(key) else { continue };
            if std::mem::take(&mut connection.request_pending) {
                if let Err(cause) = self.send(key, now) {
                    self.lose(key, cause);
                } else {
                    self.stamp(key, None);
                }
            } else {
                self.enter_if_open(key, now);
            }
        }
        while let Some(key) = self.freed.pop() {
            let now = self.now();
            self.enter_if_open(key, now);
        }
    }

    fn enter_if_open(&mut self, key: Key, now: u64) {
        if let Some(connection) = self.slab.get_mut(key) {
            connection.intended = now;
        }
        if self.gate_passed {
            self.enter(key, now);
        }
    }

    /// A connection that is up takes its place in the pace.
    pub(super) fn enter(&mut self, key: Key, start: u64) {
        if !self.may_go_on(key) {
            return self.retire(key);
        }
        if let Some(due) = self.slab.get_mut(key).and_then(|connection| connection.resumes_at.take()) {
            return self.schedule(key, due);
        }
        let begun = self.slab.get(key).is_some_and(|connection| connection.begun > 0);
        match self.shared.config.pace {
            // It has lost a request: phases are of the first request alone, and pauses are whole.
            Pace::Closed { think, .. } if begun => {
                let pause = think.draw_ns(&mut self.random);
                self.schedule(key, start + pause);
            }
            Pace::Closed { think, phase: Phase::Spread } => {
                let ahead = think.draw_phase_ns(&mut self.random);
                self.schedule(key, start + ahead);
            }
            Pace::Closed { phase: Phase::Lockstep, .. } => self.schedule(key, start),
            Pace::Open { .. } => self.wait_in_pool(key),
        }
    }

    /// Whether the run has another request for this connection. A counted run claims it now, so
    /// that no think time precedes a request that is never sent.
    fn may_go_on(&mut self, key: Key) -> bool {
        match self.ledger.phase() {
            record::Phase::WarmUp => return true,
            record::Phase::Window => {}
            record::Phase::Drain => return false,
        }
        let Some(connection) = self.slab.get_mut(key) else { return false };
        match self.shared.config.stop_condition {
            StopCondition::Time(_) => true,
            StopCondition::Each(_) => connection.left > 0,
            // An open loop claims by arrival: any connection may send it.
            StopCondition::Requests(_) if self.shared.config.pace.is_open() => !self.exhausted,
            StopCondition::Requests(_) => {
                if connection.left == 0 && self.shared.control.claim() {
                    connection.left = 1;
                }
                connection.left > 0
            }
        }
    }

    /// The connection's next request is due at `at`.
    fn schedule(&mut self, key: Key, at: u64) {
        let now = self.now();
        let Some(connection) = self.slab.get_mut(key) else { return };
        connection.state = State::Due;
        connection.intended = at;
        if at <= now {
            self.due.push_back(key);
        } else {
            self.set_timer(key, at);
        }
    }

    /// Begins a request that was waiting for its instant.
    pub(super) fn begin_due(&mut self, key: Key) {
        let now = self.now();
        let Some(connection) = self.slab.get(key).filter(|connection| connection.state == State::Due) else { return };
        let intended = if self.shared.config.pace.has_schedule() { connection.intended } else { now };
        // The connection may have been away when it was due.
        let free = connection.sent;
        // The window may have opened while it was due.
        if self.may_go_on(key) { self.begin(key, intended, free, now) } else { self.retire(key) }
    }

    /// Begins the request that has just become due on a connection, before others that are due:
    /// bytes that are there already may be its answer.
    pub(super) fn begin_at_once(&mut self, key: Key) {
        if self.due.back() == Some(&key) {
            self.due.pop_back();
            self.begin_due(key);
        }
    }

    /// Begins a request that was due at `intended`, on a connection that has been free since
    /// `free`.
    pub(super) fn begin(&mut self, key: Key, intended: u64, free: u64, now: u64) {
        let counts = self.ledger.phase() == record::Phase::Window;
        let Some(connection) = self.slab.get_mut(key) else { return };
        if counts {
            connection.left = connection.left.saturating_sub(1);
        }
        connection.intended = intended;
        connection.counted = true;
        connection.begun += 1;
        let connected = connection.socket.is_some();
        connection.request_pending = !connected;
        self.ledger.begun(now);
        if connected {
            if let Err(cause) = self.send(key, now) {
                return self.lose(key, cause);
            }
        } else if !self.connect(key) {
            return;
        }
        self.stamp(key, Some(intended.max(free)));
    }

    /// A request is answered.
    pub(super) fn complete(&mut self, key: Key, answer: Answer, after: After, ended: bool, at: Option<Duration>) {
        let now = self.now();
        let Some(sent) = self.slab.get(key).map(|connection| connection.sent) else { return };
        let (came, reported) = match at.and_then(|at| self.clock.run(at)) {
            Some(came) => (came.clamp(sent.min(now), now), None),
            None => (now, Some(self.unhandled.since)),
        };
        self.cross_boundaries(came);
        let Some(connection) = self.slab.get(key) else { return };
        let request = self.request(connection);
        self.ledger.answered(request, answer, came, reported);
        self.deferred_reads.answered(answer.payload, at.is_some(), ended);
        let Some(connection) = self.slab.get_mut(key) else { return };
        connection.history.answered(self.rules);
        connection.state = State::Idle;
        connection.intended = came;
        let config = &self.shared.config;
        // An answer that came before its request was wholly written leaves the connection in the
        // middle of it.
        let Connection { session, exchange, written, .. } = connection;
        let is_whole = self.shared.protocol.output(session, exchange, *written).is_empty();
        let ends = config.opening.reconnect || after == After::Usable && !is_whole;
        let after = if ends { After::Ends } else { after };
        if self.is_closed() {
            return if self.holds && after == After::Usable && !ended { self.stay(key) } else { self.close(key) };
        }
        if !self.may_go_on(key) {
            return self.retire(key);
        }
        match after {
            After::Usable if ended => {}
            After::Usable => self.go_on(key, now),
            After::Ends => {
                let key = self.detach(key);
                self.go_on(key, now);
            }
            After::Lost(cause) => self.lose(key, cause),
        }
    }

    /// A connection is free for its next request, which it may begin.
    fn go_on(&mut self, key: Key, now: u64) {
        match self.shared.config.pace {
            Pace::Open { .. } => {
                self.wait_in_pool(key);
                self.dispatch(1);
            }
            Pace::Closed { think, .. } => match think.draw_ns(&mut self.random) {
                0 => self.begin(key, now, now, now),
                pause => self.schedule(key, now + pause),
            },
        }
    }

    /// The rest of a request cannot be written. An answer that came before the server ended the
    /// connection counts (RFC 9112, section 9.5). It does not if only the end of the connection
    /// would complete it: the answer may as well be cut short.
    pub(super) fn lose_unless_answered(&mut self, key: Key, cause: Cause) {
        match self.read(key, false) {
            Received::Answered { answer, ended: false, at, .. } => {
                self.complete(key, answer, After::Ends, false, at);
            }
            _ => self.lose(key, cause),
        }
    }

    /// A connection is lost, and with it the request under way.
    pub(super) fn lose(&mut self, key: Key, cause: Cause) {
        self.drop_connection(key, cause);
        self.take_up();
    }
}
