//! A run, from its configuration to what was counted: the engine's threads, and the coordinator
//! that sees them through.

mod coordinator;
mod input;
mod untaken;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_measure::tally::{Connections, Requests, Tally};
use plimsoll_reactor::source::Rotation;
use plimsoll_reactor::worker_group::{Growth, Phase, WorkerGroup};
use plimsoll_sys::descriptor;
use plimsoll_sys::event::Event;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use thiserror::Error;

use crate::config::{Config, Engine};
use crate::control::Control;
use crate::event_loop::{self, Epoll, Sockets, Uring, slot_bytes};
use crate::protocol::{Protocol, Report};
use crate::record::Sequence;
use crate::schedule::Schedule;
use crate::shared::{Shared, Team, ThreadResult, unclaimed};
use crate::threads::{self, Threads};
use coordinator::Coordinator;

/// Descriptors that a table keeps free of connections: standard streams, events, epoll, what the
/// coordinator had open.
const RESERVED_DESCRIPTORS: usize = 64;
/// How often progress is shown.
const TICK: Duration = Duration::from_millis(250);

/// Why a run failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The kernel refused something that the run needs.
    #[error("{what}: {source}")]
    Kernel {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The threads engine has one descriptor table.
    #[error(
        "a thread for each of {connections} connections needs as many descriptors in one table, and there is room for \
         {room}; use the epoll engine, which takes further tables, or raise the limit (ulimit -n)"
    )]
    TooManyThreads {
        /// Connections asked for.
        connections: usize,
        /// Connections that fit.
        room: usize,
    },
    /// Standard input ended before it gave the start.
    #[error(
        "--await-start: standard input ended before it gave the instant to start at; \
         keep it open, and write a line to it such as 1763800000.25, in seconds since 1970"
    )]
    StartGone,
    /// What was given is no instant, or one too far ahead ([`crate::config::FURTHEST_START`]).
    #[error(
        "--await-start: '{line}' is no instant within the coming year; write a line such as 1763800000.25, in seconds \
         since 1970"
    )]
    BadStart {
        /// The line.
        line: String,
    },
}

impl RunError {
    /// Whether this machine, as it is now, cannot make the run: descriptors, threads or memory are
    /// too few for it.
    pub fn is_environment(&self) -> bool {
        match self {
            RunError::TooManyThreads { .. } => true,
            // EAGAIN of a thread that could not be started (clone(2)).
            RunError::Kernel { source, .. } => {
                descriptor::is_exhaustion(source) || source.kind() == io::ErrorKind::WouldBlock
            }
            RunError::StartGone | RunError::BadStart { .. } => false,
        }
    }
}

/// Gets the events of a run as they happen.
pub trait Observer {
    /// Every connection is up, or has finally failed, and requests wait for a start to be given.
    /// `connections` are up.
    fn all_up(&mut self, connections: u64, at: SystemTime);
    /// The window opened at this instant, which may have been noticed later.
    fn window_opened(&mut self, at: SystemTime);
    /// The window closed, likewise. Where connections stay up after it until another program lets
    /// them close, `holds` is for how long at most.
    fn window_closed(&mut self, at: SystemTime, holds: Option<Duration>);
    /// The run was over before its window could open, at this instant, which is both of its ends.
    fn window_missed(&mut self, at: SystemTime) {
        self.window_opened(at);
        self.window_closed(at, None);
    }
    /// Reports how far the run has come, at least four times a second.
    fn progress(&mut self, progress: &Progress);
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is going on.
    pub stage: Stage,
    /// Time since the run began.
    pub elapsed: Duration,
    /// Time until the start, while it is waited for.
    pub left: Duration,
    /// Connections that are up.
    pub connections: u64,
    /// Requests answered since the run began.
    pub completed: u64,
    /// Requests failed or timed out since the run began.
    pub failed: u64,
    /// Requests answered in the window: what a count is of.
    pub in_window: u64,
}

/// A run's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the instant to start at.
    Waiting,
    /// Connections are being opened.
    Opening,
    /// Connections are up, and the instant at which requests begin has not been given.
    AllUp,
    /// The window has yet to open.
    WarmUp,
    /// The window is open.
    Window,
    /// The window is closed, and requests under way come to their end.
    Drain,
}

