//! One relayed connection: its two sockets, what waits between them, and when it must be over.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::Key;
use plimsoll_reactor::timer::Timer;
use plimsoll_sys::net;

use crate::exchange::Exchange;
use crate::log::{ConnectionRow, Ending, Log, Peer, Record, TransferRow};
use crate::outbox::Message;
use crate::pool::Pool;
use crate::relay::{End, Relay, Side, Step, Verdict};
use crate::route::{EndpointNumber, Route};
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
    /// When a byte, or an end, last came.
    pub(crate) active: Instant,
    pub(crate) timer: Option<Timer>,
    pub(crate) timed_for: TimedFor,
    /// Its readiness is asked for each time anew, and its turns are apart: see `event_loop/pacing.rs`.
    pub(crate) paced: bool,
    /// Its next turn has been put off.
    pub(crate) rests: bool,
    /// What it has moved through pipes of late.
    pub(crate) exchange: Exchange,
    client_address: Option<SocketAddr>,
    pub(crate) server_address: Option<SocketAddr>,
    pub(crate) endpoint: Option<EndpointNumber>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No destination has taken it yet. `turn` and `attempt` say which is asked.
    Connecting {
        turn: usize,
        attempt: usize,
    },
    Relaying,
    /// One side is gone. The other is closed, thus, when the kernel has delivered what it holds for it, or at `until`.
    Dismissing {
        survivor: Side,
        end: End,
        until: Instant,
    },
}

/// What the timer was last set anew for: a connection only moves on, and each may be due sooner than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimedFor {
    Whole,
    Half,
    Dismissal,
}

/// What is to become of a connection.
pub(crate) enum Next {
    /// It waits for readiness, or its timer.
    Waits,
    /// It has more to do.
    Yields,
    /// It is over.
    Closes(Ending),
}

/// The kernel tells nobody when it has delivered what it holds for a side, so it is looked at again and again: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);

impl Connection {
    pub(crate) fn new(client: Leg, client_address: Option<SocketAddr>, route: Arc<Route>, now: Instant) -> Connection {
        Connection {
            stage: Stage::Connecting { turn: route.next_turn(), attempt: 0 },
            route,
            client: Some(client),
            server: None,
            relay: Relay::NEW,
            up: Lane::default(),
            down: Lane::default(),
            opened: now,
            active: now,
            timer: None,
            timed_for: TimedFor::Whole,
            paced: false,
            rests: false,
            exchange: Exchange::default(),
            client_address,
            server_address: None,
            endpoint: None,
        }
    }

    pub(crate) fn leg(&mut self, side: Side) -> Option<&mut Leg> {
        match side {
            Side::Client => self.client.as_mut(),
            Side::Server => self.server.as_mut(),
        }
    }

    /// A destination has taken it. The outcome is an error where that was over again at once: it may still have sent something.
    pub(crate) fn connected(&mut self, outcome: &io::Result<()>, now: Instant) {
        self.stage = Stage::Relaying;
        self.active = now;
        if let Some(server) = &mut self.server {
            server.writable = true;
            if let Err(error) = outcome {
                self.relay.refused(Side::Server, transfer::refusal(error));
                (server.readable, server.ended) = (true, true);
            }
        }
    }

