//! `plimsoll link`: emulated links and switches between TAP devices, until a signal stops it.

mod devices;
mod kernel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use plimsoll_link::config::Config;
use plimsoll_link::report::{DirectionCounts, Outcome, Report, Totals};
use plimsoll_link::run::{Link, LinkError};
use plimsoll_measure::units;
use plimsoll_sys::process;
use plimsoll_sys::signal::{Signal, Signals};
use serde::Serialize;

use crate::Output;
use crate::outcome::{Environment, Usage};
use crate::printer::Printer;
use kernel::DeviceCounts;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll link --config links.toml               until Ctrl-C, then the counts of each link
  plimsoll link --config links.toml --json --interval 1s

links.toml, two hosts on a switch (JSON with the same keys is read too):
  devices  = [\"h1-eth0\", \"h2-eth0\"]
  switches = [\"s1\"]
  [[links]]
  ends  = [\"h1-eth0\", \"s1\"]
  rate  = \"100Mbit\"
  delay = \"1ms\"
  [[links]]
  ends  = [\"h2-eth0\", \"s1\"]
  loss  = \"0.1%\"

Once it says that it is ready, move each device into the namespace of its host (ip link set h1-eth0 netns h1),
give it an address and bring it up.")]
pub(crate) struct Arguments {
    /// The devices, switches and links, in TOML or JSON.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// What delivers the packets: our own emulator over TAP devices, or the kernel's bridges, with
    /// its htb and netem where a link is shaped.
    #[arg(long, value_enum, default_value = "tap")]
    backend: Backend,
    /// Print the counts so far this often [default: at the end alone].
    #[arg(long, value_name = "DURATION", value_parser = units::seconds)]
    interval: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Tap,
    #[value(alias = "netem")]
    Kernel,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // Before any thread, so that none of them takes a signal.
    let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate]).context("cannot take signals")?;
    let config = read(&arguments.config)?;
    if arguments.interval.is_some_and(|interval| interval < Duration::from_millis(1)) {
        return Err(anyhow!(Usage("--interval is less than a millisecond; write 1ms or more".to_owned())));
    }
    if arguments.backend == Backend::Kernel {
        return run_kernel(arguments, config, &signals);
    }
    // Before the devices are made, so that the first frame is moved at that priority.
    let priority = if process::run_first() { "real time" } else { "ordinary" };
    let ready = Ready::of(&config, "tap", priority);
    let link = Link::open(config, &signals).map_err(to_cli_error)?;
    let printer = Printer::start(arguments.output)?;
    printer.print_result(&ready, || ready.sentence());
    let Outcome { totals, failure } =
        link.run(arguments.interval, |report| printer.print(&report, || sentence(&report)));
    let summary = Summary { event: "summary", counted: &totals, error: failure.as_ref().map(ToString::to_string) };
    let printed = printer.print_outcome(&summary, || counts(&totals));
    match failure {
        Some(error) => Err(to_cli_error(error)),
        None => printed.map(|()| ExitCode::SUCCESS),
    }
}

/// The kernel delivers the packets: this process only makes the network, counts, and removes it.
fn run_kernel(arguments: &Arguments, config: Config, signals: &Signals) -> anyhow::Result<ExitCode> {
    let ready = Ready::of(&Config { whole_segments: false, ..config.clone() }, "kernel", "the kernel's");
    let made = kernel::Made::new(&config)?;
    let printer = Printer::start(arguments.output)?;
    printer.print_result(&ready, || ready.sentence());
    let ended = made.run(signals, arguments.interval, |event| match event {
        kernel::NetworkEvent::Counts(links) => {
            let counters = Counters { event: "counters", unix_s: unix_s(), counted: Links { links } };
            printer.print(&counters, || device_counts(links));
        }
        kernel::NetworkEvent::Lost { from_unix_s, to_unix_s, packets } => {
            let lost =
                Report::Disturbance { from_unix_s, to_unix_s, late_frames: 0, lost_frames: packets, worst_us: 0 };
            printer.print(&lost, || sentence(&lost));
        }
    });
    // Of devices that are gone there are no counts.
    let (links, failure) = ended.map_or_else(|error| (Vec::new(), Some(error)), |links| (links, None));
    let counted = &Links { links: &links };
    let summary = Summary { event: "summary", counted, error: failure.as_ref().map(ToString::to_string) };
    let printed = printer.print_outcome(&summary, || device_counts(&links));
    match failure {
        Some(error) => Err(error),
        None => printed.map(|()| ExitCode::SUCCESS),
    }
}

/// Seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| anyhow!(Usage(format!("cannot read `{}`: {error}; name a file of links", path.display()))))?;
    Config::read(&text).map_err(|error| anyhow!(Usage(format!("{}: {error}", path.display()))))
}

fn to_cli_error(error: LinkError) -> anyhow::Error {
    if error.is_environment() { anyhow!(Environment(error.to_string())) } else { anyhow!(error) }
}

#[derive(Serialize)]
struct Ready {
    event: &'static str,
    devices: Vec<String>,
    switches: usize,
    links: usize,
    large_segments: &'static str,
    backend: &'static str,
    /// How the scheduler treats the emulator.
    priority: &'static str,
    pid: u32,
}

impl Ready {
    fn of(config: &Config, backend: &'static str, priority: &'static str) -> Ready {
        Ready {
            event: "ready",
            devices: config.devices.clone(),
            switches: config.switches.len(),
            links: config.links.len(),
            large_segments: if config.whole_segments { "whole" } else { "cut" },
            backend,
            priority,
            pid: std::process::id(),
        }
    }

    fn sentence(&self) -> String {
        format!(
            "linking {} ({} links, {} switches, large segments {}) by {}",
            self.devices.join(", "),
            self.links,
            self.switches,
            self.large_segments,
            self.backend
        )
    }
}

/// The counts of the kernel's emulation so far.
#[derive(Serialize)]
struct Counters<'a> {
    event: &'static str,
    unix_s: f64,
    #[serde(flatten)]
    counted: Links<'a>,
}

