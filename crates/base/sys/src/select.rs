//! select(2): three bit sets of a fixed size, rewritten by the kernel at every wait.
//!
//! A set has FD_SETSIZE (1024) bits whatever the descriptor limit is. The C macro FD_SET writes
//! past its end when given a larger descriptor; here that is refused ([`Set::insert`] returns
//! false).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Descriptors at or above this number cannot be selected (select(2), BUGS).
pub const FD_SETSIZE: usize = libc::FD_SETSIZE;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of descriptors, laid out as the kernel's `fd_set`.
#[derive(Clone, Debug)]
#[repr(transparent)]
pub struct Set([u64; FD_SETSIZE / WORD_BITS]);

const _: () = assert!(size_of::<Set>() == size_of::<libc::fd_set>());

impl Default for Set {
    fn default() -> Set {
        Set([0; FD_SETSIZE / WORD_BITS])
    }
}

impl Set {
    /// Adds a descriptor, or returns false where it does not fit ([`FD_SETSIZE`]).
    #[must_use]
    pub fn insert(&mut self, descriptor: RawFd) -> bool {
        let Some(word) = self.0.get_mut(descriptor as usize / WORD_BITS) else { return false };
        *word |= 1 << (descriptor as usize % WORD_BITS);
        true
    }

    /// Takes a descriptor out.
    pub fn remove(&mut self, descriptor: RawFd) {
        if let Some(word) = self.0.get_mut(descriptor as usize / WORD_BITS) {
            *word &= !(1 << (descriptor as usize % WORD_BITS));
        }
    }

    /// Whether a descriptor is in the set.
    pub fn contains(&self, descriptor: RawFd) -> bool {
        self.0
            .get(descriptor as usize / WORD_BITS)
            .is_some_and(|word| word & (1 << (descriptor as usize % WORD_BITS)) != 0)
    }
}

/// Waits until a descriptor below `bound` is ready or the time is over; the sets then hold what is
/// ready. Returns how many are. A signal ends the wait with none.
pub fn wait(bound: usize, read: &mut Set, write: &mut Set, timeout: Option<Duration>) -> io::Result<usize> {
    assert!(bound <= FD_SETSIZE, "select cannot look past FD_SETSIZE");
    let timeout = timeout.map(|duration| libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both sets have the size and layout of `fd_set`, `bound` stays within it, and the time
    // and the absent signal mask are null or live until the call returns.
    let count = unsafe {
        libc::pselect(
            bound as libc::c_int,
            std::ptr::from_mut(read).cast(),
            std::ptr::from_mut(write).cast(),
            std::ptr::null_mut(),
            timeout,
            std::ptr::null(),
        )
    };
    match count {
        0.. => Ok(count as usize),
        _ => {
            (*read, *write) = (Set::default(), Set::default());
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_past_the_set_is_refused_and_changes_nothing() {
        let mut set = Set::default();
        assert!(set.insert(FD_SETSIZE as RawFd - 1));
        assert!(!set.insert(FD_SETSIZE as RawFd));
        assert!(!set.insert(RawFd::MAX));
        assert!(!set.insert(-1));
        assert_eq!(set.0.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
        set.remove(FD_SETSIZE as RawFd - 1);
        assert!(!set.contains(FD_SETSIZE as RawFd - 1));
    }
}
