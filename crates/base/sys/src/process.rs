//! Processes: fork(2), wait(2), prctl(2).

use std::io;
use std::num::NonZeroI32;

use rustix::process::{Pid, Signal, WaitOptions};

/// A child process of ours, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Child(NonZeroI32);

/// On which side of a fork this is.
#[derive(Clone, Copy, Debug)]
pub enum Forked {
    /// The process that called.
    Parent(Child),
    /// The copy.
    Child,
}

/// Copies this process. Refused where more than one thread runs: the copy would have only the calling one, and every lock that another held
/// would stay locked for ever (pthread_atfork(3)).
pub fn fork() -> io::Result<Forked> {
    if thread_count()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "fork from a process with several threads"));
    }
    // SAFETY: the process has one thread (checked above, and that thread is here), so no lock can be left held in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        number => Ok(Forked::Parent(Child(NonZeroI32::new(number).expect("fork returns 0 only in the child")))),
    }
}

/// Collects one child that has ended, without waiting: its number and how it ended; `None` where none has.
pub fn reap() -> Option<(Child, Ended)> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let ended = match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) => Ended::Well,
                    (Some(code), _) => Ended::Code(code),
                    (None, Some(signal)) => Ended::Signal(signal),
                    (None, None) => continue,
                };
                return Some((Child(pid.as_raw_nonzero()), ended));
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// How a child process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Exit status 0.
    Well,
    /// Another exit status.
    Code(i32),
    /// Killed by a signal.
    Signal(i32),
}

/// Asks a child to end (SIGTERM), or ends it at once (SIGKILL).
pub fn end(child: Child, at_once: bool) {
    let pid = Pid::from_raw(child.0.get()).expect("a child's number is not 0");
    let _ = rustix::process::kill_process(pid, if at_once { Signal::KILL } else { Signal::TERM });
}

/// Makes the kernel end the calling process as soon as the thread that forked it ends (prctl(2), PR_SET_PDEATHSIG), so that nothing outlives a killed
/// parent. `parent` is the parent's number as it knew it itself: if it died before this call, the process ends here.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if std::os::unix::process::parent_id() != parent {
        std::process::exit(1);
    }
    Ok(())
}

/// Ends the calling process without running what the parent registered to run at its own exit (_exit(2)).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit ends the process; nothing of ours runs after it.
    unsafe { libc::_exit(code) }
}

fn thread_count() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// The CPUs this process may run on (sched_getaffinity(2)).
pub fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
