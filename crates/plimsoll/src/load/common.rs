//! The flags that every protocol of `load` has, and the typed configuration that they make.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use plimsoll_load::config::{
    Config, Engine, FURTHEST_START, Opening, Pace, Part, Phase, Recovery, StopCondition, default_workers,
};
use plimsoll_load::record::Records;
use plimsoll_load::seed;
use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::limits::{Kind, Limit};
use plimsoll_measure::units::{self, write_duration};
use plimsoll_sys::process;

use super::csv::Form;
use super::files::Wanted;
use super::parse::{CpuList, cpus, rate, think};
use super::resolve::{Family, deal, resolve};
use crate::Output;
use crate::outcome::usage;
use crate::{ring, source_ip};

#[derive(Args, Debug)]
pub(super) struct Common {
    /// Concurrent connections.
    #[arg(short, long, value_name = "N", default_value = "64", value_parser = units::count)]
    connections: u64,
    /// Length of the measured window [default: 10s, unless a count is given].
    #[arg(
        short,
        long,
        value_name = "DURATION",
        value_parser = units::seconds,
        conflicts_with_all = ["requests", "each"]
    )]
    duration: Option<Duration>,
    /// Stop after N requests in all.
    #[arg(short = 'n', long, value_name = "N", value_parser = units::count, conflicts_with = "each")]
    requests: Option<u64>,
    /// N requests on each connection, then it closes.
    #[arg(long, value_name = "N", value_parser = units::count)]
    each: Option<u64>,
    /// Pause between an answer and the next request; `exp:D` draws it from an exponential
    /// distribution of mean D.
    #[arg(long, alias = "delay", value_name = "DURATION", default_value = "0", value_parser = think)]
    think: Think,
    /// All connections think from the same instant [default: their phases are spread].
    #[arg(long)]
    lockstep: bool,
    /// Open loop: N requests a second in all, sent when they are due, whether or not earlier ones
    /// are answered. `A:B` changes evenly from one rate to another over the window.
    #[arg(short = 'R', long, value_name = "N|A:B", value_parser = rate, conflicts_with_all = ["think", "lockstep"])]
    rate: Option<Rate>,
    /// Open loop: how requests are spaced around their rate: `poisson` as from independent people,
    /// `fixed` at equal distances, the first of them at an offset that the seed draws [default:
    /// poisson].
    #[arg(long, value_enum)]
    arrivals: Option<Arrivals>,
    /// Open loop: requests that are due may wait this long (at most 10ms) for others, to be sent
    /// together, which saves CPU time. Response times include the wait [default: 0, each is sent
    /// when it is due].
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    max_lag: Option<Duration>,
    /// Poll for this long (at most 1ms) before a request of a rate, or one after a think time, is
    /// due. Timers may be late: those of a virtual machine by some 50us. Each request costs this
    /// much more CPU time [default: 0].
    #[arg(long, value_name = "DURATION", value_parser = units::seconds, conflicts_with = "max_lag")]
    spin: Option<Duration>,
    /// How connections are driven: by event loops over epoll or io_uring, or by a thread or a
    /// process for each connection.
    #[arg(long, value_enum, default_value = "epoll")]
    engine: EngineName,
    /// Event loops [default: one a CPU; with --rate one for each 50k requests a second].
    #[arg(
        short = 't',
        long,
        visible_alias = "threads",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    workers: Option<u16>,
    /// CPUs to keep event loops on, in turn, such as 0,2-3 [default: the scheduler chooses].
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// How long after the connections are up the window opens. What happens before is not measured.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = units::seconds)]
    warm_up: Duration,
    /// How long a request may take, from its intended start, or a connection to be established.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::seconds)]
    pub(super) timeout: Duration,
    /// Seed of all that is random: payloads, arrivals, think times. The summary has it [default:
    /// drawn anew for each run].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// What must hold, such as 'response_time.p99 < 250ms' or 'statuses.404 == 0' (repeatable). A
    /// limit that is missed makes the exit code 3.
    #[arg(long, value_name = "EXPRESSION", value_parser = str::parse::<Limit>)]
    pub(super) limit: Vec<Limit>,
    /// Connections opened per second [default: as fast as they are accepted].
    #[arg(long, value_name = "N", value_parser = units::rate, help_heading = "Connections")]
    connect_rate: Option<f64>,
    /// A new connection for each request, opened when it is due; response times include that.
    #[arg(long, help_heading = "Connections", conflicts_with = "barrier")]
    pub(super) reconnect: bool,
    /// No request before every connection is up.
    #[arg(long, help_heading = "Connections")]
    barrier: bool,
    /// With --barrier: once every connection is up, --json says so (`all_up`), and requests begin
    /// at the instant that a line on standard input gives, in seconds since 1970. For generators
    /// that are to begin together; --start-at is still when connections begin to open.
    #[arg(long, help_heading = "Connections")]
    await_start: bool,
    /// Local address, or a CIDR range of them, to connect from in turn (repeatable) [default: the
    /// kernel's choice, and several addresses of loopback where its ports would run out].
    #[arg(long, value_name = "ADDR|CIDR", help_heading = "Connections")]
    source_ip: Vec<String>,
    #[command(flatten)]
    pub(super) family: Family,
    /// With --each: after a failure a connection is opened again and starts its requests over.
    #[arg(long, help_heading = "Connections")]
    restart_sequence: bool,
    /// With --restart-sequence: connects of one connection before it is given up.
    #[arg(
        long,
        value_name = "N",
        default_value = "10",
        value_parser = clap::value_parser!(u16).range(1..),
        requires = "restart_sequence",
        help_heading = "Connections"
    )]
    attempts: u16,
    #[command(flatten)]
    pub(super) files: Wanted,
    /// Print the summary as one row of CSV: every figure, tcpbenchmark's columns (its threads are
    /// our connections), or three-servers' (no header: append it to a file by `>>`).
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "summary",
        conflicts_with = "json",
        help_heading = "Output"
    )]
    pub(super) csv: Option<Form>,
    /// Start at this instant, in seconds since 1970.
    #[arg(long, value_name = "UNIX_SECONDS", conflicts_with = "countdown")]
    start_at: Option<f64>,
    /// Count down this many seconds, then start.
    #[arg(long, value_name = "N")]
    pub(super) countdown: Option<u32>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    Epoll,
    Uring,
    Threads,
    Fork,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Arrivals {
    Poisson,
    Fixed,
}

