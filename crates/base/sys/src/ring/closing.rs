//! How sockets leave the ring's table: their halves are ended, or they are reset, and closed.

use std::io;

use io_uring::opcode;
use io_uring::types::Fixed;

use super::kind::Kind;
use super::{Ring, Slot};

/// The address of no family, which disconnects.
static NOWHERE: libc::sockaddr = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };

/// A slot with halves that are being ended.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) left: u32,
    /// It is to be closed then.
    pub(super) close: bool,
}

impl Ring {
    /// Ends the reading half of a socket: its receive completes with what has arrived, then with
    /// the end of the stream.
    pub fn end_reading(&mut self, slot: Slot) -> io::Result<()> {
        self.end(slot, libc::SHUT_RD)
    }

    /// Ends the writing half of a socket: the peer reads the end of the stream after the last byte.
    pub fn end_writing(&mut self, slot: Slot) -> io::Result<()> {
        self.end(slot, libc::SHUT_WR)
    }

    /// Ends both halves of a socket: a send that waits fails.
    pub fn end_both(&mut self, slot: Slot) -> io::Result<()> {
        self.end(slot, libc::SHUT_RDWR)
    }

    /// Ends a connection with a reset: unsent bytes are dropped, and what is outstanding on the
    /// socket fails. A connect to no address family at all does it (connect(2), AF_UNSPEC;
    /// tcp_disconnect in the kernel's net/ipv4/tcp.c).
    pub fn reset(&mut self, slot: Slot) -> io::Result<()> {
        self.ending.entry(slot.0).or_default().left += 1;
        let request = opcode::Connect::new(Fixed(slot.0), (&raw const NOWHERE).cast(), size_of_val(&NOWHERE) as u32);
        self.push(request.build().user_data(Kind::End.tag(slot.0)))
    }

    /// Closes a socket, on which nothing may be outstanding but the ends of its halves.
    pub fn close(&mut self, slot: Slot) -> io::Result<()> {
        if let Some(ending) = self.ending.get_mut(&slot.0) {
            ending.close = true;
            return Ok(());
        }
        let request = opcode::Close::new(Fixed(slot.0)).build();
        self.push(request.user_data(Kind::Close.tag(slot.0)))
    }

    fn end(&mut self, slot: Slot, how: i32) -> io::Result<()> {
        self.ending.entry(slot.0).or_default().left += 1;
        self.push(opcode::Shutdown::new(Fixed(slot.0), how).build().user_data(Kind::End.tag(slot.0)))
    }
}