/// What a run yielded.
#[derive(Debug)]
pub struct Outcome {
    /// What was counted before the window, where anything was.
    pub warm_up: Tally,
    /// What was counted in the window.
    pub window: Tally,
    /// What became of the connections.
    pub connections: Connections,
    /// The most that were up at once.
    pub peak: u64,
    /// When the window opened, in nanoseconds since 1970.
    pub opened_unix_ns: u64,
    /// The window's length.
    pub elapsed: Duration,
    /// From the instant that the run was to start at until it began; where requests awaited a
    /// start, from that start until they could begin.
    pub start_lag: Duration,
    /// From the window's opening until its last request was begun.
    pub offered_for: Duration,
    /// CPU time of the whole process over the window.
    pub cpu: Duration,
    /// CPU time over the window of the event loop that used most.
    pub busiest_cpu: Duration,
    /// The same without the polling of [`Config::spin`] that found nothing.
    pub busiest_work: Duration,
    /// CPU time over the window of polling that found nothing, of all event loops.
    pub polled: Duration,
    /// The longest that an event loop could have run over the window and had no CPU.
    pub run_queue: Duration,
    /// Event loops.
    pub workers: usize,
    /// Descriptor tables that the loops needed.
    pub tables: usize,
    /// Resident memory of the process at the window's end.
    pub memory_bytes: u64,
    /// Resident memory that the connections added, over their number; for a few connections the
    /// size of a slot.
    pub bytes_each: u64,
    /// What became of each connection, by number, where that was asked for.
    pub sequences: Vec<Sequence>,
    /// What the protocol has seen of the connections.
    pub report: Report,
    /// The signal that ended the run early.
    pub interrupted: Option<Signal>,
}

impl Team for WorkerGroup<io::Result<ThreadResult>> {
    fn wake(&self) {
        WorkerGroup::wake(self);
    }

    fn is_finished(&self) -> bool {
        WorkerGroup::is_finished(self)
    }

    fn set_phase(&self, phase: Phase) {
        WorkerGroup::set_phase(self, phase);
    }

    fn request(&self) -> &Event {
        WorkerGroup::request(self)
    }
}

/// Makes a run.
pub fn run<P: Protocol>(config: &Config, protocol: P, observer: &mut dyn Observer) -> Result<Outcome, RunError> {
    let signals =
        Signals::take(&[Signal::Interrupt, Signal::Terminate]).map_err(kernel("signals cannot be received"))?;
    match config.engine {
        Engine::Epoll => run_loops::<P, Epoll>(config, protocol, signals, observer),
        Engine::Uring => run_loops::<P, Uring>(config, protocol, signals, observer),
        Engine::Threads => run_threads(config, protocol, signals, observer),
    }
}

fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError::Kernel { what, source }
}

fn run_loops<P: Protocol, S: Sockets>(
    config: &Config,
    protocol: P,
    signals: Signals,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let workers = config.workers.min(config.connections).max(1);
    let room = S::room(descriptor::limit().saturating_sub(RESERVED_DESCRIPTORS)).max(1);
    let tables_per_worker = config.connections.div_ceil(workers).div_ceil(room);
    if let Some(interrupted) = wait_for_start(config, &signals, observer) {
        return Ok(Outcome::nothing(config, interrupted));
    }
    let shared = share(config, protocol, workers * tables_per_worker, tables_per_worker)?;
    let body = Arc::clone(&shared);
    let mut group = WorkerGroup::new(workers, Growth::Never, move |handle| {
        let result = event_loop::run::<P, S>(handle, Arc::clone(&body));
        if result.is_err() {
            body.control.give_up();
        }
        result
    })
    .map_err(kernel("an event cannot be made"))?;
    let mut coordinator = Coordinator::new(&shared, observer, signals, workers, slot_bytes::<P, S>())?;
    coordinator.set_first_moments();
    for table in 0..tables_per_worker * workers {
        group.add_table(table % workers).map_err(kernel("an event loop cannot be started"))?;
    }
    let ends = coordinator.run_until_done(&group);
    let results: io::Result<Vec<ThreadResult>> = group.join().into_iter().collect();
    let results = results.map_err(kernel("an event loop failed"))?;
    Ok(coordinator.gather(results, ends?))
}

/// Gauges that the threads of as many connections share: enough that they seldom meet.
const THREAD_GAUGES: usize = 64;

