//! One connection's thread: its state, the bytes of one exchange, and the window's two ends.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self};
use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::worker_group;
use plimsoll_sys::net::{self};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use rand::Rng;
use rand::rngs::StdRng;

use crate::backoff::{History, Rules};
use crate::config::StopCondition;
use crate::control::{Gauge, Shown};
use crate::ledger::{Answer, Ledger, Request};
use crate::protocol::{After, Protocol, Reply, RequestContext};
use crate::record::{Phase, Recorder};
use crate::schedule::Due;
use crate::seed::{Purpose, stream};
use crate::shared::{Shared, ThreadResult, Usage};

use super::{READ_BYTES, STOP_POLL_INTERVAL};

/// One connection's thread.
pub(super) struct Client<'a, P: Protocol> {
    pub(super) shared: &'a Shared<P>,
    phase: &'a AtomicU8,
    pub(super) number: usize,
    pub(super) random: StdRng,
    buffer: Vec<u8>,
    pub(super) socket: Option<OwnedFd>,
    pub(super) session: P::Session,
    /// Whether the protocol's handshake is under way on the socket.
    pub(super) handshaking: bool,
    /// Whether the connection is being opened, or waits to be.
    pub(super) opening: bool,
    pub(super) written: usize,
    pub(super) connects: usize,
    pub(super) history: History,
    pub(super) rules: Rules,
    /// Whether the connection can be used, or opened for a request at once.
    pub(super) available: bool,
    /// Whether it was given up, and counted so.
    pub(super) gave_up: bool,
    /// Requests still to be begun on it: those of `--each`, or one claimed of the run's `-n`.
    pub(super) left: u64,
    sequence_number: u64,
    /// The request under way.
    pub(super) under_way: Option<Request>,
    /// Open loop: the request taken, and since when the connection is free for it.
    pub(super) reserved: Option<Due>,
    pub(super) free: u64,
    /// Whether the gauge counts it as free.
    shows_free: bool,
    pub(super) ledger: Ledger,
    shown: Shown,
    result: ThreadResult,
    usage_at_open: Option<Usage>,
    /// When the wait that reported these bytes returned.
    reported: u64,
}

/// How an exchange ended.
pub(super) enum End {
    Complete {
        answer: Answer,
        after: After,
        at: u64,
    },
    Lost(Cause),
    /// The run is over.
    Stopped,
}

