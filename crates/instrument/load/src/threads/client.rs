//! One connection's thread: due, sent, answered, one request after the other.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self};
use std::time::Duration;

use plimsoll_measure::tally::{Cause, Tally};
use plimsoll_sys::net::{self};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::config::Extent;
use crate::protocol::{Protocol, Reply, Turn};
use crate::record::Recorder;
use crate::shared::{Counted, Shared, Usage};
use crate::stream::Stream;

use super::{GLANCE, READ_BYTES};

/// One connection's thread.
pub(super) struct Client<'a, P: Protocol> {
    pub(super) shared: &'a Shared<P>,
    pub(super) stop: &'a AtomicBool,
    pub(super) number: usize,
    pub(super) random: StdRng,
    pub(super) buffer: Vec<u8>,
    pub(super) socket: Option<OwnedFd>,
    pub(super) session: P::Session,
    pub(super) written: usize,
    pub(super) connects: usize,
    pub(super) attempts: u16,
    pub(super) left: u64,
    pub(super) sequence_number: u64,
    /// The intended start of the request under way.
    pub(super) under_way: Option<u64>,
    /// Open loop: the requests to come, and since when the connection is free for one.
    pub(super) stream: Option<Stream>,
    pub(super) free: u64,
    pub(super) window_open: bool,
    pub(super) window_closed: bool,
    pub(super) tally: Tally,
    pub(super) counted: Counted,
    pub(super) usage_at_open: Usage,
    pub(super) recorder: Recorder,
}

/// How an exchange ended.
pub(super) enum End {
    Whole {
        payload: u64,
        keep: bool,
        status: u16,
    },
    Lost(Cause),
    /// The run is over.
    Stopped,
}

impl<'a, P: Protocol> Client<'a, P> {
    pub(super) fn new(shared: &'a Shared<P>, stop: &'a AtomicBool, number: usize) -> Client<'a, P> {
        let Extent::Each(left) = shared.config.extent else { return Client::with_left(shared, stop, number, 0) };
        Client::with_left(shared, stop, number, left)
    }

    fn with_left(shared: &'a Shared<P>, stop: &'a AtomicBool, number: usize, left: u64) -> Client<'a, P> {
        Client {
            shared,
            stop,
            number,
            random: StdRng::seed_from_u64(shared.config.seed.wrapping_add(number as u64)),
            buffer: vec![0; READ_BYTES],
            socket: None,
            session: P::Session::default(),
            written: 0,
            connects: 0,
            attempts: 0,
            left,
            sequence_number: 0,
            under_way: None,
            stream: None,
            free: 0,
            window_open: false,
            window_closed: false,
            tally: Tally::default(),
            counted: Counted::new(number),
            usage_at_open: Usage::default(),
            recorder: Recorder::new(&shared.config.records, std::iter::once(number as u32)),
        }
    }

    pub(super) fn live(mut self) -> Counted {
        if self.wait_for_start() {
            self.carry_requests();
        }
        self.stay_until_all_have_finished();
        if !self.window_closed {
            let now = self.now();
            self.close_window(now);
        }
        if self.socket.take().is_some() {
            self.shared.control.connection_down();
        }
        self.recorder.finish();
        self.counted.sequences = std::mem::take(&mut self.recorder.sequences);
        self.counted
    }

    /// Sends a request and reads its answer.
    pub(super) fn exchange(&mut self, intended: u64) -> End {
        let target = self.shared.config.target(self.number);
        let random = self.random.next_u64();
        let turn = Turn { target, sequence: self.sequence_number, random };
        let exchange = self.shared.protocol.begin(&mut self.session, turn, self.written);
        self.sequence_number += 1;
        self.written = 0;
        self.converse(exchange, intended)
    }

    /// Writes what an exchange has to say and reads what it has to hear, for at most the time-out from `start`.
    pub(super) fn converse(&mut self, mut exchange: P::Exchange, start: u64) -> End {
        let deadline = start.saturating_add(self.shared.config.timeout.as_nanos() as u64);
        loop {
            let Some(socket) = &self.socket else { return End::Lost(Cause::Closed) };
            let bytes = self.shared.protocol.output(&self.session, &exchange, self.written);
            let sending = !bytes.is_empty();
            if sending {
                match net::write(socket, bytes) {
                    Ok(count) => {
                        self.written += count;
                        self.tally.bytes_sent += count as u64;
                        if count == bytes.len() {
                            continue;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return End::Lost(Cause::Write),
                }
            }
            let mut places = [Place::new(socket.as_raw_fd(), if sending { Interest::BOTH } else { Interest::READ })];
            let now = self.now();
            let _ = poll::wait(&mut places, Some(Duration::from_nanos(deadline.saturating_sub(now)).min(GLANCE)));
            if places[0].readable() {
                match self.receive(&mut exchange) {
                    Some(Reply::Whole { payload, keep, status }) => {
                        let left = self.shared.protocol.output(&self.session, &exchange, self.written);
                        let keep = keep && left.is_empty();
                        return End::Whole { payload, keep, status };
                    }
                    Some(Reply::Failed(cause)) => return End::Lost(cause),
                    Some(Reply::Partial) | None => {}
                }
            }
            let now = self.now();
            self.cross_boundaries(now);
            if self.stop.load(Ordering::Acquire) {
                return End::Stopped;
            }
            if now >= deadline {
                return End::Lost(Cause::Timeout);
            }
        }
    }

    /// Reads once; `None` where nothing was there.
    fn receive(&mut self, exchange: &mut P::Exchange) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        match net::read(socket, &mut self.buffer) {
            Ok(0) => Some(match self.shared.protocol.end(&mut self.session, exchange) {
                Reply::Partial => Reply::Failed(Cause::Closed),
                Reply::Whole { payload, status, .. } => Reply::Whole { payload, keep: false, status },
                failed => failed,
            }),
            Ok(count) => {
                self.tally.bytes_received += count as u64;
                Some(self.shared.protocol.input(&mut self.session, exchange, &self.buffer[..count]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(Reply::Failed(Cause::Read)),
        }
    }

    /// Reads once while no request is under way; `None` where nothing was there.
    pub(super) fn receive_idle(&mut self) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        match net::read(socket, &mut self.buffer) {
            Ok(0) => Some(Reply::Failed(Cause::Closed)),
            Ok(count) => {
                self.tally.bytes_received += count as u64;
                Some(self.shared.protocol.idle(&mut self.session, &self.buffer[..count]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(Reply::Failed(Cause::Read)),
        }
    }

    pub(super) fn claim(&self) -> bool {
        !matches!(self.shared.config.extent, Extent::Requests(_)) || self.shared.control.claim(1) == 1
    }

    /// Sleeps; false where the run ended before.
    pub(super) fn sleep_until(&mut self, at: u64) -> bool {
        loop {
            let now = self.now();
            self.cross_boundaries(now);
            if self.is_over() || self.window_closed {
                return false;
            }
            if now >= at {
                return true;
            }
            let close = self.shared.control.closes.get().unwrap_or(u64::MAX).saturating_sub(now);
            thread::park_timeout(Duration::from_nanos((at - now).min(close)).min(GLANCE));
        }
    }

    pub(super) fn show(&self, completed: u64, failed: u64) {
        self.shared.control.gauges[self.number % self.shared.control.gauges.len()].add(completed, failed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn now(&self) -> u64 {
        self.shared.control.now()
    }
}
