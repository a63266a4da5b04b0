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

use plimsoll_sys::cpu::{self, Thread};
use plimsoll_sys::event::Event;
use plimsoll_sys::{clock, process};

/// The emulator is woken so long after a frame was due: less than half of what counts as late by
/// default, and more than a wake-up takes.
const PATIENCE: Duration = Duration::from_micros(400);

/// How long nobody looks where no frame is under way.
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

/// What both threads know. Times are nanoseconds from `begun`.
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
}

/// The thread, which ends with this.
#[derive(Debug)]
pub(crate) struct Standby {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Standby {
    /// Stands by for the calling thread. There is no thread where it may use one CPU alone, or may
    /// not run first.
    pub(crate) fn start() -> io::Result<Standby> {
        let emulator = Thread::current()?;
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            due: AtomicU64::new(AWAKE),
            cpu: AtomicUsize::new(cpu::current()),
            event: Event::new()?,
            ended: AtomicBool::new(false),
        });
        let thread = match emulator.cpu_besides(cpu::current()) {
            None => None,
            Some(_) => {
                let shared = Arc::clone(&shared);
                let run = move || stand_by(&shared, emulator);
                Some(thread::Builder::new().name("standby".to_owned()).spawn(run)?)
            }
        };
        Ok(Standby { shared, thread })
    }

    /// Becomes readable to wake the emulator.
    pub(crate) fn event(&self) -> &Event {
        &self.shared.event
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
    let Ok(own) = Thread::current() else { return };
    if !process::run_first() {
        return;
    }
    // Refused, this thread looks 50 us later.
    let _ = clock::sharpen_timers();
    let mut here = None;
    while !shared.ended.load(Ordering::Acquire) {
        let there = shared.cpu.load(Ordering::Relaxed);
        if here.is_none_or(|cpu| cpu == there) {
            here = emulator.cpu_besides(there).filter(|cpu| own.keep_on(*cpu).is_ok());
        }
        let due = shared.due.load(Ordering::Acquire);
        match (step(due, shared.begun.elapsed()), here) {
            (Step::Look { after }, _) => thread::sleep(after),
            (Step::Wake, None) => thread::sleep(PATIENCE),
            (Step::Wake, Some(here)) => {
                // Queued on its CPU it moves at once; asleep it wakes here. Refused, it comes late.
                let _ = emulator.keep_on(here);
                shared.event.raise();
                let _ = emulator.release();
                thread::sleep(PATIENCE);
            }
        }
    }
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
    }
}
