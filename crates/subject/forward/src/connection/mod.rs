//! One relayed connection: its two sockets, what waits between them, and when it must be over.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::deadline::LazyTimer;
use plimsoll_reactor::slab::Key;
use plimsoll_reactor::timer::Timer;
use plimsoll_sys::net;
use plimsoll_sys::readiness::Ready;

use crate::ending::Ending;
use crate::exchange::Exchange;
use crate::log::{ConnectionRow, Log, Peer, Record, TransferRow};
use crate::outbox::Message;
use crate::pool::Pool;
use crate::proxy;
use crate::relay::{End, Relay, Side, Step, Verdict};
use crate::route::{Route, Server, Target};
use crate::stall::{self, Stall};
use crate::transfer::{self, Lane, Leg, Transfer, Turn, Watch};

/// See the head of this file.
pub(crate) struct Connection {
    pub(crate) route: Arc<Route>,
    pub(crate) client: Option<Leg>,
    pub(crate) server: Option<Leg>,
    pub(crate) stage: Stage,
    pub(crate) relay: Relay,
    up: Lane,
    down: Lane,
    pub(crate) opened: Instant,
    /// When a byte, or an end, last came, or an acknowledgement was last seen.
    active: Instant,
    /// It fires by [`Connection::deadline`].
    pub(crate) timer: LazyTimer,
    /// It fires when the rule's bandwidth allows for more.
    pub(crate) resumes: Option<Timer>,
    /// While a side does not take what is sent to it.
    stall: Option<Box<Stall>>,
    /// Its readiness is asked for each time anew, and its turns are apart: see
    /// `event_loop/pacing.rs`.
    pub(crate) paced: bool,
    /// Its next turn has been put off.
    pub(crate) rests: bool,
    /// What it has moved through pipes of late.
    pub(crate) exchange: Exchange,
    /// Who has connected; where a PROXY header said so, for whom.
    pub(crate) client_address: Option<SocketAddr>,
    /// Where the client connected to, where a PROXY header said so.
    pub(crate) reached_address: Option<Box<SocketAddr>>,
    /// The server that it was led to last.
    pub(crate) led_to: Option<Arc<Server>>,
    /// It is one of that server's open connections.
    is_counted: bool,
    /// Why it could not be led anywhere: errno(3) in lower case.
    pub(crate) error: Option<&'static str>,
}

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The client is a proxy, whose header has not come yet.
    Header,
    /// No destination has taken it yet.
    Connecting(Attempts),
    Relaying,
    /// One side is gone. The other is closed, thus, when the kernel has delivered what it holds for
    /// it, or when it has acknowledged none of it for as long as `half_close`.
    Dismissing {
        survivor: Side,
        end: End,
        since: Instant,
        progress: Instant,
        unacknowledged: usize,
    },
}

/// The servers that a connection tries.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The number of the connection, among those of its route.
    pub(crate) turn: usize,
    /// Those not tried yet, the next one last.
    pub(crate) rest: Vec<Arc<Server>>,
    /// When the present attempt is given up.
    pub(crate) until: Instant,
    /// When the present server is asked again: the queue of a Unix socket was full.
    pub(crate) again_at: Option<Instant>,
}

/// What a connection needs of its event loop for a turn.
pub(crate) struct Context<'a> {
    /// Names the connection.
    pub(crate) key: Key,
    pub(crate) pool: &'a mut Pool,
    pub(crate) log: &'a Log,
    pub(crate) now: Instant,
}

/// What is to become of a connection.
pub(crate) enum Next {
    /// It waits for readiness, or its timer.
    Waits,
    /// It has moved bulk a moment ago, and waits for more to come.
    Rests,
    /// There may be a header to read.
    ReadsHeader,
    /// The server that was asked has answered; it is an end or an error where `ended`.
    Answered { ended: bool },
    /// It has more to do.
    Yields,
    /// It has more to do after this time: its rule has a bandwidth.
    Resumes(Duration),
    /// It is over.
    Closes(Ending),
    /// It is over although neither side has ended it.
    Aborts(Ending),
}

