//! Connecting, and connecting again.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_sys::net::{self, Mode};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;

use crate::backoff::Retry;
use crate::config::{Recovery, StopCondition};
use crate::protocol::Protocol;
use crate::shared::{EPROTO, ETIMEDOUT};

use super::STOP_POLL_INTERVAL;
use super::client::{Client, End};

/// errno(3): the run ended while a connect was under way.
const ECANCELED: i32 = 125;

impl<P: Protocol> Client<'_, P> {
    /// Connects, as often as the run has it; whether it did.
    pub(super) fn reopen(&mut self) -> bool {
        while self.open().is_err() {
            if self.opens_no_more() || self.is_over() || !self.follow_loss() {
                return false;
            }
        }
        true
    }

    /// Connects; fails with the error's number.
    pub(super) fn open(&mut self) -> Result<(), i32> {
        let config = &self.shared.config;
        let target = config.target(self.number);
        let (rotation, place) = (&self.shared.rotations[target], self.number / config.targets.len());
        let source = if config.opening.reconnect {
            rotation.address_in_lane(self.connects, place, config.connections)
        } else {
            rotation.address(place)
        };
        self.connects += 1;
        self.opening = true;
        self.history.connecting();
        let begun = self.now();
        // A connect for a request, and its handshake, have the time that the request has.
        let since = self.under_way.map_or(begun, |request| request.intended);
        let deadline = since.saturating_add(self.timeout_ns());
        let outcome = net::connect(config.targets[target], source, Mode::Nonblocking)
            .and_then(|socket| self.await_connect(socket, deadline))
            .and_then(|socket| self.handshake(socket, target, since));
        let now = self.now();
        self.cross_boundaries(now);
        match outcome {
            Ok(()) => {
                self.opening = false;
                self.note_up(now - begun);
                Ok(())
            }
            Err(error) => {
                self.socket = None;
                let number = error.raw_os_error().unwrap_or(0);
                if number != ECANCELED {
                    self.ledger.connect_failed(0, number);
                }
                Err(number)
            }
        }
    }

    /// Waits until a connect has come to its end, for no longer than the run lasts.
    fn await_connect(&mut self, socket: OwnedFd, deadline: u64) -> io::Result<OwnedFd> {
        loop {
            let entered = self.now();
            let left = Duration::from_nanos(deadline.saturating_sub(entered));
            let mut places = [Place::new(socket.as_raw_fd(), Interest::WRITE)];
            if poll::wait(&mut places, Some(left.min(STOP_POLL_INTERVAL)))? > 0 {
                net::take_connect_outcome(&socket)?;
                return Ok(socket);
            }
            let now = self.now();
            self.cross_boundaries(now);
            if self.is_over() || self.opens_no_more() {
                return Err(io::Error::from_raw_os_error(ECANCELED));
            }
            // The thread may have had no CPU since its wait: what came meanwhile comes first.
            if entered >= deadline {
                return Err(io::Error::from_raw_os_error(ETIMEDOUT));
            }
        }
    }

    /// Exchanges the protocol's handshake, where it has one.
    fn handshake(&mut self, socket: OwnedFd, target: usize, since: u64) -> io::Result<()> {
        self.socket = Some(socket);
        self.written = 0;
        self.session = P::Session::default();
        let Some((session, exchange)) = self.shared.protocol.begin_handshake(target) else { return Ok(()) };
        self.session = session;
        self.handshaking = true;
        let end = self.converse(exchange, since);
        self.handshaking = false;
        match end {
            End::Complete { .. } => Ok(()),
            End::Lost(Cause::Timeout) => Err(io::Error::from_raw_os_error(ETIMEDOUT)),
            End::Lost(_) => Err(io::Error::from_raw_os_error(EPROTO)),
            End::Stopped => Err(io::Error::from_raw_os_error(ECANCELED)),
        }
    }

    fn note_up(&mut self, establishment: u64) {
        self.shared.control.connection_up();
        let first = self.history.established();
        self.ledger.established(0, first, establishment);
        if first && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
        self.set_available(true);
    }

    /// A connection is lost, with the request under way if there is one; whether there is more to
    /// do.
    pub(super) fn lose(&mut self, cause: Cause) -> bool {
        self.show_free(false);
        let now = self.now();
        self.cross_boundaries(now);
        let request = self.under_way.take();
        self.ledger.connection_lost(0, request, cause, now);
        if cause == Cause::Timeout {
            self.history.timed_out();
        }
        self.show();
        self.disconnect();
        match (self.shared.config.stop_condition, self.shared.config.recovery) {
            (StopCondition::Each(_), Recovery::GiveUp) => {
                self.give_up();
                return false;
            }
            (StopCondition::Each(each), Recovery::Restart { .. }) => self.left = each,
            _ => {}
        }
        self.follow_loss() && (self.shared.config.opening.reconnect || self.reopen())
    }

    /// The connect for a request has failed; whether there is more to do.
    pub(super) fn lose_unopened(&mut self, number: i32) -> bool {
        let now = self.now();
        self.cross_boundaries(now);
        if number == ECANCELED {
            return false;
        }
        if let Some(request) = self.under_way.take() {
            let cause = if number == ETIMEDOUT { Cause::Timeout } else { Cause::Connect };
            self.ledger.request_lost(request, cause, now);
            self.start_over();
        }
        self.show();
        // As an event loop does, which opens it again without a request where that was lost.
        self.follow_loss() && (self.shared.config.opening.reconnect || self.reopen())
    }

    /// The connection of a request could not be opened: as in the event loop.
    fn start_over(&mut self) {
        let config = &self.shared.config;
        if let (StopCondition::Each(each), Recovery::Restart { .. }) = (config.stop_condition, config.recovery) {
            if self.left + 1 < each {
                self.ledger.broken_off(0);
            }
            self.left = each;
        }
    }

    /// Waits, where the back-off has it; false where the connection is given up, or the run is
    /// over.
    fn follow_loss(&mut self) -> bool {
        if self.opens_no_more() {
            return false;
        }
        self.return_claim();
        if let Some(due) = self.reserved.take() {
            self.shared.schedule.give_back(due);
        }
        match self.history.after_loss(self.rules, &mut self.random) {
            Retry::Never => {
                self.give_up();
                false
            }
            Retry::AtOnce => {
                if !self.shared.config.opening.reconnect {
                    self.set_available(false);
                }
                true
            }
            Retry::After(wait) => {
                self.set_available(false);
                self.opening = true;
                let now = self.now();
                self.shared.schedule.backs_off(now);
                let goes_on = self.sleep_until_opening(now + wait);
                let now = self.now();
                self.shared.schedule.returns(now);
                if self.shared.config.opening.reconnect {
                    self.opening = false;
                    self.set_available(true);
                }
                goes_on
            }
        }
    }

    /// Another connection may send what this one had claimed of the run's count.
    fn return_claim(&mut self) {
        if matches!(self.shared.config.stop_condition, StopCondition::Requests(_)) {
            for _ in 0..std::mem::take(&mut self.left) {
                self.shared.control.give_back();
            }
        }
    }

    fn give_up(&mut self) {
        if self.opens_no_more() {
            return;
        }
        self.set_available(false);
        self.gave_up = true;
        self.ledger.given_up();
        if !self.history.was_established && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
    }

    fn set_available(&mut self, available: bool) {
        let now = self.now();
        match (std::mem::replace(&mut self.available, available), available) {
            (false, true) => self.ledger.usable(now),
            (true, false) => self.ledger.unusable(now),
            _ => {}
        }
    }

    pub(super) fn disconnect(&mut self) {
        if self.socket.take().is_some() {
            self.shared.control.connection_down();
        }
    }
}
