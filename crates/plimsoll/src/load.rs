//! `plimsoll load`: sends requests to a server, and reports what came back.

mod arguments;
mod chart;
mod common;
mod csv;
mod echo;
mod files;
mod fork;
mod http;
mod live;
mod parse;
mod redirect;
mod request;
mod resolve;
mod summary_text;
mod tls;
mod url;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use plimsoll_load::config::Config;
use plimsoll_load::echo::Echo;
use plimsoll_load::protocol::Protocol;
use plimsoll_load::record::{Records, Sequence};
use plimsoll_load::run;
use plimsoll_load::secure::Secure;
use plimsoll_load::warnings;
use plimsoll_measure::summary::Summary;
use plimsoll_sys::signal::Signal;
use serde::Serialize;

use crate::colour::Paint;
use crate::event::Event;
use crate::outcome::{Environment, usage};
use crate::version::VERSION;
pub(crate) use arguments::Arguments;
use common::Common;

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.protocol {
        arguments::Protocol::Echo(echo) => {
            let config = echo.common.config(echo.targets()?)?;
            echo.common.check_limits(&config, false)?;
            let messages = echo.messages(config.seed)?;
            let payload = Payload { server: echo.first_target(), bytes: echo.size };
            carry_out(config, Echo::new(messages), &echo.common, Some(&payload))
        }
        arguments::Protocol::Http(http) => {
            let plan = http.plan()?;
            let config = http.common.config(plan.targets)?;
            http.common.check_limits(&config, true)?;
            match plan.security {
                None => carry_out(config, plan.protocol, &http.common, None),
                Some((names, security)) => match Secure::new(plan.protocol, names, security) {
                    Ok(protocol) => carry_out(config, protocol, &http.common, None),
                    Err(error) => {
                        usage(format!("--cert and --key: {error}; name a certificate and the key it was made for"))
                    }
                },
            }
        }
    }
}

/// What an echo sends, and to whom, as it was asked for.
struct Payload<'a> {
    /// The first of the servers.
    server: &'a str,
    /// Its size.
    bytes: u64,
}

/// `payload` is that of a request, where the protocol has one.
fn carry_out<P: Protocol>(
    mut config: Config,
    protocol: P,
    common: &Common,
    payload: Option<&Payload<'_>>,
) -> anyhow::Result<ExitCode> {
    let tcpbenchmark = common.csv == Some(csv::Form::Tcpbenchmark);
    let (records, files) = common.files.open(tcpbenchmark)?;
    config.records = records;
    let size = payload.map(|payload| payload.bytes);
    if tcpbenchmark {
        csv::write_parameters(&mut std::io::stdout(), &config, payload).with_context(lost)?;
    }
    let countdown = tcpbenchmark.then(|| common.countdown.unwrap_or_default().into());
    let mut live = live::Live::new(common.output, &config, countdown);
    if common.forks() {
        let fork::Forked { summary, interrupted } = fork::run(&config, protocol, &mut live)?;
        live.finish();
        let percentiles = summary.clone();
        let code = conclude(summary, interrupted, &[], &config, common, size);
        files.finish(&percentiles)?;
        return code;
    }
    let outcome = run::run(&config, protocol, &mut live).map_err(|error| match error.is_environment() {
        true => anyhow!(Environment(error.to_string())),
        false => anyhow!(error),
    })?;
    live.finish();
    // The threads that write the records end when their last sender is dropped.
    config.records = Records::default();
    let summary = warnings::summarise(&config, &outcome);
    let percentiles = summary.clone();
    let code = conclude(summary, outcome.interrupted, &outcome.sequences, &config, common, size);
    // The records are brought to their end whatever became of the summary.
    files.finish(&percentiles)?;
    code
}

/// The message where the result cannot be written.
fn lost() -> &'static str {
    "the result could not be written to standard output, and is lost; make room where it goes, or keep its reader open"
}

/// Checks the summary, holds it against the limits and prints it; the exit code that follows.
fn conclude(
    mut summary: Summary,
    interrupted: Option<Signal>,
    sequences: &[Sequence],
    config: &Config,
    common: &Common,
    size: Option<u64>,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        summary.requests.balance(),
        "the requests do not add up ({:?}): this is a fault of the generator's own; please report it with the command",
        summary.requests
    );
    VERSION.clone_into(&mut summary.version);
    summary.limits = common.limit.iter().map(|limit| limit.check(&summary)).collect();
    let mut stdout = std::io::stdout().lock();
    print(&mut stdout, &summary, sequences, config, common, size).and_then(|()| stdout.flush()).with_context(lost)?;
    Ok(exit_code(&summary, interrupted))
}

