//! `plimsoll forward`: a port forwarder that runs until a signal stops it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use plimsoll_forward::table::{self, LogFormat, LogTarget, Sources, Table};
use plimsoll_forward::{Config, Error, FileWatch, Forwarder, Inherited, Source, Strategy, Totals};
use plimsoll_measure::units;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::{inherited, process};
use serde::Serialize;

use crate::event::Event;
use crate::named::named;
use crate::outcome::{Usage, note};
use crate::{Output, source_ip};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll forward 127.0.0.1:7000=192.0.2.10:80
  plimsoll forward '*:8443=[2001:db8::1]:443' unix:/run/a.sock=127.0.0.1:5432
  plimsoll forward '*:20000-20100=192.0.2.7'              a range of ports, each to the same port there
  plimsoll forward --config forward.toml --check          say whether the table is valid, and end
  plimsoll forward --config forward.toml --upgrade        take over from the one that runs, or start
  plimsoll forward --config forward.toml --watch          read it anew whenever it changes (SIGHUP does too)
  plimsoll forward --table port_fwd_table.config          port_fwd's file, or rinetd.conf")]
pub(crate) struct Arguments {
    /// LISTEN=DESTINATION, split at the last `=`. LISTEN is ADDRESS:PORT, *:PORT or unix:PATH;
    /// DESTINATION is HOST:PORT or unix:PATH.
    #[arg(
        value_name = "MAPPING",
        required_unless_present_any = ["config", "table"],
        conflicts_with_all = ["config", "table"]
    )]
    mappings: Vec<String>,
    /// Local address, or a CIDR range of them, to connect from in turn (repeatable): one has ports
    /// for some 14,000 connections to a destination. A table has its own (`source`) [default: the
    /// kernel's choice, and several addresses of loopback where its ports would run out].
    #[arg(long, value_name = "ADDR|CIDR", conflicts_with_all = ["config", "table"])]
    source_ip: Vec<String>,
    /// Read the table from a TOML file.
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    config: Option<PathBuf>,
    /// Read the table from a file of port_fwd (PORT=ADDRESS|PORT) or of rinetd.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Read the table, say whether it is valid, and end.
    #[arg(long)]
    check: bool,
    /// Event loops [default: one a CPU].
    #[arg(long, visible_alias = "threads", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How workers get connections: single (one worker), handoff (one thread accepts for all),
    /// exclusive (shared listeners) or reuseport (a listener for each worker) [default:
    /// exclusive, or single for one worker].
    #[arg(long, value_name = "STRATEGY", hide_possible_values = true)]
    #[arg(value_parser = named(&Strategy::ALL, Strategy::name))]
    accept: Option<Strategy>,
    /// How long connections may go on after SIGTERM or SIGINT.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::seconds)]
    drain: Duration,
    /// Read the table anew whenever its file changes.
    #[arg(long)]
    watch: bool,
    /// Run as this user once listeners and logs are open. A reload can open then only what that
    /// user may [default: the user that starts it].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Write a CSV row for each closed connection to a file, or to standard output with `stdout`.
    #[arg(long = "connection-log", visible_alias = "log", value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write port_fwd's log, a CSV row for each relayed read. It turns splice off.
    #[arg(long, value_name = "FILE")]
    transfer_log: Option<PathBuf>,
    /// Take over the listeners of the forwarder that was started with --upgrade and the same PATH,
    /// without refusing a connection; it drains, and ends. Where none runs, start, and wait there
    /// to be taken over from. Without PATH it is named after the first listening address, in
    /// $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR or /run.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, conflicts_with = "check")]
    upgrade: Option<Option<PathBuf>>,
    #[command(flatten)]
    output: Output,
}

