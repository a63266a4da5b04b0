//! A connection until a destination has taken it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plimsoll_sys::net;

use super::{Action, Connection, ConnectionState};
use crate::ending::Ending;
use crate::proxy;
use crate::relay::Side;
use crate::route::Server;
use crate::transfer::{self, Endpoint};

/// The servers that a connection tries.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// Those not tried yet, the next one last.
    pub(crate) rest: Vec<Arc<Server>>,
    /// When the present attempt is given up.
    pub(crate) until: Instant,
    /// When the present server is asked again: the queue of a Unix socket was full.
    pub(crate) again_at: Option<Instant>,
}

impl Connection {
    /// What becomes of a connection whose client has ended its stream before there is a server. It
    /// is over where the client has reset it and left nothing to be passed on. A client that has
    /// only ended its stream waits for an answer; and bytes that came before a reset are
    /// delivered before it, which a read will find.
    pub(super) fn client_is_gone(&self) -> Option<Action> {
        let client = self.client.as_ref()?;
        match net::peek(&client.socket, &mut [0]) {
            Ok(1..) => None,
            Ok(0) => net::take_error(&client.socket).is_err().then_some(Action::Aborts(Ending::ClientReset)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) if transfer::failure(client, &error).is_some() => Some(Action::Fails(error)),
            Err(_) => Some(Action::Aborts(Ending::ClientReset)),
        }
    }

    /// The server that is asked now is counted as having one more.
    pub(crate) fn ask(&mut self, server: Arc<Server>, endpoint: Endpoint) {
        server.open.fetch_add(1, Ordering::Relaxed);
        (self.server, self.led_to, self.is_counted) = (Some(endpoint), Some(server), true);
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
        self.state = ConnectionState::Relaying;
        self.active = now;
        if let Some(server) = &self.led_to {
            server.took();
        }
        if let Some(server) = &mut self.server {
            server.writable = true;
        }
        match outcome {
            // SO_ERROR has a reset an instant before the connection is over (tcp_reset in the
            // kernel's tcp_input.c), so that nothing but its number says that it is the server's.
            Err(error) => self.lose_server(error, None),
            Ok(()) => {
                if let (Err(error), Some(server)) = (self.introduce(), &self.server) {
                    let failure = transfer::failure(server, &error);
                    self.lose_server(&error, failure);
                }
            }
        }
    }

    /// Nothing more can be written to the server: by a failure of this machine, or as it refuses.
    fn lose_server(&mut self, error: &io::Error, failure: Option<i32>) {
        self.relay.failure = failure;
        if failure.is_none() {
            self.relay.refused(Side::Server, transfer::refusal(error));
            if let Some(server) = &mut self.server {
                (server.readable, server.ended) = (true, true);
            }
        }
    }

    /// Sends the server the client's address (PROXY protocol), where its rule says so: the first
    /// bytes of a fresh connection have room.
    fn introduce(&self) -> io::Result<()> {
        let (Some(version), Some(server)) = (self.route.rule.send_proxy, &self.server) else { return Ok(()) };
        let reached = match &self.reached_address {
            Some(reached) => Some(**reached),
            None => self.client.as_ref().and_then(|client| net::local_address(&client.socket).ok()),
        };
        let header = proxy::write(version, self.client_address.zip(reached));
        let mut rest = header.as_slice();
        while !rest.is_empty() {
            rest = &rest[net::write(&server.socket, rest)?..];
        }
        Ok(())
    }
}

/// Whether an error says that the connection was made, and is over again, rather than that it was
/// not made.
pub(crate) fn was_connected(error: &io::Error) -> bool {
    // In answer to its SYN a reset reads ECONNREFUSED; later ECONNRESET, or EPIPE after the peer's
    // end (tcp_reset in the kernel's tcp_input.c).
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
