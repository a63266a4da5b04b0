//! Which CPU a thread runs on, and may run on (getcpu(2), sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The CPU that the calling thread runs on.
pub fn current() -> usize {
    sched_getcpu()
}

/// A thread of this process, with the CPUs that it may use.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    id: Pid,
    allowed: CpuSet,
}

impl Thread {
    /// The calling thread.
    pub fn current() -> io::Result<Thread> {
        Ok(Thread { id: gettid(), allowed: sched_getaffinity(None)? })
    }

    /// One of its CPUs that is not `other`, if it has one.
    pub fn cpu_besides(&self, other: usize) -> Option<usize> {
        (0..CpuSet::MAX_CPU).find(|cpu| *cpu != other && self.allowed.is_set(*cpu))
    }

    /// Keeps it on one CPU from now on.
    pub fn keep_on(&self, cpu: usize) -> io::Result<()> {
        let mut only = CpuSet::new();
        only.set(cpu);
        Ok(sched_setaffinity(Some(self.id), &only)?)
    }

    /// Lets it use all of its CPUs again.
    pub fn release(&self) -> io::Result<()> {
        Ok(sched_setaffinity(Some(self.id), &self.allowed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_kept_on_a_cpu_runs_there_until_it_is_released() {
        let thread = Thread::current().expect("it has CPUs");
        let here = current();
        let there = thread.cpu_besides(here).unwrap_or(here);
        thread.keep_on(there).expect("it may use it");
        assert_eq!(current(), there);
        assert_eq!(Thread::current().expect("it has one").cpu_besides(there), None);
        thread.release().expect("it may use them");
        let again = Thread::current().expect("it has CPUs");
        assert_eq!(again.cpu_besides(there), thread.cpu_besides(there));
    }
}
