//! `plimsoll link --backend netem`: the kernel emulates; this process makes what it needs, counts, and removes at the end
//! what it made, and nothing else.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command as Process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use plimsoll_link::config::Config;
use plimsoll_link::netem::{self, Command, Step, Way};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use serde_json::{Value, json};

use crate::outcome::Environment;

/// What was made; dropping it removes it.
pub(super) struct Made {
    ways: Vec<Way>,
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
        Ok(Made { ways: netem::ways(config), _devices: devices })
    }

    /// Waits for a signal to end, telling the counts every interval; returns the last ones.
    pub(super) fn run(
        &self,
        signals: &Signals,
        interval: Option<Duration>,
        mut tell: impl FnMut(&Value),
    ) -> anyhow::Result<Value> {
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
                let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
                tell(&json!({"event": "counters", "unix_s": unix_s, "links": self.counts()?}));
            }
        }
    }

    /// What the devices have counted. netem tells nothing of lateness, and does not tell its own losses from a full queue's.
    fn counts(&self) -> anyhow::Result<Value> {
        let table = std::fs::read_to_string("/proc/self/net/dev").context("the interfaces cannot be counted")?;
        let column = |device: &str, place: usize| {
            let row = table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
            row.and_then(|row| row.split_whitespace().nth(place)?.parse::<u64>().ok())
                .with_context(|| format!("`{device}` is gone: something else removed it"))
        };
        let rows = self.ways.iter().map(|way| {
            Ok(json!({
                "from": way.from, "to": way.to,
                "offered": column(&way.enters, 1)?, "offered_bytes": column(&way.enters, 0)?,
                "delivered": column(&way.leaves, 9)?, "delivered_bytes": column(&way.leaves, 8)?,
                "dropped": column(&way.leaves, 11)?,
            }))
        });
        rows.collect()
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
        "--backend netem needs what is missing here: {}; load the module, use a kernel that has it, or leave --backend out for the emulator over TAP devices",
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
