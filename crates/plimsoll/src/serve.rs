//! `plimsoll serve`: a reference server that runs until a signal stops it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use plimsoll_measure::units;
use plimsoll_serve::service::{self, Boundary, EchoSettings, HttpSettings, HttpVersion, Service};
use plimsoll_serve::{Config, Model, Server, Strategy, Totals, refusal};
use plimsoll_sys::process;
use plimsoll_sys::signal::{Signal, Signals};
use serde::Serialize;

use crate::event::Event;
use crate::named::named;
use crate::outcome::{Usage, note};
use crate::{Output, address, ring};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    /// Send back what is received.
    #[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:7000")), after_help = "\
Examples:
  plimsoll serve echo                                     epoll on 127.0.0.1:7000
  plimsoll serve echo --model uring --workers 1           one io_uring event loop
  plimsoll serve echo --listen '*:7000' --listen '[::1]:0'
  plimsoll serve echo --model fork --connection-log connections.csv")]
    Echo(Echo),
    /// Serve files over HTTP/1.0 and HTTP/1.1.
    #[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:8000")), after_help = "\
Examples:
  plimsoll serve http --root public                       epoll on 127.0.0.1:8000
  plimsoll serve http --synthetic --model fork            /bytes/75672, /burn/1ms/75672
  plimsoll serve http --root public --http 1.0            a connection a request")]
    Http(Http),
}

#[derive(Args, Debug)]
struct Echo {
    #[command(flatten)]
    common: Common,
    /// Close a connection after this long without a byte [default: no limit].
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    idle_timeout: Option<Duration>,
    /// Append TEXT to the reply to each message; needs --message-size or --message-end.
    #[arg(long, value_name = "TEXT")]
    postfix: Option<String>,
    /// The length of a message.
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "postfix")]
    message_size: Option<u64>,
    /// A message ends with these bytes; \n, \r, \t, \0 and \\ are understood.
    #[arg(long, value_name = "BYTES", value_parser = escaped, requires = "postfix", conflicts_with = "message_size")]
    message_end: Option<Bytes>,
}

#[derive(Args, Debug)]
struct Http {
    #[command(flatten)]
    common: Common,
    /// The folder whose files are served [default: the current one, unless --synthetic].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Also answer /bytes/N (N bytes, no file) and /burn/DURATION/N (the same after burning CPU).
    #[arg(long)]
    synthetic: bool,
    /// The newest version to speak: 1.1, or 1.0 for a connection a request.
    #[arg(long = "http", value_name = "VERSION", default_value = "1.1", value_parser = ["1.0", "1.1"])]
    newest: String,
    /// Burn this much more CPU time for each answer about one file, named by its path beneath the
    /// root (repeatable): /large.bin=1ms.
    #[arg(long, value_name = "PATH=DURATION", value_parser = work_path)]
    work_path: Vec<WorkPath>,
    /// Close a connection after this long without a request.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    keep_alive_timeout: Duration,
    /// Give up a request that takes longer to arrive.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    request_timeout: Duration,
    /// Give up an answer of which the peer acknowledges nothing for this long.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive)]
    send_timeout: Duration,
}

