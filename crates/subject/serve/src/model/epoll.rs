//! epoll(7), level-triggered, Linux 2.6 (2003): the kernel keeps the list of descriptors, and a
//! wait costs what is ready.
//!
//! The rule: every wait reports an event again while its condition holds. So wait for room to write
//! only while output is held back: an idle socket always has room, and would be reported for ever.
//! Bytes may be left for the next round.
//!
//! The classic mistake is to trust an event about a connection that was closed earlier in the same
//! batch: its descriptor, or its slot, may be another connection's by now. An event carries a key
//! that goes stale with its connection (`plimsoll_reactor::slab`).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use plimsoll_sys::epoll::{Epoll as Instance, Trigger};
use plimsoll_sys::readiness::{Interest, Ready};

use crate::driver::readiness::{NotAdded, Selector};

/// Events a wait: enough to spread the cost of the call, few enough that the buffers they touch
/// stay in the cache.
pub(super) const BATCH: usize = 256;

pub(crate) struct Epoll(Instance);

impl Selector for Epoll {
    fn new() -> io::Result<Epoll> {
        Ok(Epoll(Instance::new(BATCH)?))
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded> {
        self.0.add(descriptor, key, interest, Trigger::Level).map_err(NotAdded::Refused)
    }

    fn add_shared(&mut self, listener: BorrowedFd<'_>, key: u64) -> Result<(), NotAdded> {
        self.0.add(listener, key, Interest::READ, Trigger::Exclusive).map_err(NotAdded::Refused)
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        self.0.modify(descriptor, key, interest, Trigger::Level)
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.0.remove(descriptor)
    }

    fn forget(&mut self, _descriptor: BorrowedFd<'_>) {
        // The kernel takes the entry out when the descriptor is closed: it was never duplicated.
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.extend(self.0.wait(timeout)?);
        Ok(())
    }
}
