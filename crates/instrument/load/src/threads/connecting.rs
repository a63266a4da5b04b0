//! Connecting, and connecting again.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use plimsoll_measure::tally::{Cause, Connections};
use plimsoll_sys::net::{self, Mode};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use rand::RngExt;

use crate::config::Recovery;
use crate::event_loop::{ATTEMPTS, FIRST_ATTEMPTS, rest_ns};
use crate::protocol::Protocol;
use crate::shared::{EPROTO, ETIMEDOUT};

use super::client::{Client, End};

impl<P: Protocol> Client<'_, P> {
    /// Connects, as often as the run has it; whether it did.
    pub(super) fn reopen(&mut self) -> bool {
        loop {
            if self.open() {
                return true;
            }
            if !self.rest_or_give_up() {
                return false;
            }
        }
    }

    pub(super) fn open(&mut self) -> bool {
        let config = &self.shared.config;
        let target = config.target(self.number);
        let turn = if config.opening.reconnect {
            self.connects * config.connections + self.number
        } else {
            self.number / config.targets.len()
        };
        self.connects += 1;
        self.attempts = self.attempts.saturating_add(1);
        let begun = self.now();
        let source = self.shared.rotations[target].address(turn);
        let outcome = net::connect(config.targets[target], source, Mode::Nonblocking).and_then(|socket| {
            let mut places = [Place::new(socket.as_raw_fd(), Interest::WRITE)];
            if poll::wait(&mut places, Some(config.timeout))? == 0 {
                return Err(io::Error::from_raw_os_error(ETIMEDOUT));
            }
            net::take_error(&socket)?;
            Ok(socket)
        });
        let outcome = outcome.and_then(|socket| self.greet(socket, target, begun));
        let now = self.now();
        match outcome {
            Ok(()) => self.note_up(now - begun),
            Err(error) => {
                self.socket = None;
                self.counted.connections.count_failure(error.raw_os_error().unwrap_or(0));
                self.tally.errors.count(Cause::Connect);
                if let Some(sequence) = self.recorder.sequences.first_mut() {
                    sequence.failed_connects += 1;
                }
                false
            }
        }
    }

    /// Exchanges the protocol's greeting, where it has one.
    pub(super) fn greet(&mut self, socket: OwnedFd, target: usize, begun: u64) -> io::Result<()> {
        self.socket = Some(socket);
        self.written = 0;
        let Some((session, exchange)) = self.shared.protocol.greet(target) else { return Ok(()) };
        self.session = session;
        match self.converse(exchange, begun) {
            End::Whole { .. } => Ok(()),
            End::Lost(Cause::Timeout) => Err(io::Error::from_raw_os_error(ETIMEDOUT)),
            End::Lost(_) | End::Stopped => Err(io::Error::from_raw_os_error(EPROTO)),
        }
    }

    pub(super) fn note_up(&mut self, establishment: u64) -> bool {
        self.shared.control.connection_up();
        let connections: &mut Connections = &mut self.counted.connections;
        connections.establishment.record_ns(establishment);
        if connections.established == 0 {
            connections.established = 1;
            if !self.shared.config.opening.reconnect {
                self.shared.control.settle();
            }
        } else {
            connections.reopened += 1;
        }
        if let Some(sequence) = self.recorder.sequences.first_mut() {
            sequence.connect_ns = establishment;
        }
        true
    }

    /// Rests after a failure; false where the connection is given up, or the run is over.
    pub(super) fn rest_or_give_up(&mut self) -> bool {
        let proven = self.counted.connections.established > 0;
        let tries = match self.shared.config.recovery {
            Recovery::Restart { attempts } => attempts,
            Recovery::GiveUp if proven => ATTEMPTS,
            Recovery::GiveUp => FIRST_ATTEMPTS,
        };
        if self.attempts >= tries && (self.shared.config.extent.is_count() || !proven) {
            self.give_up();
            return false;
        }
        let rest = rest_ns(self.attempts);
        let until = self.now() + rest / 2 + self.random.random_range(0..=rest / 2);
        self.sleep_until(until)
    }

    pub(super) fn give_up(&mut self) {
        if self.window_closed {
            return;
        }
        self.counted.connections.failed = 1;
        if self.counted.connections.established == 0 && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
    }

    pub(super) fn disconnect(&mut self) {
        if self.socket.take().is_some() {
            self.shared.control.connection_down();
        }
    }
}
