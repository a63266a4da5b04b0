//! How bytes leave a ring's sockets.

use std::io;

use plimsoll_sys::ring::{Patience, Payload, Slot};

use super::{Life, OUTSTANDING, PIECE_BYTES, SPARES, Table};
use crate::driver::surroundings::Surroundings;
use crate::driver::unsent::{self, Body};
use crate::service::{Output, Service};

impl<P: Service> Table<'_, P> {
    pub(super) fn sent(&mut self, slot: Slot, outcome: io::Result<usize>, payload: Payload) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.sending = false;
        let sent = match outcome {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                if connection.life != Life::Failed {
                    self.totals.count_io_error(&error);
                }
                connection.life = Life::Failed;
                0
            }
        };
        connection.talk.exchange.bytes_sent += sent as u64;
        let (mut rest, from) = match payload {
            Payload::Received(buffer, range) => {
                let rest = self.ring.bytes(&buffer)[range.start + sent..range.end].to_vec();
                self.ring.recycle(buffer);
                (rest, 0)
            }
            Payload::Owned(bytes, from) => (bytes, from + sent),
        };
        if from < rest.len() && connection.life != Life::Failed {
            rest.append(&mut connection.unsent);
            connection.sending = true;
            return self.ring.send(slot, Payload::Owned(rest, from), Patience::All);
        }
        if rest.capacity() > 0 && self.spares.len() < SPARES {
            rest.clear();
            self.spares.push(rest);
        }
        self.go_on(slot)
    }

    /// Lends the kernel what is sent next, if there is something and nothing is lent.
    pub(super) fn send_next(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if connection.sending || connection.life == Life::Failed {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut connection.unsent);
        if let Some(body) = &mut connection.body
            && bytes.len() < PIECE_BYTES
        {
            if bytes.capacity() == 0 {
                bytes = self.spares.pop().unwrap_or_default();
            }
            if let Err(error) = body.read(&mut bytes, PIECE_BYTES) {
                // Only an abrupt end tells the peer that there is less than was promised.
                self.totals.count_io_error(&error);
                connection.life = Life::Failed;
                return Ok(());
            }
            if body.left() == 0 {
                connection.body = None;
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        connection.sending = true;
        self.ring.send(slot, Payload::Owned(bytes, 0), Patience::All)
    }
}

/// Puts a turn's output where it is sent from.
pub(super) fn gather(
    input: &[u8],
    output: &mut Output,
    surroundings: &Surroundings,
    unsent: &mut Vec<u8>,
    body: &mut Option<Box<Body>>,
    spares: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    *body = unsent::take_body(output, surroundings)?.map(Box::new);
    if unsent.capacity() == 0 {
        *unsent = spares.pop().unwrap_or_default();
    }
    for chunk in &output.chunks {
        unsent.extend_from_slice(unsent::bytes_of(chunk, input, &output.bytes));
    }
    Ok(())
}
