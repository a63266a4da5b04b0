//! Listening sockets that this process was started with, as a service manager hands them over
//! (sd_listen_fds(3)).

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::net::sockopt;

/// The first of them (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// The sockets that are meant for this process, each with its name from LISTEN_FDNAMES, in order.
/// They are non-blocking, and no program started from here inherits them. To be called once, before
/// anything else is opened.
pub fn listeners() -> io::Result<Vec<(String, OwnedFd)>> {
    let variable = |name| std::env::var(name).ok();
    let (pid, count) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
    let count = meant_for(std::process::id(), pid.as_deref(), count.as_deref())?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    (FIRST..FIRST + count).map(|number| Ok((names.next().unwrap_or("unknown").to_owned(), listener(number)?))).collect()
}

/// How many descriptors the variables promise to the process with this number.
fn meant_for(own: u32, pid: Option<&str>, count: Option<&str>) -> io::Result<RawFd> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(0) };
    let malformed = |name: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is no number"));
    if pid.parse::<u32>().map_err(|_| malformed("LISTEN_PID"))? != own {
        // They are another process's.
        return Ok(0);
    }
    let count = count.parse::<u16>().map_err(|_| malformed("LISTEN_FDS"))?;
    Ok(RawFd::from(i16::try_from(count).map_err(|_| malformed("LISTEN_FDS"))?))
}

fn listener(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is only looked at, and a number that is not open is EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    if !sockopt::socket_acceptconn(borrowed).unwrap_or(false) {
        let what = format!("descriptor {number} of LISTEN_FDS is no listening socket (ListenStream=, Accept=no)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    rustix::io::ioctl_fionbio(borrowed, true)?;
    // SAFETY: it is open, as was just found, and LISTEN_PID says that it is this process's; this is
    // called once, before anything else is opened.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        assert_eq!(meant_for(7, Some("7"), Some("2")).expect("numbers"), 2);
        assert_eq!(meant_for(7, Some("8"), Some("2")).expect("numbers"), 0);
        assert_eq!(meant_for(7, None, Some("2")).expect("absent"), 0);
        assert_eq!(meant_for(7, Some("7"), None).expect("absent"), 0);
        for (pid, count) in [("x", "1"), ("7", "-1"), ("7", "x"), ("7", "40000")] {
            assert!(meant_for(7, Some(pid), Some(count)).is_err(), "{pid}, {count}");
        }
    }

    #[test]
    fn a_descriptor_that_is_no_listener_is_refused() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let error = listener(std::os::fd::AsRawFd::as_raw_fd(&reader)).expect_err("a pipe");
        assert!(error.to_string().contains("no listening socket"), "{error}");
        assert!(listener(RawFd::MAX).is_err());
    }
}
