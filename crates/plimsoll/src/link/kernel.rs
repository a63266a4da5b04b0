//! `plimsoll link --backend kernel`: the kernel carries and shapes; this process makes what it
//! needs, counts, and removes at the end what it made, and nothing else.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use plimsoll_link::config::Config;
use plimsoll_link::kernel::{self, Command, Direction, Passage, Step};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use serde::Serialize;

use crate::outcome::Environment;

/// One direction of one link, as its devices count it. netem does not say when it was late, and
/// counts the packets that it lost and those that found its queue full together.
#[derive(Debug, Serialize)]
pub(super) struct DeviceCounts {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) offered: u64,
    pub(super) offered_bytes: u64,
    pub(super) delivered: u64,
    pub(super) delivered_bytes: u64,
    pub(super) dropped: u64,
    /// Those of the dropped that nobody asked to be dropped: all, where the direction has neither a
    /// rate nor a loss. Where it has, they cannot be told apart, and it is 0.
    pub(super) dropped_by_fault: u64,
}

/// What was made; dropping it removes it.
pub(super) struct Made {
    directions: Vec<Direction>,
    _devices: Devices,
}

/// Removes the devices that succeeded steps made, the last first.
#[derive(Default)]
struct Devices(Vec<Command>);

impl Devices {
    /// Carries out a step, and notes how to remove what it made.
    fn carry_out(&mut self, step: Step) -> Result<(), String> {
        carry_out(&step.command)?;
        self.0.extend(step.undo);
        Ok(())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for command in self.0.iter().rev() {
            // A device goes with its peer, and with the namespace of the host that it was moved to.
            if let Err(why) = carry_out(command)
                && !why.contains("Cannot find device")
            {
                // Where standard error is closed there is nobody to tell.
                let _ = writeln!(std::io::stderr(), "plimsoll: a device of the link is not removed: {why}");
            }
        }
    }
}

impl Made {
    /// Makes the network, or refuses, naming what the kernel or the machine lacks.
    pub(super) fn new(config: &Config) -> anyhow::Result<Made> {
        refuse_what_is_missing(config)?;
        let mut devices = Devices::default();
        let speaks_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
        for step in kernel::plan(config).into_iter().filter(|step| speaks_ipv6 || !step.is_of_ipv6) {
            devices.carry_out(step).map_err(|why| anyhow!(Environment(why)))?;
        }
        Ok(Made { directions: kernel::directions(config), _devices: devices })
    }

    /// Waits for a signal to end, and calls `report` with the counts every interval; returns the
    /// last ones.
    pub(super) fn run(
        &self,
        signals: &Signals,
        interval: Option<Duration>,
        mut report: impl FnMut(&[DeviceCounts]),
    ) -> anyhow::Result<Vec<DeviceCounts>> {
        let mut due = interval.map(|interval| Instant::now() + interval);
        loop {
            let mut places = [Place::new(signals.as_fd().as_raw_fd(), Interest::READ)];
            poll::wait(&mut places, due.map(|due| due.saturating_duration_since(Instant::now())))?;
            if std::iter::from_fn(|| signals.next())
                .any(|signal| matches!(signal, Signal::Terminate | Signal::Interrupt))
            {
                return self.counts();
            }
            if let (Some(at), Some(interval)) = (&mut due, interval)
                && *at <= Instant::now()
            {
                *at += interval;
                report(&self.counts()?);
            }
        }
    }

    fn counts(&self) -> anyhow::Result<Vec<DeviceCounts>> {
        let table = std::fs::read_to_string("/proc/self/net/dev").context("the interfaces cannot be counted")?;
        let counts = self.directions.iter().map(|direction| {
            let (offered, delivered) = (read(&table, &direction.offered)?, read(&table, &direction.delivered)?);
            Ok(DeviceCounts {
                from: direction.from.clone(),
                to: direction.to.clone(),
                offered: offered.packets,
                offered_bytes: offered.bytes,
                delivered: delivered.packets,
                delivered_bytes: delivered.bytes,
                dropped: delivered.dropped,
                dropped_by_fault: if direction.is_lossy { 0 } else { delivered.dropped },
            })
        });
        counts.collect()
    }
}

/// What a device has counted, one way.
struct Passed {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

/// A passage's row of /proc/net/dev (proc_net(5)): bytes, packets, errs and drop of what is
/// received, four more, and the same of what is sent.
fn read(table: &str, passage: &Passage) -> anyhow::Result<Passed> {
    let (device, first) = match passage {
        Passage::In(device) => (device, 0),
        Passage::Out(device) => (device, 8),
    };
    let row = table.lines().find_map(|line| line.trim().strip_prefix(device.as_str())?.strip_prefix(':'));
    let column = |place: usize| row?.split_whitespace().nth(first + place)?.parse().ok();
    (|| Some(Passed { bytes: column(0)?, packets: column(1)?, dropped: column(3)? }))()
        .with_context(|| format!("`{device}` is gone: another program removed it; start the link again"))
}

fn refuse_what_is_missing(config: &Config) -> anyhow::Result<()> {
    let mut devices = Devices::default();
    let missing: Vec<String> = kernel::needs(config)
        .into_iter()
        .filter_map(|(name, step)| devices.carry_out(step).err().map(|why| format!("{name}: {why}")))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(anyhow!(Environment(format!(
        "--backend kernel needs what is missing here: {}; load the module, use a kernel that has it, or leave \
         --backend out for the emulator over TAP devices",
        missing.join("; ")
    ))))
}

fn carry_out(command: &Command) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    // A group of its own: an interrupt from the terminal must not end what makes or removes a
    // device.
    let output = Process::new(program)
        .args(arguments)
        .process_group(0)
        .output()
        .map_err(|error| format!("`{program}` does not run ({error}); install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let mend = if said.contains("File exists") {
        "; remove the device of this name (ip link delete), or name the link's otherwise"
    } else {
        ""
    };
    Err(format!("`{}` said: {said}{mend}", command.join(" ")))
}