impl<'a, P: Protocol> Client<'a, P> {
    pub(super) fn new(shared: &'a Shared<P>, phase: &'a AtomicU8, number: usize) -> Client<'a, P> {
        let config = &shared.config;
        let recorder = Recorder::new(&config.records, shared.control.unix(0), std::iter::once(number as u32));
        Client {
            shared,
            phase,
            number,
            random: stream(config.seed, Purpose::Worker, config.part, number),
            buffer: vec![0; READ_BYTES],
            socket: None,
            session: P::Session::default(),
            handshaking: false,
            opening: false,
            written: 0,
            connects: 0,
            history: History::default(),
            rules: Rules::of(config),
            available: config.opening.reconnect,
            gave_up: false,
            left: shared.first_claim(number),
            sequence_number: config.first_request(number),
            under_way: None,
            reserved: None,
            free: 0,
            shows_free: false,
            ledger: Ledger::new(config, P::TELLS_TRANSMISSION, 1, recorder),
            shown: Shown::default(),
            result: ThreadResult::new(number),
            usage_at_open: None,
            reported: 0,
        }
    }

    pub(super) fn live(mut self) -> ThreadResult {
        if self.wait_for_start() {
            self.carry_requests();
        }
        self.shared.schedule.leaves(self.now());
        self.stay_until_all_have_finished();
        if !self.is_closed() {
            let now = self.now();
            self.close_window(now);
        }
        self.hold();
        self.disconnect();
        self.result.books = Some(self.ledger.finish());
        self.result
    }

    /// Sends a request and reads its answer.
    pub(super) fn exchange(&mut self, intended: u64) -> End {
        let target = self.shared.config.target(self.number);
        let random = self.random.next_u64();
        let context = RequestContext { target, sequence: self.sequence_number, random };
        let exchange = self.shared.protocol.begin(&mut self.session, context, self.written);
        self.sequence_number += 1;
        self.written = 0;
        self.converse(exchange, intended)
    }

    /// Writes the request of an exchange and reads its answer, for at most the time-out from
    /// `start`.
    pub(super) fn converse(&mut self, mut exchange: P::Exchange, start: u64) -> End {
        let deadline = start.saturating_add(self.timeout_ns());
        loop {
            let Some(socket) = &self.socket else { return End::Lost(Cause::Closed) };
            let bytes = self.shared.protocol.output(&self.session, &exchange, self.written);
            let sending = !bytes.is_empty();
            if sending {
                match net::write(socket, bytes) {
                    Ok(count) => {
                        self.written += count;
                        self.ledger.wrote(count);
                        if count == bytes.len() {
                            continue;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return self.early_answer(&mut exchange, deadline).unwrap_or(End::Lost(Cause::Write)),
                }
            }
            let mut places = [Place::new(socket.as_raw_fd(), if sending { Interest::BOTH } else { Interest::READ })];
            let entered = self.now();
            let held = self.shared.protocol.holds_input(&self.session);
            let longest = if held { Duration::ZERO } else { STOP_POLL_INTERVAL };
            let _ = poll::wait(&mut places, Some(Duration::from_nanos(deadline.saturating_sub(entered)).min(longest)));
            let now = self.now();
            self.cross_boundaries(now);
            if places[0].readable() || held {
                self.reported = now;
                match self.receive(&mut exchange) {
                    Some(Reply::Complete { payload, after, status }) => {
                        if self.handshaking {
                            self.write_last(&exchange);
                        }
                        let left = self.shared.protocol.output(&self.session, &exchange, self.written);
                        let ends = after == After::Usable && !left.is_empty();
                        let after = if ends { After::Ends } else { after };
                        return End::Complete { answer: Answer { payload, status }, after, at: self.now() };
                    }
                    Some(Reply::Failed(cause)) => return End::Lost(cause),
                    Some(Reply::Partial) | None => {}
                }
            }
            if self.is_over() {
                return End::Stopped;
            }
            // The thread may have had no CPU since its wait: what came meanwhile comes first.
            if entered >= deadline {
                return End::Lost(Cause::Timeout);
            }
        }
    }

    /// Writes what the end of the handshake leaves to say, so that the server too sees its end.
    /// What there is no room for goes with the first request.
    fn write_last(&mut self, exchange: &P::Exchange) {
        let bytes = self.shared.protocol.output(&self.session, exchange, self.written);
        let Some(socket) = self.socket.as_ref().filter(|_| !bytes.is_empty()) else { return };
        if let Ok(count) = net::write(socket, bytes) {
            self.written += count;
            self.ledger.wrote(count);
        }
    }

    /// The answer to a request that cannot be written to its end, where the server has answered
    /// before it ended the connection (RFC 9112, section 9.5).
    fn early_answer(&mut self, exchange: &mut P::Exchange, deadline: u64) -> Option<End> {
        self.reported = self.now();
        while self.now() < deadline {
            let count = if self.shared.protocol.holds_input(&self.session) {
                0
            } else {
                net::read(self.socket.as_ref()?, &mut self.buffer).ok().filter(|count| *count > 0)?
            };
            self.ledger.read(count);
            match self.shared.protocol.input(&mut self.session, exchange, &self.buffer[..count]) {
                Reply::Complete { payload, status, .. } => {
                    let answer = Answer { payload, status };
                    return Some(End::Complete { answer, after: After::Ends, at: self.now() });
                }
                Reply::Partial => {}
                Reply::Failed(_) => return None,
            }
        }
        None
    }

    /// Reads once; `None` where nothing was there.
    fn receive(&mut self, exchange: &mut P::Exchange) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        if self.shared.protocol.holds_input(&self.session) {
            return Some(self.shared.protocol.input(&mut self.session, exchange, &[]));
        }
        match net::read(socket, &mut self.buffer) {
            Ok(0) => Some(match self.shared.protocol.end(&mut self.session, exchange) {
                Reply::Partial => Reply::Failed(Cause::Closed),
                Reply::Complete { payload, status, .. } => Reply::Complete { payload, after: After::Ends, status },
                failed => failed,
            }),
            Ok(count) => {
                self.ledger.read(count);
                Some(self.shared.protocol.input(&mut self.session, exchange, &self.buffer[..count]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(Reply::Failed(Cause::Read)),
        }
    }

    /// Reads once while no request is under way; `None` where nothing was there.
    pub(super) fn receive_idle(&mut self) -> Option<Reply> {
        let socket = self.socket.as_ref()?;
        if self.shared.protocol.holds_input(&self.session) {
            return Some(self.shared.protocol.idle(&mut self.session, &[]));
        }
        match net::read(socket, &mut self.buffer) {
            Ok(0) => Some(Reply::Failed(Cause::Closed)),
            Ok(count) => {
                self.ledger.read(count);
                Some(self.shared.protocol.idle(&mut self.session, &self.buffer[..count]))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(Reply::Failed(Cause::Read)),
        }
    }

    /// Counts an answer.
    pub(super) fn count_answer(&mut self, answer: Answer, at: u64) {
        self.cross_boundaries(at);
        if let Some(request) = self.under_way.take() {
            self.ledger.answered(request, answer, at, Some(self.reported));
        }
        self.history.answered(self.rules);
        self.show();
    }

    /// Sleeps; false where the window closed before. What was to be done before that is, however
    /// late this wakes.
    pub(super) fn sleep_until(&mut self, at: u64) -> bool {
        self.sleep(at, Client::is_closed)
    }

    /// The same until the connection is to be opened.
    pub(super) fn sleep_until_opening(&mut self, at: u64) -> bool {
        self.sleep(at, Client::opens_no_more)
    }

    fn sleep(&mut self, at: u64, is_needless: fn(&Self) -> bool) -> bool {
        loop {
            let now = self.now();
            self.open_window_by(now);
            let control = &self.shared.control;
            let is_due = now >= at && !control.closes.has_come(at) && !control.has_no_window();
            if !is_due {
                self.cross_boundaries(now);
            }
            if self.is_over() || is_needless(self) {
                return false;
            }
            if now >= at {
                return true;
            }
            let close = self.shared.control.closes.get().filter(|_| !self.is_closed());
            let close = close.map_or(u64::MAX, |closes| closes.saturating_sub(now));
            thread::park_timeout(Duration::from_nanos((at - now).min(close)).min(STOP_POLL_INTERVAL));
        }
    }

    pub(super) fn open_window_by(&mut self, now: u64) {
        let control = &self.shared.control;
        if self.ledger.phase() == Phase::WarmUp && control.opens.has_come(now) && !control.has_no_window() {
            self.usage_at_open = Some(Usage::now());
            let uncounted = self.claim_under_way();
            self.ledger.open(control.opens.get().map_or(now, |opens| opens.min(now)), uncounted);
        }
    }

    pub(super) fn cross_boundaries(&mut self, now: u64) {
        self.open_window_by(now);
        if !self.is_closed() && self.shared.control.closes.has_come(now) {
            self.close_window(now);
        }
        self.ledger.record(now);
    }

    /// A counted run claims the request under way as its window opens: it ends in it. Returns 1
    /// where it exceeds the count, and is no part of the window.
    fn claim_under_way(&mut self) -> u64 {
        let Some(request) = self.under_way.as_mut().filter(|_| self.shared.config.stop_condition.is_count()) else {
            return 0;
        };
        if self.left > 0 {
            self.left -= 1;
            request.last = self.left == 0;
        } else if matches!(self.shared.config.stop_condition, StopCondition::Each(_)) || !self.shared.control.claim() {
            request.counted = false;
            return 1;
        }
        0
    }

    fn close_window(&mut self, now: u64) {
        // A thread that comes late to it has had no more time than the others.
        let end = self.shared.control.closes.get().map_or(now, |closes| closes.min(now));
        let counted = self.shared.config.stop_condition.is_count();
        match self.reserved.take() {
            Some(due) if counted && due.claimed => self.shared.control.give_back(),
            Some(due) if !counted && due.at < end => {
                let held_up = self.shared.control.held_up(due.at, end, None);
                let backoff = self.shared.schedule.backoff_within(due.at + held_up, end);
                self.ledger.overdue(due.at, end - held_up, end, backoff);
            }
            _ => {}
        }
        let is_wanted = !self.shared.control.has_ended_count();
        if self.opening && !self.gave_up && is_wanted && self.history.could_not_be_kept() {
            self.ledger.given_up();
        }
        self.ledger.never_sent(self.left);
        self.ledger.close(end, self.under_way.into_iter());
        // None of a thread that came to its end before: what it used is of no window.
        if let Some(usage) = self.usage_at_open {
            usage.note_since(&mut self.result);
        }
    }

    /// Shows its progress, and tells the others of requests of the run's count that have ended.
    pub(super) fn show(&mut self) {
        let shown = self.ledger.shown();
        self.gauge().add(self.shown, shown);
        self.shown = shown;
        if let Some((count, last)) = self.ledger.take_ended() {
            self.shared.control.end_requests(count, last);
        }
    }

    /// Shows whether the connection is free for a request that is yet to fall due.
    pub(super) fn show_free(&mut self, free: bool) {
        let gauge = &self.gauge().free;
        match (std::mem::replace(&mut self.shows_free, free), free) {
            (false, true) => _ = gauge.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = gauge.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// What it shows its progress by, with other threads.
    pub(super) fn gauge(&self) -> &'a Gauge {
        let gauges = &self.shared.control.gauges;
        &gauges[self.number % gauges.len()]
    }

    /// What the coordinator has asked of all.
    fn run_phase(&self) -> worker_group::Phase {
        worker_group::Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    /// Keeps the connection up until it may close, where that is said from outside.
    fn hold(&self) {
        while self.shared.config.await_end && self.run_phase() == worker_group::Phase::Run {
            thread::park_timeout(STOP_POLL_INTERVAL);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.run_phase() == worker_group::Phase::Stop
    }

    pub(super) fn is_closed(&self) -> bool {
        self.ledger.phase() == Phase::Drain
    }

    /// Whether the connection is not opened any more, nor opened again.
    pub(super) fn opens_no_more(&self) -> bool {
        self.is_closed() && !self.shared.opens_after_window()
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        self.shared.config.timeout.as_nanos() as u64
    }

    pub(super) fn now(&self) -> u64 {
        self.shared.control.now()
    }
}

#[cfg(test)]
mod tests;
