//! How connections find their worker: a choice that does not depend on the I/O model.
//!
//! | strategy | who accepts | what decides | what it costs |
//! |---|---|---|---|
//! | single | the only worker | nothing | one worker serves all |
//! | handoff | the coordinator, for all | which worker has fewest connections | a message and a descriptor more for each connection |
//! | exclusive | the worker that wakes first, from one queue | which worker is idle; under load, nearly always the same | the queue's lock is shared |
//! | reuseport | each worker, from a queue of its own | a hash of the addresses | a busy worker's queue waits while another is idle |

pub(crate) mod handoff;
pub(crate) mod intake;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use plimsoll_reactor::accept::{Failure, Strategy};
use plimsoll_reactor::handoff::HandoffQueue;
use plimsoll_sys::net;

use crate::model::Model;
use crate::state::ServerState;

/// Why a model cannot have a strategy, and what to do.
pub fn refusal(strategy: Strategy, model: Model) -> Option<&'static str> {
    match (strategy, model) {
        (_, Model::Threads | Model::Fork) => {
            Some("it has no workers among which connections could be spread; leave --accept out")
        }
        (Strategy::Exclusive, Model::Select | Model::Poll) => Some(
            "every worker would wake for each connection, as only epoll and io_uring can wake one; use handoff or \
             reuseport",
        ),
        _ => None,
    }
}

/// What an attempt to accept has brought.
pub(crate) enum Accepted {
    /// A connection, which has a place under the limit.
    Connection(OwnedFd, SocketAddr),
    /// No connection waits.
    Nothing,
    /// The server has as many connections as it may have.
    PastLimit,
    /// accept(2) failed.
    Failed(io::Error),
}

impl Accepted {
    fn of(outcome: io::Result<(OwnedFd, SocketAddr)>) -> Accepted {
        match outcome {
            Ok((socket, peer)) => Accepted::Connection(socket, peer),
            Err(error) if Failure::of(&error) == Failure::Empty => Accepted::Nothing,
            Err(error) => Accepted::Failed(error),
        }
    }
}

/// Takes a place under the server's limit, and a connection for it.
pub(crate) fn accept_within_limit(
    state: &ServerState,
    accept: impl FnOnce() -> io::Result<(OwnedFd, SocketAddr)>,
) -> Accepted {
    if !state.acquire() {
        return Accepted::PastLimit;
    }
    let accepted = Accepted::of(accept());
    if !matches!(accepted, Accepted::Connection(..)) {
        state.release();
    }
    accepted
}

/// Where a worker's connections come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectionSource<'a> {
    /// Listeners of its own.
    Own(&'a [OwnedFd]),
    /// Listeners that others accept from as well.
    Shared(&'a [OwnedFd]),
    /// The end of a pair that the acceptor hands connections to, and the worker's queue.
    Handed(&'a [OwnedFd], &'a HandoffQueue<SocketAddr>),
}

impl<'a> ConnectionSource<'a> {
    /// What becomes readable when there is a connection.
    pub(crate) fn descriptors(self) -> &'a [OwnedFd] {
        match self {
            ConnectionSource::Own(descriptors)
            | ConnectionSource::Shared(descriptors)
            | ConnectionSource::Handed(descriptors, _) => descriptors,
        }
    }

    pub(crate) fn is_shared(self) -> bool {
        matches!(self, ConnectionSource::Shared(_))
    }

    /// Whether another thread has taken the connections' places already.
    pub(crate) fn is_handed(self) -> bool {
        matches!(self, ConnectionSource::Handed(..))
    }

    /// Takes a non-blocking connection.
    pub(crate) fn take(self, number: usize) -> io::Result<(OwnedFd, SocketAddr)> {
        match self {
            ConnectionSource::Own(listeners) | ConnectionSource::Shared(listeners) => {
                net::accept(&listeners[number], net::Mode::Nonblocking)
            }
            ConnectionSource::Handed(ends, queue) => queue.take(&ends[number]),
        }
    }

    /// One of the connections taken is over.
    pub(crate) fn left(self) {
        if let ConnectionSource::Handed(_, queue) = self {
            queue.left();
        }
    }
}
