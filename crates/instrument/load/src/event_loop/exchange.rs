//! Requests: due, begun, written, answered.

use std::io::ErrorKind;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;
use rand::Rng;

use super::sockets::Arrival;
use super::{READ_BUDGET, Sockets, State, Table};
use crate::config::{Extent, Pace, Phase, Recovery};
use crate::protocol::{Protocol, Reply, Turn};
use crate::record::Request;

/// Requests claimed at once from the run's budget: few enough that no loop sits on what another could send, many enough that loops seldom meet.
const CLAIM: u64 = 16;

impl<P: Protocol, S: Sockets> Table<P, S> {
    /// A connection that is up takes its place in the pace.
    pub(super) fn enter(&mut self, key: Key, start: u64) {
        match self.shared.config.pace {
            Pace::Closed { think, phase: Phase::Spread } => {
                let ahead = think.draw_phase_ns(&mut self.random);
                self.schedule(key, start + ahead);
            }
            Pace::Closed { phase: Phase::Lockstep, .. } => self.schedule(key, start),
            Pace::Open { .. } => self.wait_in_pool(key),
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
        if self.claim() {
            self.begin(key, intended, 0, now);
        } else {
            self.retire(key);
        }
    }

    /// Begins a request that was due at `intended`, on a connection that has been free since `free`.
    pub(super) fn begin(&mut self, key: Key, intended: u64, free: u64, now: u64) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        connection.left = connection.left.saturating_sub(1);
        connection.intended = intended;
        let connected = connection.socket.is_some();
        connection.carries = !connected;
        self.busy += 1;
        self.tally.requests.scheduled += 1;
        self.tally.sent += 1;
        if self.shared.config.pace.has_schedule() {
            self.tally.schedule_lag.record_ns(now.saturating_sub(intended.max(free)));
        }
        if connected {
            self.send(key, now);
        } else {
            self.connect(key);
        }
    }

    /// Sends the request that is under way.
    pub(super) fn send(&mut self, key: Key, now: u64) {
        let random = self.random.next_u64();
        let Some(connection) = self.slab.get_mut(key) else { return };
        let target = self.shared.config.target(connection.number as usize);
        let turn = Turn { target, sequence: self.sequence, random };
        connection.exchange = self.shared.protocol.begin(&mut connection.session, turn, connection.written);
        connection.state = State::Busy;
        connection.sent = now;
        connection.written = 0;
        self.sequence += 1;
        let deadline = connection.intended.saturating_add(self.shared.config.timeout.as_nanos() as u64);
        self.set_timer(key, deadline);
        self.write(key);
    }

    /// Whether one more request may be begun.
    pub(super) fn claim(&mut self) -> bool {
        if !matches!(self.shared.config.extent, Extent::Requests(_)) {
            return true;
        }
        if self.claims == 0 {
            self.claims = self.shared.control.claim(CLAIM);
        }
        let claimed = self.claims > 0;
        self.claims = self.claims.saturating_sub(1);
        claimed
    }

    /// Writes what there is room for; a further edge tells of more room.
    pub(super) fn write(&mut self, key: Key) {
        loop {
            let Some(connection) = self.slab.get_mut(key) else { return };
            let Some(socket) = &connection.socket else { return };
            let bytes = self.shared.protocol.output(&connection.session, &connection.exchange, connection.written);
            if bytes.is_empty() {
                return;
            }
            match self.sockets.write(socket, bytes) {
                Ok(count) => {
                    connection.written += count;
                    self.tally.bytes_sent += count as u64;
                    if count < bytes.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(key, Cause::Write),
            }
        }
    }

    /// Reads what has arrived. `ended` says that the end of the stream is among it, so that reading on is sure to find it.
    pub(super) fn read(&mut self, key: Key, ended: bool) {
        for _ in 0..READ_BUDGET {
            let Some(connection) = self.slab.get_mut(key) else { return };
            let Some(socket) = &connection.socket else { return };
            let Arrival { bytes, more } = match self.sockets.read(socket) {
                Ok(Arrival { bytes: [], .. }) => return self.end(key),
                Ok(arrival) => arrival,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(key, Cause::Read),
            };
            self.tally.bytes_received += bytes.len() as u64;
            let protocol = &self.shared.protocol;
            let reply = match connection.state {
                State::Busy | State::Greeting => {
                    protocol.input(&mut connection.session, &mut connection.exchange, bytes)
                }
                _ => protocol.idle(&mut connection.session, bytes),
            };
            let greeting = connection.state == State::Greeting;
            if greeting {
                // The answer may ask for one.
                self.write(key);
            }
            match reply {
                Reply::Partial => {}
                Reply::Whole { .. } if greeting => self.established(key),
                Reply::Whole { payload, keep, status } => self.complete(key, Answer { payload, keep, status, ended }),
                Reply::Failed(cause) => return self.lose(key, cause),
            }
            if !more && !ended {
                return;
            }
        }
        self.unread.push(key);
    }

    /// The server has ended the connection.
    fn end(&mut self, key: Key) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        if connection.state != State::Busy {
            return self.lose(key, Cause::Closed);
        }
        match self.shared.protocol.end(&mut connection.session, &mut connection.exchange) {
            Reply::Whole { payload, status, .. } => {
                self.complete(key, Answer { payload, status, keep: false, ended: true });
            }
            Reply::Partial => self.lose(key, Cause::Closed),
            Reply::Failed(cause) => self.lose(key, cause),
        }
    }

