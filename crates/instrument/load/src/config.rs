//! What a run is to do, typed: nothing invalid below here.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use plimsoll_measure::arrivals::{Rate, Spacing, Think};

pub use crate::control::UpTogether;
use crate::record::Records;

/// A run of the generator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where connections go, in turn. Not empty.
    pub targets: Vec<SocketAddr>,
    /// How many connections are held at once. At least 1.
    pub connections: usize,
    /// When the run ends.
    pub stop_condition: StopCondition,
    /// When requests are due.
    pub pace: Pace,
    /// How connections are opened.
    pub opening: Opening,
    /// Whether connections stay up after a window of a set length, until a line on standard input,
    /// or its end, lets them close. Without [`Opening::reconnect`].
    pub await_end: bool,
    /// Open loop: how long requests that are due may wait for others, to be sent together.
    pub max_lag: Duration,
    /// How long before a request of a rate, or one after a think time, is due an event loop begins
    /// to poll for it, in place of being woken: timers may be later than that.
    pub spin: Duration,
    /// How long after the connections are up the window opens.
    pub warm_up: Duration,
    /// When the connections of other processes that share the load are expected to be up. Where a
    /// process's own are up before, its warm-up begins then.
    pub others_up_at: Option<SystemTime>,
    /// How long an answer, or a connection, may take.
    pub timeout: Duration,
    /// How sockets are driven.
    pub engine: Engine,
    /// Event loops, where the engine has them. At least 1.
    pub workers: usize,
    /// CPUs that event loops are kept on, in turn; empty leaves them to the scheduler.
    pub cpus: Vec<usize>,
    /// When the run starts; `None` is at once.
    pub start_at: Option<SystemTime>,
    /// What think times and payloads are drawn from.
    pub seed: u64,
    /// What a connection does after a failure.
    pub recovery: Recovery,
    /// What is recorded beside the summary.
    pub records: Records,
    /// Its part among the processes that share one load.
    pub part: Part,
    /// Where these count their connections together.
    pub up_together: Option<UpTogether>,
}

/// A process's place among those that share one load, each with its part of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

impl Part {
    /// The only one.
    pub const ALONE: Part = Part { number: 0, of: 1 };
}

/// How far ahead a start may lie. A later start was written in another unit than seconds, and the
/// generator would wait for it forever.
pub const FURTHEST_START: Duration = Duration::from_secs(365 * 24 * 3600);

/// Requests a second up to which one event loop sends each in time: it wakes for each that is due,
/// and more loops would wake more often.
const RATE_OF_ONE_LOOP: f64 = 50_000.0;

/// How many event loops a run has unless told otherwise: one a CPU, and in an open loop no more
/// than its rate needs.
pub fn default_workers(pace: Pace, cpus: usize) -> usize {
    match pace {
        Pace::Closed { .. } => cpus,
        Pace::Open { rate, .. } => ((rate.from.max(rate.to) / RATE_OF_ONE_LOOP).ceil() as usize).clamp(1, cpus),
    }
}

impl Config {
    /// The place in `targets` of the server that a connection goes to. Generators that share one
    /// load number their connections on from one another.
    pub(crate) fn target(&self, connection: usize) -> usize {
        (self.part.number + connection) % self.targets.len()
    }

    /// The place of a connection among those of its target, which begins with the request of that
    /// number: where each sends few, they would all send the same.
    pub(crate) fn first_request(&self, connection: usize) -> u64 {
        ((self.part.number + connection) / self.targets.len()) as u64
    }

    /// How many requests the run is to make, where a number of them ends it; or else 0.
    pub(crate) fn requests_asked_for(&self) -> u64 {
        match self.stop_condition {
            StopCondition::Time(_) => 0,
            StopCondition::Requests(requests) => requests,
            StopCondition::Each(requests) => requests * self.connections as u64,
        }
    }

    /// Whether no connection is closed before the last has done what it had to do: behind a barrier
    /// all are up together, for the server too, which may accept the last of them when the
    /// first has long been answered. An open loop ends by itself, connection by connection.
    pub fn keeps_all_open(&self) -> bool {
        self.opening.barrier && !self.pace.is_open() && self.stop_condition.is_count()
    }
}

