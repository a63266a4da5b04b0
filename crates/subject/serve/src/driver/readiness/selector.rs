//! What a readiness model is to the loop: the descriptors that it waits for, and how it asks about
//! them.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use plimsoll_sys::readiness::{Interest, Ready};

/// The descriptors that a model waits for, and how it asks about them.
pub(crate) trait Selector: Sized {
    /// Whether readiness is reported once, when it comes about, rather than for as long as it
    /// lasts.
    const EDGE: bool = false;

    fn new() -> io::Result<Self>;

    /// Starts reporting a descriptor under a key.
    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded>;

    /// Starts reporting a listener that other loops wait for too, if possible to one of them at a
    /// time.
    fn add_shared(&mut self, listener: BorrowedFd<'_>, key: u64) -> Result<(), NotAdded> {
        self.add(listener, key, Interest::READ)
    }

    /// Changes what a descriptor is waited for. An edge-triggered selector waits for everything
    /// from the start and needs no change.
    fn modify(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()>;

    /// Stops reporting a descriptor that stays open.
    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()>;

    /// Stops reporting a descriptor that is about to be closed.
    fn forget(&mut self, descriptor: BorrowedFd<'_>);

    /// Waits until something is ready or the time is over, and appends what is ready.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;
}

/// Why a selector does not take a descriptor.
pub(crate) enum NotAdded {
    /// Its number is past what the model can hold: the model's own hard limit.
    PastLimit,
    /// The kernel refused.
    Refused(io::Error),
}

/// What a loop cannot do without, a listener or its wake-up, does not fit: it cannot go on.
impl From<NotAdded> for io::Error {
    fn from(why: NotAdded) -> io::Error {
        match why {
            NotAdded::PastLimit => io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "a listener's or worker's descriptor is 1024 or more, which select cannot wait for; listen on fewer \
                 addresses, or choose another model",
            ),
            NotAdded::Refused(error) => error,
        }
    }
}
