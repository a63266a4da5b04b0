//! How bytes cross: into the buffers of the pool, and out of what is to be sent.

use std::io;
use std::ops::Range;

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::kind::Kind;
use super::{Buffer, GROUP, Ring, Slot};

/// Of a receive: the socket is asked first, as there is probably nothing yet (see
/// include/uapi/linux/io_uring.h of the kernel).
const IORING_RECVSEND_POLL_FIRST: u16 = 1;

/// Bytes to send, which the ring owns until they are sent.
#[derive(Debug)]
pub enum Payload {
    /// A part of a received buffer, sent from where it is.
    Received(Buffer, Range<usize>),
    /// Bytes of the caller's, from a position on.
    Owned(Vec<u8>, usize),
}

/// What a send does where the socket has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Completes at once with what there was room for, or with `WouldBlock`: the kernel keeps no
    /// memory for long.
    None,
    /// Waits until there is room, and completes with what there was room for: how much is sent is
    /// known while the rest waits.
    Some,
    /// Waits until everything is sent or the connection fails.
    All,
}

impl Ring {
    /// Receives whatever arrives at a socket, again and again, into buffers of the pool
    /// (IORING_RECV_MULTISHOT).
    pub fn receive(&mut self, slot: Slot) -> io::Result<()> {
        let request = opcode::RecvMulti::new(Fixed(slot.0), GROUP).build();
        self.push(request.user_data(Kind::Receive.tag(slot.0)))
    }

    /// Receives once, when something arrives at a socket, into a buffer of the pool: nothing is
    /// left to be ended where no more is wanted. The socket is asked first whether there is
    /// something.
    pub fn receive_once(&mut self, slot: Slot) -> io::Result<()> {
        self.receive_one(slot, 0, IORING_RECVSEND_POLL_FIRST)
    }

    /// Receives once what has arrived at a socket, into a buffer of the pool; `WouldBlock` where
    /// nothing has.
    pub fn receive_arrived(&mut self, slot: Slot) -> io::Result<()> {
        self.receive_one(slot, libc::MSG_DONTWAIT, 0)
    }

    fn receive_one(&mut self, slot: Slot, flags: i32, ring_flags: u16) -> io::Result<()> {
        // Of no length of its own, it takes the buffer's.
        let request = opcode::Recv::new(Fixed(slot.0), std::ptr::null_mut(), 0)
            .buf_group(GROUP)
            .ioprio(ring_flags)
            .flags(flags)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push(request.user_data(Kind::Receive.tag(slot.0)))
    }

    /// Ends a socket's receive; what it received before comes first.
    pub fn cancel_receive(&mut self, slot: Slot) -> io::Result<()> {
        self.cancel(Kind::Receive.tag(slot.0))
    }

    /// Sends a payload. Wait for it to complete before the next to the same socket: several could
    /// overtake each other.
    pub fn send(&mut self, slot: Slot, payload: Payload, mode: SendMode) -> io::Result<()> {
        let number = self.free_ids.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() as u32 - 1
        });
        let (_, payload) = self.in_flight[number as usize].insert((slot, payload));
        let bytes = match payload {
            Payload::Received(buffer, range) => &self.pool.bytes(buffer)[range.clone()],
            Payload::Owned(bytes, from) => &bytes[*from..],
        };
        let flags = match mode {
            SendMode::None => libc::MSG_DONTWAIT,
            SendMode::Some => 0,
            SendMode::All => libc::MSG_WAITALL,
        };
        let request = opcode::Send::new(Fixed(slot.0), bytes.as_ptr(), bytes.len() as u32)
            .flags(flags | libc::MSG_NOSIGNAL)
            .build();
        self.push(request.user_data(Kind::Send.tag(number)))
    }

    /// Reports [`Completion::Room`](super::Completion::Room) once when a socket has room for what
    /// is to be sent.
    pub fn await_room(&mut self, slot: Slot) -> io::Result<()> {
        let request = opcode::PollAdd::new(Fixed(slot.0), libc::POLLOUT as u32).build();
        self.push(request.user_data(Kind::Room.tag(slot.0)))
    }
}
