//! `plimsoll serve`: a reference server until it is told to stop.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use plimsoll_measure::units;
use plimsoll_serve::service::Echo;
use plimsoll_serve::{Config, Model, Server, Totals};
use plimsoll_sys::process;
use plimsoll_sys::signal::{Signal, Signals};
use serde::Serialize;

use crate::Output;
use crate::outcome::Usage;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    protocol: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    /// Send back what is received.
    #[command(after_help = "\
Examples:
  plimsoll serve echo                                     epoll on 127.0.0.1:7000
  plimsoll serve echo --model uring --workers 1           one io_uring event loop
  plimsoll serve echo --listen '*:7000' --listen '[::1]:0'
  plimsoll serve echo --model fork --connection-log connections.csv")]
    Echo(Common),
}

#[derive(Args, Debug)]
struct Common {
    /// The I/O model: threads, fork, select, poll, epoll, epoll-et or uring.
    #[arg(long, default_value = "epoll", value_parser = str::parse::<Model>)]
    model: Model,
    /// Where to listen (repeatable): ADDR:PORT, or *:PORT for all addresses; port 0 picks a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Event loops [default: one a CPU]. `threads` and `fork` have none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How long connections may finish what is under way when told to stop.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::duration)]
    drain: Duration,
    /// Write a CSV row for each closed connection.
    #[arg(long, value_name = "FILE")]
    connection_log: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The name of the protocol, and where it listens unless told otherwise.
const ECHO: (&str, &str) = ("echo", "127.0.0.1:7000");

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Protocol::Echo(common) = arguments.protocol;
    // Before any thread, so that none of them takes a signal.
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate, Signal::Child])?;
    let (protocol, default) = ECHO;
    let config = config(&common, default)?;
    let (model, workers) = (config.model, config.model.has_workers().then_some(config.workers));
    let server = Server::bind(
        config,
        Box::new(|sentence| {
            let _ = writeln!(std::io::stderr(), "plimsoll: {sentence}");
        }),
    )?;
    let ready = Ready {
        event: "ready",
        addresses: server.addresses().to_vec(),
        protocol,
        model: model.name(),
        workers,
        pid: std::process::id(),
    };
    print(&common.output, &ready, || ready.sentence());
    let totals = server.run(Echo, &signals)?;
    print(&common.output, &Summary { event: "summary", totals: &totals }, || sentence(&totals));
    Ok(ExitCode::SUCCESS)
}

fn config(common: &Common, default_listen: &str) -> anyhow::Result<Config> {
    if common.workers.is_some() && !common.model.has_workers() {
        return Err(anyhow!(Usage(format!(
            "--workers counts event loops, and `--model {}` has none; leave it out, or choose another model",
            common.model
        ))));
    }
    let mut listen = Vec::new();
    if common.listen.is_empty() {
        listen.extend(resolve(default_listen)?);
    }
    for text in &common.listen {
        listen.extend(resolve(text)?);
    }
    Ok(Config {
        model: common.model,
        listen,
        workers: common.workers.map_or_else(process::available_cpus, usize::from),
        drain: common.drain,
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
        let address = text.to_socket_addrs().map_err(|error| usage(error.to_string()))?.next();
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

#[derive(Serialize)]
struct Summary<'a> {
    event: &'static str,
    #[serde(flatten)]
    totals: &'a Totals,
}

fn sentence(totals: &Totals) -> String {
    let mut sentence = format!(
        "{} connections (at most {} at once), {} requests, {} bytes received, {} bytes sent",
        totals.connections, totals.peak_connections, totals.requests, totals.bytes_received, totals.bytes_sent
    );
    if totals.refused > 0 {
        sentence += &format!(", {} refused", totals.refused);
    }
    if !totals.errors.is_empty() {
        let causes: Vec<String> = totals.errors.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        sentence += &format!("; errors: {}", causes.join(", "));
    }
    sentence
}

/// Prints a record as a JSON line or as a sentence, at once. A closed standard output ends nothing: the server is there for its connections.
fn print(output: &Output, record: &impl Serialize, sentence: impl FnOnce() -> String) {
    let line = if output.json {
        serde_json::to_string(record).expect("a record of numbers and names serialises")
    } else if output.quiet {
        return;
    } else {
        sentence()
    };
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
