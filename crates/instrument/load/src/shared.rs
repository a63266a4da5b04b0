//! What those who carry out a run share, whichever engine they are of: what they work from, and what they have counted in the end.

use std::io;
use std::time::Duration;

use plimsoll_measure::tally::{Connections, Tally};
use plimsoll_reactor::source::Rotation;
use plimsoll_sys::{clock, process};

use crate::config::Config;
use crate::control::Control;
use crate::record::Sequence;

/// What every event loop of a run works from.
pub(crate) struct Shared<P> {
    pub(crate) config: Config,
    pub(crate) protocol: P,
    pub(crate) control: Control,
    pub(crate) rotations: Vec<Rotation>,
    pub(crate) tables_per_worker: usize,
}

/// What an event loop has counted.
pub(crate) struct Counted {
    pub(crate) worker: usize,
    pub(crate) warm_up: Option<Tally>,
    pub(crate) window: Tally,
    pub(crate) connections: Connections,
    /// What became of each connection, where that was asked for.
    pub(crate) sequences: Vec<Sequence>,
    /// CPU time of the loop's thread over the window.
    pub(crate) cpu: Duration,
    /// Time over the window for which the thread could have run and had no CPU.
    pub(crate) run_queue: Duration,
    /// When the loop had nothing more to do for the window.
    pub(crate) ended_at: u64,
}

impl Counted {
    pub(crate) fn new(worker: usize) -> Counted {
        Counted {
            worker,
            warm_up: None,
            window: Tally::default(),
            connections: Connections::default(),
            sequences: Vec::new(),
            cpu: Duration::ZERO,
            run_queue: Duration::ZERO,
            ended_at: 0,
        }
    }
}

/// What the calling thread has used and waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    cpu: Duration,
    run_queue: Duration,
}

impl Usage {
    pub(crate) fn now() -> Usage {
        Usage { cpu: clock::thread_cpu_time(), run_queue: clock::thread_run_queue_wait() }
    }

    /// Notes what was used since.
    pub(crate) fn note_since(self, counted: &mut Counted) {
        let now = Usage::now();
        counted.cpu = now.cpu.saturating_sub(self.cpu);
        counted.run_queue = now.run_queue.saturating_sub(self.run_queue);
    }
}

/// Keeps the calling thread on the CPU that is its turn, where CPUs were named.
pub(crate) fn pin(config: &Config, worker: usize) -> io::Result<()> {
    if config.cpus.is_empty() { Ok(()) } else { process::pin_to_cpus(&[config.cpus[worker % config.cpus.len()]]) }
}

/// errno(3): no connection within the time-out.
pub(crate) const ETIMEDOUT: i32 = 110;
/// errno(3): the peer did not speak the protocol that was to make the connection usable.
pub(crate) const EPROTO: i32 = 71;
