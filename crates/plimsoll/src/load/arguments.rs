//! The flags of `load`, and the typed configuration that they make.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use plimsoll_load::config::{Config, Engine, Extent, Opening, Pace, Part, Phase, Recovery};
use plimsoll_load::record::Records;
use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::limits::Limit;
use plimsoll_measure::units;
use plimsoll_sys::process;
use plimsoll_wire::echo::{Alphabet, Messages, Verification};

use super::csv::Form;
use super::files::Wanted;
use super::parse::{CpuList, addresses, cpus, rate, think};
use crate::Output;
use crate::outcome::Usage;
use crate::ring;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) protocol: Protocol,
}

#[derive(Debug, Subcommand)]
pub(super) enum Protocol {
    /// Send random messages and check that they come back.
    #[command(after_help = "\
Examples:
  plimsoll load echo 127.0.0.1:7000                               64 connections for 10 seconds
  plimsoll load echo 127.0.0.1:7000 -c 2500 --each 60 --think 1s  60 requests on each of 2500 connections
  plimsoll load echo 127.0.0.1:7000 -c 1M --barrier --each 2      a million connections, all up before the first request
  plimsoll load echo 127.0.0.1:7000 -R 20k -d 30s                 open loop: 20,000 requests a second, come what may
  plimsoll load echo HOST:7 -d 30s --limit 'response_time.p99 < 50ms' --json")]
    Echo(Echo),
    /// Fetch URLs over HTTP/1.x.
    #[command(after_help = "\
Examples:
  plimsoll load http http://127.0.0.1:8000/index.html             64 connections for 10 seconds
  plimsoll load http http://HOST/a http://HOST/b -c 100 -R 5k     two files in turn, 5,000 requests a second
  plimsoll load http http://HOST/file --http 1.0 -n 100 -c 5      a connection for each of 100 fetches
  plimsoll load http http://HOST/api -m POST -b body.json -H 'Content-Type: application/json'")]
    Http(super::http::Arguments),
}

#[derive(Args, Debug)]
pub(super) struct Echo {
    /// Where to connect: ADDR:PORT; several are used in turn.
    #[arg(required = true, value_name = "ADDR:PORT")]
    targets: Vec<String>,
    /// Payload of a request.
    #[arg(short, long, default_value = "64B", value_parser = units::size, help_heading = "Echo")]
    pub(super) size: u64,
    /// What payloads are made of.
    #[arg(long, value_enum, default_value = "bytes", help_heading = "Echo")]
    payload: Payload,
    /// How closely answers are checked: every byte, their length, or not at all.
    #[arg(long, value_enum, default_value = "full", help_heading = "Echo")]
    verify: Verify,
    /// What the server appends to each echo.
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Echo")]
    postfix: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Payload {
    Text,
    Bytes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Verify {
    Full,
    Length,
    None,
}

#[derive(Args, Debug)]
pub(super) struct Common {
    /// Concurrent connections.
    #[arg(short, long, value_name = "N", default_value = "64", value_parser = units::count)]
    connections: u64,
    /// Length of the measured window [default: 10s, unless a count is given].
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["requests", "each"])]
    duration: Option<Duration>,
    /// Stop after N requests in all.
    #[arg(short = 'n', long, value_name = "N", value_parser = units::count, conflicts_with = "each")]
    requests: Option<u64>,
    /// N requests on each connection, then it closes.
    #[arg(long, value_name = "N", value_parser = units::count)]
    each: Option<u64>,
    /// Pause between an answer and the next request; `exp:D` draws it from an exponential distribution of mean D.
    #[arg(long, alias = "delay", value_name = "DURATION", default_value = "0", value_parser = think)]
    think: Think,
    /// All connections think from the same instant [default: their phases are spread].
    #[arg(long)]
    lockstep: bool,
    /// Open loop: N requests a second in all, whatever becomes of those before; `A:B` goes evenly from one rate to another over the window.
    #[arg(short = 'R', long, value_name = "N|A:B", value_parser = rate, conflicts_with_all = ["think", "lockstep"])]
    rate: Option<Rate>,
    /// Open loop: how requests are spaced around their rate.
    #[arg(long, value_enum, default_value = "poisson", requires = "rate")]
    arrivals: Arrivals,
    /// How connections are driven: by event loops over epoll or io_uring, or by a thread or a process each, as the reports' clients do.
    #[arg(long, value_enum, default_value = "epoll")]
    engine: EngineName,
    /// Event loops [default: one a CPU].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// CPUs to keep event loops on, in turn, such as 0,2-3 [default: the scheduler chooses].
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// Excluded from the window, which opens this long after the connections are up.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = units::duration)]
    warm_up: Duration,
    /// How long a request may take, from its intended start, or a connection to be established.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::duration)]
    timeout: Duration,
    /// Seed of payloads, think times and phases.
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// What must hold, such as 'response_time.p99 < 250ms' (repeatable); missed: exit code 3.
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
    /// Local address, or CIDR range of such, to connect from in turn (repeatable) [default: the kernel's choice; loopback rotates by itself].
    #[arg(long, value_name = "ADDR|CIDR", help_heading = "Connections")]
    source_ip: Vec<String>,
    /// With --each: after a failure a connection is opened again and starts its requests over.
    #[arg(long, requires = "each", help_heading = "Connections")]
    restart_sequence: bool,
    /// With --restart-sequence: connects of one connection before it is given up.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..), requires = "restart_sequence", help_heading = "Connections")]
    attempts: u16,
    #[command(flatten)]
    pub(super) files: Wanted,
    /// Print the summary as one row of CSV: every figure, or tcpbenchmark's columns (its threads are our connections).
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "summary", conflicts_with = "json", help_heading = "Output")]
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

