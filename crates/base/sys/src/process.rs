//! Processes: fork(2), wait(2), prctl(2).

use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use rustix::process::{Pid, Signal, WaitOptions};

use crate::{descriptor, net, signal};

/// A child process of ours, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Child(NonZeroI32);

impl Child {
    /// The child with this number, as it knows it itself.
    pub fn from_number(number: i32) -> Option<Child> {
        NonZeroI32::new(number).map(Child)
    }
}

/// Runs `work` in a copy of this process and returns the copy's number. The copy ends with `work`,
/// whose result is its exit status, and is killed when this process ends, however that ends. It
/// keeps the descriptors in `keep` and standard input, output and error, and closes all others, so
/// that it holds no connection open that this process closes. Signals that are blocked here are
/// blocked there.
///
/// Refused where more than one thread runs: the copy would have only the calling one, and every
/// lock that another held would stay locked for ever (pthread_atfork(3)).
pub fn fork(keep: &[BorrowedFd<'_>], work: impl FnOnce() -> i32) -> io::Result<Child> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "fork from a process with several threads"));
    }
    // Inherited where whoever started this process ignores it: the kernel would then reap every
    // copy itself, and wait(2) tell of none.
    signal::restore_default(libc::SIGCHLD)?;
    let parent = std::process::id();
    // SAFETY: the process has one thread (checked above, and that thread is here), so no lock can
    // be left held in the copy.
    let number = unsafe { libc::fork() };
    if let Some(number) = NonZeroI32::new(number) {
        return if number.get() < 0 { Err(io::Error::last_os_error()) } else { Ok(Child(number)) };
    }
    // Neither a panic nor a return may reach the caller's frames, which belong to the parent.
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        descriptor::close_all_but(keep);
        match die_with_parent(parent) {
            Ok(()) => work(),
            Err(_) => 1,
        }
    }));
    // SAFETY: _exit ends the process; nothing of ours runs after it, and what the parent registered
    // to run at its exit does not run here.
    unsafe { libc::_exit(code.unwrap_or(101)) }
}

/// Has every thread of this process go on as another user, with that user's groups (setuid(2),
/// initgroups(3)). The way back is closed. An unknown name is `NotFound`.
pub fn become_user(name: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    let mut text = vec![0; 16 * 1024];
    // SAFETY: zeros are a valid passwd: its pointers are null.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to values that live for the call, and the length is that of the
    // buffer.
    let code =
        unsafe { libc::getpwnam_r(name.as_ptr(), &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    if found.is_null() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such user"));
    }
    // The C library does each of these in every thread (nptl(7)). The group first: a user without
    // privilege may not. SAFETY: `name` is a string that lives for the call; the other calls take
    // numbers.
    let done = unsafe {
        libc::initgroups(name.as_ptr(), entry.pw_gid) == 0
            && libc::setgid(entry.pw_gid) == 0
            && libc::setuid(entry.pw_uid) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets this thread run before every ordinary one, as soon as it has something to do (SCHED_FIFO at
/// its lowest priority, sched(7)); what it forks is ordinary again. Returns whether the machine
/// lets it: CAP_SYS_NICE, or a limit RLIMIT_RTPRIO.
pub fn run_first() -> bool {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: sched_setscheduler reads one sched_param, which lives for the call; 0 is the calling
    // thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority) == 0 }
}

/// The socket whose waits signals end.
static INTERRUPTED: AtomicI32 = AtomicI32::new(-1);
/// What signals have asked for.
static ASKED: AtomicU8 = AtomicU8::new(0);

/// From now on signals, even those that arrived while they were blocked, end what waits for
/// `socket` in place of this process (see [`net::end_waits`]), and [`asked`] reports them. SIGTERM
/// and SIGINT end reads; SIGUSR1, which [`End::Cut`] sends, ends writes too. A time-out that is set
/// on the socket has to be set before [`asked`] is looked at: it may take the place of the
/// signal's.
pub fn end_waits_on_signals(socket: BorrowedFd<'_>) -> io::Result<()> {
    extern "C" fn interrupt(signal: libc::c_int) {
        let (asked, half) = if signal == libc::SIGUSR1 { (2, net::Half::Both) } else { (1, net::Half::Read) };
        ASKED.fetch_max(asked, Ordering::SeqCst);
        // SAFETY: the number is that of a socket which was open when it was stored, and is not -1;
        // a number that is closed by now only makes the calls fail.
        let socket = unsafe { BorrowedFd::borrow_raw(INTERRUPTED.load(Ordering::SeqCst)) };
        net::end_waits(socket, half);
    }
    INTERRUPTED.store(socket.as_raw_fd(), Ordering::SeqCst);
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
        signal::handle(number, interrupt)?;
    }
    signal::release_all();
    Ok(())
}

/// What signals have asked this process for, since [`end_waits_on_signals`].
pub fn asked() -> Option<End> {
    match ASKED.load(Ordering::SeqCst) {
        0 => None,
        1 => Some(End::Finish),
        _ => Some(End::Cut),
    }
}

/// Collects one child that has ended, without waiting: its number and how it ended; `None` where
/// none has.
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

/// How a child is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It finishes its work (SIGTERM).
    Finish,
    /// It stops at once, and reports what it did (SIGUSR1; see [`end_waits_on_signals`]).
    Cut,
    /// The kernel ends it (SIGKILL).
    Kill,
}

/// Ends a child.
pub fn end(child: Child, how: End) {
    let pid = Pid::from_raw(child.0.get()).expect("a child's number is not 0");
    let signal = match how {
        End::Finish => Signal::TERM,
        End::Cut => Signal::USR1,
        End::Kill => Signal::KILL,
    };
    let _ = rustix::process::kill_process(pid, signal);
}

/// Makes the kernel end the calling process as soon as the thread that forked it ends (prctl(2),
/// PR_SET_PDEATHSIG), so that nothing outlives a killed parent. `parent` is the parent's number as
/// it knew it itself: if it died before this call, the process ends here.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if std::os::unix::process::parent_id() != parent {
        std::process::exit(1);
    }
    Ok(())
}

