//! epoll(7), edge-triggered: an event comes once, when something changes, and not again until it
//! changes again.
//!
//! The rule: register once, for reading and writing, and never change it. Then the program itself
//! has to remember what is still to be done. A connection that was reported is read until it is
//! empty (a short read says so), or until its turn is over: then it is on a list for the next
//! round.
//!
//! The classic mistakes are to stop half-way and wait for an event that does not come (a lost
//! edge); to take a short read for empty where the end of the stream, or an urgent byte, came with
//! the last bytes (one edge for both: EPOLLRDHUP and EPOLLPRI distinguish them); and to read one
//! busy connection until it is empty while all others wait (starvation).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::readiness::{Interest, Ready};

use super::epoll::BATCH;
use crate::driver::readiness::{NotAdded, Selector};

pub(crate) struct EpollEt(Epoll);

impl Selector for EpollEt {
    const EDGE: bool = true;

    fn new() -> io::Result<EpollEt> {
        Ok(EpollEt(Epoll::new(BATCH)?))
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded> {
        self.0.add(descriptor, key, interest, Trigger::Edge).map_err(NotAdded::Refused)
    }

    fn add_shared(&mut self, listener: BorrowedFd<'_>, key: u64) -> Result<(), NotAdded> {
        self.0.add(listener, key, Interest::READ, Trigger::Exclusive).map_err(NotAdded::Refused)
    }

    fn modify(&mut self, _descriptor: BorrowedFd<'_>, _key: u64, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.0.remove(descriptor)
    }

    fn forget(&mut self, _descriptor: BorrowedFd<'_>) {
        // The kernel takes the entry out when the descriptor is closed: it was never duplicated.
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        // A read stops before an urgent byte (tcp(7)), as it does before the end: what follows is
        // no edge of its own.
        let reported = self.0.wait_urgent(timeout)?;
        ready.extend(reported.map(|(ready, urgent)| Ready { ended: ready.ended || urgent, ..ready }));
        Ok(())
    }
}