pub(super) fn usage<T>(why: impl Into<String>) -> anyhow::Result<T> {
    Err(anyhow!(Usage(why.into())))
}

/// Connections that a run's slots can number.
const MOST_CONNECTIONS: u64 = 100_000_000;
/// The largest echo message: it, and a buffer of its size in the server, must fit in memory beside everything else.
const MOST_BYTES: u64 = 1 << 30;

impl Echo {
    pub(super) fn targets(&self) -> anyhow::Result<Vec<SocketAddr>> {
        self.targets.iter().map(|target| resolve(target)).collect()
    }

    /// The first target, as it was written.
    pub(super) fn first_target(&self) -> &str {
        &self.targets[0]
    }

    pub(super) fn messages(&self, seed: u64) -> anyhow::Result<Messages> {
        if self.size == 0 || self.size > MOST_BYTES {
            return usage(format!(
                "--size {}: an echo needs at least one byte and at most 1GiB, or there is no answer to wait for; give a size such as 64B",
                self.size
            ));
        }
        let alphabet = match self.payload {
            Payload::Text => Alphabet::Text,
            Payload::Bytes => Alphabet::Bytes,
        };
        let verification = match self.verify {
            Verify::Full => Verification::Full,
            Verify::Length => Verification::Length,
            Verify::None => Verification::None,
        };
        Ok(Messages::new(self.size as usize, alphabet, self.postfix.as_bytes(), verification, seed))
    }
}

