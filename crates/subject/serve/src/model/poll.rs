//! poll(2), 1986: the caller hands over an array of descriptors, of any number and any length.
//!
//! The rule: every wait copies the whole array into the kernel and checks every entry, ready or
//! not: an idle connection costs as much as a busy one. It has no limit like select's, and the same
//! cost.
//!
//! The classic mistakes are to leave holes in the array, which are asked for ever; to close them up
//! by moving the whole tail; and to go on looking after the last ready entry was seen. Here the
//! array stays dense: the last entry moves into the place of a removed one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use plimsoll_sys::poll::{Place, wait};
use plimsoll_sys::readiness::{Interest, Ready};

use crate::driver::readiness::{NotAdded, Selector};

pub(crate) struct Poll {
    places: Vec<Place>,
    /// By place: the key and the descriptor there.
    held: Vec<(u64, usize)>,
    /// By descriptor: its place.
    index: Vec<u32>,
}

impl Poll {
    fn place(&self, descriptor: BorrowedFd<'_>) -> usize {
        self.index[descriptor.as_raw_fd() as usize] as usize
    }
}

impl Selector for Poll {
    fn new() -> io::Result<Poll> {
        Ok(Poll { places: Vec::new(), held: Vec::new(), index: Vec::new() })
    }

    fn add(&mut self, descriptor: BorrowedFd<'_>, key: u64, interest: Interest) -> Result<(), NotAdded> {
        let number = descriptor.as_raw_fd() as usize;
        if self.index.len() <= number {
            self.index.resize(number + 1, 0);
        }
        self.index[number] = self.places.len() as u32;
        self.places.push(Place::new(descriptor.as_raw_fd(), interest));
        self.held.push((key, number));
        Ok(())
    }

    fn modify(&mut self, descriptor: BorrowedFd<'_>, _key: u64, interest: Interest) -> io::Result<()> {
        let place = self.place(descriptor);
        self.places[place].set_interest(interest);
        Ok(())
    }

    fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.forget(descriptor);
        Ok(())
    }

    fn forget(&mut self, descriptor: BorrowedFd<'_>) {
        let place = self.place(descriptor);
        self.places.swap_remove(place);
        self.held.swap_remove(place);
        if let Some((_, moved)) = self.held.get(place) {
            self.index[*moved] = place as u32;
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let count = wait(&mut self.places, timeout)?;
        let reported = self.places.iter().zip(&self.held).filter(|(place, _)| place.readable() || place.writable());
        ready.extend(reported.take(count).map(|(place, (key, _))| Ready {
            key: *key,
            readable: place.readable(),
            writable: place.writable(),
            ended: false,
        }));
        Ok(())
    }
}
