//! `--engine fork`: a process for each connection, as http-saturation's client has it. Each is a
//! generator of one connection, and their records are merged as those of generators on several
//! hosts are; nothing is shared while they run.

mod listening;
mod memory;
mod pipe;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use plimsoll_load::config::{Config, Pace, Part, StopCondition, UpTogether};
use plimsoll_load::protocol::Protocol;
use plimsoll_load::run::{self, Observer};
use plimsoll_load::warnings;
use plimsoll_measure::arrivals::Rate;
use plimsoll_measure::merge::{Windows, merge};
use plimsoll_measure::summary::{Summary, Warning};
use plimsoll_sys::poll;
use plimsoll_sys::process::{self, End};
use plimsoll_sys::signal::{Signal, Signals};

use crate::event::Event;
use crate::outcome::Environment;
use listening::{Heard, listen};
use pipe::{ForkedGenerator, PipeObserver};

/// A fork of this program takes less; a common start after all of them keeps the first from running
/// alone.
const FORK_TIME: Duration = Duration::from_micros(500);
/// So does a process from the common start until its connection is up, where two CPUs are shared by
/// all: their windows are to open together.
const SETTLE_TIME: Duration = Duration::from_micros(500);

/// What the processes yielded together.
pub(super) struct Forked {
    pub(super) summary: Summary,
    /// The signal that came. Whether it cut a window short each process has said of its own.
    pub(super) interrupted: Option<Signal>,
}

/// Runs a process for each connection. `announce` hears when the first window opens and the last
/// one closes.
pub(super) fn run<P: Protocol>(config: &Config, protocol: P, announce: &mut dyn Observer) -> anyhow::Result<Forked> {
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate])?;
    let start = config.start_at.unwrap_or_else(|| SystemTime::now() + FORK_TIME * config.connections as u32);
    // Taken by the child in its own copy of the memory; here it stays for the next.
    let mut protocol = Some(protocol);
    let together = UpTogether::shared().map_err(|error| not_started(0, config, &error.into()))?;
    let mut generators = Vec::new();
    let (stay, let_go) = std::io::pipe().map_err(|error| not_started(0, config, &error.into()))?;
    let stay = OwnedFd::from(stay);
    for number in 0..config.connections {
        let Some(own) = part(config, number, start) else { break };
        let own = Config { up_together: Some(together), ..own };
        match begin(&own, &mut protocol, &stay) {
            Ok(generator) => generators.push(generator),
            Err(error) => {
                generators.iter().for_each(|generator| process::end(generator.child, End::Kill));
                return Err(not_started(number, config, &error));
            }
        }
    }
    let heard = listen(&mut generators, &signals, announce).context("the processes cannot be listened to")?;
    drop(let_go);
    reap(generators.len());
    let records = generators.iter().zip(1..).map(record).collect::<anyhow::Result<Vec<_>>>()?;
    let mut summary = merge(&records, Windows::OfOneRun)?;
    add_own(&mut summary, &heard);
    summary.connections.peak = together.peak();
    if let Some(signal) = heard.interrupted.filter(|_| summary.interrupted.is_some()) {
        // The processes themselves were sent another one.
        summary.interrupted = Some(warnings::signal_name(signal));
    }
    summary.warnings = once_each(&summary.warnings, records.len());
    let last_begun = generators.iter().filter_map(|generator| generator.last_begun).max().map(run::unix_seconds);
    warnings::together::judge_together(&mut summary, config, last_begun);
    Ok(Forked { summary, interrupted: heard.interrupted })
}

fn not_started(number: usize, config: &Config, error: &anyhow::Error) -> anyhow::Error {
    anyhow!(Environment(format!(
        "only {number} of {} processes could be started: {error:#}; use fewer --connections, or --engine epoll",
        config.connections
    )))
}

