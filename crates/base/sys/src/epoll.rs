//! epoll(7): the kernel keeps the interest list; a wait costs what is ready, not what is
//! registered.
//!
//! The fault of its design: an entry belongs to the open file, not to the descriptor. Where a
//! descriptor was duplicated (fork, SCM_RIGHTS), closing it leaves the entry reporting: the entry
//! has to be deleted first.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::readiness::{Interest, Ready};

/// How often a registered descriptor is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At every wait, as long as it is ready.
    Level,
    /// Once each time it becomes ready.
    Edge,
    /// Once, and then not again until it is asked for by [`Epoll::modify`] (EPOLLONESHOT); an end
    /// of the stream is reported with readability.
    Once,
    /// At every wait, and of several epoll instances that share the descriptor only one or a few
    /// wake (EPOLLEXCLUSIVE). For listeners: the kernel refuses to modify such an entry.
    Exclusive,
}

/// An epoll instance with the buffer that its events are reported in.
pub struct Epoll {
    instance: OwnedFd,
    events: Vec<epoll::Event>,
    /// The kernel, or a program in between such as Valgrind, has no epoll_pwait2: waits are rounded
    /// up to milliseconds.
    coarse: bool,
    interrupted: bool,
}

impl Epoll {
    /// An instance that reports at most `batch` descriptors a wait.
    pub fn new(batch: usize) -> io::Result<Epoll> {
        let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut set = Epoll { instance, events: Vec::with_capacity(batch), coarse: false, interrupted: false };
        set.coarse = matches!(set.wait_finely(Some(Duration::ZERO)), Err(rustix::io::Errno::NOSYS));
        Ok(set)
    }

    /// Starts reporting `descriptor` under `key`. The entry goes away when the last descriptor of
    /// the open file is closed.
    pub fn add(&self, descriptor: impl AsFd, key: u64, interest: Interest, trigger: Trigger) -> io::Result<()> {
        Ok(epoll::add(&self.instance, descriptor, epoll::EventData::new_u64(key), flags(interest, trigger))?)
    }

    /// Changes what a registered descriptor is waited for. With [`Trigger::Edge`] this also reports
    /// it anew if it is ready now.
    pub fn modify(&self, descriptor: impl AsFd, key: u64, interest: Interest, trigger: Trigger) -> io::Result<()> {
        Ok(epoll::modify(&self.instance, descriptor, epoll::EventData::new_u64(key), flags(interest, trigger))?)
    }

    /// Stops reporting a registered descriptor.
    pub fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.instance, descriptor)?)
    }

    /// Waits until a descriptor is ready or the time is over, and returns what is ready. A signal
    /// ends the wait with nothing.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        Ok(self.wait_urgent(timeout)?.map(|(ready, _)| ready))
    }

    /// The same, and of each whether urgent data has arrived that was not read past yet: a read
    /// stops before it, so a short one does not mean that nothing is left. Known of
    /// edge-triggered and one-shot descriptors only.
    pub fn wait_urgent(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = (Ready, bool)> + '_> {
        self.events.clear();
        let outcome = if self.coarse { self.wait_coarsely(timeout) } else { self.wait_finely(timeout) };
        self.interrupted = outcome == Err(rustix::io::Errno::INTR);
        match outcome {
            Ok(()) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.events.iter().map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            let ended = failed || flags.contains(epoll::EventFlags::RDHUP);
            let ready = Ready {
                key: event.data.u64(),
                readable: ended || flags.contains(epoll::EventFlags::IN),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
                ended,
            };
            (ready, flags.contains(epoll::EventFlags::PRI))
        }))
    }

    /// Whether a signal ended the last wait, or a stop (SIGSTOP, signal(7)): what had come by its
    /// end is reported by the next.
    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    fn wait_finely(&mut self, timeout: Option<Duration>) -> rustix::io::Result<()> {
        let timeout = timeout
            .map(|duration| Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos() as _ });
        epoll::wait(&self.instance, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()).map(drop)
    }

    /// Waits never less than asked for.
    fn wait_coarsely(&mut self, timeout: Option<Duration>) -> rustix::io::Result<()> {
        let milliseconds =
            timeout.map_or(-1, |duration| i32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let room = self.events.capacity() as i32;
        // SAFETY: the buffer is empty and has room for `room` events, which rustix lays out as the
        // kernel does; as many of them are initialised as the call says.
        unsafe {
            let count =
                libc::epoll_wait(self.instance.as_raw_fd(), self.events.as_mut_ptr().cast(), room, milliseconds);
            let count = usize::try_from(count).map_err(|_| {
                rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::INVAL)
            })?;
            self.events.set_len(count);
        }
        Ok(())
    }
}

const _: () = assert!(size_of::<epoll::Event>() == size_of::<libc::epoll_event>());

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.instance.as_fd()
    }
}

fn flags(interest: Interest, trigger: Trigger) -> epoll::EventFlags {
    let mut flags = match trigger {
        Trigger::Level => epoll::EventFlags::empty(),
        // The end of the stream is one edge with the last bytes: without RDHUP a reader that stops
        // at a short read would miss it.
        Trigger::Edge => epoll::EventFlags::ET | epoll::EventFlags::RDHUP,
        Trigger::Once if interest.read => epoll::EventFlags::ONESHOT | epoll::EventFlags::RDHUP,
        Trigger::Once => epoll::EventFlags::ONESHOT,
        Trigger::Exclusive => epoll::EventFlags::EXCLUSIVE,
    };
    // A read stops before an urgent byte. A loop that takes a short read for the last one has to
    // know that.
    flags.set(epoll::EventFlags::PRI, interest.read && matches!(trigger, Trigger::Edge | Trigger::Once));
    flags.set(epoll::EventFlags::IN, interest.read);
    flags.set(epoll::EventFlags::OUT, interest.write);
    flags
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_of_less_than_a_millisecond_is_not_rounded_up_to_one() {
        let mut epoll = Epoll::new(1).expect("an epoll instance");
        let shortest = (0..50)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(epoll.wait(Some(Duration::from_micros(200))).expect("a wait").count(), 0);
                start.elapsed()
            })
            .min();
        // The best of many tries: a busy machine may make any one late, but rounding would make
        // every one.
        assert!(shortest < Some(Duration::from_millis(1)), "{shortest:?}");
    }
}