#[derive(Args, Debug)]
struct Common {
    /// The I/O model: threads, fork, select, poll, epoll, epoll-et or uring.
    #[arg(long, default_value = "epoll", hide_possible_values = true, value_parser = named(&Model::ALL, Model::name))]
    model: Model,
    /// Where to listen (repeatable): ADDR:PORT, or *:PORT for all addresses; port 0 picks a free
    /// one.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Event loops [default: one a CPU]. `threads` and `fork` have none.
    #[arg(long, visible_alias = "threads", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How connections find their worker: single, handoff, exclusive or reuseport [default:
    /// reuseport where there are several workers].
    #[arg(long, value_name = "STRATEGY", hide_possible_values = true)]
    #[arg(value_parser = named(&Strategy::ALL, Strategy::name))]
    accept: Option<Strategy>,
    /// Accepting pauses while this many connections are open [default: what the machine can hold].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    max_connections: Option<u64>,
    /// Burn this much CPU time for each reply, to saturate on purpose; an echo replies to what one
    /// read returned.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = units::seconds)]
    work: Duration,
    /// How long connections may finish what is under way after SIGTERM or SIGINT.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::seconds)]
    drain: Duration,
    /// Write a CSV row for each closed connection: its client, its requests, the bytes received. A
    /// pipe whose reader stops holds the server up.
    #[arg(long, visible_alias = "log", value_name = "FILE")]
    connection_log: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A service, and what it serves.
struct Served<P> {
    protocol: &'static str,
    root: Option<PathBuf>,
    service: P,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.protocol {
        Protocol::Echo(echo) => {
            let settings =
                EchoSettings { postfix: postfix(&echo)?, work: echo.common.work, idle_timeout: echo.idle_timeout };
            let service = service::Echo::new(settings);
            serve(&echo.common, Served { protocol: "echo", root: None, service })
        }
        Protocol::Http(http) => {
            let settings = HttpSettings {
                version: if http.newest == "1.0" { HttpVersion::Http10 } else { HttpVersion::Http11 },
                keep_alive_timeout: http.keep_alive_timeout,
                request_timeout: http.request_timeout,
                send_timeout: http.send_timeout,
                synthetic: http.synthetic,
                work: http.common.work,
                work_paths: http.work_path.into_iter().map(|WorkPath(path, work)| (path, work)).collect(),
            };
            let service = service::Http::new(settings);
            let root = http.root.or_else(|| (!http.synthetic).then(|| PathBuf::from(".")));
            serve(&http.common, Served { protocol: "http", root, service })
        }
    }
}

fn serve<P: Service>(common: &Common, served: Served<P>) -> anyhow::Result<ExitCode> {
    let Served { protocol, root, service } = served;
    // Before any thread, so that none of them takes a signal.
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate, Signal::Child])?;
    let config = Config { root, ..config(common)? };
    let (model, workers) = (config.model, config.model.has_workers().then_some(config.workers));
    if model == Model::Uring {
        // Before the server says that it can be connected to.
        ring::require("--model epoll")?;
    }
    let server = Server::bind(config, Box::new(note))?;
    let ready = Ready {
        event: "ready",
        addresses: server.addresses().to_vec(),
        protocol,
        model: model.name(),
        workers,
        pid: std::process::id(),
    };
    // Before its event loops run: under valgrind one that waits in its ring holds up this thread.
    common.output.print(&ready, || ready.sentence());
    let totals = server.run(service, &signals)?;
    common.output.print_summary(&Event::summary(&totals), || sentence(&totals));
    Ok(ExitCode::SUCCESS)
}

/// What is appended to the reply to each message, and how a message is known.
fn postfix(echo: &Echo) -> anyhow::Result<Option<(&'static [u8], Boundary)>> {
    let Some(postfix) = &echo.postfix else { return Ok(None) };
    let boundary = match (echo.message_size, &echo.message_end) {
        (Some(size @ 1..), _) => Boundary::Size(size),
        (None, Some(Bytes(end))) if !end.is_empty() => Boundary::End(end.clone()),
        _ => {
            let why = "--postfix needs to know where a message ends; add --message-size 64 or --message-end '\\n'";
            return Err(anyhow!(Usage(why.to_owned())));
        }
    };
    // Once, and needed until the process ends.
    Ok(Some((Box::leak(postfix.clone().into_bytes().into_boxed_slice()), boundary)))
}

/// Bytes as an argument can write them.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

fn escaped(text: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        bytes.push(match characters.next() {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            _ => return Err(format!("'{text}' has a backslash that means nothing: write \\n, \\r, \\t, \\0 or \\\\")),
        });
    }
    Ok(Bytes(bytes))
}

/// A file beneath the root, and the CPU time that an answer about it costs.
#[derive(Clone, Debug)]
struct WorkPath(Vec<u8>, Duration);

fn work_path(text: &str) -> Result<WorkPath, String> {
    let why = |why: &str| format!("'{text}' {why}; write a path and a duration, such as /large.bin=1ms");
    let (path, work) = text.rsplit_once('=').ok_or_else(|| why("has no `=`"))?;
    let path = path.trim_start_matches('/');
    if path.is_empty() || path.ends_with('/') {
        return Err(why("names no file"));
    }
    let work = units::duration(work).map_err(|error| why(&error.to_string()))?;
    Ok(WorkPath(path.as_bytes().to_vec(), work))
}

