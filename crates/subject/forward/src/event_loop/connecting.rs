//! From an accepted connection to one that a destination has taken.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::epoll::Trigger;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{net, unix};

use super::{SERVER, Table};
use crate::connection::{self, Connection, Stage};
use crate::listeners::KEEP_ALIVE_AFTER;
use crate::log::Ending;
use crate::route::{Route, Target};
use crate::transfer::Leg;

impl Table<'_> {
    pub(super) fn open(&mut self, socket: OwnedFd, address: Option<SocketAddr>, route: Arc<Route>) {
        let client = Leg::new(socket, address.is_some());
        let key = self.connections.insert(Connection::new(client, address, route, self.now));
        self.totals.connections += 1;
        self.shared.gauge.opened();
        let connection = self.connections.get_mut(key).expect("just inserted");
        let deadline = connection.deadline(self.now);
        connection.timer = Some(self.wheel.set(deadline, key.to_raw()));
        if let Some(client) = &connection.client
            && let Err(error) = self.epoll.add(&client.socket, key.to_raw(), Interest::BOTH, Trigger::Edge)
        {
            self.totals.count_error(&error);
            return self.cut(key, Ending::Limit);
        }
        self.connect(key, None);
    }

    /// Tries destinations until one may answer, or none is left.
    pub(super) fn connect(&mut self, key: Key, mut failed: Option<io::Error>) {
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let Stage::Connecting { turn, attempt } = &mut connection.stage else { return };
            let attempted = connection.route.attempt(*turn, *attempt, |number, target| match target {
                Target::Tcp(address, source) => (
                    number,
                    Some(address),
                    net::connect(address, source, net::Mode::Nonblocking).and_then(|socket| {
                        net::prepare(&socket, KEEP_ALIVE_AFTER)?;
                        Ok(socket)
                    }),
                ),
                Target::Unix(path) => (number, None, unix::connect(path)),
            });
            *attempt += 1;
            let Some((number, address, outcome)) = attempted else {
                let ending = failed.as_ref().map_or(Ending::ConnectFailed, connection::connect_ending);
                return self.cut(key, ending);
            };
            (connection.endpoint, connection.server_address) = (Some(number), address);
            let outcome = outcome.and_then(|socket| {
                self.epoll.add(&socket, key.to_raw() | SERVER, Interest::BOTH, Trigger::Edge)?;
                Ok(Leg { writable: false, ..Leg::new(socket, address.is_some()) })
            });
            match outcome {
                Ok(leg) => {
                    connection.server = Some(leg);
                    connection.route.opened(number);
                    return;
                }
                Err(error) => {
                    self.totals.count_error(&error);
                    connection.endpoint = None;
                    failed = Some(error);
                }
            }
        }
    }

    /// A destination has taken the connection, or has not.
    pub(super) fn answered(&mut self, key: Key, ended: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(server) = &connection.server else { return };
        let outcome = if ended { net::take_error(&server.socket) } else { Ok(()) };
        match outcome {
            Err(error) if !connection::was_connected(&error) => {
                connection.server = None;
                if let Some(number) = connection.endpoint.take() {
                    connection.route.closed(number);
                }
                self.totals.count_error(&error);
                self.connect(key, Some(error));
            }
            outcome => {
                connection.connected(&outcome, self.now);
                self.advance(key);
            }
        }
    }
}
