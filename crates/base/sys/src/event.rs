//! A counter that wakes an event loop (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a thread that waits for it to become readable. Any thread may raise it, any number of
/// times.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// A new, lowered event.
    pub fn new() -> io::Result<Event> {
        Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the event readable until it is next lowered.
    pub fn raise(&self) {
        // The only failure is a counter at its maximum, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the event unreadable again, and returns whether it was readable. Raising it twice
    /// before this wakes once.
    pub fn lower(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 8]).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