fn positive(text: &str) -> Result<Duration, String> {
    match units::seconds(text) {
        Ok(Duration::ZERO) => Err(format!("'{text}' is no time at all; write a duration such as 5s")),
        outcome => outcome.map_err(|error| error.to_string()),
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match units::count(text) {
        Ok(0) => Err("a server needs at least one connection; write a count of at least 1".to_owned()),
        outcome => outcome.map_err(|error| error.to_string()),
    }
}

fn config(common: &Common) -> anyhow::Result<Config> {
    if common.workers.is_some() && !common.model.has_workers() {
        return Err(anyhow!(Usage(format!(
            "--workers counts event loops, and `--model {}` has none; leave it out, or choose another model",
            common.model
        ))));
    }
    if let Some(why) = common.accept.and_then(|accept| refusal(accept, common.model)) {
        let accept = common.accept.map(Strategy::name).unwrap_or_default();
        return Err(anyhow!(Usage(format!("`--model {}` cannot have `--accept {accept}`: {why}", common.model))));
    }
    if common.accept == Some(Strategy::Single) && common.workers.is_some_and(|workers| workers > 1) {
        let why = "`--accept single` has one worker; leave --workers out, or choose handoff, exclusive or reuseport";
        return Err(anyhow!(Usage(why.to_owned())));
    }
    let workers = match common.accept {
        Some(Strategy::Single) => 1,
        _ => common.workers.map_or_else(process::available_cpus, usize::from),
    };
    let mut listen = Vec::new();
    for text in &common.listen {
        listen.extend(resolve(text)?);
    }
    Ok(Config {
        model: common.model,
        listen,
        workers,
        accept: common.accept.unwrap_or(if workers > 1 { Strategy::ReusePort } else { Strategy::Single }),
        drain: common.drain,
        max_connections: common.max_connections,
        root: None,
        connection_log: common.connection_log.clone(),
    })
}

/// The addresses that `--listen` names: one, or for `*` that of each IP version the machine has.
fn resolve(text: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let usage = |why: String| {
        anyhow!(Usage(format!(
            "cannot listen on `{text}`: {why}; write ADDR:PORT, such as 127.0.0.1:7000, [::1]:7000 or *:7000"
        )))
    };
    let Some(port) = text.strip_prefix("*:") else {
        let address = address::resolve(text).map_err(|error| usage(error.to_string()))?.first().copied();
        return Ok(vec![address.ok_or_else(|| usage("the name has no address".to_owned()))?]);
    };
    let port = port.parse().map_err(|_| usage(format!("`{port}` is not a port")))?;
    let mut all = vec![SocketAddr::from(([0, 0, 0, 0], port))];
    if std::path::Path::new("/proc/net/if_inet6").exists() {
        all.push(SocketAddr::from(([0_u16; 8], port)));
    }
    Ok(all)
}

#[derive(Serialize)]
struct Ready {
    event: &'static str,
    addresses: Vec<SocketAddr>,
    protocol: &'static str,
    model: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<usize>,
    pid: u32,
}

impl Ready {
    fn sentence(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let workers = match self.workers {
            Some(1) => ", 1 worker".to_owned(),
            Some(count) => format!(", {count} workers"),
            None => String::new(),
        };
        format!("listening on {} ({}, {}{workers})", addresses.join(", "), self.protocol, self.model)
    }
}

fn sentence(totals: &Totals) -> String {
    let mut sentence = format!(
        "{} connections (at most {} at once), {} requests, {} bytes received, {} bytes sent",
        totals.connections, totals.peak_connections, totals.requests, totals.bytes_received, totals.bytes_sent
    );
    if let [_, _, ..] = totals.connections_per_worker[..] {
        let each: Vec<String> = totals.connections_per_worker.iter().map(u64::to_string).collect();
        sentence += &format!(", {} connections by worker", each.join(" and "));
    }
    if totals.refused > 0 {
        sentence += &format!(", {} refused", totals.refused);
    }
    if !totals.leaked.is_nothing() {
        sentence += &format!("; not given back, which is a fault of this program: {}", totals.leaked);
    }
    if !totals.errors.is_empty() {
        let causes: Vec<String> = totals.errors.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        sentence += &format!("; errors: {}", causes.join(", "));
    }
    sentence
}
