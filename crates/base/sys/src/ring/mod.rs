//! io_uring(7): requests go in on one ring, completions come out on another, many with one call.
//!
//! The kernel uses the memory of a request until the request completes: so the [`Ring`] owns that
//! memory until the completion returns it. Received bytes come in buffers of a pool that the kernel
//! chooses from. Accepted sockets are in the ring's own table (*direct descriptors*), which is
//! bounded by RLIMIT_NOFILE for each ring and takes nothing from the thread's table.
//!
//! Sources: io_uring_setup(2), io_uring_enter(2), io_uring_register(2),
//! io_uring_prep_{accept,recv,send,close}(3).

mod arrival;
mod client;
mod closing;
mod completion;
mod kind;
mod pool;
mod transfer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use arrival::{AcceptPlace, Adoption};
use client::Connecting;
use closing::Ending;
pub use completion::{Completion, is_cancelled, is_out_of_buffers};
use kind::Kind;
pub use pool::Buffer;
use pool::Pool;
pub use transfer::{Payload, SendMode};

/// The sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Requests that fit before they must be handed in; a power of two.
    pub submissions: u32,
    /// Completions that fit before the kernel keeps the rest aside (and ends multishot requests); a
    /// power of two.
    pub completions: u32,
    /// Sockets that fit; at most RLIMIT_NOFILE.
    pub slots: u32,
    /// Buffers to receive into; a power of two, at most 32,768.
    pub buffers: u16,
    /// Bytes in each.
    pub buffer_bytes: u32,
    /// Accepts that can wait at once.
    pub accepts: u16,
}

/// A socket's place in the ring's table. It names the socket until [`Completion::Closed`]; then the
/// kernel gives the place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u32);

impl Slot {
    /// Its number, below [`Sizes::slots`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The one pool that every ring has.
const GROUP: u16 = 0;

/// A pair of rings with their sockets, their buffers and the memory that the kernel uses. One
/// thread makes and uses it.
pub struct Ring {
    uring: IoUring,
    pool: Pool,
    accepts: Vec<AcceptPlace>,
    adoptions: Vec<Option<Adoption>>,
    /// Connects under way, by slot.
    connecting: Vec<Option<Connecting>>,
    /// What is being sent, and where; a send's number is its place here.
    in_flight: Vec<Option<(Slot, Payload)>>,
    /// The empty places.
    free_ids: Vec<u32>,
    arrived: VecDeque<cqueue::Entry>,
    interrupted: bool,
    /// The kernel has IORING_ACCEPT_POLL_FIRST.
    polls_first: bool,
    /// Requests handed to the kernel whose last completion has not come.
    outstanding: usize,
    /// By slot, halves that are being ended.
    ending: HashMap<u32, Ending>,
    /// Requests that have waited for such ends: the next wait hands them in.
    after_ends: Vec<squeue::Entry>,
}

impl Ring {
    /// A ring for the calling thread alone (IORING_SETUP_SINGLE_ISSUER), whose work is done when
    /// the thread asks for completions and not in the middle of something else
    /// (IORING_SETUP_DEFER_TASKRUN).
    pub fn new(sizes: Sizes) -> io::Result<Ring> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(sizes.completions)
            .build(sizes.submissions)?;
        uring.submitter().register_files_sparse(sizes.slots)?;
        // Both came with Linux 6.10, and only this one can be asked for.
        let polls_first = uring.params().is_feature_recvsend_bundle();
        let pool = Pool::new(sizes.buffers, sizes.buffer_bytes);
        // SAFETY: the pool's entries live until `Drop` has ended every request and unregistered
        // them.
        unsafe { uring.submitter().register_buf_ring_with_flags(pool.entries_address(), sizes.buffers, GROUP, 0) }?;
        let accepts = (0..sizes.accepts).map(|_| AcceptPlace::free());
        Ok(Ring {
            uring,
            pool,
            accepts: accepts.collect(),
            adoptions: Vec::new(),
            connecting: Vec::new(),
            in_flight: Vec::new(),
            free_ids: Vec::new(),
            arrived: VecDeque::new(),
            interrupted: false,
            polls_first,
            outstanding: 0,
            ending: HashMap::new(),
            after_ends: Vec::new(),
        })
    }

