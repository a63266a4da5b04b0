//! Writes and reads the bytes of one request. When requests are due, and what follows them, is
//! decided elsewhere.

use std::io::ErrorKind;
use std::time::Duration;

use plimsoll_measure::tally::Cause;
use plimsoll_reactor::slab::Key;
use rand::Rng;

use super::sockets::Arrival;
use super::{EventLoop, READ_BUDGET, Sockets, State};
use crate::ledger::Answer;
use crate::protocol::{After, Protocol, Reply, RequestContext};

/// What reading has come to.
pub(super) enum Received {
    /// Nothing that ends anything.
    Part,
    /// The handshake is over: the connection is usable. `more` says that bytes, or the end of the
    /// stream, may lie behind it.
    HandshakeDone { more: bool },
    /// An answer is complete. `after` says what it leaves of the connection, `ended` that this is
    /// about to be lost, and `more` that bytes may lie behind the answer. `at` is when its last
    /// byte came, since 1970, where the kernel noted it.
    Answered { answer: Answer, after: After, ended: bool, more: bool, at: Option<Duration> },
    /// The connection is lost.
    Lost(Cause),
    /// The socket may hold more, and others have their turn first.
    Unread,
}

impl<P: Protocol, S: Sockets> EventLoop<P, S> {
    /// Sends the request that is under way.
    pub(super) fn send(&mut self, key: Key, now: u64) -> Result<(), Cause> {
        let random = self.random.next_u64();
        let Some(connection) = self.slab.get_mut(key) else { return Ok(()) };
        let (config, number) = (&self.shared.config, connection.number as usize);
        let target = config.target(number);
        let sequence = config.first_request(number) + connection.begun - 1;
        let context = RequestContext { target, sequence, random };
        connection.exchange = self.shared.protocol.begin(&mut connection.session, context, connection.written);
        connection.state = State::Busy;
        connection.sent = now;
        connection.written = 0;
        let deadline = connection.intended.saturating_add(self.shared.config.timeout.as_nanos() as u64);
        self.set_timer(key, deadline);
        self.write(key)
    }

    /// Writes what the socket has room for; the next edge reports more room.
    pub(super) fn write(&mut self, key: Key) -> Result<(), Cause> {
        loop {
            let Some(connection) = self.slab.get_mut(key) else { return Ok(()) };
            let Some(socket) = &connection.socket else { return Ok(()) };
            let bytes = self.shared.protocol.output(&connection.session, &connection.exchange, connection.written);
            if bytes.is_empty() {
                return Ok(());
            }
            match self.sockets.write(socket, bytes) {
                Ok(count) => {
                    let is_whole = count == bytes.len();
                    connection.written += count;
                    if !is_whole {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(Cause::Write),
            }
        }
        self.deferred_reads.awaits_room();
        Ok(())
    }

    /// Reads what has arrived. `ended` says that the end of the stream is among it, so that reading
    /// on is sure to find it.
    pub(super) fn read(&mut self, key: Key, ended: bool) -> Received {
        for _ in 0..READ_BUDGET {
            let Some(connection) = self.slab.get_mut(key) else { return Received::Part };
            let Some(socket) = &connection.socket else { return Received::Part };
            let Arrival { bytes, more, at } = if self.shared.protocol.holds_input(&connection.session) {
                Arrival { bytes: &[], more: true, at: None }
            } else {
                match self.sockets.read(socket) {
                    Ok(Arrival { bytes: [], .. }) => return self.end(key),
                    Ok(arrival) => arrival,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Received::Part,
                    Err(_) => return Received::Lost(Cause::Read),
                }
            };
            self.ledger.read(bytes.len());
            let protocol = &self.shared.protocol;
            let reply = match connection.state {
                State::Busy | State::Handshaking => {
                    protocol.input(&mut connection.session, &mut connection.exchange, bytes)
                }
                _ => protocol.idle(&mut connection.session, bytes),
            };
            let handshaking = connection.state == State::Handshaking;
            // What TLS adds to its handshake comes before a connection's first answer.
            let is_part =
                matches!(reply, Reply::Partial) && connection.state == State::Busy && connection.history.answered;
            let held = protocol.holds_input(&connection.session);
            if handshaking {
                // The answer may ask for one.
                if let Err(cause) = self.write(key) {
                    return Received::Lost(cause);
                }
            }
            match reply {
                Reply::Partial => {}
                Reply::Complete { .. } if handshaking => {
                    return Received::HandshakeDone { more: more || ended || held };
                }
                Reply::Complete { payload, after, status } => {
                    return Received::Answered { answer: Answer { payload, status }, after, ended, more, at };
                }
                Reply::Failed(cause) => return Received::Lost(cause),
            }
            if !more && !ended {
                if is_part {
                    self.deferred_reads.came_in_part();
                }
                return Received::Part;
            }
        }
        Received::Unread
    }

    /// The server has ended the connection.
    fn end(&mut self, key: Key) -> Received {
        let Some(connection) = self.slab.get_mut(key) else { return Received::Part };
        if connection.state != State::Busy {
            return Received::Lost(Cause::Closed);
        }
        match self.shared.protocol.end(&mut connection.session, &mut connection.exchange) {
            Reply::Complete { payload, status, .. } => Received::Answered {
                answer: Answer { payload, status },
                after: After::Ends,
                ended: true,
                more: false,
                at: None,
            },
            Reply::Partial => Received::Lost(Cause::Closed),
            Reply::Failed(cause) => Received::Lost(cause),
        }
    }
}