fn print(
    out: &mut impl Write,
    summary: &Summary,
    sequences: &[Sequence],
    config: &Config,
    common: &Common,
    size: Option<u64>,
) -> std::io::Result<()> {
    if common.csv == Some(csv::Form::Tcpbenchmark) {
        csv::write_connections(out, sequences, config)?;
        return csv::write_tcpbenchmark(out, sequences, Duration::from_secs_f64(summary.elapsed_s));
    }
    let json = common.output.json;
    for sequence in sequences.iter().filter(|_| common.files.per_connection) {
        if json {
            writeln!(out, "{}", serde_json::to_string(&ConnectionEvent::of(sequence))?)?;
        } else {
            summary_text::write_connection(out, sequence)?;
        }
    }
    match common.csv {
        Some(csv::Form::ThreeServers) => csv::write_three_servers(out, summary, config, size),
        Some(_) => csv::write_summary(out, summary, config, size),
        None if json => writeln!(out, "{}", serde_json::to_string(&Event::summary(summary))?),
        None => summary_text::write(out, summary, config, Paint::stdout(common.output)),
    }
}

/// What `--json --per-connection` prints of each.
#[derive(Serialize)]
struct ConnectionEvent {
    event: &'static str,
    connection: u32,
    success: bool,
    completed: u64,
    failed_connects: u64,
    failed_sequences: u64,
    failed_requests: u64,
    establishment_time_us: f64,
    service_time_total_us: f64,
}

impl ConnectionEvent {
    fn of(sequence: &Sequence) -> ConnectionEvent {
        ConnectionEvent {
            event: "connection",
            connection: sequence.number,
            success: sequence.success,
            completed: sequence.completed,
            failed_connects: sequence.failed_connects,
            failed_sequences: sequence.failed_sequences,
            failed_requests: sequence.failed_requests,
            establishment_time_us: sequence.connect_ns as f64 / 1000.0,
            service_time_total_us: sequence.exchange_ns as f64 / 1000.0,
        }
    }
}

/// The exit code of a run. Invalid comes before a missed limit, as an invalid figure neither meets
/// nor misses a limit. Fewer connections than asked for are a failure. So is a run without an
/// answer, unless a limit is missed, which says it more exactly.
pub(crate) fn exit_code(summary: &Summary, interrupted: Option<Signal>) -> ExitCode {
    if let Some(signal) = interrupted {
        // The shell's convention for a program that a signal ended.
        return ExitCode::from(128 + signal.number() as u8);
    }
    let missed = summary.limits.iter().any(|limit| !limit.met);
    if summary.connections.failed > 0 || summary.requests.completed == 0 && !missed {
        ExitCode::FAILURE
    } else if !summary.valid {
        ExitCode::from(4)
    } else if missed {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_measure::summary::Checked;

    #[test]
    fn what_a_summary_amounts_to_decides_the_exit_code() {
        let good = || {
            let mut summary = Summary { valid: true, ..Summary::default() };
            summary.requests.completed = 10;
            summary
        };
        let limit = |met| vec![Checked { limit: "completed_rate > 1".to_owned(), value: 0.0, met }];
        let lost = |mut summary: Summary| {
            summary.connections.failed = 1;
            summary
        };
        for (summary, code) in [
            (good(), 0),
            (Summary { limits: limit(true), ..good() }, 0),
            (Summary { limits: limit(false), ..good() }, 3),
            (Summary { valid: false, ..good() }, 4),
            (Summary { valid: false, limits: limit(false), ..good() }, 4),
            (Summary { valid: true, ..Summary::default() }, 1),
            // The limit says more exactly what is wrong.
            (Summary { valid: true, limits: limit(false), ..Summary::default() }, 3),
            (lost(Summary { limits: limit(false), ..good() }), 1),
            (lost(Summary { valid: false, ..good() }), 1),
        ] {
            assert_eq!(exit_code(&summary, None), ExitCode::from(code), "{:?}", summary.limits);
            assert_eq!(exit_code(&summary, Some(Signal::Interrupt)), ExitCode::from(130));
            assert_eq!(exit_code(&summary, Some(Signal::Terminate)), ExitCode::from(143));
        }
    }
}
