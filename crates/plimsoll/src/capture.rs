//! `plimsoll capture`: an interface's packets, or a file's, and what they come to.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use plimsoll_capture::file::{self, FileError};
use plimsoll_capture::live::{Capture, CaptureError, Config};
use plimsoll_capture::statistics::{Interval, Outcome, Summary};
use plimsoll_measure::units;
use plimsoll_sys::signal::{Signal, Signals};
use serde::Serialize;

use crate::Output;
use crate::event::Event;
use crate::outcome::{Environment, Usage, usage};
use crate::printer::Printer;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll capture -i eth0                                 until Ctrl-C
  plimsoll capture -i lo -w run.pcapng -d 30s --json       for Wireshark, and the figures of it
  plimsoll capture -r run.pcapng --interval 100ms          the same figures of a file")]
pub(crate) struct Arguments {
    /// Capture this interface.
    #[arg(short = 'i', long, value_name = "IFACE", required_unless_present = "read")]
    interface: Option<String>,
    /// Take the packets from this pcapng file.
    #[arg(short = 'r', long, value_name = "FILE", conflicts_with_all = ["interface", "write", "duration", "snap"])]
    read: Option<PathBuf>,
    /// Write the packets to this pcapng file.
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Bytes kept of each packet [default: 128, more than the headers of Ethernet, IPv6 and TCP].
    /// Figures need no more.
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    snap: Option<u64>,
    /// Count packets and bytes over intervals of this length.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::seconds)]
    interval: Duration,
    /// End after this long [default: at Ctrl-C].
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = units::seconds)]
    duration: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

/// 14 of Ethernet, 4 of a VLAN, 40 of IPv6 and at most 60 of TCP make 118.
const SNAP_BYTES: u32 = 128;

/// The same without the options of TCP, which no figure needs.
const SNAP_BYTES_MIN: u64 = 78;

/// The longest packet there is, with its link header.
const SNAP_BYTES_MAX: u64 = 262_144;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.interval < Duration::from_millis(1) {
        return usage("--interval is less than a millisecond; write 1ms or more");
    }
    let (Outcome { summary, failure }, printer) = match (&arguments.read, &arguments.interface) {
        (Some(path), _) => (read(path, arguments.interval)?, None),
        (None, Some(interface)) => {
            let (outcome, printer) = capture(arguments, interface)?;
            (outcome, Some(printer))
        }
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let error = failure.as_ref().map(ToString::to_string);
    let reported = ReportedSummary { summary: &summary, error };
    let (event, is_live) = (Event::summary(&reported), printer.is_some());
    let sentence = || sentence(&summary, failure.is_some(), is_live);
    let printed = match printer {
        Some(printer) => printer.print_outcome(&event, sentence),
        None => arguments.output.print_outcome(&event, sentence),
    };
    match failure {
        Some(error) => Err(error),
        None => printed.map(|()| ExitCode::SUCCESS),
    }
}

fn read(path: &Path, interval: Duration) -> anyhow::Result<Outcome<anyhow::Error>> {
    let say = |error: FileError| match error {
        FileError::CutShort { .. } => anyhow!("`{}`: {error}", path.display()),
        error => anyhow!("cannot read `{}`: {error}", path.display()),
    };
    match file::summarise(path, interval) {
        Ok(Outcome { summary, failure }) => Ok(Outcome { summary, failure: failure.map(say) }),
        Err(FileError::Io(cause)) if cause.kind() == std::io::ErrorKind::NotFound => {
            Err(anyhow!(Usage(say(FileError::Io(cause)).to_string())))
        }
        Err(error) => Err(say(error)),
    }
}

