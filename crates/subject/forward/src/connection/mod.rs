//! One relayed connection: its two sockets, and what waits between them.
//!
//! `connecting` finds its server, `relaying` moves its bytes, `delivery` knows whether its sides
//! take what is sent to them, `timing` when it has taken too long, and `lingering` closes its last
//! side.

mod connecting;
mod delivery;
mod lingering;
mod relaying;
mod timing;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::deadline::LazyTimer;
use plimsoll_reactor::progress::SendProgress;
use plimsoll_reactor::slab::Key;
use plimsoll_sys::readiness::{Interest, Ready};
use plimsoll_sys::{net, poll};

use crate::bulk_detector::BulkDetector;
use crate::ending::Ending;
use crate::log::{ConnectionRow, Log, LoopNumber, Peer};
use crate::pool::Pool;
use crate::relay::{End, Relay, Side};
use crate::route::{Route, Server, Target};
use crate::transfer::{self, Channel, Endpoint};

pub(crate) use connecting::{Attempts, was_connected};
use delivery::Delivery;

/// See the head of this file.
pub(crate) struct Connection {
    pub(crate) route: Arc<Route>,
    pub(crate) client: Option<Endpoint>,
    pub(crate) server: Option<Endpoint>,
    pub(crate) state: ConnectionState,
    pub(crate) relay: Relay,
    up: Channel,
    down: Channel,
    pub(crate) opened: Instant,
    /// When a byte, or an end, last came, or an acknowledgement was last seen; before it is
    /// relayed, from when its time-outs count.
    active: Instant,
    /// It fires by [`Connection::deadline`].
    pub(crate) timer: LazyTimer,
    /// It fires when the rule's bandwidth allows for more.
    pub(crate) resumes: LazyTimer,
    /// While a side does not take what is sent to it.
    delivery: Option<Box<Delivery>>,
    /// Its readiness is asked for each time anew, and its turns are apart: see
    /// `event_loop/pacing.rs`.
    pub(crate) paced: bool,
    pub(crate) next_turn: NextTurn,
    /// What it has moved through pipes of late.
    pub(crate) bulk_detector: BulkDetector,
    /// Who has connected; where a PROXY header said so, for whom.
    pub(crate) client_address: Option<SocketAddr>,
    /// Where the client connected to, where a PROXY header said so.
    pub(crate) reached_address: Option<Box<SocketAddr>>,
    /// The server that it was led to last.
    pub(crate) led_to: Option<Arc<Server>>,
    /// It is one of that server's open connections.
    is_counted: bool,
    /// Its rule has admitted it.
    pub(crate) is_admitted: bool,
    /// Why it could not be led anywhere, or was cut off: errno(3) in lower case.
    pub(crate) error: Option<&'static str>,
}

/// What brings a connection its next turn. It waits for one at one place, so that it has no more of
/// them than others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// An event of its sockets.
    WhenReady,
    /// The loop's ready list.
    Listed,
    /// The end of a delay.
    Delayed,
}

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum ConnectionState {
    /// The client is a proxy, whose header has not come yet.
    Header,
    /// No destination has taken it yet.
    Connecting(Attempts),
    Relaying,
    /// One side is gone. The other is closed, thus, when the kernel has delivered what it holds for
    /// it, or when it has acknowledged none of it for as long as `half_close`.
    Lingering {
        survivor: Side,
        end: End,
        since: Instant,
        progress: SendProgress,
    },
}

/// What a connection needs of its event loop for a turn.
pub(crate) struct Context<'a> {
    /// Names the connection.
    pub(crate) key: Key,
    pub(crate) pool: &'a mut Pool,
    pub(crate) log: &'a Log,
    pub(crate) by: LoopNumber,
    pub(crate) now: Instant,
}

/// What the event loop does next with a connection.
pub(crate) enum Action {
    /// It waits for readiness, or its timer.
    Waits,
    /// It moves bulk: it is read again a moment later, when more has come.
    Delay,
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
    /// This machine failed to read or to write: it is over.
    Fails(io::Error),
}

/// How long a connection that moves bulk waits at least between two turns: at 3 GB/s a pipe's 1 MiB
/// arrives (docs/results/forward-bulk.txt).
pub(crate) const DELAY: Duration = Duration::from_micros(300);

impl Connection {
    pub(crate) fn new(
        client: Endpoint,
        client_address: Option<SocketAddr>,
        route: Arc<Route>,
        now: Instant,
    ) -> Connection {
        Connection {
            state: ConnectionState::Header,
            route,
            client: Some(client),
            server: None,
            relay: Relay::NEW,
            up: Channel::default(),
            down: Channel::default(),
            opened: now,
            active: now,
            timer: LazyTimer::default(),
            resumes: LazyTimer::default(),
            delivery: None,
            paced: false,
            next_turn: NextTurn::WhenReady,
            bulk_detector: BulkDetector::default(),
            client_address,
            reached_address: None,
            led_to: None,
            is_counted: false,
            is_admitted: false,
            error: None,
        }
    }

    pub(crate) fn endpoint(&mut self, side: Side) -> Option<&mut Endpoint> {
        match side {
            Side::Client => self.client.as_mut(),
            Side::Server => self.server.as_mut(),
        }
    }

    /// Either side may have something to be read, or its end: a read says.
    pub(crate) fn expect_bytes(&mut self) {
        for endpoint in [&mut self.client, &mut self.server].into_iter().flatten() {
            endpoint.readable = true;
        }
    }