/// Where the same command meets the forwarder that runs: no two listen at the same address. The
/// folder is systemd.exec(5)'s, the user's (XDG Base Directory Specification) or the machine's.
fn meeting_place(table: &Table) -> PathBuf {
    let named = |variable| std::env::var_os(variable).filter(|folder| !folder.is_empty());
    let folder = named("RUNTIME_DIRECTORY").or_else(|| named("XDG_RUNTIME_DIR")).unwrap_or_else(|| "/run".into());
    let first = table.rules.first().map(|rule| rule.listen.to_string()).unwrap_or_default();
    Path::new(&folder).join(format!("plimsoll-forward-{}.sock", first.replace('/', "-")))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Before anything else is opened.
    let inherited = inherited::listeners()
        .and_then(|sockets| Inherited::of_the_manager(sockets.into_iter().map(|(_, socket)| socket)));
    let inherited = inherited.map_err(|error| {
        anyhow!("cannot use the sockets of the service manager: {error}; check the .socket unit, or unset LISTEN_FDS")
    })?;
    // Before any thread, so that none of them takes a signal.
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup])?;
    let file = arguments.config.clone().or_else(|| arguments.table.clone());
    if arguments.watch && file.is_none() {
        return Err(anyhow!(Usage("--watch needs a file to watch: give --config or --table".to_owned())));
    }
    let (workers, accept) = workers(&arguments)?;
    let watch = file.clone().filter(|_| arguments.watch).map(FileWatch::begin);
    let toml = arguments.config.is_some();
    let table = match &file {
        Some(path) => read_file(path, toml),
        None => table::mapping::read(arguments.mappings.iter().map(String::as_str)).map_err(|fault| fault.to_string()),
    };
    let mut table = table.map_err(|why| anyhow!(Usage(why)))?;
    if !arguments.source_ip.is_empty() {
        let sources: Sources = source_ip::all(&arguments.source_ip)?.into_iter().collect();
        table.rules.iter_mut().for_each(|rule| rule.source.clone_from(&sources));
    }
    if arguments.check {
        return check(&arguments, table);
    }
    let format = table.log.as_ref().map_or(LogFormat::Csv, |log| log.format);
    let connection_log = arguments.log.as_ref().map(|path| {
        let path = (path != Path::new("stdout")).then(|| path.clone());
        LogTarget { path, format }
    });
    let json = arguments.output.json;
    check_output(json, connection_log.as_ref().or(table.log.as_ref())).map_err(|why| anyhow!(Usage(why)))?;
    if arguments.transfer_log.is_some() {
        note("splice is off, as the transfer log has a row for each read");
    }
    let transfer_log = arguments.transfer_log.clone();
    let drain = arguments.drain;
    let upgrade = arguments.upgrade.clone().map(|path| path.unwrap_or_else(|| meeting_place(&table)));
    let config = Config { table, workers, accept, drain, connection_log, transfer_log, inherited, upgrade };
    let forwarder = Forwarder::bind(config, Box::new(note)).map_err(told)?;
    if let Some(user) = &arguments.user {
        process::become_user(user).map_err(|error| {
            let fix = "name a user of this machine, and start as root";
            anyhow!("cannot go on as the user `{user}`: {error}; {fix}")
        })?;
    }
    let addresses: Vec<String> = forwarder.addresses().iter().map(ToString::to_string).collect();
    let (admin, takes_over, pid) = (forwarder.admin_address(), forwarder.takes_over(), std::process::id());
    let has_own_log = arguments.log.is_some();
    let read_again = move |path: &Path| {
        let table = read_file(path, toml)?;
        check_output(json, table.log.as_ref().filter(|_| !has_own_log))?;
        Ok(table)
    };
    let source = file.map(|path| Source { watch, read: Box::new(move || read_again(&path)) });
    let started = forwarder.start(source)?;
    // Only now: a forwarder whose event loops cannot be started is not ready.
    let ready = Ready { event: "ready", addresses, accept: accept.name(), workers, admin, pid };
    arguments.output.print(&ready, || ready.sentence());
    // The service manager has started the former process.
    notify(&if takes_over { format!("READY=1\nMAINPID={pid}") } else { "READY=1".to_owned() });
    let totals = started.run(&signals, &|| notify("STOPPING=1"))?;
    arguments.output.print_summary(&Event::summary(&totals), || sentence(&totals));
    Ok(ExitCode::SUCCESS)
}

fn workers(arguments: &Arguments) -> anyhow::Result<(usize, Strategy)> {
    let workers = arguments.workers.map_or_else(process::available_cpus, usize::from);
    match arguments.accept {
        Some(Strategy::Single) if arguments.workers.is_some_and(|workers| workers > 1) => Err(anyhow!(Usage(
            "`--accept single` has one worker; leave --workers out, or choose handoff, exclusive or reuseport"
                .to_owned()
        ))),
        Some(Strategy::Single) => Ok((1, Strategy::Single)),
        // With a thread that accepts one worker is not the only one at work.
        Some(Strategy::Handoff) => Ok((workers, Strategy::Handoff)),
        _ if workers == 1 => Ok((1, Strategy::Single)),
        accept => Ok((workers, accept.unwrap_or(Strategy::Exclusive))),
    }
}