fn run_threads<P: Protocol>(
    config: &Config,
    protocol: P,
    signals: Signals,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    let room = descriptor::limit().saturating_sub(RESERVED_DESCRIPTORS);
    if config.connections > room {
        return Err(RunError::TooManyThreads { connections: config.connections, room });
    }
    let shared = share(config, protocol, THREAD_GAUGES.min(config.connections), 1)?;
    let team = Threads::start(&shared).map_err(kernel("a thread for each connection cannot be started"))?;
    // All threads are there before the start, so that they start together.
    if let Some(interrupted) = wait_for_start(config, &signals, observer) {
        team.set_phase(Phase::Stop);
        team.join();
        return Ok(Outcome::nothing(config, interrupted));
    }
    let mut coordinator = Coordinator::new(&shared, observer, signals, config.connections, threads::bytes_each::<P>())?;
    coordinator.set_first_moments();
    team.wake();
    let ends = coordinator.run_until_done(&team);
    let results = team.join();
    Ok(coordinator.gather(results, ends?))
}

fn share<P: Protocol>(
    config: &Config,
    protocol: P,
    tables: usize,
    tables_per_worker: usize,
) -> Result<Arc<Shared<P>>, RunError> {
    let count = config.stop_condition.shared_count();
    let mut control = Control::new(config.connections, count, unclaimed(config), tables)
        .map_err(kernel("an event cannot be made"))?;
    control.up_together = config.up_together;
    let rotations = rotations(config);
    let schedule = Schedule::new(config);
    Ok(Arc::new(Shared { rotations, protocol, control, schedule, tables_per_worker, config: config.clone() }))
}

/// Which source address each connection uses, for each target.
fn rotations(config: &Config) -> Vec<Rotation> {
    // With a connection for each request there is no telling how many there will be.
    let all = config.connections * config.part.of;
    let each = if config.opening.reconnect { usize::MAX } else { all.div_ceil(config.targets.len()) };
    let choose = |target: &SocketAddr| Rotation::choose(target.ip(), each, &config.opening.sources);
    config.targets.iter().map(choose).collect()
}

fn wait_for_start(config: &Config, signals: &Signals, observer: &mut dyn Observer) -> Option<Signal> {
    let start = config.start_at?;
    let begun = SystemTime::now();
    while let Ok(left) = start.duration_since(SystemTime::now()) {
        let elapsed = begun.elapsed().unwrap_or_default();
        observer.progress(&Progress {
            stage: Stage::Waiting,
            elapsed,
            left,
            connections: 0,
            completed: 0,
            failed: 0,
            in_window: 0,
        });
        let mut places = [place(signals)];
        // Sleeping to within a tick of the instant, then for the rest of it: the kernel wakes us
        // within its timer slack.
        let _ = poll::wait(&mut places, Some(left.min(TICK)));
        if let Some(signal) = signals.next() {
            return Some(signal);
        }
    }
    None
}

impl Outcome {
    pub(crate) fn nothing_yet() -> Outcome {
        Outcome {
            warm_up: Tally::default(),
            window: Tally::default(),
            connections: Connections::default(),
            peak: 0,
            opened_unix_ns: 0,
            elapsed: Duration::ZERO,
            start_lag: Duration::ZERO,
            offered_for: Duration::ZERO,
            cpu: Duration::ZERO,
            busiest_cpu: Duration::ZERO,
            busiest_work: Duration::ZERO,
            polled: Duration::ZERO,
            run_queue: Duration::ZERO,
            workers: 0,
            tables: 0,
            memory_bytes: 0,
            bytes_each: 0,
            sequences: Vec::new(),
            report: Report::default(),
            interrupted: None,
        }
    }

    /// A run that was ended before it began: its window is the instant at which it was ended, and
    /// of a count nothing was sent.
    fn nothing(config: &Config, interrupted: Signal) -> Outcome {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened_unix_ns = now.as_nanos() as u64;
        let mut outcome = Outcome { opened_unix_ns, interrupted: Some(interrupted), ..Outcome::nothing_yet() };
        let count = config.requests_asked_for();
        outcome.window.requests = Requests { scheduled: count, unsent: count, ..Requests::default() };
        outcome
    }
}

/// An instant as seconds since 1970, as records have it.
pub fn unix_seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn place(descriptor: &impl std::os::fd::AsFd) -> Place {
    use std::os::fd::AsRawFd;
    Place::new(descriptor.as_fd().as_raw_fd(), Interest::READ)
}