/// The kernel tells nobody when it has delivered what it holds for a side, so it is looked at again
/// and again: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);

/// How long a connection that moves bulk rests at least between two turns: at 3 GB/s a pipe's 1 MiB
/// arrives (docs/results/forward-bulk.txt).
pub(crate) const REST: Duration = Duration::from_micros(300);

impl Connection {
    pub(crate) fn new(client: Leg, client_address: Option<SocketAddr>, route: Arc<Route>, now: Instant) -> Connection {
        Connection {
            stage: Stage::Header,
            route,
            client: Some(client),
            server: None,
            relay: Relay::NEW,
            up: Lane::default(),
            down: Lane::default(),
            opened: now,
            active: now,
            timer: LazyTimer::default(),
            resumes: None,
            stall: None,
            paced: false,
            rests: false,
            exchange: Exchange::default(),
            client_address,
            reached_address: None,
            led_to: None,
            is_counted: false,
            error: None,
        }
    }

    pub(crate) fn leg(&mut self, side: Side) -> Option<&mut Leg> {
        match side {
            Side::Client => self.client.as_mut(),
            Side::Server => self.server.as_mut(),
        }
    }

    /// A side is ready for something. What there is to relay is relayed, unless the connection
    /// rests.
    pub(crate) fn on_event(&mut self, side: Side, event: Ready, urgent: bool, context: &mut Context<'_>) -> Next {
        let Some(leg) = self.leg(side) else { return Next::Waits };
        leg.readable |= event.readable;
        leg.writable |= event.writable;
        leg.ended |= event.ended;
        leg.urgent |= urgent;
        match (&self.stage, side) {
            (Stage::Header | Stage::Connecting(_), Side::Client) if event.ended && self.client_is_gone() => {
                Next::Aborts(Ending::ClientReset)
            }
            (Stage::Connecting(_), Side::Server) if event.writable => Next::Answered { ended: event.ended },
            // It is remembered until there is a server.
            (Stage::Connecting(_), _) => Next::Waits,
            (Stage::Header, _) => Next::ReadsHeader,
            (Stage::Relaying | Stage::Dismissing { .. }, _) => {
                if event.ended {
                    self.look_into_end(side);
                }
                if self.rests_at(context.now) { Next::Rests } else { self.advance(context) }
            }
        }
    }

    /// Does what there is to do, whatever has become ready.
    pub(crate) fn advance(&mut self, context: &mut Context<'_>) -> Next {
        match self.stage {
            Stage::Header => Next::ReadsHeader,
            Stage::Connecting(_) => Next::Waits,
            Stage::Relaying => self.relay(context),
            Stage::Dismissing { .. } => self.check_delivery(context.now),
        }
    }

    /// Whether its next turn is put off: it is already, or its last one is too recent.
    fn rests_at(&self, now: Instant) -> bool {
        self.rests || self.paced && self.exchange.is_bulk() && self.active + REST > now
    }

