//! The typed configuration that the flags make: below it nothing is invalid.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_load::config::{
    Config, Engine, FURTHEST_START, Opening, Pace, Part, Phase, Recovery, StopCondition, default_workers,
};
use plimsoll_load::record::Records;
use plimsoll_load::seed;
use plimsoll_measure::arrivals::{Spacing, Think};
use plimsoll_measure::units::write_duration;
use plimsoll_sys::{cpu, process};

use super::{Arrivals, Common, CpuList, EngineName, Form};
use crate::outcome::usage;
use crate::{ring, source_ip};

/// Connections that a run's slots can number.
const MOST_CONNECTIONS: u64 = 100_000_000;

impl Common {
    pub(in crate::load) fn config(&self, targets: Vec<SocketAddr>) -> anyhow::Result<Config> {
        if !(1..=MOST_CONNECTIONS).contains(&self.connections) {
            return usage(format!(
                "--connections {}: a load needs at least 1 connection, and at most 100M; give a count such as 64",
                self.connections
            ));
        }
        if self.timeout.is_zero() {
            return usage("--timeout 0: nothing can be answered in no time; give a duration such as 30s");
        }
        if self.connect_rate == Some(0.0) {
            return usage(
                "--connect-rate 0: no connection would ever be opened; leave it out, or give a rate such as 1k",
            );
        }
        if let Some(rate) = self.connect_rate
            && (self.connections - 1) as f64 / rate > FURTHEST_START.as_secs_f64()
        {
            return usage(format!(
                "--connect-rate {rate}: the last of {} connections would be opened in more than a year; give a rate \
                 such as 1k",
                self.connections
            ));
        }
        // Not left to clap: beside a flag that excludes --barrier it would not require it. The same
        // goes for --each.
        if self.await_start && !self.barrier {
            return usage(
                "--await-start is given to connections that are all up, and only --barrier waits for them; add \
                 --barrier, which excludes --reconnect, or leave --await-start out",
            );
        }
        if self.await_end && (self.each.is_some() || self.requests.is_some()) {
            return usage(
                "--await-end is of a window of a set length, and the connections of a count close as their requests \
                 end; give a --duration, or leave it out",
            );
        }
        if self.restart_sequence && self.each.is_none() {
            return usage(
                "--restart-sequence starts the requests of --each over; give --each, or leave it out: in other runs a \
                 lost connection is always opened again",
            );
        }
        let pace = self.pace()?;
        Ok(Config {
            targets,
            connections: self.connections as usize,
            stop_condition: self.stop_condition()?,
            pace,
            opening: Opening {
                rate: self.connect_rate,
                barrier: self.barrier,
                await_start: self.await_start,
                reconnect: self.reconnect,
                sources: source_ip::all(&self.source_ip)?,
            },
            await_end: self.await_end,
            max_lag: self.max_lag()?,
            spin: self.spin()?,
            warm_up: self.warm_up,
            timeout: self.timeout,
            engine: self.engine()?,
            workers: self.workers.map_or_else(|| default_workers(pace, process::available_cpus()), usize::from),
            cpus: self.pinned()?,
            start_at: self.start()?,
            others_up_at: None,
            seed: self.seed.unwrap_or_else(seed::drawn),
            recovery: if self.restart_sequence {
                Recovery::Restart { attempts: self.attempts }
            } else {
                Recovery::GiveUp
            },
            records: Records::default(),
            part: Part::ALONE,
            up_together: None,
        })
    }

    /// The CPUs named, each of which this process may use.
    fn pinned(&self) -> anyhow::Result<Vec<usize>> {
        let Some(CpuList(cpus)) = &self.cpus else { return Ok(Vec::new()) };
        // Each is tried. Not in a thread, of which the kernel may still have a trace as this
        // process forks.
        let own = cpu::Thread::current();
        let before = own.cpus()?;
        let refused = cpus.iter().find(|cpu| process::pin_to_cpus(&[**cpu]).is_err());
        own.keep_to(before)?;
        match refused {
            Some(cpu) => usage(format!(
                "--cpus: there is no CPU {cpu} for this process to use; name some of those that `nproc` and `taskset \
                 -p $$` show"
            )),
            None => Ok(cpus.clone()),
        }
    }

    /// Whether each connection has a process of its own.
    pub(in crate::load) fn forks(&self) -> bool {
        self.engine == EngineName::Fork
    }

    /// The engine of this process. Where it forks, each copy drives its one connection by an event
    /// loop.
    fn engine(&self) -> anyhow::Result<Engine> {
        let each = match self.engine {
            EngineName::Epoll => return Ok(Engine::Epoll),
            EngineName::Uring => return ring::require("--engine epoll").map(|()| Engine::Uring),
            EngineName::Threads => "thread",
            EngineName::Fork => "process",
        };
        if self.workers.is_some() {
            return usage(format!(
                "--workers counts event loops, and each connection has a {each} of its own; leave it out"
            ));
        }
        if !self.forks() {
            return Ok(Engine::Threads);
        }
        for (flag, given) in [("--barrier", self.barrier), ("--await-end", self.await_end)] {
            if given {
                return usage(format!(
                    "{flag} needs connections that know of each other, and processes share nothing; use --engine \
                     threads or epoll"
                ));
            }
        }
        if self.files.any_while_it_runs() || self.csv == Some(Form::Tcpbenchmark) {
            return usage(
                "processes keep no common record of requests, seconds or connections; use --engine threads or epoll",
            );
        }
        Ok(Engine::Epoll)
    }

