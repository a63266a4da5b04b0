//! CPU time as the kernel accounts it (clock_gettime(2), getrusage(2)).

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time, user and system, of the calling thread so far.
pub fn thread_cpu_time() -> Duration {
    duration(ClockId::ThreadCPUTime)
}

/// CPU time, user and system, of every thread of this process so far, ended ones included.
pub fn process_cpu_time() -> Duration {
    duration(ClockId::ProcessCPUTime)
}

/// How long the calling thread has waited for a CPU so far while it could have run
/// (proc_pid_schedstat, Documentation/scheduler/sched-stats.rst, second field, nanoseconds); zero
/// where the kernel keeps no such count.
pub fn thread_run_queue_wait() -> Duration {
    let waited = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

/// Lets this thread's timed waits end as close to their deadline as the timer hardware allows
/// (prctl(2), PR_SET_TIMERSLACK), in place of the kernel's default of up to 50 us late. A filter of
/// system calls (seccomp(2)) may refuse it: then that default stays.
pub fn sharpen_timers() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and touches no memory of ours.
    let outcome = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn duration(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
