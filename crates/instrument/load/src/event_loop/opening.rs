//! Opening connections, and opening them again.

use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;
use rand::RngExt;

use super::{Connection, OPEN_BATCH, PENDING, Sockets, State, Table};
use crate::config::{Extent, Recovery};
use crate::protocol::Protocol;
use crate::shared::{EPROTO, ETIMEDOUT};

/// Attempts before a connection that was never up is given up, and one that was.
pub(crate) const FIRST_ATTEMPTS: u16 = 3;
pub(crate) const ATTEMPTS: u16 = 10;
/// The rest after the first failure; it doubles with each further one, up to the longest. Half of it is random, so that connections lost
/// together do not come back together.
const REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_millis(3200);
/// An error without a number.
const UNKNOWN: i32 = 0;

/// The rest before the next attempt after so many that failed.
pub(crate) fn rest_ns(attempts: u16) -> u64 {
    (REST * 2_u32.pow(u32::from(attempts.clamp(1, 10)) - 1)).min(LONGEST_REST).as_nanos() as u64
}

impl<P: Protocol, S: Sockets> Table<P, S> {
    /// Opens as many connections as may be opened now.
    pub(super) fn open_connections(&mut self) {
        for _ in 0..OPEN_BATCH {
            if !self.may_open(self.now()) {
                break;
            }
            let number = self.opened * self.shared.control.gauges.len() + self.number;
            self.opened += 1;
            let left = self.each();
            let key = self.slab.insert(Connection {
                state: State::Idle,
                proven: false,
                carries: false,
                attempts: 0,
                socket: None,
                number: number as u32,
                timer: None,
                timer_at: 0,
                intended: 0,
                sent: 0,
                written: 0,
                left,
                session: P::Session::default(),
                exchange: P::Exchange::default(),
            });
            if self.shared.config.opening.reconnect {
                self.shared.control.settle();
                self.enter_if_open(key);
            } else {
                self.connect(key);
            }
        }
    }

    /// A connection has rested after a failure, and is taken up again.
    pub(super) fn return_to_service(&mut self, key: Key, now: u64) {
        if !self.shared.config.opening.reconnect {
            return self.connect(key);
        }
        if let Some(connection) = self.slab.get_mut(key) {
            connection.state = State::Idle;
            connection.intended = now;
            self.enter_if_open(key);
        }
    }

    fn enter_if_open(&mut self, key: Key) {
        if self.gate_passed {
            let now = self.now();
            self.enter(key, now);
        }
    }

    pub(super) fn may_open(&self, now: u64) -> bool {
        self.opened < self.share
            && !self.window_closed
            && self.pending < (PENDING / self.shared.control.gauges.len()).max(1)
            && self.next_opening().is_none_or(|at| at <= now)
    }

    /// When the next connection may be opened, where their rate is limited.
    pub(super) fn next_opening(&self) -> Option<u64> {
        let rate = self.shared.config.opening.rate?;
        let number = self.opened * self.shared.control.gauges.len() + self.number;
        (self.opened < self.share && !self.window_closed).then_some((number as f64 / rate * 1e9) as u64)
    }

