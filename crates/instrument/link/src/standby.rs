//! A second thread, on another CPU, that wakes the emulator where its own CPU does not.
//!
//! A thread of real-time priority runs before all ordinary ones. It waits all the same while its
//! CPU is in the kernel (one without preemption lets nothing run until that returns), or while a
//! hypervisor withholds that CPU; the other CPUs run on. So this thread looks whether a frame that
//! is due was taken up. If not, it moves the emulator to its own CPU and wakes it there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_sys::cpu::{self, Cpus, Thread};
use plimsoll_sys::event::Event;
use plimsoll_sys::{clock, process};

/// The emulator is woken this long after a frame was due: less than half of what counts as late by
/// default, and more than a wake-up takes.
const PATIENCE: Duration = Duration::from_micros(400);

/// How long to sleep while no frame is under way.
const IDLE: Duration = Duration::from_millis(2);

/// The emulator runs.
const AWAKE: u64 = u64::MAX;

/// It waits, and no frame is under way.
const NOTHING_DUE: u64 = u64::MAX - 1;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look { after: Duration },
    Wake,
}

/// What both threads share. Times are nanoseconds from `begun`.
#[derive(Debug)]
struct Shared {
    begun: Instant,
    /// Until when the emulator waits.
    due: AtomicU64,
    /// The CPU on which it began to wait.
    cpu: AtomicUsize,
    /// Wakes it.
    event: Event,
    ended: AtomicBool,
    /// CPU time of the second thread so far, in nanoseconds.
    used: AtomicU64,
}

/// The thread, which ends with this.
#[derive(Debug)]
pub(crate) struct Standby {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Standby {
    /// Starts the standby thread of the calling thread. There is none where that may use one CPU
    /// alone, or has no real-time priority.
    pub(crate) fn start() -> io::Result<Standby> {
        let emulator = Thread::current();
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            due: AtomicU64::new(AWAKE),
            cpu: AtomicUsize::new(cpu::current()),
            event: Event::new()?,
            ended: AtomicBool::new(false),
            used: AtomicU64::new(0),
        });
        // It fails where there are more CPUs than this program can count: then there is no standby.
        let is_alone = emulator.cpus().map_or(true, |cpus| cpus.besides(cpu::current()).next().is_none());
        let thread = if is_alone {
            None
        } else {
            let shared = Arc::clone(&shared);
            let run = move || stand_by(&shared, emulator);
            Some(thread::Builder::new().name("standby".to_owned()).spawn(run)?)
        };
        Ok(Standby { shared, thread })
    }

    /// Becomes readable to wake the emulator.
    pub(crate) fn event(&self) -> &Event {
        &self.shared.event
    }

    /// CPU time of the thread so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.shared.used.load(Ordering::Relaxed))
    }

    /// The emulator is about to wait, until `due` at the latest if a frame is under way.
    pub(crate) fn waits(&self, due: Option<Instant>) {
        let due = due.map_or(NOTHING_DUE, |due| due.saturating_duration_since(self.shared.begun).as_nanos() as u64);
        self.shared.cpu.store(cpu::current(), Ordering::Relaxed);
        self.shared.due.store(due, Ordering::Release);
    }

    /// The emulator runs again.
    pub(crate) fn runs(&self) {
        self.shared.due.store(AWAKE, Ordering::Release);
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It looks every few milliseconds, and cannot panic.
            let _ = thread.join();
        }
    }
}