/// What one process is to do; `None` where there is nothing left for it.
fn part(config: &Config, number: usize, start: SystemTime) -> Option<Config> {
    let place = number as u64;
    // A connection that has no request to send has no process, and no part of the rate.
    let count = match config.stop_condition {
        StopCondition::Requests(all) => all.min(config.connections as u64),
        StopCondition::Time(_) | StopCondition::Each(_) => config.connections as u64,
    };
    let stop_condition = match config.stop_condition {
        StopCondition::Requests(_) if place >= count => return None,
        StopCondition::Requests(all) => StopCondition::Requests(all / count + u64::from(place < all % count)),
        other => other,
    };
    let pace = match config.pace {
        Pace::Open { rate, spacing } => {
            let (from, to) = (rate.from / count as f64, rate.to / count as f64);
            Pace::Open { rate: Rate { from, to, ..rate }, spacing }
        }
        closed @ Pace::Closed { .. } => closed,
    };
    // A window of a set length, at a rate, or behind a warm-up, opens when every connection is up,
    // as with the other engines: those that are up before the last warm up until then.
    let is_alone = config.stop_condition.is_count() && config.warm_up.is_zero() && !config.pace.is_open();
    let last = config.opening.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64((count - 1) as f64 / rate));
    let others_up_at = (!is_alone).then(|| start + last + SETTLE_TIME * count as u32);
    Some(Config {
        connections: 1,
        workers: 1,
        stop_condition,
        pace,
        others_up_at,
        start_at: Some(start),
        // Each keeps its only event loop on the first of its CPUs.
        cpus: config.cpus.iter().copied().cycle().skip(number).take(config.cpus.len()).collect(),
        part: Part { number, of: count as usize },
        ..config.clone()
    })
}

/// Starts a process, which ends once `stay` does: what it shares with the others, it shares until
/// each has read how much memory it has.
fn begin<P: Protocol>(config: &Config, protocol: &mut Option<P>, stay: &OwnedFd) -> anyhow::Result<ForkedGenerator> {
    let (reader, writer) = std::io::pipe()?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    let child = process::fork(&[writer.as_fd(), stay.as_fd()], || {
        let (Ok(writer), Ok(stay)) = (writer.try_clone(), stay.try_clone()) else { return 1 };
        let Some(protocol) = protocol.take() else { return 1 };
        let mut observer = PipeObserver { pipe: File::from(writer), memory_bytes: None };
        let mut outcome = match run::run(config, protocol, &mut observer) {
            Ok(outcome) => outcome,
            Err(error) => {
                observer.report_failure(&error.into());
                return 1;
            }
        };
        outcome.memory_bytes = observer.memory_bytes.unwrap_or(outcome.memory_bytes);
        observer.report_last_begun(&outcome);
        let summary = warnings::summarise(config, &outcome);
        let line = serde_json::to_string(&Event::summary(&summary)).unwrap_or_default();
        let is_told = writeln!(observer.pipe, "{line}").is_ok();
        let _ = File::from(stay).read(&mut [0]);
        i32::from(!is_told)
    })?;
    Ok(ForkedGenerator {
        child,
        pipe: Some(File::from(reader)),
        said: Vec::new(),
        has_ended: false,
        progress: [0; 4],
        last_begun: None,
        failure: None,
        result: None,
    })
}

/// Adds what this process used to what the others did. It is no event loop: `threads` leaves it
/// out, as it leaves the coordinator of the other engines out.
fn add_own(summary: &mut Summary, heard: &Heard) {
    let generator = &mut summary.generator;
    "fork".clone_into(&mut generator.engine);
    if summary.elapsed_s > 0.0 {
        generator.cpu_cores += heard.cpu.as_secs_f64() / summary.elapsed_s;
    }
    generator.memory_bytes += heard.memory_bytes;
    generator.cpu_us_per_request += heard.cpu.as_secs_f64() * 1e6 / summary.requests.completed.max(1) as f64;
}

/// Collects the processes, which end now, so that their CPU time is counted as ours.
fn reap(count: usize) {
    let mut reaped = 0;
    while reaped < count {
        match process::reap() {
            Some(_) => reaped += 1,
            None => drop(poll::wait(&mut [], Some(Duration::from_millis(1)))),
        }
    }
}

fn record((generator, number): (&ForkedGenerator, usize)) -> anyhow::Result<Summary> {
    let Some(line) = &generator.result else {
        if let Some(failure) = &generator.failure {
            bail!("process {number}: {failure}");
        }
        bail!(
            "process {number} ended without a result; it may have been killed, or found no memory: look into the \
             kernel's log"
        );
    };
    serde_json::from_str(line).with_context(|| format!("the result of process {number} cannot be read"))
}

/// Warnings that name a cause. Processes that have different ones say different things; the others
/// differ in figures alone.
const NAMING_A_CAUSE: [&str; 2] = ["connections_missing", "tls_failed"];