/// Connections that a run's slots can number.
const MOST_CONNECTIONS: u64 = 100_000_000;
impl Common {
    /// The addresses that connections go to in turn, each with the place of its server among
    /// `servers`.
    pub(super) fn deal(&self, servers: &[String]) -> anyhow::Result<Vec<(usize, SocketAddr)>> {
        let mut resolved = Vec::new();
        for name in servers {
            let server = resolve(name, self.family)?;
            if let Some(note) = server.note(name) {
                self.output.note(&note);
            }
            resolved.push(server);
        }
        match deal(&resolved, self.connections.max(1) as usize) {
            Some(dealt) => Ok(dealt),
            None => usage(format!(
                "--connections {}: of {} servers some would have none; give a connection to each, or load fewer \
                 servers",
                self.connections,
                servers.len()
            )),
        }
    }

    /// Refuses a limit on a figure that this run does not have.
    pub(super) fn check_limits(&self, config: &Config, statuses: bool) -> anyhow::Result<()> {
        let (open, scheduled) = (config.pace.is_open(), config.pace.has_schedule());
        let kind = Kind { open, scheduled, statuses, receive_lag: !open || config.engine != Engine::Epoll };
        match self.limit.iter().find_map(|limit| limit.missing_in(kind)) {
            Some(why) => usage(format!("--limit: {why}")),
            None => Ok(()),
        }
    }

    pub(super) fn config(&self, targets: Vec<SocketAddr>) -> anyhow::Result<Config> {
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
        // Not left to clap: beside a flag that excludes --barrier it would not require it. The same
        // goes for --each.
        if self.await_start && !self.barrier {
            return usage(
                "--await-start is given to connections that are all up, and only --barrier waits for them; add \
                 --barrier, which excludes --reconnect, or leave --await-start out",
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
            max_lag: self.max_lag()?,
            spin: self.spin()?,
            warm_up: self.warm_up,
            timeout: self.timeout,
            engine: self.engine()?,
            workers: self.workers.map_or_else(|| default_workers(pace, process::available_cpus()), usize::from),
            cpus: self.pinned()?,
            start_at: self.start()?,
            seed: self.seed.unwrap_or_else(seed::drawn),
            recovery: if self.restart_sequence {
                Recovery::Restart { attempts: self.attempts }
            } else {
                Recovery::GiveUp
            },
            records: Records::default(),
            part: Part::ALONE,
        })
    }

    /// The CPUs named, each of which this process may use.
    fn pinned(&self) -> anyhow::Result<Vec<usize>> {
        let Some(CpuList(cpus)) = &self.cpus else { return Ok(Vec::new()) };
        // Tried in a thread that ends at once: the affinity of this one is left alone.
        let may_use = |cpu: usize| std::thread::spawn(move || process::pin_to_cpus(&[cpu])).join();
        match cpus.iter().find(|cpu| !matches!(may_use(**cpu), Ok(Ok(())))) {
            Some(cpu) => usage(format!(
                "--cpus: there is no CPU {cpu} for this process to use; name some of those that `nproc` and `taskset \
                 -p $$` show"
            )),
            None => Ok(cpus.clone()),
        }
    }

    /// Whether each connection has a process of its own.
    pub(super) fn forks(&self) -> bool {
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
        if self.barrier {
            return usage(
                "--barrier needs connections that know of each other, and processes share nothing; use --engine \
                 threads or epoll",
            );
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