impl Common {
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
        Ok(Config {
            targets,
            connections: self.connections as usize,
            extent: self.extent()?,
            pace: self.pace()?,
            opening: Opening {
                rate: self.connect_rate,
                barrier: self.barrier,
                reconnect: self.reconnect,
                sources: self.sources()?,
            },
            warm_up: self.warm_up,
            timeout: self.timeout,
            engine: self.engine()?,
            workers: self.threads.map_or_else(process::available_cpus, usize::from),
            cpus: self.pinned()?,
            start_at: self.start()?,
            seed: self.seed,
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
                "--cpus: there is no CPU {cpu} for this process to use; name some of those that `nproc` and `taskset -p $$` show"
            )),
            None => Ok(cpus.clone()),
        }
    }

    /// Whether each connection has a process of its own.
    pub(super) fn forks(&self) -> bool {
        self.engine == EngineName::Fork
    }

    /// The engine of this process. Where it forks, each copy drives its one connection by an event loop.
    fn engine(&self) -> anyhow::Result<Engine> {
        let each = match self.engine {
            EngineName::Epoll => return Ok(Engine::Epoll),
            EngineName::Uring => return ring::require("--engine epoll").map(|()| Engine::Uring),
            EngineName::Threads => "thread",
            EngineName::Fork => "process",
        };
        if self.threads.is_some() {
            return usage(format!(
                "--threads counts event loops, and each connection has a {each} of its own; leave it out"
            ));
        }
        if !self.forks() {
            return Ok(Engine::Threads);
        }
        if self.barrier {
            return usage(
                "--barrier needs connections that know of each other, and processes share nothing; use --engine threads or epoll",
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
            let phase = if self.lockstep { Phase::Lockstep } else { Phase::Spread };
            return Ok(Pace::Closed { think: self.think, phase });
        };
        if rate.from != rate.to && (self.requests.is_some() || self.each.is_some()) {
            return usage(
                "--rate A:B changes over a --duration, and a count of requests has none; give a duration, or one rate",
            );
        }
        let spacing = match self.arrivals {
            Arrivals::Poisson => Spacing::Poisson,
            Arrivals::Fixed => Spacing::Fixed,
        };
        Ok(Pace::Open { rate, spacing })
    }

    fn extent(&self) -> anyhow::Result<Extent> {
        match (self.requests, self.each, self.duration) {
            (Some(0), ..) | (_, Some(0), _) => {
                usage("a count of 0 requests asks for nothing; give at least 1, or a --duration")
            }
            (_, Some(each), _) if each > MOST_EACH => usage(format!(
                "--each {each}: more than 1000M requests on each connection would take days; give a --duration"
            )),
            (_, _, Some(Duration::ZERO)) => usage("--duration 0: nothing happens in no time; give one such as 10s"),
            (Some(requests), ..) => Ok(Extent::Requests(requests)),
            (_, Some(each), _) => Ok(Extent::Each(each)),
            (_, _, duration) => Ok(Extent::Lasts(duration.unwrap_or(DEFAULT_DURATION))),
        }
    }

    fn start(&self) -> anyhow::Result<Option<SystemTime>> {
        if let Some(seconds) = self.countdown {
            return Ok(Some(SystemTime::now() + Duration::from_secs(seconds.into())));
        }
        let Some(seconds) = self.start_at else { return Ok(None) };
        let at = Duration::try_from_secs_f64(seconds).ok().and_then(|since| UNIX_EPOCH.checked_add(since));
        match at.filter(|at| *at > SystemTime::now()) {
            Some(at) => Ok(Some(at)),
            None => usage(format!(
                "--start-at {seconds}: that instant has passed, so generators would not start together; give one a few seconds ahead"
            )),
        }
    }

    fn sources(&self) -> anyhow::Result<Vec<IpAddr>> {
        let mut all = Vec::new();
        for text in &self.source_ip {
            match addresses(text) {
                Some(addresses) => all.extend(addresses),
                None => {
                    return usage(format!(
                        "--source-ip {text}: not an address or CIDR range; write one of this machine's, such as 192.0.2.7 or 192.0.2.16/28"
                    ));
                }
            }
        }
        Ok(all)
    }
}

/// Together with the most connections this stays far from where 64 bits end.
const MOST_EACH: u64 = 1_000_000_000;

const DEFAULT_DURATION: Duration = Duration::from_secs(10);

pub(super) fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let found = text.to_socket_addrs().map_err(|error| error.to_string());
    match found.and_then(|mut found| found.next().ok_or_else(|| "the name has no address".to_owned())) {
        Ok(address) if address.port() == 0 => {
            usage(format!("cannot load `{text}`: nothing listens on port 0; name the server's port"))
        }
        Ok(address) => Ok(address),
        Err(error) => usage(format!(
            "cannot load `{text}`: {error}; write ADDR:PORT of a server that can be reached, such as 127.0.0.1:7000 or [::1]:7000"
        )),
    }
}
