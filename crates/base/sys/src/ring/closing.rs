//! How sockets leave the ring's table: their halves are ended, or they are reset, and closed.
//!
//! A worker thread of the kernel ends a half, some time after the request (io_uring/net.c,
//! io_shutdown_prep). Two requests on the same socket wait until it has:
//!
//! - A close: the thread looks up the slot only when it runs, and would end a half of the slot's
//!   next socket.
//! - The question what is unacknowledged: the kernel counts the end of the stream only from then
//!   on, and would answer "nothing" while the peer lacks the end.

use std::io;

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::kind::Kind;
use super::{Ring, Slot};

/// SOCKET_URING_OP_SIOCOUTQ (the kernel's include/uapi/linux/io_uring.h).
const SOCKET_SIOCOUTQ: u32 = 1;

/// The address of no family, which disconnects.
static NOWHERE: libc::sockaddr = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };

/// A slot with halves that are being ended.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) left: u32,
    /// The request that waits for them.
    pub(super) then: Option<squeue::Entry>,
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
        let request = opcode::Close::new(Fixed(slot.0)).build();
        self.push_after_ends(slot, request.user_data(Kind::Close.tag(slot.0)))
    }

    /// Asks how many bytes the kernel holds that the peer has not acknowledged (SIOCOUTQ; for a
    /// ring's sockets since Linux 6.7): see
    /// [`Completion::Unacknowledged`](super::Completion::Unacknowledged), which comes before the
    /// next question or the close. A writing half that was ended before counts as a byte
    /// (tcp_send_fin in the kernel's net/ipv4/tcp_output.c).
    pub fn ask_unacknowledged(&mut self, slot: Slot) -> io::Result<()> {
        let request = opcode::UringCmd16::new(Fixed(slot.0), SOCKET_SIOCOUTQ).build();
        self.push_after_ends(slot, request.user_data(Kind::Unacknowledged.tag(slot.0)))
    }

    /// Hands in a request once no half of its socket is being ended.
    fn push_after_ends(&mut self, slot: Slot, request: squeue::Entry) -> io::Result<()> {
        let Some(ending) = self.ending.get_mut(&slot.0) else { return self.push(request) };
        let earlier = ending.then.replace(request);
        debug_assert!(earlier.is_none(), "one request at a time waits for the ends of a socket's halves");
        Ok(())
    }

    fn end(&mut self, slot: Slot, how: i32) -> io::Result<()> {
        self.ending.entry(slot.0).or_default().left += 1;
        self.push(opcode::Shutdown::new(Fixed(slot.0), how).build().user_data(Kind::End.tag(slot.0)))
    }
}
