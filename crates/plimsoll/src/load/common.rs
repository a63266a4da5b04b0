//! The flags that every protocol of `load` has, and the [typed] configuration that they make.

mod typed;

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll_load::config::{Config, Engine};
use plimsoll_measure::arrivals::{Rate, Think};
use plimsoll_measure::limits::{Kind, Limit};
use plimsoll_measure::units;

use super::csv::Form;
use super::files::Wanted;
use super::parse::{CpuList, cpus, rate, think};
use super::resolve::{Family, deal, resolve};
use crate::Output;
use crate::outcome::usage;

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
    /// All connections think from the same instant, with --barrier; without it, each from when it
    /// is up [default: their phases are spread].
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
    /// Event loops [default: one a CPU; with --rate at most one for each 50k requests a second].
    #[arg(
        short = 't',
        long,
        visible_alias = "threads",
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    workers: Option<u16>,
    /// CPUs to keep event loops, threads or processes on, in turn, such as 0,2-3 [default: the
    /// scheduler chooses].
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
    /// Connections opened per second at the start; those opened again, or for each request, are
    /// not held to it [default: as fast as they are accepted].
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
    /// With --duration: once the window has closed and --json has said so, connections stay up
    /// until standard input gives a line, or ends; for 5 s at most. For a program that reads what
    /// the server has used before connections close.
    #[arg(long, help_heading = "Connections", conflicts_with = "reconnect")]
    await_end: bool,
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
        conflicts_with_all = ["json", "per_connection"],
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
}