/// Captures until the end; returns what the summary is to be printed with.
fn capture(arguments: &Arguments, interface: &str) -> anyhow::Result<(Outcome<anyhow::Error>, Printer)> {
    if arguments.write.as_deref() == Some(Path::new("-")) {
        return usage("--write does not write to standard output, which has the figures; name a file, or a FIFO");
    }
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate]).context("cannot take signals")?;
    let snap = match arguments.snap {
        None => SNAP_BYTES,
        Some(bytes @ SNAP_BYTES_MIN..=SNAP_BYTES_MAX) => bytes as u32,
        Some(_) => {
            return usage(format!(
                "--snap is out of range; write {SNAP_BYTES_MIN} (the headers of Ethernet, a VLAN, IPv6 and TCP \
                 without options) to {SNAP_BYTES_MAX} bytes"
            ));
        }
    };
    let config = Config {
        interface: interface.to_owned(),
        write: arguments.write.clone(),
        snap,
        interval: arguments.interval,
        duration: arguments.duration,
    };
    let capture = Capture::open(config, &signals).map_err(to_cli_error)?;
    let printer = Printer::start(arguments.output)?;
    let ready = Ready { event: "ready", interface, snap, pid: std::process::id() };
    printer.print(&ready, || format!("capturing on {interface}"));
    let passed =
        |number: usize, interval| Passed { from_s: number as f64 * arguments.interval.as_secs_f64(), interval };
    let mut reported = 0;
    let Outcome { summary, failure } = capture.run(|number, interval| {
        let passed = passed(number, interval);
        let is_taken = printer.offer(&Event::new("interval", &passed), || passed.sentence());
        reported += usize::from(is_taken);
        is_taken
    });
    // The file is complete by now.
    let rest = summary.interval.iter().enumerate().skip(reported);
    let _ = rest
        .map(|(number, interval)| passed(number, *interval))
        .try_for_each(|passed| printer.insist(&Event::new("interval", &passed), || passed.sentence()).then_some(()));
    Ok((Outcome { summary, failure: failure.map(|error| anyhow!(error)) }, printer))
}

fn to_cli_error(error: CaptureError) -> anyhow::Error {
    if error.is_environment() { anyhow!(Environment(error.to_string())) } else { anyhow!(error) }
}

#[derive(Serialize)]
struct Ready<'a> {
    event: &'static str,
    interface: &'a str,
    snap: u32,
    pid: u32,
}

#[derive(Serialize)]
struct Passed {
    /// Since the first packet.
    from_s: f64,
    #[serde(flatten)]
    interval: Interval,
}

impl Passed {
    fn sentence(&self) -> String {
        let Passed { from_s, interval } = self;
        format!(
            "{} s: {} packets, {} bytes, {} SYN, {} FIN, {} RST, {} retransmissions",
            units::three_digits(*from_s),
            interval.packets,
            interval.bytes,
            interval.flags.syn,
            interval.flags.fin,
            interval.flags.rst,
            interval.faults.retransmissions
        )
    }
}

/// The summary, with the error that ended the capture early, if one did.
#[derive(Serialize)]
struct ReportedSummary<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn sentence(summary: &Summary, is_broken_off: bool, is_live: bool) -> String {
    let tcp = summary.tcp;
    let drops =
        summary.kernel_drops.map_or("drops unknown".to_owned(), |count| format!("{count} dropped by the kernel"));
    let left_out: String = [
        (summary.cut_off, if is_live { "with TCP headers cut off (raise --snap)" } else { "with TCP headers cut off" }),
        (summary.unreadable - summary.cut_off, "of TCP in fragments or malformed"),
        (summary.untimed, "without a time, and so in no interval and not judged"),
        (summary.after_intervals, "after the last interval that is kept (raise --interval)"),
        (tcp.unjudged, "of more open connections than are kept, and so not judged"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, why)| format!(", {count} {why}"))
    .collect();
    let at_least = if summary.endpoints_at_least { "at least " } else { "" };
    let forgotten = match tcp.forgotten {
        0 => String::new(),
        count => format!(" ({count} connections that were over or never completed are forgotten)"),
    };
    let until = if is_broken_off { "until it failed, " } else { "" };
    format!(
        "{until}{} packets, {} bytes in {} s ({drops}{left_out}); {at_least}{} TCP endpoints{forgotten}\n{} \
         retransmissions, {} out of order, {} duplicate ACKs, {} zero windows, {} resets, {} SYNs unanswered",
        summary.packets,
        summary.bytes,
        units::three_digits(summary.elapsed_s),
        summary.endpoints,
        tcp.faults.retransmissions,
        tcp.faults.out_of_order,
        tcp.faults.duplicate_acks,
        tcp.faults.zero_windows,
        tcp.faults.resets,
        tcp.unanswered_syn
    )
}