/// What the kernel's emulation counts.
#[derive(Serialize)]
struct Links<'a> {
    links: &'a [DeviceCounts],
}

/// The counts at the end.
#[derive(Serialize)]
struct Summary<'a, T> {
    event: &'static str,
    #[serde(flatten)]
    counted: &'a T,
    /// What ended the link, unless that was a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn sentence(report: &Report) -> String {
    match report {
        Report::Counters { totals, .. } => counts(totals),
        Report::TimersCoarse { why } => format!(
            "the kernel refuses precise timers ({why}), so frames may pass up to 50 us late; let prctl(2) be called \
             with PR_SET_TIMERSLACK"
        ),
        Report::DropsUnknown { device, why } => format!(
            "frames that `{device}` drops cannot be counted ({why}), so some may be lost unseen; run the link as root \
             of its namespaces"
        ),
        Report::Disturbance { from_unix_s, to_unix_s, late_frames: 0, lost_frames, .. } => format!(
            "the links lost {lost_frames} packets that they should have delivered in {}; ease the load of this machine",
            units::write_duration(Duration::from_secs_f64((to_unix_s - from_unix_s).max(0.0)))
        ),
        Report::Disturbance { from_unix_s, to_unix_s, late_frames, lost_frames, worst_us } => format!(
            "the emulator itself was late for {late_frames} frames (by {} at worst) and lost {lost_frames} in {}; \
             ease the load of this machine",
            units::write_duration(Duration::from_micros(*worst_us)),
            units::write_duration(Duration::from_secs_f64((to_unix_s - from_unix_s).max(0.0)))
        ),
    }
}

fn counts(Totals { links, emulator, drops_unknown }: &Totals) -> String {
    let mut lines: Vec<String> = links
        .iter()
        .map(|DirectionCounts { from, to, counts }| {
            format!(
                "{from} -> {to}: {} packets offered, {} delivered, {} dropped by the queue (the longest wait in it: \
                 {}), {} by loss, {} by fault, {} released late",
                counts.offered,
                counts.delivered,
                counts.dropped_by_queue,
                units::write_duration(counts.longest_queue_wait),
                counts.dropped_by_loss,
                counts.dropped_by_fault,
                counts.released_late
            )
        })
        .collect();
    lines.push(format!(
        "the emulator used {} of CPU, {} us for each of {} packets (the thread that wakes it {}), waited {} for a \
         CPU, and was busy for {} at most",
        units::write_duration(Duration::from_secs_f64(emulator.cpu_s)),
        units::three_digits(emulator.cpu_us_per_packet),
        emulator.packets,
        units::write_duration(Duration::from_secs_f64(emulator.standby_cpu_s)),
        units::write_duration(Duration::from_secs_f64(emulator.run_queue_wait_s)),
        units::write_duration(Duration::from_micros(emulator.longest_round_us))
    ));
    if !drops_unknown.is_empty() {
        let devices = drops_unknown.join("`, `");
        lines.push(format!("frames that `{devices}` dropped are in no count, as they could not be read"));
    }
    lines.join("\n")
}

fn device_counts(links: &[DeviceCounts]) -> String {
    let lines: Vec<String> = links
        .iter()
        .map(|DeviceCounts { from, to, offered, delivered, dropped, .. }| {
            format!("{from} -> {to}: {offered} packets offered, {delivered} delivered, {dropped} dropped")
        })
        .collect();
    lines.join("\n")
}
