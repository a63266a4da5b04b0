//! How sockets come into the ring's table: by accepting, or out of the thread's own table.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use io_uring::types::{DestinationSlot, Fd};
use io_uring::{opcode, squeue};
use rustix::net::SocketAddrAny;

use super::Ring;
use super::kind::Kind;

/// Where the kernel writes who has connected.
pub(super) struct AcceptPlace {
    pub(super) address: Box<(libc::sockaddr_storage, libc::socklen_t)>,
    /// The caller's number of the listener that an accept waits for.
    pub(super) waiting: Option<u32>,
}

/// A socket on its way into the table: the kernel reads its number from here, and writes its slot
/// here.
pub(super) struct Adoption {
    pub(super) number: Box<RawFd>,
    pub(super) socket: OwnedFd,
    pub(super) peer: SocketAddr,
}

impl AcceptPlace {
    pub(super) fn free() -> AcceptPlace {
        AcceptPlace { address: Box::new(empty_address()), waiting: None }
    }
}

/// See include/uapi/linux/io_uring.h of the kernel.
const IORING_ACCEPT_POLL_FIRST: u16 = 1 << 2;

/// As an offset into the table: wherever there is room (IORING_FILE_INDEX_ALLOC, all bits set).
const ANYWHERE: i32 = -1;

impl Ring {
    /// Waits for one connection from `listener`, which the completion names by the caller's
    /// `number`. Returns false where as many accepts wait as the ring has places for.
    ///
    /// The listener is asked first whether there is one (IORING_ACCEPT_POLL_FIRST, Linux 6.10): an
    /// accept makes a file and a socket before it finds that there is none.
    ///
    /// One, and not many (IORING_ACCEPT_MULTISHOT): a multishot accept takes connections from the
    /// queue for as long as it finds any, and drops them when the table is full; and it cannot
    /// say who has connected. One by one, no more are taken than there are slots kept for.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, number: u32) -> io::Result<bool> {
        let Some(index) = self.accepts.iter().position(|place| place.waiting.is_none()) else { return Ok(false) };
        let place = &mut self.accepts[index];
        *place.address = empty_address();
        let (address, length) = &mut *place.address;
        let mut request = opcode::Accept::new(Fd(listener.as_raw_fd()), std::ptr::from_mut(address).cast(), length)
            .file_index(Some(DestinationSlot::auto_target()))
            .flags(libc::SOCK_NONBLOCK)
            .build();
        place.waiting = Some(number);
        if self.polls_first {
            poll_first(&mut request);
        }
        self.push(request.user_data(Kind::Accept.tag(index as u32)))?;
        Ok(true)
    }

    /// How many accepts wait.
    pub fn accepts_waiting(&self) -> usize {
        self.accepts.iter().filter(|place| place.waiting.is_some()).count()
    }

    /// Ends the accepts that wait. One that has a connection already completes with it.
    pub fn cancel_accepts(&mut self) -> io::Result<()> {
        for index in 0..self.accepts.len() {
            if self.accepts[index].waiting.is_some() {
                self.cancel(Kind::Accept.tag(index as u32))?;
            }
        }
        Ok(())
    }

    /// Moves a socket out of the thread's table into the ring's (IORING_OP_FILES_UPDATE).
    pub fn adopt(&mut self, socket: OwnedFd, peer: SocketAddr) -> io::Result<()> {
        let index = self.adoptions.iter().position(Option::is_none).unwrap_or_else(|| {
            self.adoptions.push(None);
            self.adoptions.len() - 1
        });
        let number = Box::new(socket.as_raw_fd());
        let adoption = self.adoptions[index].insert(Adoption { number, socket, peer });
        let request = opcode::FilesUpdate::new(&raw mut *adoption.number, 1).offset(ANYWHERE).build();
        self.push(request.user_data(Kind::Adopt.tag(index as u32)))
    }

    /// How many sockets are on their way into the table.
    pub fn adoptions_waiting(&self) -> usize {
        self.adoptions.iter().flatten().count()
    }
}

/// Has an accept look whether a connection waits before anything else. The crate's builder has no
/// place for it.
fn poll_first(request: &mut squeue::Entry) {
    // SAFETY: an entry is the kernel's io_uring_sqe (64 bytes, include/uapi/linux/io_uring.h),
    // whose third and fourth byte are `ioprio`, where an accept has its flags.
    unsafe { std::ptr::from_mut(request).cast::<u16>().add(1).write(IORING_ACCEPT_POLL_FIRST) };
}

fn empty_address() -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: a sockaddr_storage is plain bytes, for which all zero is a value (family AF_UNSPEC).
    (unsafe { std::mem::zeroed() }, size_of::<libc::sockaddr_storage>() as libc::socklen_t)
}

pub(super) fn read_address(place: &(libc::sockaddr_storage, libc::socklen_t)) -> SocketAddr {
    let (storage, length) = place;
    // SAFETY: the kernel has written `length` bytes of an address into the storage, which is large
    // enough for any.
    let address = unsafe { SocketAddrAny::read(std::ptr::from_ref(storage).cast(), *length) };
    SocketAddr::try_from(address).unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
}