fn stand_by(shared: &Shared, emulator: Thread) {
    // What the emulator starts is ordinary, and so would come too late as well.
    if !process::run_first() {
        return;
    }
    // Refused, this thread looks 50 us later.
    let _ = clock::sharpen_timers();
    let own = Thread::current();
    let mut here = None;
    while !shared.ended.load(Ordering::Acquire) {
        shared.used.store(clock::thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
        let there = shared.cpu.load(Ordering::Relaxed);
        if here.is_none_or(|cpu| cpu == there) {
            here = settle_beside(there, own, emulator);
        }
        let due = shared.due.load(Ordering::Acquire);
        match step(due, shared.begun.elapsed()) {
            Step::Look { after } => thread::sleep(after),
            Step::Wake => {
                here = here.filter(|cpu| move_to(*cpu, emulator, || shared.event.raise()).is_ok());
                thread::sleep(PATIENCE);
            }
        }
    }
}

/// Keeps the thread `own` to a CPU that the emulator may use besides the one that it is on, and
/// returns which, if there is any.
fn settle_beside(there: usize, own: Thread, emulator: Thread) -> Option<usize> {
    emulator.cpus().ok()?.besides(there).find(|cpu| own.keep_to(Cpus::only(*cpu)).is_ok())
}

/// Moves the emulator to a CPU, and wakes it there. An error where it cannot go there, or is not to
/// by now.
fn move_to(cpu: usize, emulator: Thread, wake: impl FnOnce()) -> io::Result<()> {
    let allowed = emulator.cpus()?;
    if !allowed.contains(cpu) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Queued on its CPU it moves at once; asleep it wakes there.
    emulator.keep_to(Cpus::only(cpu))?;
    wake();
    emulator.keep_to(allowed)
}

/// What is to be done at `now`, where the emulator waits until `due`.
fn step(due: u64, now: Duration) -> Step {
    match due {
        AWAKE => Step::Look { after: PATIENCE },
        NOTHING_DUE => Step::Look { after: IDLE },
        due => match (Duration::from_nanos(due) + PATIENCE).saturating_sub(now) {
            Duration::ZERO => Step::Wake,
            after => Step::Look { after: after.min(IDLE) },
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use plimsoll_sys::poll::{self, Place};
    use plimsoll_sys::readiness::Interest;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_emulator_is_woken_that_does_not_wake_for_a_frame_that_is_due() {
        let due = |after: Duration| after.as_nanos() as u64;
        assert_eq!(step(due(5 * MS), 5 * MS), Step::Look { after: PATIENCE });
        assert_eq!(step(due(5 * MS), 5 * MS + PATIENCE), Step::Wake);
        assert_eq!(step(due(5 * MS), 9 * MS), Step::Wake);
        assert_eq!(step(due(500 * MS), 5 * MS), Step::Look { after: IDLE }, "an earlier frame may come meanwhile");
        assert_eq!(step(NOTHING_DUE, 5 * MS), Step::Look { after: IDLE });
        assert_eq!(step(AWAKE, 5 * MS), Step::Look { after: PATIENCE });
    }

    #[test]
    fn an_emulator_whose_cpus_are_others_by_now_is_moved_to_none_of_the_former_ones() {
        let emulator = Thread::current();
        let all = emulator.cpus().expect("it has CPUs");
        let Some(other) = all.besides(cpu::current()).next() else {
            println!("skipped: a second CPU is needed");
            return;
        };
        let is_woken_at = |cpu| {
            let mut is_woken = false;
            let moved = move_to(cpu, emulator, || is_woken = cpu::current() == cpu);
            assert_eq!(moved.is_ok(), is_woken);
            is_woken
        };
        assert!(is_woken_at(other));
        assert_eq!(emulator.cpus().expect("it has CPUs"), all, "it may use all of them again");
        // As taskset(1) does to a thread that runs.
        let others: Vec<usize> = all.besides(other).collect();
        emulator.keep_to(Cpus::only(others[0])).expect("it may use it");
        assert!(!is_woken_at(other) && is_woken_at(others[0]));
        assert_eq!(emulator.cpus().expect("it has one"), Cpus::only(others[0]));
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(settle_beside(others[0], Thread::current(), emulator), None));
        });
        emulator.keep_to(all).expect("it may use them");
    }

    #[test]
    fn an_emulator_that_waits_past_the_time_a_frame_was_due_is_woken() {
        let standby = Standby::start().expect("there are threads and descriptors");
        let is_raised = |within: Duration| {
            let mut places = [Place::new(standby.event().as_fd().as_raw_fd(), Interest::READ)];
            poll::wait(&mut places, Some(within)).expect("it can wait");
            places[0].readable()
        };
        assert!(!is_raised(20 * MS), "nobody waits");
        standby.waits(Some(Instant::now()));
        // Against hanging: a thread that runs first looks at once.
        let until = Instant::now() + Duration::from_secs(30);
        while !is_raised(20 * MS) {
            if standby.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                println!("skipped: a second CPU and the right to run first (CAP_SYS_NICE) are needed");
                return;
            }
            assert!(Instant::now() < until, "it was not woken");
        }
        // It looked more than once until then.
        assert!(standby.cpu_time() > Duration::ZERO);
    }
}
