//! What the engines share: what they work from, what the coordinator asks of them, and what they
//! have counted in the end.

use std::io;
use std::time::Duration;

use plimsoll_reactor::source::Rotation;
use plimsoll_reactor::worker_group;
use plimsoll_sys::event::Event;
use plimsoll_sys::{clock, process};

use crate::config::{Config, StopCondition};
use crate::control::Control;
use crate::ledger::Books;
use crate::schedule::Schedule;

/// What every event loop of a run works from.
pub(crate) struct Shared<P> {
    pub(crate) config: Config,
    pub(crate) protocol: P,
    pub(crate) control: Control,
    pub(crate) schedule: Schedule,
    pub(crate) rotations: Vec<Rotation>,
    pub(crate) tables_per_worker: usize,
}

impl<P> Shared<P> {
    /// How many connections the table of this number has. Connections are assigned to tables in
    /// turn, as they are to targets: where there are as many of these, a table has one target's.
    pub(crate) fn share(&self, table: usize) -> usize {
        let tables = self.control.gauges.len();
        (self.config.connections + tables - 1 - table) / tables
    }

    /// How many requests are reserved for a connection: all of `--each`, or one of the run's `-n`,
    /// so that as many connections as possible are busy at once. In an open loop any connection
    /// sends any request, and none is reserved.
    pub(crate) fn first_claim(&self, number: usize) -> u64 {
        first_claim(&self.config, number)
    }

    /// Whether connections are opened though the window has closed: those of a count were asked
    /// for, however early its last request ends. Where each request opens one, none is wanted.
    pub(crate) fn opens_after_window(&self) -> bool {
        self.control.has_ended_count() && !self.config.opening.reconnect
    }
}

fn first_claim(config: &Config, number: usize) -> u64 {
    match config.stop_condition {
        StopCondition::Each(requests) => requests,
        StopCondition::Requests(requests) if !config.pace.is_open() => u64::from((number as u64) < requests),
        StopCondition::Requests(_) | StopCondition::Time(_) => 0,
    }
}

/// The requests that no connection has claimed before the run.
pub(crate) fn unclaimed(config: &Config) -> u64 {
    let Some(requests) = config.stop_condition.shared_count() else { return 0 };
    requests - if config.pace.is_open() { 0 } else { requests.min(config.connections as u64) }
}

/// The threads of a run, as the coordinator sees them.
pub(crate) trait Team {
    /// Makes each look at the moments that are set.
    fn wake(&self);
    /// Whether each has come to its end.
    fn is_finished(&self) -> bool;
    /// Moves all on to a later phase.
    fn set_phase(&self, phase: worker_group::Phase);
    /// Readable when one has come to its end.
    fn request(&self) -> &Event;
}

/// What an event loop, or a connection's thread, has counted and used.
pub(crate) struct ThreadResult {
    pub(crate) worker: usize,
    /// `None` where it did not come to its end.
    pub(crate) books: Option<Books>,
    /// CPU time of the loop's thread over the window.
    pub(crate) cpu: Duration,
    /// The part of it in which [`Config::spin`] polled and found nothing.
    pub(crate) polled: Duration,
    /// Time over the window for which the thread could have run and had no CPU.
    pub(crate) run_queue: Duration,
}

impl ThreadResult {
    pub(crate) fn new(worker: usize) -> ThreadResult {
        ThreadResult { worker, books: None, cpu: Duration::ZERO, polled: Duration::ZERO, run_queue: Duration::ZERO }
    }
}

/// What the calling thread has used and waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    cpu: Duration,
    run_queue: Duration,
}

impl Usage {
    pub(crate) fn now() -> Usage {
        Usage { cpu: clock::thread_cpu_time(), run_queue: clock::thread_run_queue_wait() }
    }

    /// Notes what was used since.
    pub(crate) fn note_since(self, result: &mut ThreadResult) {
        let now = Usage::now();
        result.cpu = now.cpu.saturating_sub(self.cpu);
        result.run_queue = now.run_queue.saturating_sub(self.run_queue);
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Pace;
    use crate::config::tests::config;
    use crate::echo::Echo;
    use plimsoll_measure::arrivals::{Rate, Spacing, Think};
    use plimsoll_wire::echo::{Alphabet, Messages, Verification};

    /// Echoes of 64 bytes.
    pub(crate) fn echo() -> Echo {
        Echo::new(Messages::new(64, Alphabet::Bytes, b"", Verification::Full, 1))
    }

    /// What the threads of a run share, before anything has begun.
    pub(crate) fn shared<P>(config: Config, protocol: P) -> Shared<P> {
        Shared {
            protocol,
            control: Control::new(config.connections, config.stop_condition.shared_count(), unclaimed(&config), 1)
                .expect("an event"),
            schedule: Schedule::new(&config),
            rotations: vec![Rotation::choose(config.targets[0].ip(), config.connections, &[])],
            tables_per_worker: 1,
            config,
        }
    }

    #[test]
    fn every_connection_claims_its_first_request_and_the_sum_is_the_count() {
        let closed = Pace::Closed { think: Think::None, phase: crate::config::Phase::Spread };
        let open = Pace::Open { rate: Rate::constant(1.0), spacing: Spacing::Fixed };
        for (pace, requests, first) in [(closed, 10, 10), (closed, 32, 10), (closed, 3, 3), (open, 32, 0)] {
            let config = Config { stop_condition: StopCondition::Requests(requests), ..config(pace) };
            let claimed: u64 = (0..config.connections).map(|number| first_claim(&config, number)).sum();
            assert_eq!((claimed, claimed + unclaimed(&config)), (first, requests), "{requests}");
        }
    }
}
