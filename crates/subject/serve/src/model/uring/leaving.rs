//! How bytes leave a ring's sockets.
//!
//! A send's bytes stay in place until its completion. Bytes of files need not pass through memory:
//! sendfile(2) moves them, but only to sockets of the thread's own table, and splice in a ring
//! always goes to a worker thread (io_uring/splice.c). So with its first large file a connection's
//! socket gets a descriptor of that table as well, which it keeps. Its files are then sent as in
//! the readiness models, and the ring reports when there is room. Before Linux 6.8, and where the
//! thread's table is full, files pass through memory.

use std::io;
use std::os::fd::OwnedFd;

use plimsoll_sys::ring::{Payload, SendMode, Slot};
use plimsoll_sys::{descriptor, net};

use super::connection::{FileTransfer, Lifecycle};
use super::{EventLoop, OUTSTANDING, PIECE_BYTES, SPARES};
use crate::driver::environment::Environment;
use crate::driver::unsent::{self, Body, Room, Unsent};
use crate::service::{Output, Service};

impl<P: Service> EventLoop<'_, P> {
    pub(super) fn sent(&mut self, slot: Slot, outcome: io::Result<usize>, payload: Payload) -> io::Result<()> {
        let sent = match outcome {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                self.fail(slot, &error)?;
                0
            }
        };
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.sending = false;
        connection.conversation.counts.bytes_sent += sent as u64;
        let (mut rest, from) = match payload {
            Payload::Received(buffer, range) => {
                let rest = self.ring.bytes(&buffer)[range.start + sent..range.end].to_vec();
                self.ring.recycle(buffer);
                (rest, 0)
            }
            Payload::Owned(bytes, from) => (bytes, from + sent),
        };
        if from < rest.len() && connection.life != Lifecycle::Failed {
            rest.append(&mut connection.unsent);
            connection.sending = true;
            return self.ring.send(slot, Payload::Owned(rest, from), SendMode::All);
        }
        if rest.capacity() > 0 && self.free_buffers.len() < SPARES {
            rest.clear();
            self.free_buffers.push(rest);
        }
        self.drive(slot)
    }

    /// Submits the next send, if there is something to send and no send is outstanding.
    pub(super) fn send_next(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if connection.sending || connection.life == Lifecycle::Failed {
            return Ok(());
        }
        if connection.sends_a_file() && self.installs {
            match connection.file_transfer.as_deref_mut() {
                Some(FileTransfer::Sendfile(socket, waiting)) => {
                    if connection.conversation.ends() {
                        // It fails where the connection is no more, as the next send tells.
                        let _ = net::hold_last_packet(&*socket);
                    }
                    let (bytes, body) = (std::mem::take(&mut connection.unsent), connection.body.take());
                    *waiting = Unsent::new(bytes, *body.expect("it is a file"));
                    return self.send_file(slot);
                }
                Some(FileTransfer::Memory) => {}
                None => {
                    connection.sending = true;
                    return self.ring.install(slot);
                }
            }
        }
        let mut bytes = std::mem::take(&mut connection.unsent);
        if let Some(body) = &mut connection.body
            && bytes.len() < PIECE_BYTES
        {
            if bytes.capacity() == 0 {
                bytes = self.free_buffers.pop().unwrap_or_default();
            }
            if let Err(error) = body.read(&mut bytes, PIECE_BYTES) {
                // Only closing the connection shows the peer that there is less than was promised.
                return self.fail(slot, &error);
            }
            if body.left() == 0 {
                connection.body = None;
                connection.file_transfer.take_if(|way| matches!(**way, FileTransfer::Memory));
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        connection.sending = true;
        self.ring.send(slot, Payload::Owned(bytes, 0), SendMode::All)
    }

    /// A connection's socket has a number in the thread's table, or cannot have one.
    pub(super) fn installed(&mut self, slot: Slot, outcome: io::Result<OwnedFd>) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.sending = false;
        let way = match outcome {
            Ok(socket) => FileTransfer::Sendfile(socket, Unsent::default()),
            Err(error) => {
                self.installs &= descriptor::is_exhaustion(&error);
                FileTransfer::Memory
            }
        };
        connection.file_transfer = Some(Box::new(way));
        self.drive(slot)
    }

    /// There is room for more of a file, or its connection has failed.
    pub(super) fn has_room_to_send(&mut self, slot: Slot) -> io::Result<()> {
        self.connections.get_mut(slot.index()).expect(OUTSTANDING).sending = false;
        self.send_file(slot)?;
        self.drive(slot)
    }

    /// Sends what there is room and time for. For the rest, and for the others to have their turn,
    /// the ring is asked to say when there is room.
    fn send_file(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        let Some(FileTransfer::Sendfile(socket, waiting)) = connection.file_transfer.as_deref_mut() else {
            return Ok(());
        };
        if connection.life == Lifecycle::Failed {
            return Ok(());
        }
        let sent = &mut connection.conversation.counts.bytes_sent;
        if let Err(error) = waiting.flush(&*socket, Room::LevelTriggered, sent) {
            return self.fail(slot, &error);
        }
        if waiting.is_empty() {
            if connection.conversation.ends() {
                // A close on unread bytes is a reset, and would drop what is held for the last
                // packet.
                net::shutdown(&*socket, net::Half::Write);
                connection.found_empty = !net::has_unread(&*socket);
            }
            return Ok(());
        }
        connection.sending = true;
        self.ring.await_room(slot)
    }
}

/// Puts a turn's output where it is sent from.
pub(super) fn collect_output(
    input: &[u8],
    output: &mut Output,
    environment: &Environment,
    unsent: &mut Vec<u8>,
    body: &mut Option<Box<Body>>,
    free_buffers: &mut Vec<Vec<u8>>,
) -> io::Result<()> {
    *body = unsent::take_body(output, environment)?.map(Box::new);
    if unsent.capacity() == 0 {
        *unsent = free_buffers.pop().unwrap_or_default();
    }
    for chunk in &output.chunks {
        unsent.extend_from_slice(unsent::bytes_of(chunk, input, &output.bytes));
    }
    Ok(())
}