/// The CPUs this process may run on (sched_getaffinity(2)).
pub fn available_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Memory mappings of a thread: its stack, the stack that its handler of stack overflow has, and a
/// guard page of each.
const MAPPINGS_A_THREAD: usize = 4;

/// Bytes from which on an allocation has a memory mapping of its own, once there are to be many
/// threads: the most that mallopt(3) takes.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 32 << 20;

/// Readies the heap for many threads: its larger allocations share memory mappings from now on
/// (mallopt(3), M_MMAP_THRESHOLD), which are short where each thread has some. Returns how many
/// more threads this process may start with the mappings that are left to it (vm.max_map_count,
/// proc_sys_vm(5)), less a part for the heap; `None` where the kernel does not tell. More must not
/// be tried: the standard library ends the whole process where a new thread finds no mapping for
/// the second of its stacks, or an allocation finds none.
pub fn make_room_for_threads() -> Option<usize> {
    // SAFETY: mallopt(3) takes two numbers, and may be called at any time by any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
    let most: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()?;
    Some((most - most / 32).saturating_sub(mappings()?) / MAPPINGS_A_THREAD)
}

/// The memory mappings of this process (proc_pid_maps(5)).
fn mappings() -> Option<usize> {
    Some(std::fs::read_to_string("/proc/self/maps").ok()?.lines().count())
}

/// Keeps the calling thread, and threads that it starts from now on, on these CPUs
/// (sched_setaffinity(2)). A CPU that does not exist, or that this process may not use, is an
/// error.
pub fn pin_to_cpus(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        if *cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(*cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex, PoisonError};

    use super::*;

    /// Held by a test that counts mappings.
    static COUNTING: Mutex<()> = Mutex::new(());

    #[test]
    fn threads_take_no_more_mappings_than_there_is_room_for() {
        const THREADS: usize = 200;
        let _alone = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let all = Barrier::new(THREADS + 1);
        let [before, with] = std::thread::scope(|scope| {
            let before = make_room_for_threads().expect("the kernel tells");
            for _ in 0..THREADS {
                let waiting = std::thread::Builder::new().stack_size(128 * 1024);
                waiting.spawn_scoped(scope, || all.wait()).expect("there is room");
            }
            let with = make_room_for_threads().expect("the kernel tells");
            all.wait();
            [before, with]
        });
        // Other tests may start a thread meanwhile, or end one.
        let taken = before - with;
        assert!((THREADS / 2..=THREADS + 50).contains(&taken), "{taken} of {before}");
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn what_threads_allocate_takes_hardly_any_mappings_from_them() {
        const KEPT: usize = 500;
        let _alone = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        make_room_for_threads();
        let before = mappings().expect("the kernel tells");
        let mut blocks: Vec<Vec<u8>> = (0..2 * KEPT).map(|_| vec![1; 200 << 10]).collect();
        // Those that are next to each other would be one mapping.
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let with = mappings().expect("the kernel tells");
        assert_eq!(blocks.len(), KEPT);
        // Other tests may start some threads meanwhile.
        assert!(with < before + KEPT / 2, "{before}, then {with} mappings");
    }
}