/// How sockets are driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Event loops over epoll: a few threads for any number of connections.
    Epoll,
    /// Event loops over io_uring.
    Uring,
    /// A thread for each connection, as the reports' clients have it. Closed loop only.
    Threads,
}

impl Engine {
    /// Its name, as flags and records have it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Epoll => "epoll",
            Engine::Uring => "uring",
            Engine::Threads => "threads",
        }
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCondition {
    /// The window has this length.
    Time(Duration),
    /// After this many requests in all.
    Requests(u64),
    /// After this many requests on each connection, which then closes.
    Each(u64),
}

impl StopCondition {
    /// Whether a number of requests ends the run.
    pub fn is_count(self) -> bool {
        !matches!(self, StopCondition::Time(_))
    }

    /// The number of requests that all connections share.
    pub(crate) fn shared_count(self) -> Option<u64> {
        if let StopCondition::Requests(requests) = self { Some(requests) } else { None }
    }
}

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A connection sends again once it was answered and has thought.
    Closed {
        /// The pause in between.
        think: Think,
        /// How connections that start together go on.
        phase: Phase,
    },
    /// Requests are due at instants of their own, whatever becomes of earlier ones. A request that
    /// finds no connection free waits for one.
    Open {
        /// How many, over all connections.
        rate: Rate,
        /// How they are spaced.
        spacing: Spacing,
    },
}

impl Pace {
    /// Whether requests are due at instants that the generator can be late for. In a closed loop
    /// without pauses they are due when the answer came.
    pub fn has_schedule(self) -> bool {
        match self {
            Pace::Closed { think, phase } => think != Think::None || phase == Phase::Lockstep,
            Pace::Open { .. } => true,
        }
    }

    /// Whether requests come at a rate of their own.
    pub fn is_open(self) -> bool {
        matches!(self, Pace::Open { .. })
    }
}

/// How connections that start together go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Each begins at a random instant of its first pause.
    Spread,
    /// All begin at the same instant.
    Lockstep,
}

/// What a connection of [`StopCondition::Each`] does after a failure; in other runs it is always
/// opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// What it had left is never sent.
    GiveUp,
    /// It is opened again and starts its requests over, this many times at most (tcpbenchmark's
    /// rule).
    Restart {
        /// Connects in a row without a completed sequence.
        attempts: u16,
    },
}

/// How connections are opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Connections a second; `None` is as fast as they are accepted.
    pub rate: Option<f64>,
    /// Whether requests wait until every connection is up, or has finally failed. In an open loop
    /// they always do: before, what waits for a connection would wait for the generator.
    pub barrier: bool,
    /// Whether requests, once every connection is up, also wait for an instant that a line on
    /// standard input gives. Only with a barrier.
    pub await_start: bool,
    /// A connection for each request, opened when the request is due; response times include that.
    pub reconnect: bool,
    /// Local addresses to connect from, in turn; empty leaves it to the rotation.
    pub sources: Vec<IpAddr>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn an_open_loop_has_as_many_event_loops_as_its_rate_needs() {
        use plimsoll_measure::arrivals::{Rate, Spacing, Think};
        let open = |rate: f64| Pace::Open { rate: Rate::constant(rate), spacing: Spacing::Poisson };
        let loops = [0.1, 50_000.0, 50_001.0, 1e9].map(|rate| default_workers(open(rate), 4));
        assert_eq!(loops, [1, 1, 2, 4]);
        assert_eq!(default_workers(Pace::Closed { think: Think::None, phase: Phase::Spread }, 4), 4);
    }

    /// Ten connections for ten seconds at a pace.
    pub(crate) fn config(pace: Pace) -> Config {
        Config {
            targets: vec![([127, 0, 0, 1], 7).into()],
            connections: 10,
            stop_condition: StopCondition::Time(Duration::from_secs(10)),
            pace,
            opening: Opening { rate: None, barrier: false, await_start: false, reconnect: false, sources: Vec::new() },
            await_end: false,
            max_lag: Duration::ZERO,
            spin: Duration::ZERO,
            warm_up: Duration::ZERO,
            others_up_at: None,
            timeout: Duration::from_secs(30),
            engine: Engine::Epoll,
            workers: 1,
            cpus: Vec::new(),
            start_at: None,
            seed: 1,
            recovery: Recovery::GiveUp,
            records: Records::default(),
            part: Part::ALONE,
            up_together: None,
        }
    }
}