    /// Reports [`Completion::Woken`] each time that `descriptor` becomes readable.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let request = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        self.push(request.user_data(Kind::Wake.tag(0)))
    }

    /// Reports [`Completion::Ready`] once when `descriptor` is readable, under a number of the
    /// caller's.
    pub fn watch_once(&mut self, descriptor: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        let request = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(request.user_data(Kind::Ready.tag(number)))
    }

    /// Gives a socket a number in the thread's own table too, for calls that the ring has not
    /// (IORING_OP_FIXED_FD_INSTALL, Linux 6.8).
    pub fn install(&mut self, slot: Slot) -> io::Result<()> {
        let request = opcode::FixedFdInstall::new(Fixed(slot.0), 0).build();
        self.push(request.user_data(Kind::Install.tag(slot.0)))
    }

    /// The bytes in a buffer.
    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.pool.bytes(buffer)
    }

    /// Gives a buffer back to be received into.
    pub fn recycle(&mut self, buffer: Buffer) {
        self.pool.recycle(buffer);
    }

    /// Buffers that there are.
    pub fn buffers(&self) -> usize {
        self.pool.len()
    }

    /// Buffers that can be received into now.
    pub fn free_buffers(&self) -> usize {
        self.pool.free()
    }

    /// Requests whose last completion has not come.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Hands in all requests without waiting.
    pub fn submit(&mut self) -> io::Result<()> {
        tolerate(self.uring.submit())
    }

    /// Hands in all requests, and waits until something has happened or the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        while let Some(request) = self.after_ends.pop() {
            self.push(request)?;
        }
        let outcome = match timeout {
            None => self.uring.submit_and_wait(1),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        self.interrupted = outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINTR));
        tolerate(outcome)?;
        self.arrived.extend(self.uring.completion());
        Ok(())
    }

    /// Whether a signal ended the last wait, or a stop (SIGSTOP): what had come by its end may be
    /// reported by the next.
    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The next thing that has happened, of those that the last [`Ring::wait`] brought.
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.arrived.pop_front()?;
            if !cqueue::more(entry.flags()) {
                self.outstanding -= 1;
            }
            if let Some(completion) = self.interpret(&entry) {
                return Some(completion);
            }
        }
    }

    fn cancel(&mut self, tag: u64) -> io::Result<()> {
        let request = opcode::AsyncCancel::new(tag).build();
        self.push_aside(request)
    }

    fn push_aside(&mut self, request: squeue::Entry) -> io::Result<()> {
        self.push(request.user_data(Kind::Aside.tag(0)))
    }

    fn push(&mut self, request: squeue::Entry) -> io::Result<()> {
        self.outstanding += 1;
        loop {
            // SAFETY: whatever the request points to (a payload, an address, a number, the pool) is
            // owned by this ring until the request's completion was seen or `Drop` has ended it;
            // descriptors are numbers that the kernel checks.
            if unsafe { self.uring.submission().push(&request) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // No memory may be freed while the kernel could still use it.
        let ended = self.end_all(|_, _| {});
        let _ = self.uring.submitter().unregister_buf_ring(GROUP);
        if ended.is_err() {
            self.pool.leak();
            std::mem::forget(std::mem::take(&mut self.in_flight));
            std::mem::forget(std::mem::take(&mut self.accepts));
            std::mem::forget(std::mem::take(&mut self.adoptions));
            std::mem::forget(std::mem::take(&mut self.connecting));
        }
    }
}

impl Ring {
    fn take_back(&mut self, completion: Completion, sent: &mut impl FnMut(Slot, usize)) {
        match completion {
            Completion::Received { outcome: Ok(Some(buffer)), .. } => self.pool.recycle(buffer),
            Completion::Sent { slot, outcome, payload } => {
                if let Ok(count) = outcome {
                    sent(slot, count);
                }
                if let Payload::Received(buffer, _) = payload {
                    self.pool.recycle(buffer);
                }
            }
            _ => {}
        }
    }

    /// Cancels every request and waits until each has ended. Buffers come back to the pool, and
    /// `sent` gets how many bytes of a payload the kernel took; nothing else that still completes
    /// is reported.
    pub fn end_all(&mut self, mut sent: impl FnMut(Slot, usize)) -> io::Result<()> {
        self.submit()?;
        match self.uring.submitter().register_sync_cancel(None, CancelBuilder::any().all()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Bounded: requests that cannot be cancelled (a close on its way) complete at once.
        for _ in 0..1000 {
            while let Some(completion) = self.next_completion() {
                self.take_back(completion, &mut sent);
            }
            if self.outstanding == 0 {
                return Ok(());
            }
            self.wait(Some(Duration::from_millis(10)))?;
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// A wait that brought nothing is no failure: time was over, a signal came, or completions must be
/// taken before more requests (EBUSY).
fn tolerate(outcome: io::Result<usize>) -> io::Result<()> {
    match outcome {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
