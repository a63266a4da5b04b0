//! A connection's life: opened, established, lost, opened again, closed.

use std::io;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;

use super::{Connection, EventLoop, OPEN_BATCH, PENDING, Sockets, State};
use crate::backoff::{History, Retry};
use crate::config::{Config, Recovery, StopCondition};
use crate::protocol::Protocol;
use crate::shared::{EPROTO, ETIMEDOUT};

/// An error without a number.
const UNKNOWN: i32 = 0;

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// Opens as many connections as may be opened now.
    pub(super) fn open_connections(&mut self) {
        for _ in 0..OPEN_BATCH {
            if !self.may_open(self.now()) {
                break;
            }
            let number = self.opened * self.shared.control.gauges.len() + self.number;
            self.opened += 1;
            let reconnect = self.shared.config.opening.reconnect;
            let key = self.slab.insert(Connection {
                state: State::Idle,
                history: History::default(),
                request_pending: false,
                counted: true,
                available: reconnect,
                number: number as u32,
                socket: None,
                timer: None,
                timer_at: 0,
                intended: 0,
                sent: 0,
                written: 0,
                resumes_at: None,
                begun: 0,
                left: self.shared.first_claim(number),
                session: P::Session::default(),
                exchange: P::Exchange::default(),
            });
            if reconnect {
                self.shared.control.settle();
                self.freed.push(key);
            } else {
                self.connect(key);
            }
        }
    }

    /// A connection has waited after a failure, and is opened again.
    pub(super) fn return_to_service(&mut self, key: Key, now: u64) {
        self.shared.schedule.returns(now);
        if !self.shared.config.opening.reconnect {
            self.connect(key);
            return;
        }
        if let Some(connection) = self.slab.get_mut(key) {
            connection.state = State::Idle;
            self.freed.push(key);
            self.set_available(key, now);
        }
    }

    pub(super) fn may_open(&self, now: u64) -> bool {
        self.opened < self.share
            && !self.opens_no_more()
            && self.pending < (PENDING / self.shared.control.gauges.len()).max(1)
            && self.next_opening().is_none_or(|at| at <= now)
    }

    /// When the next connection may be opened, where their rate is limited.
    pub(super) fn next_opening(&self) -> Option<u64> {
        let rate = self.shared.config.opening.rate?;
        let number = self.opened * self.shared.control.gauges.len() + self.number + self.shared.config.part.number;
        (self.opened < self.share && !self.opens_no_more()).then_some((number as f64 / rate * 1e9) as u64)
    }

    /// Begins to open a connection's socket; whether that is under way.
    pub(super) fn connect(&mut self, key: Key) -> bool {
        let now = self.now();
        let has_place = self.sockets.has_place();
        let Some(connection) = self.slab.get_mut(key) else { return false };
        connection.sent = now;
        connection.history.connecting();
        let since = if connection.request_pending { connection.intended } else { now };
        if !has_place {
            self.placeless.push_back(key);
        } else if let Err(error) = self.open_socket(key) {
            self.attempt_failed(key, error.raw_os_error().unwrap_or(UNKNOWN));
            return false;
        }
        if let Some(connection) = self.slab.get_mut(key) {
            connection.state = State::Connecting;
        }
        self.pending += 1;
        self.set_timer(key, since.saturating_add(self.timeout_ns()));
        self.stamp(key, None);
        true
    }

    /// Opens the sockets of connections that waited for a place, as far as there are places now.
    pub(super) fn connect_placeless(&mut self) {
        while !self.placeless.is_empty() && self.sockets.has_place() {
            let Some(key) = self.placeless.pop_front() else { return };
            let now = self.now();
            // It may have been given up meanwhile.
            let Some(connection) = self.slab.get_mut(key) else { continue };
            connection.sent = now;
            match self.open_socket(key) {
                Ok(()) => self.stamp(key, None),
                Err(error) => self.attempt_failed(key, error.raw_os_error().unwrap_or(UNKNOWN)),
            }
        }
    }

    /// Begins to connect a connection's socket.
    fn open_socket(&mut self, key: Key) -> io::Result<()> {
        let Some(connection) = self.slab.get_mut(key) else { return Ok(()) };
        let Config { targets, part, .. } = &self.shared.config;
        let number = connection.number as usize;
        let target = self.shared.config.target(number);
        let rotation = &self.shared.rotations[target];
        let source = if self.shared.config.opening.reconnect {
            // Ports of closed connections stay in TIME_WAIT, so it is connects that are counted,
            // not connections.
            let (lane, lanes) = (self.number * part.of + part.number, self.shared.control.gauges.len() * part.of);
            rotation.address_in_lane(self.connects[target], lane, lanes)
        } else {
            rotation.address((number + part.number) / targets.len())
        };
        self.connects[target] += 1;
        connection.socket = Some(self.sockets.connect(key, targets[target], source)?);
        Ok(())
    }

    /// A connect has come to its end.
    pub(super) fn connected(&mut self, key: Key) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        let Some(socket) = &connection.socket else { return };
        if let Err(error) = self.sockets.connected(socket) {
            return self.attempt_failed(key, error.raw_os_error().unwrap_or(UNKNOWN));
        }
        let target = self.shared.config.target(connection.number as usize);
        match self.shared.protocol.begin_handshake(target) {
            None => {
                connection.session = P::Session::default();
                self.establish(key);
            }
            Some((session, exchange)) => {
                connection.session = session;
                connection.exchange = exchange;
                connection.written = 0;
                connection.state = State::Handshaking;
                if self.write(key).is_err() {
                    self.attempt_failed(key, EPROTO);
                }
            }
        }
    }

    /// A connection is usable.
    pub(super) fn establish(&mut self, key: Key) {
        let now = self.now();
        self.cross_boundaries(now);
        let Some(connection) = self.slab.get_mut(key) else { return };
        self.pending -= 1;
        self.shared.control.connection_up();
        let (number, establishment) = (connection.number, now.saturating_sub(connection.sent));
        let first = connection.history.established();
        connection.state = State::Idle;
        connection.sent = now;
        self.ledger.established(self.place(number), first, establishment);
        if first && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
        self.set_available(key, now);
        self.established.push(key);
    }

    /// An attempt to open a connection has failed, with this error number.
    pub(super) fn attempt_failed(&mut self, key: Key, number: i32) {
        let now = self.now();
        self.cross_boundaries(now);
        let Some(mut connection) = self.take(key) else { return };
        if matches!(connection.state, State::Connecting | State::Handshaking) {
            self.pending -= 1;
        }
        let place = self.place(connection.number);
        self.ledger.connect_failed(place, number);
        if std::mem::take(&mut connection.request_pending) {
            let cause = if number == ETIMEDOUT { Cause::Timeout } else { Cause::Connect };
            let request = self.request(&connection);
            self.ledger.request_lost(request, cause, now);
            self.start_over(&mut connection);
        }
        self.follow_loss(connection, now);
    }

    /// A connection is lost, and with it the request under way.
    pub(super) fn drop_connection(&mut self, key: Key, cause: Cause) {
        let now = self.now();
        self.cross_boundaries(now);
        match self.slab.get(key).map(|connection| connection.state) {
            Some(State::Handshaking) => return self.attempt_failed(key, EPROTO),
            Some(State::Finished) => return self.close(key),
            _ => {}
        }
        let Some(mut connection) = self.take(key) else { return };
        self.shared.control.connection_down();
        let request = (connection.state == State::Busy).then(|| self.request(&connection));
        connection.resumes_at = (connection.state == State::Due).then_some(connection.intended);
        let place = self.place(connection.number);
        self.ledger.connection_lost(place, request, cause, now);
        if cause == Cause::Timeout {
            connection.history.timed_out();
        }
        if let StopCondition::Each(each) = self.shared.config.stop_condition {
            match self.shared.config.recovery {
                Recovery::GiveUp => return self.give_up(connection, now),
                Recovery::Restart { .. } => connection.left = each,
            }
        }
        self.follow_loss(connection, now);
    }

    /// The connection of a request could not be opened: where sequences start over, so does that of
    /// the request.
    fn start_over(&mut self, connection: &mut Connection<P, S>) {
        let config = &self.shared.config;
        if let (StopCondition::Each(each), Recovery::Restart { .. }) = (config.stop_condition, config.recovery) {
            if connection.left + 1 < each {
                self.ledger.broken_off(self.place(connection.number));
            }
            connection.left = each;
        }
    }

    /// Opens a lost connection again, at once or after a while, or gives it up.
    fn follow_loss(&mut self, mut connection: Connection<P, S>, now: u64) {
        if self.opens_no_more() {
            return;
        }
        self.return_claim(&mut connection);
        let reconnect = self.shared.config.opening.reconnect;
        match connection.history.after_loss(self.rules, &mut self.random) {
            Retry::Never => self.give_up(connection, now),
            // Its next request opens it.
            Retry::AtOnce if reconnect => {
                connection.state = State::Idle;
                let key = self.insert(connection);
                self.freed.push(key);
            }
            Retry::AtOnce => {
                self.set_unavailable(&mut connection, now);
                let key = self.insert(connection);
                self.connect(key);
            }
            Retry::After(wait) => {
                self.set_unavailable(&mut connection, now);
                self.shared.schedule.backs_off(now);
                connection.state = State::BackingOff;
                connection.intended = now + wait;
                let key = self.insert(connection);
                self.set_timer(key, now + wait);
            }
        }
    }

    /// Another connection may send what this one had claimed of the run's count.
    fn return_claim(&mut self, connection: &mut Connection<P, S>) {
        if matches!(self.shared.config.stop_condition, StopCondition::Requests(_)) {
            for _ in 0..std::mem::take(&mut connection.left) {
                self.shared.control.give_back();
            }
        }
    }

    fn give_up(&mut self, mut connection: Connection<P, S>, now: u64) {
        if self.opens_no_more() {
            return;
        }
        self.return_claim(&mut connection);
        self.set_unavailable(&mut connection, now);
        self.shared.schedule.leaves(now);
        self.ledger.given_up();
        self.ledger.never_sent(connection.left);
        if !connection.history.was_established && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
        if self.shared.config.keeps_all_open() {
            self.shared.control.finish();
        }
    }

    fn set_available(&mut self, key: Key, now: u64) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.available, true) {
            self.ledger.usable(now);
        }
    }

    fn set_unavailable(&mut self, connection: &mut Connection<P, S>, now: u64) {
        if std::mem::replace(&mut connection.available, false) {
            self.ledger.unusable(now);
        }
    }

    /// Closes a connection's socket; its next request opens another.
    pub(super) fn detach(&mut self, key: Key) -> Key {
        let Some(connection) = self.take(key) else { return key };
        self.shared.control.connection_down();
        self.insert(connection)
    }

    /// A connection has done what it had to do.
    pub(super) fn retire(&mut self, key: Key) {
        self.shared.schedule.leaves(self.now());
        if !self.shared.config.keeps_all_open() || self.is_closed() {
            return self.close(key);
        }
        if self.slab.get(key).is_some() {
            self.stay(key);
            self.shared.control.finish();
        }
    }

    pub(super) fn close(&mut self, key: Key) {
        if self.slab.get(key).is_some_and(|connection| connection.socket.is_some()) {
            self.shared.control.connection_down();
        }
        self.take(key);
    }

    /// Closes a connection as the window closes, whatever it was about.
    pub(super) fn abandon(&mut self, key: Key) {
        if self
            .slab
            .get(key)
            .is_some_and(|connection| matches!(connection.state, State::Connecting | State::Handshaking))
        {
            self.pending -= 1;
            self.take(key);
        } else {
            self.close(key);
        }
    }

    /// Puts a connection under a new key: what was reported of the old socket must not reach the
    /// next one.
    fn insert(&mut self, mut connection: Connection<P, S>) -> Key {
        connection.timer = None;
        self.slab.insert(connection)
    }

    /// Takes a connection out of the slab, and closes its socket.
    fn take(&mut self, key: Key) -> Option<Connection<P, S>> {
        let mut connection = self.slab.remove(key)?;
        if let Some(socket) = connection.socket.take() {
            self.sockets.close(socket);
        }
        if let Some(timer) = connection.timer.take() {
            self.wheel.cancel(timer);
        }
        Some(connection)
    }
}
