//! poll(2): the caller keeps the interest list and hands the whole of it over at every wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use crate::readiness::Interest;

/// One place in the array that [`wait`] takes: a descriptor and what it is waited for.
///
/// It holds a number, not a borrow, as the array outlives every borrow: a number that was closed in
/// the meantime is reported with an error (POLLNVAL), never followed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Place(libc::pollfd);

impl Place {
    /// A place for `descriptor`.
    pub fn new(descriptor: RawFd, interest: Interest) -> Place {
        let mut place = Place(libc::pollfd { fd: descriptor, events: 0, revents: 0 });
        place.set_interest(interest);
        place
    }

    /// Changes what the descriptor is waited for.
    pub fn set_interest(&mut self, interest: Interest) {
        self.0.events = if interest.read { libc::POLLIN } else { 0 } | if interest.write { libc::POLLOUT } else { 0 };
    }

    /// Whether the last wait found a read that would not block.
    pub fn readable(&self) -> bool {
        self.0.revents & (libc::POLLIN | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
    }

    /// Whether the last wait found a write that would not block.
    pub fn writable(&self) -> bool {
        self.0.revents & (libc::POLLOUT | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
    }
}

/// Whether a descriptor is ready now for what it would be waited for.
pub fn is_ready(descriptor: impl AsFd, interest: Interest) -> io::Result<bool> {
    let mut places = [Place::new(descriptor.as_fd().as_raw_fd(), interest)];
    Ok(wait(&mut places, Some(Duration::ZERO))? > 0)
}

/// After this a wait is made again for which the kernel had no memory.
const RETRY: Duration = Duration::from_millis(10);

/// Waits as [`wait`] does. Where the kernel has no memory for that (ENOMEM, poll(2), select(2)), no
/// place is ready, and the error is returned a moment later: the caller goes on, and waits anew.
pub fn wait_or_retry(places: &mut [Place], timeout: Option<Duration>) -> io::Result<Option<io::Error>> {
    match wait(places, timeout) {
        Ok(_) => Ok(None),
        Err(error) => retry_later(error).map(Some),
    }
}

/// Lets a moment pass where an error of a wait says that the kernel had no memory for it, and
/// returns the error; any other is an error still.
pub fn retry_later(error: io::Error) -> io::Result<io::Error> {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return Err(error);
    }
    std::thread::sleep(RETRY);
    Ok(error)
}

/// Waits until a place is ready or the time is over, and returns how many are ready. A signal ends
/// the wait with none.
pub fn wait(places: &mut [Place], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|duration| libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `Place` is a transparent `pollfd`, the slice gives a valid array and its length, and
    // the time and the absent signal mask are null or live until the call returns.
    let count =
        unsafe { libc::ppoll(places.as_mut_ptr().cast(), places.len() as libc::nfds_t, timeout, std::ptr::null()) };
    match count {
        0.. => Ok(count as usize),
        _ => {
            let error = io::Error::last_os_error();
            for place in places {
                place.0.revents = 0;
            }
            if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
        }
    }
}
