//! The threads engine: a thread for each connection, as the reports' clients have it. For comparison and for fidelity, not for scale.
//!
//! A thread waits for its one socket with poll(2), so that it reads while it writes (a large echo would deadlock otherwise) and is on time for the
//! window's end. It keeps its own counts; nothing is shared on the way of a request.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_measure::tally::{Cause, Connections, Tally};
use plimsoll_reactor::crew::Phase;
use plimsoll_sys::clock;
use plimsoll_sys::net::{self, Mode};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::config::{Extent, Pace, Phase as Start, Recovery};
use crate::epoll::{ATTEMPTS, Counted, EPROTO, ETIMEDOUT, FIRST_ATTEMPTS, Shared, Usage, pin, rest_ns};
use crate::protocol::{Protocol, Reply, Turn};
use crate::record::{Recorder, Request};
use crate::run::Team;

/// A thread's buffer is on the heap; a TLS handshake has deep frames. What is never touched costs address space only.
const STACK_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 16 * 1024;
/// How long a thread waits before it looks whether it is to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// The threads of a run.
pub(crate) struct Threads<P: Protocol> {
    shared: Arc<Shared<P>>,
    stop: Arc<AtomicBool>,
    members: Vec<JoinHandle<Counted>>,
}

impl<P: Protocol> Threads<P> {
    /// Starts a thread for each connection; they wait for the start. Fails where the machine has no room for so many.
    pub(crate) fn start(shared: &Arc<Shared<P>>) -> io::Result<Threads<P>> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Threads { shared: Arc::clone(shared), stop, members: Vec::new() };
        for number in 0..shared.config.connections {
            let (own, stop) = (Arc::clone(shared), Arc::clone(&threads.stop));
            let builder = thread::Builder::new().name(format!("connection {number}")).stack_size(STACK_BYTES);
            let spawned = builder.spawn(move || {
                clock::sharpen_timers();
                // Which CPUs there are was checked before the run.
                let _ = pin(&own.config, number);
                let counted = Client::new(&own, &stop, number).live();
                own.control.news.raise();
                counted
            });
            match spawned {
                Ok(member) => threads.members.push(member),
                Err(error) => {
                    threads.set_phase(Phase::Stop);
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    pub(crate) fn join(self) -> Vec<Counted> {
        let join = |member: JoinHandle<Counted>| member.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        self.members.into_iter().map(join).collect()
    }
}

impl<P: Protocol> Team for Threads<P> {
    fn wake(&self) {
        for member in &self.members {
            member.thread().unpark();
        }
    }

    fn is_finished(&self) -> bool {
        self.members.iter().all(JoinHandle::is_finished)
    }

    fn set_phase(&self, phase: Phase) {
        self.stop.store(phase == Phase::Stop, Ordering::Release);
        self.wake();
    }

    fn request(&self) -> &plimsoll_sys::event::Event {
        &self.shared.control.news
    }
}

/// One connection's thread.
struct Client<'a, P: Protocol> {
    shared: &'a Shared<P>,
    stop: &'a AtomicBool,
    number: usize,
    random: StdRng,
    buffer: Vec<u8>,
    socket: Option<OwnedFd>,
    session: P::Session,
    written: usize,
    connects: usize,
    attempts: u16,
    left: u64,
    sequence_number: u64,
    /// The intended start of the request under way.
    under_way: Option<u64>,
    window_open: bool,
    window_closed: bool,
    tally: Tally,
    counted: Counted,
    usage_at_open: Usage,
    recorder: Recorder,
}

/// How an exchange ended.
enum End {
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
    fn new(shared: &'a Shared<P>, stop: &'a AtomicBool, number: usize) -> Client<'a, P> {
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
            window_open: false,
            window_closed: false,
            tally: Tally::default(),
            counted: Counted::new(number),
            usage_at_open: Usage::default(),
            recorder: Recorder::new(&shared.config.records, std::iter::once(number as u32)),
        }
    }

