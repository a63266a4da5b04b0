//! `plimsoll link --backend netem`: the kernel emulates; this process makes what it needs, counts,
//! and removes at the end what it made, and nothing else.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use plimsoll_link::config::Config;
use plimsoll_link::netem::{self, Command, Direction, Step};
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
            if let Err(why) = carry_out(command) {
                // Where standard error is closed there is nobody to tell.
                let _ = writeln!(std::io::stderr(), "plimsoll: a device of the link is not removed: {why}");
            }
        }
    }
}

impl Made {
    /// Makes the network, or refuses, naming what the kernel or the machine lacks.
    pub(super) fn new(config: &Config) -> anyhow::Result<Made> {
        refuse_what_is_missing()?;
        let mut devices = Devices::default();
        for step in netem::plan(config) {
            devices.carry_out(step).map_err(|why| anyhow!(Environment(why)))?;
        }
        Ok(Made { directions: netem::directions(config), _devices: devices })
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
        let column = |device: &str, place: usize| {
            let row = table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
            row.and_then(|row| row.split_whitespace().nth(place)?.parse::<u64>().ok())
                .with_context(|| format!("`{device}` is gone: another program removed it; start the link again"))
        };
        let counts = self.directions.iter().map(|direction| {
            Ok(DeviceCounts {
                from: direction.from.clone(),
                to: direction.to.clone(),
                offered: column(&direction.enters, 1)?,
                offered_bytes: column(&direction.enters, 0)?,
                delivered: column(&direction.leaves, 9)?,
                delivered_bytes: column(&direction.leaves, 8)?,
                dropped: column(&direction.leaves, 11)?,
            })
        });
        counts.collect()
    }
}

fn refuse_what_is_missing() -> anyhow::Result<()> {
    let mut devices = Devices::default();
    let missing: Vec<String> = netem::needs()
        .into_iter()
        .filter_map(|(name, step)| devices.carry_out(step).err().map(|why| format!("{name}: {why}")))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(anyhow!(Environment(format!(
        "--backend netem needs what is missing here: {}; load the module, use a kernel that has it, or leave \
         --backend out for the emulator over TAP devices",
        missing.join("; ")
    ))))
}

fn carry_out(command: &Command) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("an empty command")?;
    let output = Process::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("`{program}` does not run ({error}); install iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` said: {}", command.join(" "), said.split_whitespace().collect::<Vec<_>>().join(" ")))
}