    fn pace(&self) -> anyhow::Result<Pace> {
        let Some(rate) = self.rate else {
            // Not left to clap: beside a flag that excludes --rate it would not require it.
            let needs_rate = [("--arrivals", self.arrivals.is_some()), ("--max-lag", self.max_lag.is_some())];
            if let Some((flag, _)) = needs_rate.into_iter().find(|(_, given)| *given) {
                return usage(format!("{flag} is of requests at a rate; give a --rate, or leave it out"));
            }
            let phase = if self.lockstep { Phase::Lockstep } else { Phase::Spread };
            return Ok(Pace::Closed { think: self.think, phase });
        };
        if rate.from != rate.to && (self.requests.is_some() || self.each.is_some()) {
            return usage(
                "--rate A:B changes over a --duration, and a count of requests has none; give a duration, or one rate",
            );
        }
        let spacing = match self.arrivals {
            None | Some(Arrivals::Poisson) => Spacing::Poisson,
            Some(Arrivals::Fixed) => Spacing::Fixed,
        };
        Ok(Pace::Open { rate, spacing })
    }

    fn max_lag(&self) -> anyhow::Result<Duration> {
        let Some(lag) = self.max_lag else { return Ok(Duration::ZERO) };
        refuse_longer(
            "--max-lag",
            lag,
            LONGEST_LAG,
            "more than 10ms would save next to nothing; give a duration such as 1ms",
        )?;
        if self.engine != EngineName::Epoll {
            return usage(
                "--max-lag needs an event loop that sleeps between requests; leave it out, or use --engine epoll",
            );
        }
        Ok(lag)
    }

    fn spin(&self) -> anyhow::Result<Duration> {
        let Some(spin) = self.spin else { return Ok(Duration::ZERO) };
        refuse_longer(
            "--spin",
            spin,
            LONGEST_SPIN,
            "no timer is later than 1ms on a machine with CPU to spare; give a duration such as 100us",
        )?;
        if self.rate.is_none() && self.think == Think::None {
            return usage(
                "--spin is of requests that are due at an instant; give a --rate or a --think, or leave it out",
            );
        }
        if !matches!(self.engine, EngineName::Epoll | EngineName::Uring) {
            return usage("--spin is of event loops; leave it out, or use --engine epoll or uring");
        }
        Ok(spin)
    }

    fn stop_condition(&self) -> anyhow::Result<StopCondition> {
        match (self.requests, self.each, self.duration) {
            (Some(0), ..) | (_, Some(0), _) => {
                usage("a count of 0 requests asks for nothing; give at least 1, or a --duration")
            }
            (_, Some(each), _) if each > MOST_EACH => usage(format!(
                "--each {each}: more than 1000M requests on each connection would take days; give a --duration"
            )),
            (_, _, Some(Duration::ZERO)) => usage("--duration 0: nothing happens in no time; give one such as 10s"),
            (Some(requests), ..) => Ok(StopCondition::Requests(requests)),
            (_, Some(each), _) => Ok(StopCondition::Each(each)),
            (_, _, duration) => Ok(StopCondition::Time(duration.unwrap_or(DEFAULT_DURATION))),
        }
    }

    fn start(&self) -> anyhow::Result<Option<SystemTime>> {
        if let Some(seconds) = self.countdown {
            return Ok(Some(SystemTime::now() + Duration::from_secs(seconds.into())));
        }
        let Some(seconds) = self.start_at else { return Ok(None) };
        let at = Duration::try_from_secs_f64(seconds).ok().and_then(|since| UNIX_EPOCH.checked_add(since));
        let now = SystemTime::now();
        match at {
            None => usage(format!("--start-at {seconds}: that is no instant; give seconds since 1970")),
            Some(at) if at > now + FURTHEST_START => {
                usage(format!("--start-at {seconds}: that is more than a year ahead; give seconds since 1970"))
            }
            Some(at) if at > now => Ok(Some(at)),
            Some(_) => usage(format!(
                "--start-at {seconds}: that instant has passed, so generators would not start together; give one a \
                 few seconds ahead"
            )),
        }
    }
}

fn refuse_longer(flag: &str, given: Duration, longest: Duration, why: &str) -> anyhow::Result<()> {
    if given <= longest { Ok(()) } else { usage(format!("{flag} {}: {why}", write_duration(given))) }
}

/// Together with the most connections this stays far from where 64 bits end.
const MOST_EACH: u64 = 1_000_000_000;

/// An event loop sleeps no longer than this while answers come, so that it sees how connections
/// end.
const LONGEST_LAG: Duration = Duration::from_millis(10);
/// The longest `--spin`.
const LONGEST_SPIN: Duration = Duration::from_millis(1);

const DEFAULT_DURATION: Duration = Duration::from_secs(10);