    /// Whether a side has something to be read, or its end, or room that it had not. The kernel is
    /// asked instead of a read, which may have to wait for the rule's bandwidth.
    pub(crate) fn finds_events(&mut self) -> bool {
        let mut found = false;
        for (endpoint, direction) in [(&mut self.client, self.relay.up), (&mut self.server, self.relay.down)] {
            let Some(endpoint) = endpoint else { continue };
            let is_ready = |interest| poll::is_ready(&endpoint.socket, interest).is_ok_and(|ready| ready);
            let (readable, writable) =
                (!direction.is_ending() && is_ready(Interest::READ), !endpoint.writable && is_ready(Interest::WRITE));
            endpoint.readable |= readable;
            endpoint.writable |= writable;
            found |= readable || writable;
        }
        found
    }

    /// A side is ready for something. What there is to relay is relayed, unless a turn is to come
    /// anyway.
    pub(crate) fn on_event(&mut self, side: Side, event: Ready, urgent: bool, context: &mut Context<'_>) -> Action {
        let Some(endpoint) = self.endpoint(side) else { return Action::Waits };
        endpoint.readable |= event.readable;
        endpoint.writable |= event.writable;
        endpoint.ended |= event.ended;
        endpoint.urgent |= urgent;
        if event.ended
            && side == Side::Client
            && matches!(self.state, ConnectionState::Header | ConnectionState::Connecting(_))
            && let Some(gone) = self.client_is_gone()
        {
            return gone;
        }
        match (&self.state, side) {
            (ConnectionState::Connecting(_), Side::Server) if event.writable => Action::Answered { ended: event.ended },
            // It is remembered until there is a server.
            (ConnectionState::Connecting(_), _) => Action::Waits,
            (ConnectionState::Header, _) => Action::ReadsHeader,
            (ConnectionState::Relaying | ConnectionState::Lingering { .. }, _) => {
                // Of a side that is dismissed, and is all that is left, its delivery says how.
                if event.ended && matches!(self.state, ConnectionState::Relaying) {
                    self.look_into_end(side);
                }
                match self.next_turn {
                    NextTurn::Listed => Action::Yields,
                    NextTurn::Delayed => Action::Delay,
                    NextTurn::WhenReady if self.is_too_early(context.now) => Action::Delay,
                    // What others bring in this round, which may be small, comes first.
                    NextTurn::WhenReady if self.is_spliced() => Action::Yields,
                    NextTurn::WhenReady => self.advance(context),
                }
            }
        }
    }

    /// Does what there is to do, whatever has become ready.
    pub(crate) fn advance(&mut self, context: &mut Context<'_>) -> Action {
        match self.state {
            ConnectionState::Header => Action::ReadsHeader,
            ConnectionState::Connecting(_) => Action::Waits,
            ConnectionState::Relaying => self.relay(context),
            ConnectionState::Lingering { .. } => self.check_delivery(context.now),
        }
    }

    /// Whether its last turn is too recent for the next one.
    fn is_too_early(&self, now: Instant) -> bool {
        self.paced && self.bulk_detector.is_bulk() && self.active + DELAY > now
    }

    /// Whether the kernel can say nothing new of a side: it has room and something to be read, and
    /// its end is behind that, or is of both ways.
    pub(crate) fn is_known(&mut self, side: Side) -> bool {
        let is_full = |endpoint: &mut Endpoint| endpoint.ended && endpoint.readable && endpoint.writable;
        self.endpoint(side).is_some_and(is_full)
            && (!self.relay.from(side).is_ending() || self.relay.from(side.other()).is_over())
    }

    /// The kernel reports an end, or a failure, of a side whose stream has ended already: which of
    /// the two is asked here.
    fn look_into_end(&mut self, side: Side) {
        if !self.relay.from(side).is_ending() {
            // Reading will say.
            return;
        }
        let Some(endpoint) = self.endpoint(side) else { return };
        if let Err(error) = net::take_error(&endpoint.socket) {
            self.relay.refused(side, transfer::refusal(&error));
        }
    }

    /// When a byte, or an end, last came, or an acknowledgement was last seen; before it is
    /// relayed, from when its time-outs count.
    pub(crate) fn active(&self) -> Instant {
        self.active
    }

    /// Its time-outs count anew.
    pub(crate) fn restart_time_outs(&mut self, now: Instant) {
        self.active = now;
    }

    /// Its rule's bandwidth allows for more, for which alone it has waited until now.
    pub(crate) fn resumes(&mut self, now: Instant) {
        self.resumes.fired();
        self.active = now;
    }

    /// Whether a side may not take what is sent to it, so that the deadline may have come nearer.
    pub(crate) fn is_watched(&self) -> bool {
        self.delivery.is_some()
    }

    /// How much was read so far from the client, and from the server.
    pub(crate) fn read_bytes(&self) -> [u64; 2] {
        [self.relay.up.read_bytes, self.relay.down.read_bytes]
    }

    /// Whether bytes go through a pipe, in either direction.
    pub(crate) fn is_spliced(&self) -> bool {
        matches!(self.state, ConnectionState::Relaying) && (self.up.is_spliced() || self.down.is_spliced())
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

// What an idle connection costs besides its timer: the promise is 1 KiB in all.
const _: () = assert!(size_of::<Connection>() <= 512);

#[cfg(test)]
mod tests;