    /// Begins to open a connection's socket.
    pub(super) fn connect(&mut self, key: Key) {
        let now = self.now();
        let Some(connection) = self.slab.get_mut(key) else { return };
        let targets = &self.shared.config.targets;
        let target = self.shared.config.target(connection.number as usize);
        let turn = if self.shared.config.opening.reconnect {
            // Ports of closed connections rest for a while, so it is connects that are counted, not connections.
            self.connects * self.shared.control.gauges.len() + self.number + self.shared.config.part.number
        } else {
            (connection.number as usize + self.shared.config.part.number) / targets.len()
        };
        self.connects += 1;
        let source = self.shared.rotations[target].address(turn);
        connection.sent = now;
        connection.attempts = connection.attempts.saturating_add(1);
        let since = if connection.carries { connection.intended } else { now };
        match self.sockets.connect(key, targets[target], source) {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.state = State::Connecting;
                self.pending += 1;
                let timeout = self.timeout_ns();
                self.set_timer(key, since.saturating_add(timeout));
            }
            Err(error) => self.attempt_failed(key, error.raw_os_error().unwrap_or(UNKNOWN)),
        }
    }

    /// A connect has come to its end.
    pub(super) fn connected(&mut self, key: Key) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        let Some(socket) = &connection.socket else { return };
        if let Err(error) = self.sockets.connected(socket) {
            return self.attempt_failed(key, error.raw_os_error().unwrap_or(UNKNOWN));
        }
        let target = self.shared.config.target(connection.number as usize);
        match self.shared.protocol.greet(target) {
            None => self.established(key),
            Some((session, exchange)) => {
                connection.session = session;
                connection.exchange = exchange;
                connection.written = 0;
                connection.state = State::Greeting;
                self.write(key);
            }
        }
    }

    /// A connection is usable.
    pub(super) fn established(&mut self, key: Key) {
        let now = self.now();
        let Some(connection) = self.slab.get_mut(key) else { return };
        self.pending -= 1;
        self.shared.control.connection_up();
        let (number, establishment) = (connection.number, now - connection.sent);
        self.counted.connections.establishment.record_ns(establishment);
        if connection.proven {
            self.counted.connections.reopened += 1;
        } else {
            connection.proven = true;
            self.counted.connections.established += 1;
            if !self.shared.config.opening.reconnect {
                self.shared.control.settle();
            }
        }
        let carries = std::mem::take(&mut connection.carries);
        connection.state = State::Idle;
        if let Some(sequence) = self.sequence(number) {
            sequence.connect_ns = establishment;
        }
        if carries {
            return self.send(key, now);
        }
        if let Some(connection) = self.slab.get_mut(key) {
            connection.intended = now;
        }
        self.enter_if_open(key);
    }

    /// An attempt to open a connection has failed, with this error number.
    pub(super) fn attempt_failed(&mut self, key: Key, number: i32) {
        self.counted.connections.count_failure(number);
        self.tally.errors.count(Cause::Connect);
        let Some(mut connection) = self.take(key) else { return };
        if matches!(connection.state, State::Connecting | State::Greeting) {
            self.pending -= 1;
        }
        if let Some(sequence) = self.sequence(connection.number) {
            sequence.failed_connects += 1;
        }
        if std::mem::take(&mut connection.carries) {
            let cause = if number == ETIMEDOUT { Cause::Timeout } else { Cause::Connect };
            self.count_failed(cause, connection.intended);
        }
        self.rest_or_give_up(connection);
    }

    /// A connection is lost, and with it the request under way.
    pub(super) fn lose(&mut self, key: Key, cause: Cause) {
        if self.slab.get(key).is_some_and(|connection| connection.state == State::Greeting) {
            return self.attempt_failed(key, EPROTO);
        }
        if self.slab.get(key).is_some_and(|connection| connection.state == State::Finished) {
            return self.close(key);
        }
        let Some(mut connection) = self.take(key) else { return };
        self.shared.control.connection_down();
        let busy = connection.state == State::Busy;
        if busy {
            self.tally.errors.count(cause);
            self.count_failed(cause, connection.intended);
        } else {
            self.counted.connections.count_idle_loss(cause);
        }
        if let Some(sequence) = self.sequence(connection.number) {
            sequence.failed_requests += u64::from(busy);
            sequence.failed_sequences += 1;
            sequence.exchange_ns = 0;
        }
        match (self.each(), self.shared.config.recovery) {
            (0, _) => {}
            (_, Recovery::GiveUp) => return self.give_up(&connection),
            (each, Recovery::Restart { .. }) => connection.left = each,
        }
        self.rest_or_give_up(connection);
    }

    /// The request under way, which began at `intended`, is lost.
    fn count_failed(&mut self, cause: Cause, intended: u64) {
        self.busy -= 1;
        self.shown.1 += 1;
        self.recorder.failed();
        if cause == Cause::Timeout {
            let now = self.now();
            self.tally.requests.timed_out += 1;
            self.tally.unanswered.record_ns(now.saturating_sub(intended));
        } else {
            self.tally.requests.failed += 1;
        }
    }

    /// Closes a connection's socket; its next request opens another. Returns its new key: what was reported of the old socket must not
    /// reach the next one.
    pub(super) fn detach(&mut self, key: Key) -> Key {
        let Some(mut connection) = self.take(key) else { return key };
        self.shared.control.connection_down();
        connection.timer = None;
        self.slab.insert(connection)
    }

    /// A connection has done what it had to do.
    pub(super) fn retire(&mut self, key: Key) {
        if !self.shared.config.stays_whole() {
            return self.close(key);
        }
        if let Some(connection) = self.slab.get_mut(key) {
            connection.state = State::Finished;
            self.shared.control.finish();
        }
    }

    pub(super) fn close(&mut self, key: Key) {
        if self.slab.get(key).is_some_and(|connection| connection.socket.is_some()) {
            self.shared.control.connection_down();
        }
        self.take(key);
    }

    fn rest_or_give_up(&mut self, mut connection: Connection<P, S>) {
        if self.window_closed {
            return;
        }
        let counted = self.shared.config.extent.is_count();
        let tries = match self.shared.config.recovery {
            Recovery::Restart { attempts } => attempts,
            Recovery::GiveUp if connection.proven => ATTEMPTS,
            Recovery::GiveUp => FIRST_ATTEMPTS,
        };
        // In a run that lasts a set time a connection that was up is worth trying for as long as the run goes on.
        if connection.attempts >= tries && (counted || !connection.proven) {
            return self.give_up(&connection);
        }
        let rest = rest_ns(connection.attempts);
        connection.state = State::Resting;
        connection.timer = None;
        connection.intended = self.now() + rest / 2 + self.random.random_range(0..=rest / 2);
        let resume = connection.intended;
        // A new key: what was reported of the old socket must not reach the next one.
        let key = self.slab.insert(connection);
        self.set_timer(key, resume);
    }

    fn give_up(&mut self, connection: &Connection<P, S>) {
        if self.window_closed {
            return;
        }
        self.counted.connections.failed += 1;
        if let Extent::Each(_) = self.shared.config.extent {
            self.tally.requests.scheduled += connection.left;
            self.tally.requests.unsent += connection.left;
        }
        if !connection.proven && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
        if self.shared.config.stays_whole() {
            self.shared.control.finish();
        }
    }

    /// Takes a connection out of the slab, and closes its socket.
    pub(super) fn take(&mut self, key: Key) -> Option<Connection<P, S>> {
        let mut connection = self.slab.remove(key)?;
        if let Some(socket) = connection.socket.take() {
            self.sockets.close(socket);
        }
        if let Some(timer) = connection.timer {
            self.wheel.cancel(timer);
        }
        Some(connection)
    }
}
