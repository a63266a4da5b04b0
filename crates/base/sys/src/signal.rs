//! Signals as readable events (signalfd(2)), so that a loop meets them where it meets everything
//! else.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// The signals that Plimsoll answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: a person pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: asked to end.
    Terminate,
    /// SIGHUP: asked to reload.
    Hangup,
    /// SIGCHLD: a child process ended.
    Child,
}

impl Signal {
    const ALL: [Signal; 4] = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Child];

    /// The number that signal(7) gives it; a process ended by it exits with 128 more, by the
    /// shell's convention.
    pub fn number(self) -> i32 {
        match self {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::Hangup => libc::SIGHUP,
            Signal::Child => libc::SIGCHLD,
        }
    }
}

/// Signals held back from their default effect, to be read in order.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks `signals` in the calling thread and those it starts from now on, and returns where to
    /// read them. Call it before the first thread starts: a thread that does not block a signal
    /// would die of it.
    pub fn take(signals: &[Signal]) -> io::Result<Signals> {
        block(signals)?;
        let set = set_of(signals);
        // SAFETY: `set` is initialised and lives for the call; a fresh descriptor is returned,
        // which has no other owner.
        unsafe {
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                descriptor => Ok(Signals(OwnedFd::from_raw_fd(descriptor))),
            }
        }
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut info).ok()?;
        // The signal's number is the first field (signalfd(2)).
        let number = i32::from_ne_bytes(info.get(..4).filter(|_| read == info.len())?.try_into().ok()?);
        Signal::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// Blocks `signals` in the calling thread and those it starts from now on; they wait for
/// [`Signals::take`]. A thread that starts before that call has to start behind this one.
pub fn block(signals: &[Signal]) -> io::Result<()> {
    let set = set_of(signals);
    // SAFETY: `set` is initialised and lives for the call; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks no signal any more in the calling thread.
pub fn release_all() {
    // SAFETY: the set is initialised by sigemptyset before use and lives for the call.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Lets threads that start from now on be interrupted by [`interrupt`]. Without it they would end
/// the process.
pub fn make_interruptible() -> io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    handle(INTERRUPT, nothing)?;
    // SAFETY: the set is initialised by sigemptyset before use and lives for the call.
    let outcome = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, INTERRUPT);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(outcome)) }
}

/// The signal that interrupts a thread: nothing else uses it.
const INTERRUPT: libc::c_int = libc::SIGUSR1;

/// Interrupts the call in which a thread waits, if it waits: the call looks at its socket's
/// time-outs anew, or fails with EINTR and is made again (signal(7)).
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    // SAFETY: a thread's handle, until it is joined or dropped, keeps the thread's number its own,
    // even after the thread has ended (pthread_kill(3)).
    unsafe { libc::pthread_kill(thread.as_pthread_t() as libc::pthread_t, INTERRUPT) };
}

/// Has `handler`, which must be async-signal-safe (signal-safety(7)), run at a signal. A call that
/// is interrupted goes on afterwards where that is possible (SA_RESTART).
pub(crate) fn handle(number: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: the action is zeroed, then given a handler of the right type.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(number, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a signal do again what it does by default: a program begins with those ignored that its
/// parent ignores (execve(2)).
pub(crate) fn restore_default(number: libc::c_int) -> io::Result<()> {
    // SAFETY: the action is zeroed, which is SIG_DFL without flags.
    let outcome = unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, &raw const action, std::ptr::null_mut())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the zeroed set before sigaddset touches it; the numbers are
    // valid signals.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal.number());
        }
        set
    }
}