    /// Whether the client has reset the connection and left nothing to be passed on. One that has
    /// only ended its stream waits for an answer; and bytes that came before a reset are
    /// delivered before it, which a read will find.
    fn client_is_gone(&self) -> bool {
        let Some(client) = &self.client else { return true };
        match net::peek(&client.socket, &mut [0]) {
            Ok(1..) => false,
            Ok(0) => net::take_error(&client.socket).is_err(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// The server that is asked now is counted as having one more.
    pub(crate) fn ask(&mut self, server: Arc<Server>, leg: Leg) {
        server.open.fetch_add(1, Ordering::Relaxed);
        (self.server, self.led_to, self.is_counted) = (Some(leg), Some(server), true);
    }

    /// It is none of its server's connections any more.
    pub(crate) fn leave_server(&mut self) {
        if let Some(server) = self.led_to.as_ref().filter(|_| self.is_counted) {
            server.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_counted = false;
    }

    /// A destination has taken it. The outcome is an error where that was over again at once: it
    /// may still have sent something.
    pub(crate) fn connected(&mut self, outcome: &io::Result<()>, now: Instant) {
        self.stage = Stage::Relaying;
        self.active = now;
        if let Some(server) = &self.led_to {
            server.took();
        }
        if let Some(server) = &mut self.server {
            server.writable = true;
            if let Err(error) = outcome {
                self.relay.refused(Side::Server, transfer::refusal(error));
                (server.readable, server.ended) = (true, true);
            }
        }
    }

    /// Tells the server who has connected, where its rule says so: the first bytes of a fresh
    /// connection have room.
    pub(crate) fn introduce(&self) -> io::Result<()> {
        let (Some(version), Some(server)) = (self.route.rule.send_proxy, &self.server) else { return Ok(()) };
        let reached = match &self.reached_address {
            Some(reached) => Some(**reached),
            None => self.client.as_ref().and_then(|client| net::local_address(&client.socket).ok()),
        };
        let header = proxy::write(version, self.client_address.zip(reached));
        match net::write(&server.socket, &header)? {
            length if length == header.len() => Ok(()),
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// The kernel reports an end, or a failure, of a side whose stream has ended already: which of
    /// the two is asked here.
    fn look_into_end(&mut self, side: Side) {
        if !self.relay.from(side).is_ending() {
            // Reading will say.
            return;
        }
        let Some(leg) = self.leg(side) else { return };
        if let Err(error) = net::take_error(&leg.socket) {
            self.relay.refused(side, transfer::refusal(&error));
        }
    }

    /// Moves what there is, both ways.
    fn relay(&mut self, context: &mut Context<'_>) -> Next {
        let Context { key, pool, log, now } = context;
        let (key, now) = (*key, *now);
        let mut watch = log.transfers.then_some(LogWatch { log, time: now });
        let (mut yields, mut resumes, before) = (false, None::<Duration>, self.relay);
        let metered = self.route.bandwidth.is_some().then(|| Arc::clone(&self.route));
        // What one direction finds out may give the other something to do: never more often than
        // each side has one end.
        for _ in 0..3 {
            let mut busy = false;
            for side in [Side::Client, Side::Server] {
                let Some(mut transfer) = self.transfer(key, side) else { continue };
                if transfer.next() != Step::Rest {
                    busy = true;
                    let watch = watch.as_mut().map(|watch| watch as &mut dyn Watch);
                    let meters = metered.as_ref().and_then(|route| route.bandwidth.as_ref());
                    let meter = meters.map(|meters| &meters[side as usize]);
                    match transfer.turn(pool, watch, meter.map(|meter| (meter, now))) {
                        Turn::Waits => {}
                        Turn::Yields => yields = true,
                        Turn::Metered(wait) => {
                            resumes = Some(resumes.map_or(wait, |former| former.min(wait)));
                        }
                    }
                }
            }
            if yields || resumes.is_some() || !busy {
                break;
            }
        }
        self.note_progress(&before, now);
        match self.relay.verdict() {
            Verdict::Lives if yields => Next::Yields,
            Verdict::Lives => resumes.map_or(Next::Waits, Next::Resumes),
            Verdict::Over | Verdict::Dead => Next::Closes(self.ending()),
            Verdict::Dismiss { survivor, end } => self.dismiss(survivor, end, pool, now),
        }
    }

    /// Takes note of what has moved since the relay was `before`.
    fn note_progress(&mut self, before: &Relay, now: Instant) {
        if self.relay.progress() != before.progress() {
            self.active = now;
        }
        let written = [self.relay.up.bytes, self.relay.down.bytes];
        let counts = &self.route.counts;
        for (count, written, before) in
            [(&counts.bytes_up, written[0], before.up.bytes), (&counts.bytes_down, written[1], before.down.bytes)]
        {
            if written != before {
                count.fetch_add(written - before, Ordering::Relaxed);
            }
        }
        let is_blocked =
            |lane: &Lane, sink: &Option<Leg>| lane.is_holding() && sink.as_ref().is_some_and(|leg| !leg.writable);
        let blocked = [is_blocked(&self.up, &self.server), is_blocked(&self.down, &self.client)];
        if blocked == [false; 2] && self.stall.is_none() {
            return;
        }
        let stall = self.stall.get_or_insert_with(|| Box::new(Stall::new(now)));
        (0..2).for_each(|direction| stall.note(direction, blocked[direction], written[direction], now));
    }

    /// The direction whose source is `side`, while both sides are there.
    fn transfer(&mut self, key: Key, side: Side) -> Option<Transfer<'_>> {
        let (client, server) = (self.client.as_mut()?, self.server.as_mut()?);
        let (source, sink, lane) = match side {
            Side::Client => (client, server, &mut self.up),
            Side::Server => (server, client, &mut self.down),
        };
        Some(Transfer { key, relay: &mut self.relay, side, source, sink, lane })
    }

    /// Where in the outbox the bytes from `side` are, and the socket they go to; None when none are
    /// there.
    pub(crate) fn posted(&self, side: Side) -> Option<(BorrowedFd<'_>, Range<usize>)> {
        let (lane, sink) = match side {
            Side::Client => (&self.up, &self.server),
            Side::Server => (&self.down, &self.client),
        };
        Some((sink.as_ref()?.socket.as_fd(), lane.posted()?))
    }

    /// The message from the outbox was sent, as far as there was room for it. Returns whether there
    /// may be more to do.
    pub(crate) fn sent(&mut self, message: Message, outcome: io::Result<usize>, pool: &mut Pool, now: Instant) -> bool {
        let before = self.relay;
        if let Some(mut transfer) = self.transfer(message.key, message.from) {
            transfer.written(outcome, pool);
        }
        self.note_progress(&before, now);
        let has_more = [Side::Client, Side::Server]
            .into_iter()
            .any(|side| self.transfer(message.key, side).is_some_and(|mut transfer| transfer.next() != Step::Rest));
        has_more || self.relay.verdict() != Verdict::Lives || self.paced || self.is_spliced()
    }

    /// Lets go of the side that is gone, and of the other as soon as nothing of its is lost by it.
    fn dismiss(&mut self, survivor: Side, end: End, pool: &mut Pool, now: Instant) -> Next {
        let gone = match survivor {
            Side::Client => self.server.take(),
            Side::Server => self.client.take(),
        };
        drop(gone);
        self.up.clear(pool);
        self.down.clear(pool);
        self.stage = Stage::Dismissing { survivor, end, since: now, progress: now, unacknowledged: usize::MAX };
        self.check_delivery(now)
    }

    /// Whether a side that is being dismissed can be closed.
    pub(crate) fn check_delivery(&mut self, now: Instant) -> Next {
        let limit = self.route.rule.limits.half_close;
        let leg = |connection: &mut Connection, side| -> Option<(usize, bool)> {
            let leg = connection.leg(side)?;
            // A Unix socket's peer keeps what it has been given, whatever happens here.
            let waits = if leg.tcp { net::unacknowledged(&leg.socket).unwrap_or(0) } else { 0 };
            Some((waits, waits > 0 && net::take_error(&leg.socket).is_ok()))
        };
        let Stage::Dismissing { survivor, .. } = self.stage else { return Next::Waits };
        let found = leg(self, survivor);
        let Stage::Dismissing { end, progress, unacknowledged, .. } = &mut self.stage else { return Next::Waits };
        let Some((waits, alive)) = found else { return Next::Closes(self.ending()) };
        if waits < *unacknowledged {
            (*progress, *unacknowledged) = (now, waits);
        }
        if alive && now < *progress + limit {
            return Next::Waits;
        }
        if *end == End::Reset {
            self.reset(survivor);
        }
        Next::Closes(self.ending())
    }

    /// Makes the close of a side a reset.
    pub(crate) fn reset(&mut self, side: Side) {
        if let Some(leg) = self.leg(side).filter(|leg| leg.tcp) {
            // It can only fail where the connection is no more.
            let _ = net::reset_on_close(&leg.socket);
        }
    }

    /// When to look whether the stage that it is in has taken too long, if nothing comes until
    /// then.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let limits = &self.route.rule.limits;
        match &self.stage {
            Stage::Header => self.opened + limits.connect.min(limits.idle),
            Stage::Connecting(attempts) => {
                attempts.again_at.unwrap_or(attempts.until).min(attempts.until).min(self.opened + limits.idle)
            }
            Stage::Relaying => {
                let silence = (self.active + self.silence_limit()).max(now);
                let look = self.stall.as_ref().and_then(|stall| stall.next_look(limits.send));
                look.map_or(silence, |look| look.min(silence))
            }
            Stage::Dismissing { since, progress, .. } => {
                let passed = now.saturating_duration_since(*since);
                (*progress + limits.half_close).min(now + (passed / 4).clamp(FIRST_LOOK, LATER_LOOKS))
            }
        }
    }

    fn silence_limit(&self) -> Duration {
        let limits = &self.route.rule.limits;
        if self.is_half() { limits.half_close.min(limits.idle) } else { limits.idle }
    }

    /// Whether a connection that is relayed has taken too long, or until when to wait before
    /// looking again. Bytes that a side acknowledges are a sign of life: the kernel may hold
    /// megabytes that a slow reader has yet to take.
    pub(crate) fn look(&mut self, now: Instant) -> Result<Instant, Ending> {
        let (limits, silence) = (self.route.rule.limits, self.silence_limit());
        let is_silent = now >= self.active + silence;
        if !is_silent && self.stall.is_none() {
            return Ok(self.deadline(now));
        }
        let stall = self.stall.get_or_insert_with(|| Box::new(Stall::new(now)));
        let mut first_look = false;
        for (direction, sink, written) in
            [(0, &self.server, self.relay.up.bytes), (1, &self.client, self.relay.down.bytes)]
        {
            let Some(sink) = sink else { continue };
            let waits = net::unacknowledged(&sink.socket).unwrap_or(0) as u64;
            stall.count(direction, written);
            match stall.look(direction, waits, self.active, now) {
                Some(true) => self.active = now,
                Some(false) => {}
                None => first_look |= waits > 0,
            }
        }
        if stall.is_over(limits.send, now) {
            return Err(Ending::SendTimeout);
        }
        if now < self.active + silence {
            if !stall.is_blocked() {
                self.stall = None;
            }
            return Ok(self.deadline(now));
        }
        if first_look {
            // Whether a side takes what the kernel holds for it the next look tells.
            return Ok(now + stall::look_interval(silence));
        }
        Err(if self.is_half() { Ending::HalfClose } else { Ending::Idle })
    }

    /// When a byte, or an end, last came, or an acknowledgement was last seen.
    pub(crate) fn active(&self) -> Instant {
        self.active
    }

    /// Whether a side may not take what is sent to it, so that the deadline may have come nearer.
    pub(crate) fn is_watched(&self) -> bool {
        self.stall.is_some()
    }

    /// How much was read so far from the client, and from the server.
    pub(crate) fn read_bytes(&self) -> [u64; 2] {
        [self.relay.up.read_bytes, self.relay.down.read_bytes]
    }

    /// Whether bytes go through a pipe, in either direction.
    pub(crate) fn is_spliced(&self) -> bool {
        matches!(self.stage, Stage::Relaying) && (self.up.is_spliced() || self.down.is_spliced())
    }

    /// Whether only one half is left.
    pub(crate) fn is_half(&self) -> bool {
        self.relay.up.is_ending() || self.relay.down.is_ending()
    }

    fn ending(&self) -> Ending {
        match self.relay.cause {
            Some((Side::Client, End::Clean)) => Ending::ClientClosed,
            Some((Side::Client, End::Reset)) => Ending::ClientReset,
            Some((Side::Server, End::Reset)) => Ending::ServerReset,
            Some((Side::Server, End::Clean)) | None => Ending::ServerClosed,
        }
    }

    /// Gives back what it holds, and its row for the log.
    pub(crate) fn into_row(mut self, end: Ending, pool: &mut Pool, now: Instant) -> ConnectionRow {
        self.up.clear(pool);
        self.down.clear(pool);
        self.leave_server();
        let client = self.client_address.map_or(Peer::Unix(None), Peer::Tcp);
        let server = self.led_to.as_ref().map_or(Peer::None, |server| match &server.target {
            Target::Tcp(address) => Peer::Tcp(*address),
            Target::Unix(path) => Peer::Unix(Some(path.clone())),
        });
        let Relay { up, down, .. } = self.relay;
        let (opened, error) = (self.opened, self.error);
        ConnectionRow { opened, closed: now, route: self.route, client, server, up, down, end, error }
    }
}

/// Whether an error says that the connection was made, and is over again, rather than that it was
/// not made.
pub(crate) fn was_connected(error: &io::Error) -> bool {
    // In answer to its SYN a reset reads ECONNREFUSED; later ECONNRESET, or EPIPE after the peer's
    // end (tcp_reset in the kernel's tcp_input.c).
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

struct LogWatch<'a> {
    log: &'a Log,
    time: Instant,
}

impl Watch for LogWatch<'_> {
    fn transferred(&mut self, source: &Leg, sink: &Leg, reads: u64, bytes: u64) {
        let (receive, send) = (source.socket.as_raw_fd(), sink.socket.as_raw_fd());
        self.log.hand(Record::Transfer(TransferRow { time: self.time, receive, send, requests: reads, bytes }));
    }
}

// What an idle connection costs besides its timer: the promise is 1 KiB in all.
const _: () = assert!(size_of::<Connection>() <= 512);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Writer;
    use crate::names::Names;
    use crate::table::{mapping, toml};
    use plimsoll_reactor::slab::Slab;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    const SECOND: Duration = Duration::from_secs(1);

    /// A connection that is relayed by these settings, between a client and a server of its own.
    struct Relayed {
        connection: Connection,
        pool: Pool,
        writer: Writer,
        key: Key,
        client: TcpStream,
        server: TcpStream,
    }

    fn pair() -> (TcpStream, Leg) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (near, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("a socket takes it");
        far.set_nonblocking(true).expect("a socket takes it");
        (far, Leg::new(near.into(), true))
    }

    impl Relayed {
        fn new(settings: &str, now: Instant) -> Relayed {
            let text = format!("[forward.\"127.0.0.1:0\"]\nto = \"127.0.0.1:9\"\n{settings}\n");
            let table = toml::read(&text).expect("a table");
            let route = Arc::new(Route::new(&table.rules[0], &Names::of_the_machine(), now));
            let writer = Writer::start(None, None, Arc::new(Box::new(|_: &str| {}) as crate::Say)).expect("no file");
            let ((client, near_client), (server, near_server)) = (pair(), pair());
            let mut connection = Connection::new(near_client, None, route, now);
            connection.server = Some(near_server);
            connection.connected(&Ok(()), now);
            Relayed { connection, pool: Pool::new(true, 4), writer, key: Slab::default().insert(()), client, server }
        }

        /// Relays what there is.
        fn relay(&mut self, now: Instant) {
            for side in [Side::Client, Side::Server] {
                if let Some(leg) = self.connection.leg(side) {
                    leg.readable = true;
                }
            }
            let context = Context { key: self.key, pool: &mut self.pool, log: self.writer.log(), now };
            let _ = self.connection.relay(&mut { context });
            for message in self.pool.outbox.messages().to_vec() {
                let (sink, place) = self.connection.posted(message.from).expect("it was read");
                let outcome = net::write(sink, self.pool.outbox.bytes(place));
                self.connection.sent(message, outcome, &mut self.pool, now);
            }
            self.pool.outbox.clear();
        }

        /// Has the server send until nothing more fits anywhere on the way to the client.
        fn fill(&mut self, now: Instant) {
            let piece = vec![7; 1 << 20];
            let deadline = Instant::now() + 60 * SECOND;
            let mut quiet = 0;
            // What the kernel has on its way arrives within some looks.
            while quiet < 20 {
                assert!(Instant::now() < deadline, "there is room without end");
                let before = self.connection.relay.progress();
                while self.server.write(&piece).is_ok() {}
                self.connection.client.as_mut().expect("it is there").writable = true;
                self.relay(now);
                quiet = if self.connection.relay.progress() == before { quiet + 1 } else { 0 };
                std::thread::sleep(Duration::from_millis(2));
            }
        }

        /// Has the client read until the kernel has an acknowledgement for it.
        fn read_some(&mut self) {
            let sink = self.connection.client.as_ref().expect("it is there");
            let waits = || net::unacknowledged(&sink.socket).expect("a socket has a queue");
            let (before, deadline) = (waits(), Instant::now() + 60 * SECOND);
            while waits() >= before {
                assert!(Instant::now() < deadline, "nothing is acknowledged");
                let _ = self.client.read(&mut vec![0; 1 << 16]);
            }
        }
    }

    #[test]
    fn a_slow_reader_is_waited_for_and_one_that_takes_nothing_is_given_up_when_the_time_is_over() {
        let start = Instant::now();
        let mut relayed = Relayed::new("", start);
        relayed.fill(start);
        let look = |relayed: &mut Relayed, seconds: u32| relayed.connection.look(start + seconds * SECOND);
        // No byte fits in, so that its progress is only what the client acknowledges.
        for seconds in (7..300).step_by(7) {
            assert!(look(&mut relayed, seconds).is_ok(), "after {seconds} s");
            relayed.read_some();
        }
        let last = 301;
        assert!(look(&mut relayed, last).is_ok());
        assert!(look(&mut relayed, last + 59).is_ok());
        assert_eq!(look(&mut relayed, last + 60), Err(Ending::SendTimeout));
    }

    #[test]
    fn a_half_is_open_while_the_kernel_delivers_what_it_holds_and_no_longer() {
        let start = Instant::now();
        let mut relayed = Relayed::new("half_close = \"60s\"\nsend_timeout = \"1h\"", start);
        relayed.fill(start);
        let _ = relayed.client.shutdown(Shutdown::Write);
        let deadline = Instant::now() + 60 * SECOND;
        while !relayed.connection.is_half() {
            assert!(Instant::now() < deadline, "the end does not arrive");
            relayed.relay(start);
        }
        let mut seconds = 60;
        assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "bytes wait: it looks again");
        for _ in 0..10 {
            relayed.read_some();
            seconds += 59;
            assert!(relayed.connection.look(start + seconds * SECOND).is_ok(), "after {seconds} s");
        }
        assert!(relayed.connection.look(start + (seconds + 59) * SECOND).is_ok());
        assert_eq!(relayed.connection.look(start + (seconds + 60) * SECOND), Err(Ending::HalfClose));
    }

    #[test]
    fn a_paced_connection_whose_message_went_out_in_part_is_asked_after_anew() {
        let table = mapping::read(["127.0.0.1:0=127.0.0.1:9"]).expect("a mapping");
        let now = Instant::now();
        let route = Arc::new(Route::new(&table.rules[0], &Names::of_the_machine(), now));
        let writer = Writer::start(None, None, Arc::new(Box::new(|_: &str| {}) as crate::Say)).expect("no file");
        let (now, key) = (now, Slab::default().insert(()));
        // Its sockets are registered for what was waited for before the message went out
        // (event_loop/pacing.rs): room was not.
        for paced in [true, false] {
            let (mut pool, log) = (Pool::new(true, 4), writer.log());
            let [(mut client, near_client), (_server, near_server)] =
                [(); 2].map(|()| UnixStream::pair().expect("a pair of sockets"));
            client.write_all(b"hello").expect("there is room");
            let leg = Leg { readable: true, ..Leg::new(near_client.into(), false) };
            let mut connection = Connection::new(leg, None, Arc::clone(&route), now);
            connection.server = Some(Leg::new(near_server.into(), false));
            connection.connected(&Ok(()), now);
            connection.paced = paced;
            assert!(matches!(connection.relay(&mut Context { key, pool: &mut pool, log, now }), Next::Waits));
            let message = pool.outbox.messages()[0];
            assert_eq!(connection.sent(message, Ok(2), &mut pool, now), paced);
        }
    }
}