    /// A request is answered.
    fn complete(&mut self, key: Key, answer: Answer) {
        let now = self.now();
        if !self.recorder.sequences.is_empty() {
            self.record(key, &answer, now);
        }
        let Some(connection) = self.slab.get_mut(key) else { return };
        let config = &self.shared.config;
        self.busy -= 1;
        self.tally.statuses.count(answer.status);
        if answer.status >= 400 {
            // Its time is not one of the answers that were asked for: errors may be quick.
            self.shown.1 += 1;
            self.recorder.failed();
            self.tally.requests.failed += 1;
            self.tally.errors.count(Cause::Status);
        } else {
            self.shown.0 += 1;
            self.tally.requests.completed += 1;
            self.tally.payload_bytes += answer.payload;
            let response = now - connection.intended;
            self.tally.response.record_ns(response);
            self.recorder.completed_in_second(response);
            if P::TELLS_TRANSMISSION {
                self.tally.transmission.record_ns(now - connection.sent);
            } else if config.pace.has_schedule() || config.opening.reconnect {
                self.tally.service.record_ns(now - connection.sent);
            }
        }
        if config.recovery == Recovery::GiveUp {
            connection.attempts = 0;
        }
        connection.state = State::Idle;
        connection.intended = now;
        // An answer that came before its request was wholly written leaves the connection in the middle of it.
        let keep = answer.keep
            && !config.opening.reconnect
            && self.shared.protocol.output(&connection.session, &connection.exchange, connection.written).is_empty();
        if self.window_closed {
            return self.close(key);
        }
        if connection.left == 0 && matches!(config.extent, Extent::Each(_)) {
            return self.retire(key);
        }
        if !keep {
            let key = self.detach(key);
            self.go_on(key, now);
        } else if !answer.ended {
            self.go_on(key, now);
        }
    }

    /// Records an answer for its connection, and in the log of requests.
    fn record(&mut self, key: Key, answer: &Answer, now: u64) {
        let Some(&super::Connection { number, left, intended, sent, .. }) = self.slab.get(key) else { return };
        let unix = self.shared.control.unix(now);
        let each = self.each();
        let Some(sequence) = self.sequence(number) else { return };
        if answer.status >= 400 {
            sequence.failed_requests += 1;
            return;
        }
        sequence.completed += 1;
        sequence.exchange_ns += now - sent;
        // Where requests are not counted by connection, one answered makes it a success.
        sequence.success = each == 0 || left == 0;
        let request = sequence.completed as u32;
        self.recorder.log(Request {
            at: unix,
            connection: number,
            request,
            bytes: answer.payload,
            response_ns: now - intended,
        });
    }

    /// A connection is free for its next request.
    fn go_on(&mut self, key: Key, now: u64) {
        match self.shared.config.pace {
            Pace::Open { .. } => {
                self.wait_in_pool(key);
                self.dispatch(1);
            }
            Pace::Closed { think, .. } => match think.draw_ns(&mut self.random) {
                0 if self.claim() => self.begin(key, now, now, now),
                0 => self.retire(key),
                pause => self.schedule(key, now + pause),
            },
        }
    }
}

/// A whole answer, as it came.
struct Answer {
    payload: u64,
    keep: bool,
    status: u16,
    /// The connection is about to be lost, so nothing more is sent on it.
    ended: bool,
}