/// What several processes have to say is said once.
fn once_each(warnings: &[Warning], processes: usize) -> Vec<Warning> {
    let message = |warning: &Warning| {
        // The number of the process comes first.
        warning.message.split_once(": ").map_or_else(|| warning.message.clone(), |(_, message)| message.to_owned())
    };
    let is_said_by = |one: &Warning, other: &Warning| {
        let names_a_cause = NAMING_A_CAUSE.contains(&one.code.as_str());
        one.code == other.code && (!names_a_cause || message(one) == message(other))
    };
    let places = warnings.iter().enumerate();
    let once = places.filter(|&(place, warning)| !warnings[..place].iter().any(|one| is_said_by(one, warning)));
    let told = once.map(|(_, warning)| {
        let count = warnings.iter().filter(|other| is_said_by(warning, other)).count();
        Warning { message: format!("{count} of {processes} processes: {}", message(warning)), ..warning.clone() }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::super::common::Common;
    use super::*;
    use clap::Parser;
    use plimsoll_measure::arrivals::Spacing;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        common: Common,
    }

    /// When each of four processes has its connection and its own warm-up behind it, after the
    /// start of all.
    fn openings(arguments: &str) -> Vec<Duration> {
        let arguments = format!("load --engine fork -c 4 --connect-rate 2 {arguments}");
        let common = Flags::parse_from(arguments.split(' ')).common;
        let config = common.config(vec![([127, 0, 0, 1], 7).into()]).expect("nothing is refused");
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let parts = (0..4).map(|number| part(&config, number, start).expect("each has requests"));
        parts
            .map(|part| {
                assert_eq!((part.start_at, part.opening.rate), (Some(start), Some(2.0)), "{arguments}");
                // It has one connection, which it opens at its turn.
                let own = Duration::from_millis(500) * part.part.number as u32;
                let others = part.others_up_at.map(|at| at.duration_since(start).expect("it is after the start"));
                own.max(others.unwrap_or_default()) + part.warm_up
            })
            .collect()
    }

    #[test]
    fn the_processes_that_have_a_request_to_send_share_the_whole_rate() {
        for (arguments, processes, each) in [("-n 2", 2, 4.0), ("-n 9", 4, 2.0), ("-d 1s", 4, 2.0)] {
            let arguments = format!("load --engine fork -c 4 -R 8 {arguments}");
            let common = Flags::parse_from(arguments.split(' ')).common;
            let config = common.config(vec![([127, 0, 0, 1], 7).into()]).expect("nothing is refused");
            let parts: Vec<Config> = (0..4).filter_map(|number| part(&config, number, SystemTime::now())).collect();
            assert_eq!(parts.len(), processes, "{arguments}");
            let pace = Pace::Open { rate: Rate::constant(each), spacing: Spacing::Poisson };
            assert!(parts.iter().all(|part| part.pace == pace && part.part.of == processes), "{arguments}: {parts:?}");
        }
    }

    #[test]
    fn processes_say_the_same_once_and_each_cause_of_a_failure() {
        let warning = |(code, message): (&str, &str)| Warning {
            code: code.to_owned(),
            message: message.to_owned(),
            remedy: String::new(),
        };
        let said = [
            ("cpu_contended", "generator 1: it waited for 12 % of the window"),
            ("tls_failed", "generator 1: TLS failed on 1 connection: it has expired"),
            ("cpu_contended", "generator 2: it waited for 20 % of the window"),
            ("tls_failed", "generator 2: TLS failed on 1 connection: nobody known signed it"),
            ("tls_failed", "generator 3: TLS failed on 1 connection: it has expired"),
            ("connections_missing", "generator 2: 1 of 1 connections: ECONNREFUSED"),
            ("connections_missing", "generator 3: 1 of 1 connections: ETIMEDOUT"),
        ];
        let once = once_each(&said.map(warning), 3);
        let told: Vec<_> = once.iter().map(|warning| warning.message.as_str()).collect();
        let expected = [
            "2 of 3 processes: it waited for 12 % of the window",
            "2 of 3 processes: TLS failed on 1 connection: it has expired",
            "1 of 3 processes: TLS failed on 1 connection: nobody known signed it",
            "1 of 3 processes: 1 of 1 connections: ECONNREFUSED",
            "1 of 3 processes: 1 of 1 connections: ETIMEDOUT",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn windows_of_a_set_length_or_behind_a_warm_up_open_together_when_the_last_process_connects() {
        for end in ["-d 1s", "-n 8", "--each 2"] {
            let opening = Duration::from_millis(1750) + SETTLE_TIME * 4;
            assert_eq!(openings(&format!("{end} --warm-up 250ms")), [opening; 4], "{end}");
        }
        // At a rate each offered its part of it in a window of its own: together less than half.
        assert_eq!(openings("-n 8 -R 8"), [Duration::from_millis(1500) + SETTLE_TIME * 4; 4]);
        for counted in ["-n 8", "--each 2"] {
            assert_eq!(openings(counted), [0, 500, 1000, 1500].map(Duration::from_millis), "{counted}");
        }
    }
}