    /// The kernel reports an end, or a failure, of a side whose stream has ended already: which of the two is asked here.
    pub(crate) fn look_into_end(&mut self, side: Side) {
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
    pub(crate) fn relay(&mut self, key: Key, pool: &mut Pool, log: &Log, now: Instant) -> Next {
        let mut watch = log.transfers.then_some(LogWatch { log, time: now });
        let (mut yields, before) = (false, self.relay.progress());
        // What one direction finds out may give the other something to do: never more often than each side has one end.
        for _ in 0..3 {
            let mut busy = false;
            for side in [Side::Client, Side::Server] {
                let Some(mut transfer) = self.transfer(key, side) else { continue };
                if transfer.next() != Step::Rest {
                    busy = true;
                    let watch = watch.as_mut().map(|watch| watch as &mut dyn Watch);
                    yields |= transfer.turn(pool, watch) == Turn::Yields;
                }
            }
            if yields || !busy {
                break;
            }
        }
        if self.relay.progress() != before {
            self.active = now;
        }
        match self.relay.verdict() {
            Verdict::Lives if yields => Next::Yields,
            Verdict::Lives => Next::Waits,
            Verdict::Over | Verdict::Dead => Next::Closes(self.ending()),
            Verdict::Dismiss { survivor, end } => self.dismiss(survivor, end, pool, now),
        }
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

    /// Where in the outbox the bytes from `side` are, and the socket they go to; None when none are there.
    pub(crate) fn posted(&self, side: Side) -> Option<(BorrowedFd<'_>, Range<usize>)> {
        let (lane, sink) = match side {
            Side::Client => (&self.up, &self.server),
            Side::Server => (&self.down, &self.client),
        };
        Some((sink.as_ref()?.socket.as_fd(), lane.posted()?))
    }

    /// The message from the outbox was sent, as far as there was room for it. Returns whether there may be more to do.
    pub(crate) fn sent(&mut self, message: Message, outcome: io::Result<usize>, pool: &mut Pool) -> bool {
        if let Some(mut transfer) = self.transfer(message.key, message.from) {
            transfer.written(outcome, pool);
        }
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
        let until = now + self.route.limits.half_close;
        self.stage = Stage::Dismissing { survivor, end, until };
        self.check_delivery(now)
    }

    /// Whether a side that is being dismissed can be closed.
    pub(crate) fn check_delivery(&mut self, now: Instant) -> Next {
        let Stage::Dismissing { survivor, end, until } = self.stage else { return Next::Waits };
        let Some(leg) = self.leg(survivor) else { return Next::Closes(self.ending()) };
        // A Unix socket's peer keeps what it has been given, whatever happens here.
        let delivered = !leg.tcp || net::unacknowledged(&leg.socket).map_or(true, |bytes| bytes == 0);
        if !delivered && now < until && net::take_error(&leg.socket).is_ok() {
            return Next::Waits;
        }
        if end == End::Reset {
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

    /// When the stage that it is in has taken too long, if nothing comes until then.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        let limits = &self.route.limits;
        match self.stage {
            Stage::Connecting { .. } => self.opened + limits.connect,
            Stage::Relaying if self.is_half() => self.active + limits.half_close.min(limits.idle),
            Stage::Relaying => self.active + limits.idle,
            Stage::Dismissing { until, .. } => {
                let since = limits.half_close.saturating_sub(until.saturating_duration_since(now));
                until.min(now + (since / 4).clamp(FIRST_LOOK, LATER_LOOKS))
            }
        }
    }

    /// How much was read so far from the client, and from the server.
    pub(crate) fn read_bytes(&self) -> [u64; 2] {
        [self.relay.up.read_bytes, self.relay.down.read_bytes]
    }

    /// Whether bytes go through a pipe, in either direction.
    pub(crate) fn is_spliced(&self) -> bool {
        self.stage == Stage::Relaying && (self.up.is_spliced() || self.down.is_spliced())
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
        let client = self.client_address.map_or(Peer::Unix(None), Peer::Tcp);
        let unix_path = || self.endpoint.and_then(|number| self.route.unix_path(number));
        let server = match self.server_address {
            Some(address) => Peer::Tcp(address),
            None => unix_path().map_or(Peer::None, |path| Peer::Unix(Some(path))),
        };
        let Relay { up, down, .. } = self.relay;
        ConnectionRow { opened: self.opened, closed: now, route: self.route, client, server, up, down, end }
    }
}

/// What a failed attempt to connect means where no destination is left to try.
pub(crate) fn connect_ending(error: &io::Error) -> Ending {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => Ending::ConnectRefused,
        io::ErrorKind::TimedOut => Ending::ConnectTimeout,
        _ if plimsoll_sys::descriptor::is_exhaustion(error) => Ending::Limit,
        _ => Ending::ConnectFailed,
    }
}

/// Whether an error says that the connection was made, and is over again, rather than that it was not made.
pub(crate) fn was_connected(error: &io::Error) -> bool {
    // In answer to its SYN a reset reads ECONNREFUSED; later ECONNRESET, or EPIPE after the peer's end (tcp_reset in the kernel's tcp_input.c).
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
const _: () = assert!(size_of::<Connection>() <= 448);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Writer;
    use crate::table::mapping;
    use plimsoll_reactor::slab::Slab;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_paced_connection_whose_message_went_out_in_part_is_asked_after_anew() {
        let table = mapping::read(["127.0.0.1:0=127.0.0.1:9"]).expect("a mapping");
        let route = Arc::new(Route::new(&table.rules[0], table.rules[0].listen.clone()).expect("no names"));
        let writer = Writer::start(None, None, Arc::new(Box::new(|_: &str| {}) as crate::Say)).expect("no file");
        let (now, key) = (Instant::now(), Slab::default().insert(()));
        // Its sockets are registered for what was waited for before the message went out (event_loop/pacing.rs): room was not.
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
            assert!(matches!(connection.relay(key, &mut pool, log, now), Next::Waits));
            let message = pool.outbox.messages()[0];
            assert_eq!(connection.sent(message, Ok(2), &mut pool), paced);
        }
    }
}