    fn live(mut self) -> Counted {
        if self.wait_for_start() {
            self.carry_requests();
        }
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

    /// Waits until the run starts, and connects; whether requests can be sent.
    fn wait_for_start(&mut self) -> bool {
        let control = &self.shared.control;
        while !control.starts.has_come(control.now()) {
            if self.is_over() {
                return false;
            }
            thread::park_timeout(GLANCE);
        }
        if self.shared.config.opening.reconnect {
            control.settle();
        } else if !self.reopen() {
            return false;
        }
        while !control.gate.has_come(control.now()) {
            if self.is_over() {
                return false;
            }
            thread::park_timeout(GLANCE);
        }
        true
    }

    fn carry_requests(&mut self) {
        let Pace::Closed { think, phase } = self.shared.config.pace else { return };
        let mut due = self.now();
        if phase == Start::Spread {
            due += think.draw_phase_ns(&mut self.random);
        } else if self.shared.config.opening.barrier {
            due = self.shared.control.gate.get().unwrap_or(due);
        }
        while self.sleep_until(due) && self.claim() {
            let now = self.now();
            let scheduled = self.shared.config.pace.has_schedule();
            let intended = if scheduled { due } else { now };
            self.left = self.left.saturating_sub(1);
            self.tally.requests.scheduled += 1;
            self.tally.sent += 1;
            if scheduled {
                self.tally.schedule_lag.record_ns(now - due);
            }
            self.under_way = Some(intended);
            let on_demand = self.socket.is_none();
            let (end, sent) = if on_demand && !self.open() {
                (End::Lost(Cause::Connect), now)
            } else {
                let sent = self.now();
                (self.exchange(intended), sent)
            };
            let go_on = match end {
                End::Whole { payload, keep, status } => self.complete(payload, status, intended, sent, keep),
                End::Lost(cause) => self.lose(cause),
                End::Stopped => return,
            };
            if !go_on {
                return;
            }
            due = self.now() + think.draw_ns(&mut self.random);
        }
    }

    /// Sends a request and reads its answer.
    fn exchange(&mut self, intended: u64) -> End {
        let target = self.number % self.shared.config.targets.len();
        let random = self.random.next_u64();
        let turn = Turn { target, sequence: self.sequence_number, random };
        let exchange = self.shared.protocol.begin(&mut self.session, turn, self.written);
        self.sequence_number += 1;
        self.written = 0;
        self.converse(exchange, intended)
    }

    /// Writes what an exchange has to say and reads what it has to hear, for at most the time-out from `start`.
    fn converse(&mut self, mut exchange: P::Exchange, start: u64) -> End {
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

    /// Counts an answer; whether there is more to do.
    fn complete(&mut self, payload: u64, status: u16, intended: u64, sent: u64, keep: bool) -> bool {
        let now = self.now();
        self.cross_boundaries(now);
        self.under_way = None;
        self.tally.status[usize::from(status / 100).min(5)] += 1;
        if status >= 400 {
            self.recorder.failed();
            self.tally.requests.failed += 1;
            self.tally.errors.count(Cause::Status);
        } else {
            self.tally.requests.completed += 1;
            self.tally.payload_bytes += payload;
            self.tally.response.record_ns(now - intended);
            self.recorder.completed_in_second(now - intended);
            if P::TELLS_TRANSMISSION {
                self.tally.transmission.record_ns(now - sent);
            } else {
                self.tally.service.record_ns(now - sent);
            }
            let each = matches!(self.shared.config.extent, Extent::Each(_));
            let (unix, last) = (self.shared.control.unix(now), self.left == 0);
            if let Some(sequence) = self.recorder.sequences.first_mut() {
                sequence.completed += 1;
                sequence.exchange_ns += now - sent;
                sequence.success = !each || last;
                let request = sequence.completed as u32;
                let connection = self.number as u32;
                self.recorder.log(Request {
                    at: unix,
                    connection,
                    request,
                    bytes: payload,
                    response_ns: now - intended,
                });
            }
        }
        self.show(u64::from(status < 400), u64::from(status >= 400));
        if self.shared.config.recovery == Recovery::GiveUp {
            self.attempts = 0;
        }
        if !keep || self.shared.config.opening.reconnect {
            self.disconnect();
        }
        !(self.window_closed || matches!(self.shared.config.extent, Extent::Each(_)) && self.left == 0)
    }

    /// Counts a lost request and connection, and goes on as the run has it; whether there is more to do.
    fn lose(&mut self, cause: Cause) -> bool {
        let now = self.now();
        self.cross_boundaries(now);
        if cause != Cause::Connect {
            self.tally.errors.count(cause);
        }
        if let Some(intended) = self.under_way.take() {
            self.recorder.failed();
            if cause == Cause::Timeout {
                self.tally.requests.timed_out += 1;
                self.tally.unanswered.record_ns(now - intended);
            } else {
                self.tally.requests.failed += 1;
            }
        }
        self.show(0, 1);
        self.disconnect();
        if let Some(sequence) = self.recorder.sequences.first_mut() {
            sequence.failed_requests += 1;
            sequence.failed_sequences += 1;
            sequence.exchange_ns = 0;
        }
        match (self.shared.config.extent, self.shared.config.recovery) {
            (Extent::Each(_), Recovery::GiveUp) => {
                self.give_up();
                return false;
            }
            (Extent::Each(each), Recovery::Restart { .. }) => self.left = each,
            _ => {}
        }
        if self.shared.config.opening.reconnect {
            return self.rest_or_give_up();
        }
        self.rest_or_give_up() && self.reopen()
    }

    /// Connects, as often as the run has it; whether it did.
    fn reopen(&mut self) -> bool {
        loop {
            if self.open() {
                return true;
            }
            if !self.rest_or_give_up() {
                return false;
            }
        }
    }

    fn open(&mut self) -> bool {
        let config = &self.shared.config;
        let target = self.number % config.targets.len();
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
    fn greet(&mut self, socket: OwnedFd, target: usize, begun: u64) -> io::Result<()> {
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

    fn note_up(&mut self, establishment: u64) -> bool {
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
    fn rest_or_give_up(&mut self) -> bool {
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

    fn give_up(&mut self) {
        if self.window_closed {
            return;
        }
        self.counted.connections.failed = 1;
        if self.counted.connections.established == 0 && !self.shared.config.opening.reconnect {
            self.shared.control.settle();
        }
    }

    fn disconnect(&mut self) {
        if self.socket.take().is_some() {
            self.shared.control.connection_down();
        }
    }

    fn claim(&self) -> bool {
        !matches!(self.shared.config.extent, Extent::Requests(_)) || self.shared.control.claim(1) == 1
    }

    /// Sleeps; false where the run ended before.
    fn sleep_until(&mut self, at: u64) -> bool {
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

    fn cross_boundaries(&mut self, now: u64) {
        let control = &self.shared.control;
        self.recorder.pass(now);
        if !self.window_open && control.opens.has_come(now) {
            self.window_open = true;
            self.usage_at_open = Usage::now();
            let mut warm_up = std::mem::take(&mut self.tally);
            warm_up.requests.in_flight = u64::from(self.under_way.is_some());
            self.tally.requests.scheduled = warm_up.requests.in_flight;
            self.counted.warm_up = Some(warm_up);
        }
        if !self.window_closed && control.closes.has_come(now) {
            self.close_window(now);
        }
    }

    fn close_window(&mut self, now: u64) {
        if let Some(intended) = self.under_way {
            self.tally.requests.in_flight += 1;
            self.tally.unanswered.record_ns(now.saturating_sub(intended));
        }
        self.tally.requests.scheduled += self.left;
        self.tally.requests.unsent += self.left;
        self.window_closed = true;
        self.counted.ended_at = now;
        self.usage_at_open.note_since(&mut self.counted);
        self.counted.window = std::mem::take(&mut self.tally);
    }

    fn show(&self, completed: u64, failed: u64) {
        self.shared.control.gauges[self.number % self.shared.control.gauges.len()].add(completed, failed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.shared.control.now()
    }
}
