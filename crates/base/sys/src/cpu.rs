//! Which CPU a thread runs on, and may run on (getcpu(2), sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The CPU that the calling thread runs on.
pub fn current() -> usize {
    sched_getcpu()
}

/// CPUs by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(CpuSet);

impl Cpus {
    /// One alone.
    pub fn only(cpu: usize) -> Cpus {
        let mut only = CpuSet::new();
        only.set(cpu);
        Cpus(only)
    }

    /// Whether it is one of them.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.is_set(cpu)
    }

    /// All of them but one.
    pub fn besides(self, other: usize) -> impl Iterator<Item = usize> {
        (0..CpuSet::MAX_CPU).filter(move |cpu| *cpu != other && self.contains(*cpu))
    }
}

/// A thread of this process.
#[derive(Clone, Copy, Debug)]
pub struct Thread(Pid);

impl Thread {
    /// The calling thread.
    pub fn current() -> Thread {
        Thread(gettid())
    }

    /// The CPUs that it may use now: others change them too (taskset(1), cpuset(7)), and those that
    /// are offline are not among them.
    pub fn cpus(&self) -> io::Result<Cpus> {
        Ok(Cpus(sched_getaffinity(Some(self.0))?))
    }

    /// Keeps it to these CPUs from now on. An error (EINVAL) where it may use none of them.
    pub fn keep_to(&self, cpus: Cpus) -> io::Result<()> {
        Ok(sched_setaffinity(Some(self.0), &cpus.0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_kept_to_a_cpu_runs_there_until_it_may_use_the_others_again() {
        let thread = Thread::current();
        let (all, here) = (thread.cpus().expect("it has CPUs"), current());
        let there = all.besides(here).next().unwrap_or(here);
        thread.keep_to(Cpus::only(there)).expect("it may use it");
        assert_eq!((current(), thread.cpus().expect("it has one")), (there, Cpus::only(there)));
        thread.keep_to(all).expect("it may use them");
        assert_eq!(thread.cpus().expect("it has CPUs"), all);
        assert!(thread.keep_to(Cpus::only(CpuSet::MAX_CPU - 1)).is_err() || all.contains(CpuSet::MAX_CPU - 1));
    }
}