/// Refuses a log that would come between the lines of `--json`.
fn check_output(json: bool, log: Option<&LogTarget>) -> Result<(), String> {
    match log {
        Some(LogTarget { path: None, format: LogFormat::Csv }) if json => {
            let why = "--json prints nothing but JSON, and this log is CSV on standard output";
            Err(format!("{why}; log to a file, or with format = \"json\""))
        }
        _ => Ok(()),
    }
}

/// The table in a file, or a sentence that says why not.
fn read_file(path: &Path, toml: bool) -> Result<Table, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the table {}: {error}; name a file that is there", path.display()))?;
    let lookup = table::lines::Lookup { host: &host, service: &service };
    let table = if toml { table::toml::read(&text) } else { table::lines::read(&text, &lookup) };
    let table = table.map_err(|fault| format!("{}: {fault}", path.display()))?;
    Ok(Table { file: Some(path.to_owned()), ..table })
}

/// The first address of a host, IPv4 before IPv6 as rinetd has it.
fn host(name: &str) -> Option<IpAddr> {
    let mut addresses: Vec<IpAddr> = (name, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.first().copied()
}

/// The TCP port of a service (services(5)).
fn service(name: &str) -> Option<u16> {
    let text = std::fs::read_to_string("/etc/services").ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (first, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        (first == name || words.any(|alias| alias == name)).then(|| port.parse().ok())?
    })
}

/// An impossible table is the caller's mistake, like a malformed one: exit code 2.
fn told(error: Error) -> anyhow::Error {
    match error {
        Error::Table(why) => anyhow!(Usage(why)),
        error => anyhow!(error),
    }
}

fn check(arguments: &Arguments, table: Table) -> anyhow::Result<ExitCode> {
    let rules = table.rules.len();
    plimsoll_forward::check(&table).map_err(told)?;
    table.notes.iter().for_each(|sentence| note(sentence));
    let checked = Checked { event: "checked", rules };
    arguments.output.print_result(&checked, || format!("the table is valid: {rules} listeners"));
    Ok(ExitCode::SUCCESS)
}

/// Notifies the service manager that started this program, if one did (sd_notify(3)).
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes() {
        [b'@', name @ ..] => net::SocketAddr::from_abstract_name(name),
        _ => net::SocketAddr::from_pathname(&path),
    };
    let told = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
        Ok(())
    });
    if let Err(error) = told {
        note(&format!("the service manager cannot be sent {state} by {}: {error}", path.display()));
    }
}

#[derive(Serialize)]
struct Checked {
    event: &'static str,
    rules: usize,
}

#[derive(Serialize)]
struct Ready {
    event: &'static str,
    addresses: Vec<String>,
    accept: &'static str,
    workers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<SocketAddr>,
    pid: u32,
}

impl Ready {
    fn sentence(&self) -> String {
        // A table may have thousands: as many as fit a line are named.
        const NAMED: usize = 8;
        let mut addresses = self.addresses.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if let more @ 1.. = self.addresses.len().saturating_sub(NAMED) {
            addresses += &format!(" and {more} more");
        }
        let workers = if self.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", self.workers) };
        let admin = self.admin.map_or_else(String::new, |admin| format!(", admin at {admin}"));
        format!("listening on {addresses} (forward, {}, {workers}{admin})", self.accept)
    }
}

fn sentence(totals: &Totals) -> String {
    let mut sentence = format!(
        "{} connections (at most {} at once), {} bytes up, {} bytes down",
        totals.connections, totals.peak_connections, totals.bytes_up, totals.bytes_down
    );
    let mut list = |what: &str, counts: &std::collections::BTreeMap<&'static str, u64>| {
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            sentence += &format!("; {what}: {}", counts.join(", "));
        }
    };
    list("ended", &totals.ends);
    list("errors", &totals.errors);
    if !totals.leaked.is_nothing() {
        sentence += &format!("; not given back, which is a fault of this program: {}", totals.leaked);
    }
    for (count, what) in [
        (totals.log_rows_dropped, "log rows dropped"),
        (totals.pipes_shrunk, "pipes smaller than wanted"),
        (totals.pipes_missed, "times no pipe was left"),
    ] {
        if count > 0 {
            sentence += &format!("; {count} {what}");
        }
    }
    sentence
}
