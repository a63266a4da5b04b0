//! Descriptors and their limit.
//!
//! RLIMIT_NOFILE bounds the highest number in a *table*. By default all threads of a process share
//! one table. A thread that unshares (unshare(2), CLONE_FILES) has a table, and so a limit, of its
//! own. From then on its numbers mean nothing to other threads: only the thread that opened a
//! descriptor may use and close it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use rustix::process::{Resource, getrlimit};

/// The descriptors a table may hold: the soft RLIMIT_NOFILE (getrlimit(2)).
pub fn limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

/// Gives the calling thread a descriptor table of its own: a copy of the one it shared until now.
pub fn unshare_table() -> io::Result<()> {
    // SAFETY: unshare(CLONE_FILES) copies this thread's table: every number keeps its open file, so
    // descriptors that are owned or borrowed across the call stay valid here, and those of other
    // threads are untouched.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }.map_err(io::Error::from)
}

/// Whether an error means that this table has no descriptor left (EMFILE).
pub fn is_full_table(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMFILE)
}

/// Gives the calling thread a descriptor table of its own with nothing in it but standard input,
/// output and error and those in `keep`. Every other number is invalid here from now on: what this
/// thread needs reaches it by [`crate::passing`].
pub fn unshare_table_keeping(keep: &[RawFd]) -> io::Result<()> {
    unshare_table()?;
    // Descriptors of other threads stay open in their table; their copies here have no owner.
    close_numbers_but(keep);
    Ok(())
}

/// Closes every descriptor of this thread's table above standard error but these. To be called only
/// where no other thread shares the table, and nothing in it but these will be used again.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) {
    close_numbers_but(&keep.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>());
}

fn close_numbers_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().map(|number| *number as u32).filter(|number| *number > 2).collect();
    keep.sort_unstable();
    let mut first = 3;
    for number in keep.into_iter().chain([u32::MAX]) {
        if first < number {
            // SAFETY: the callers are a fresh copy of the process that never returns to those who
            // own what is closed here, and a thread that has just unshared its table, where all
            // that is closed is a second number of what stays open elsewhere.
            unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0) };
        }
        first = number.saturating_add(1);
    }
}

/// How many descriptors this thread's table holds, as the kernel lists them (proc_pid_fd(5)); where
/// there is no /proc, every number up to the limit is asked about.
pub fn count_open() -> usize {
    match std::fs::read_dir("/proc/thread-self/fd") {
        // The listing itself takes one for as long as it is read.
        Ok(listing) => listing.count().saturating_sub(1),
        Err(_) => {
            let highest = limit().min(i32::MAX as usize) as i32;
            // SAFETY: F_GETFD takes no pointer, and fails where the number names no descriptor.
            (0..highest).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } != -1).count()
        }
    }
}

/// Whether an error means that this table, or the machine, has no descriptor left (EMFILE, ENFILE;
/// ENOBUFS and ENOMEM, which accept(2) gives where memory for one is short; ENOSPC, which
/// epoll_ctl(2) gives where this user has as many entries as it may: fs.epoll.max_user_watches).
pub fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC];
    error.raw_os_error().is_some_and(|number| exhausted.contains(&number))
}

/// Whether an error means that too many descriptors are on their way between tables (ETOOMANYREFS,
/// unix(7)).
pub fn is_too_many_passed(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ETOOMANYREFS)
}

/// Fails as any call that makes a descriptor would where this table has no room for another: for
/// those whose failure would lose something.
pub fn check_room(any: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::fcntl_dupfd_cloexec(any, 0).map(drop)?)
}

/// The name of an error as errno(3) has it (`EMFILE`), for counting by cause.
pub fn error_name(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "emfile",
        Some(libc::ENFILE) => "enfile",
        Some(libc::ENOBUFS) => "enobufs",
        Some(libc::ENOMEM) => "enomem",
        Some(libc::ENOSPC) => "enospc",
        Some(libc::EAGAIN) => "eagain",
        Some(libc::ECONNABORTED) => "econnaborted",
        Some(libc::ECONNRESET) => "econnreset",
        Some(libc::ECONNREFUSED) => "econnrefused",
        Some(libc::EPIPE) => "epipe",
        Some(libc::ETIMEDOUT) => "etimedout",
        Some(libc::EADDRNOTAVAIL) => "eaddrnotavail",
        Some(libc::EADDRINUSE) => "eaddrinuse",
        Some(libc::ENETUNREACH) => "enetunreach",
        Some(libc::EHOSTUNREACH) => "ehostunreach",
        Some(libc::EINVAL) => "einval",
        Some(libc::EPROTO) => "eproto",
        Some(libc::EIO) => "eio",
        Some(libc::EPERM) => "eperm",
        Some(libc::EACCES) => "eacces",
        Some(libc::ENOTCONN) => "enotconn",
        Some(libc::ETOOMANYREFS) => "etoomanyrefs",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_descriptors_of_a_thread_with_a_table_of_its_own_are_counted() {
        let outcome = std::thread::spawn(|| {
            unshare_table()?;
            let before = count_open();
            let pipe = std::io::pipe()?;
            let during = count_open();
            drop(pipe);
            Ok::<_, io::Error>((during - before, count_open() - before))
        });
        assert_eq!(outcome.join().expect("no panic").expect("a table of its own"), (2, 0));
    }

    #[test]
    fn running_out_in_this_table_or_in_the_machine_is_told_from_the_end_of_one_connection() {
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC] {
            assert!(is_exhaustion(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for code in [libc::ECONNABORTED, libc::EAGAIN, libc::EPROTO] {
            assert!(!is_exhaustion(&io::Error::from_raw_os_error(code)), "{code}");
        }
        assert!(is_full_table(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(!is_full_table(&io::Error::from_raw_os_error(libc::ENFILE)), "another table would not help");
    }
}
