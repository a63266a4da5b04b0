//! Connects an accepted connection to a destination.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::epoll::Trigger;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net, poll, unix};

use super::{EventLoop, SERVER};
use crate::connection::{self, Attempts, Connection, ConnectionState};
use crate::ending::Ending;
use crate::listeners::KEEP_ALIVE_AFTER;
use crate::outbox::READ_BYTES;
use crate::proxy::{self, Parsed};
use crate::route::{Route, Server, Target};
use crate::transfer::{self, Endpoint};

/// After this the full queue of a Unix socket is tried again: the kernel does not report when there
/// is room (unix(7)).
const QUEUE_RETRY: Duration = Duration::from_millis(10);

impl EventLoop<'_> {
    /// Takes a connection that was accepted, for which a place was taken.
    pub(super) fn open(&mut self, socket: OwnedFd, address: Option<SocketAddr>, route: Arc<Route>) {
        route.counts.accepted.fetch_add(1, Ordering::Relaxed);
        route.counts.open.fetch_add(1, Ordering::Relaxed);
        let client = Endpoint::new(socket, address.is_some());
        let believed =
            |address: SocketAddr| route.rule.accept_proxy.iter().any(|network| network.contains(address.ip()));
        let is_proxy = address.is_some_and(believed);
        let key = self.connections.insert(Connection::new(client, address, route, self.now));
        self.totals.connections += 1;
        self.shared.limit.opened();
        self.follow_deadline(key);
        let client = self.connections.get(key).and_then(|connection| connection.client.as_ref());
        if let Some(client) = client
            && let Err(error) = self.epoll.add(&client.socket, key.to_raw(), Interest::BOTH, Trigger::Edge)
        {
            return self.fail(key, &error);
        }
        if !is_proxy {
            self.admit(key);
        }
    }

    /// Reads the header that a proxy sends before everything else, when all of it has come.
    pub(super) fn read_header(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(client) = &mut connection.client else { return };
        let room = self.pool.outbox.room();
        let length = match net::peek(&client.socket, room) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.end_unread(key, &error),
        };
        match proxy::parse(&room[..length]) {
            Parsed::Incomplete if length > 0 && length < READ_BYTES && !client.ended => {}
            Parsed::Incomplete | Parsed::Invalid => self.cut(key, Ending::ProxyHeader),
            Parsed::Header { addresses, length } => {
                // What was seen is there: a read of as much takes it.
                match net::read(&client.socket, &mut room[..length]) {
                    Ok(taken) if taken == length => {}
                    Ok(_) => return self.cut(key, Ending::ClientReset),
                    Err(error) => return self.end_unread(key, &error),
                }
                // A header has fewer bytes than the room for a read.
                (client.readable, client.header_bytes) = (true, length as u32);
                if let Some((source, reached)) = addresses {
                    connection.client_address = Some(source);
                    connection.reached_address = Some(Box::new(reached));
                }
                self.admit(key);
            }
        }
    }

    /// The header of a proxy has taken too long, unless it came in time to a loop that is behind,
    /// and has not been told of it: then connecting has all its time.
    pub(super) fn header_is_due(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.restart_time_outs(self.now);
        self.advance(key);
        if self.connections.get(key).is_some_and(|connection| matches!(connection.state, ConnectionState::Header)) {
            self.cut(key, Ending::ProxyHeader);
        }
    }

    /// Ends a connection whose header could not be read.
    fn end_unread(&mut self, key: Key, error: &io::Error) {
        let Some(client) = self.connections.get(key).and_then(|connection| connection.client.as_ref()) else { return };
        match transfer::failure(client, error) {
            Some(_) => self.fail(key, error),
            None => self.cut(key, Ending::ClientReset),
        }
    }

    /// Connects a connection to a destination if its client may connect and its rule's limits allow
    /// another.
    fn admit(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (route, client) = (Arc::clone(&connection.route), connection.client_address);
        if !route.admits(client.map(|client| client.ip())) {
            return self.cut(key, Ending::Denied);
        }
        connection.is_admitted = route.counts.admit(route.rule.quota.connections.unwrap_or(u64::MAX));
        let is_over = !connection.is_admitted;
        if is_over || route.rate.as_ref().is_some_and(|rate| !rate.admit(self.now)) {
            let what = if is_over { "connections" } else { "rate" };
            self.shared.failures.report(&format!("{}: `limit.{what}` is reached", route.listen()), self.now);
            return self.cut(key, Ending::Limit);
        }
        let rest = route.attempts(client, self.now);
        connection.state = ConnectionState::Connecting(Attempts { rest, until: self.now, again_at: None });
        self.connect(key, None);
    }

    /// Tries servers until one may answer, or none is left.
    fn connect(&mut self, key: Key, mut failed: Option<io::Error>) {
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let give_up_at = connection.active() + connection.route.rule.limits.connect;
            let ConnectionState::Connecting(attempts) = &mut connection.state else { return };
            let left = give_up_at.saturating_duration_since(self.now);
            let Some(server) = attempts.rest.pop().filter(|_| !left.is_zero() || failed.is_none()) else {
                return self.give_up(key, failed);
            };
            // Each has an equal share of the time that is left: a silent one does not keep the
            // others from being tried.
            attempts.until = self.now + left / (attempts.rest.len() as u32 + 1);
            match self.ask(key, server) {
                Ok(()) => return self.follow_deadline(key),
                Err(error) => failed = Some(error),
            }
        }
    }

    /// Begins to connect to a server.
    fn ask(&mut self, key: Key, server: Arc<Server>) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let ConnectionState::Connecting(attempts) = &mut connection.state else { return Ok(()) };
        attempts.again_at = None;
        let socket = match &server.target {
            Target::Tcp(address) => {
                let source = connection.route.source(&server);
                net::connect(*address, source, net::Mode::Nonblocking).and_then(|socket| {
                    net::prepare(&socket, KEEP_ALIVE_AFTER)?;
                    Ok(socket)
                })
            }
            Target::Unix(path) => unix::connect(path),
        };
        if let (Err(error), Target::Unix(_)) = (&socket, &server.target)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            attempts.again_at = Some(self.now + QUEUE_RETRY);
            connection.led_to = Some(server);
            return Ok(());
        }
        let endpoint = socket.and_then(|socket| {
            self.epoll.add(&socket, key.to_raw() | SERVER, Interest::BOTH, Trigger::Edge)?;
            let tcp = matches!(server.target, Target::Tcp(_));
            Ok(Endpoint { writable: false, ..Endpoint::new(socket, tcp) })
        });
        match endpoint {
            Ok(endpoint) => {
                connection.ask(server, endpoint);
                Ok(())
            }
            Err(error) => {
                connection.led_to = Some(server);
                self.note_failure(key, &error);
                Err(error)
            }
        }
    }

    /// The server that was asked has not taken the connection: says why.
    fn note_failure(&mut self, key: Key, error: &io::Error) {
        self.totals.count_error(error);
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.leave_server();
        connection.server = None;
        connection.error = Some(descriptor::error_name(error));
        let Some(server) = &connection.led_to else { return };
        // What this machine is short of is no fault of the server's.
        if !descriptor::is_exhaustion(error) && error.kind() != io::ErrorKind::AddrNotAvailable {
            server.failed(self.now);
        }
        let what = format!("{}: cannot connect to {}: {error}", connection.route.listen(), server.target);
        self.shared.failures.report(&what, self.now);
    }

    fn give_up(&mut self, key: Key, failed: Option<io::Error>) {
        if failed.is_none()
            && let Some(connection) = self.connections.get(key)
        {
            let listen = connection.route.listen();
            self.shared.failures.report(&format!("{listen}: no address is known of its destinations"), self.now);
        }
        self.cut(key, failed.as_ref().map_or(Ending::ConnectFailed, Ending::of_connect));
    }

    /// The present attempt has taken its time, or is to be made again.
    pub(super) fn attempt_is_due(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let silent_until = connection.active() + connection.route.rule.limits.idle;
        let ConnectionState::Connecting(attempts) = &connection.state else { return };
        // A loop that is behind has not been told of an answer that came in time.
        let is_late = self.now >= attempts.until.min(silent_until);
        if is_late && connection.server.as_ref().is_some_and(|server| has_answered(&server.socket)) {
            return self.answered(key, true);
        }
        if self.now >= silent_until {
            return self.cut(key, Ending::Idle);
        }
        if self.now < attempts.until {
            if attempts.again_at.is_some_and(|at| at <= self.now)
                && let Some(server) = connection.led_to.clone()
                && let Err(error) = self.ask(key, server)
            {
                return self.connect(key, Some(error));
            }
            return self.follow_deadline(key);
        }
        let error = net::timed_out();
        self.note_failure(key, &error);
        self.connect(key, Some(error));
    }

    /// A destination has taken the connection, or has not.
    pub(super) fn answered(&mut self, key: Key, ended: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(server) = &connection.server else { return };
        let outcome =
            if ended { net::take_connect_outcome(&server.socket) } else { net::refuse_itself(&server.socket) };
        match outcome {
            Err(error) if !connection::was_connected(&error) => {
                self.note_failure(key, &error);
                self.connect(key, Some(error));
            }
            outcome => {
                connection.error = None;
                connection.connected(&outcome, self.now);
                self.advance(key);
            }
        }
    }
}

/// Whether the outcome of an attempt to connect is known.
fn has_answered(socket: &OwnedFd) -> bool {
    poll::is_ready(socket, Interest::WRITE).is_ok_and(|ready| ready)
}
