//! select(2), 1983: the caller hands over bit sets of descriptors and gets them back with only the
//! ready bits left.
//!
//! The rule: every wait costs a bit for each descriptor up to the highest, ready or not, in the
//! kernel and again here; and a set has FD_SETSIZE (1024) bits, whatever RLIMIT_NOFILE says.
//!
//! The classic mistake is to FD_SET a descriptor of 1024 or more: the macro does not look, and
//! writes past the end of the set. Here such a descriptor is refused before it gets near a set; the
//! connection is closed, counted and mentioned. Another is to give the kernel the only copy of the
//! sets, which it overwrites: here the sets to wait for and the reported sets are separate.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use plimsoll_sys::readiness::{Interest, Ready};
use plimsoll_sys::select::{FD_SETSIZE, Set, wait};

use crate::driver::readiness::{NotAdded, Selector};

pub(crate) struct Select {
    read: Set,
    write: Set,
    /// By descriptor.
    keys: Box<[u64; FD_SETSIZE]>,
    /// One more than the highest descriptor.
    bound: usize,
}

impl Select {
    fn set_interest(&mut self, descriptor: BorrowedFd<'_>, interest: Interest) {
        for (set, wanted) in [(&mut self.read, interest.read), (&mut self.write, interest.write)] {
            set.remove(descriptor.as_raw_fd());
            assert!(!wanted || set.insert(descriptor.as_raw_fd()), "a descriptor past the set was refused when added");
        }
    }
}

impl Selector for Select {
    fn new() -> io::Result<Select> {
        Ok(Select { read: Set::default(), write: Set::default(), keys: Box::new([0; FD_SETSIZE]), bound: 0 })
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded> {
        let number = descriptor.as_raw_fd() as usize;
        if number >= FD_SETSIZE {
            return Err(NotAdded::PastLimit);
        }
        self.keys[number] = key;
        self.bound = self.bound.max(number + 1);
        self.set_interest(descriptor, interest);
        Ok(())
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, _key: u64, interest: Interest) -> io::Result<()> {
        self.set_interest(descriptor, interest);
        Ok(())
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.forget(descriptor);
        Ok(())
    }

    fn forget(&mut self, descriptor: BorrowedFd<'_>) {
        self.set_interest(descriptor, Interest { read: false, write: false });
        while self.bound > 0 && !self.waits_for(self.bound - 1) {
            self.bound -= 1;
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let (mut read, mut write) = (self.read.clone(), self.write.clone());
        let mut left = wait(self.bound, &mut read, &mut write, timeout)?;
        for (descriptor, key) in (0..).zip(&self.keys[..self.bound]) {
            // The count is of set bits, so the search ends with the last of them.
            if left == 0 {
                break;
            }
            let (readable, writable) = (read.contains(descriptor), write.contains(descriptor));
            if readable || writable {
                left -= usize::from(readable) + usize::from(writable);
                ready.push(Ready { key: *key, readable, writable, ended: false });
            }
        }
        Ok(())
    }
}

impl Select {
    fn waits_for(&self, number: usize) -> bool {
        self.read.contains(number as i32) || self.write.contains(number as i32)
    }
}
