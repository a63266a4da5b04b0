//! `plimsoll link --backend kernel`: the kernel delivers and shapes packets. This process makes the
//! devices, counts, and removes at the end the devices that it made, and no others.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use plimsoll_link::config::Config;
use plimsoll_link::kernel::{self, Direction, NETEM_HANDLE, Passage};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use serde::{Deserialize, Serialize};

use super::devices::{Devices, output_of};
use super::unix_s;
use crate::outcome::Environment;

/// One direction of one link, as its devices and their netem count it. netem does not say when it
/// was late, and counts the packets that it lost and those that found its queue full together.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct DeviceCounts {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) offered: u64,
    /// Without those of packets that were dropped where they came in.
    pub(super) offered_bytes: u64,
    pub(super) delivered: u64,
    pub(super) delivered_bytes: u64,
    pub(super) dropped: u64,
    /// Packets that should not have been dropped: by the devices, and by netem where the direction
    /// has neither a rate nor a loss.
    pub(super) dropped_by_fault: u64,
}

/// What a network of the kernel reports while it runs.
pub(super) enum NetworkEvent<'a> {
    /// The counts so far.
    Counts(&'a [DeviceCounts]),
    /// Devices dropped packets between two looks at them, in seconds since 1970.
    Lost { from_unix_s: f64, to_unix_s: f64, packets: u64 },
}

/// How often the devices are asked what they dropped: a loss is known by its moment as exactly.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The counts of every device of this namespace.
const DEVICES: &str = "/proc/self/net/dev";
const UNCOUNTED: &str = "the interfaces cannot be counted";

/// What was made; dropping it removes it.
pub(super) struct Made {
    directions: Vec<Direction>,
    _devices: Devices,
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

    /// Waits for a signal to end, and reports what the devices drop, within [`LOOK_EVERY`], and the
    /// counts every interval; returns the last ones.
    pub(super) fn run(
        &self,
        signals: &Signals,
        interval: Option<Duration>,
        mut report: impl FnMut(NetworkEvent<'_>),
    ) -> anyhow::Result<Vec<DeviceCounts>> {
        let mut due = interval.map(|interval| Instant::now() + interval);
        let mut looked = (unix_s(), self.dropped_by_devices()?);
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            let next = due.map_or(next_look, |due| due.min(next_look));
            let mut places = [Place::new(signals.as_fd().as_raw_fd(), Interest::READ)];
            poll::wait(&mut places, Some(next.saturating_duration_since(Instant::now())))?;
            let now = (unix_s(), self.dropped_by_devices()?);
            if let Some(lost) = lost_between(looked, now) {
                report(lost);
            }
            (looked, next_look) = (now, Instant::now() + LOOK_EVERY);
            if std::iter::from_fn(|| signals.next())
                .any(|signal| matches!(signal, Signal::Terminate | Signal::Interrupt))
            {
                return self.counts();
            }
            if let (Some(at), Some(interval)) = (&mut due, interval)
                && *at <= Instant::now()
            {
                *at += interval;
                report(NetworkEvent::Counts(&self.counts()?));
            }
        }
    }

    fn dropped_by_devices(&self) -> anyhow::Result<u64> {
        dropped(&self.directions, &Rows::of(&std::fs::read_to_string(DEVICES).context(UNCOUNTED)?))
    }

    fn counts(&self) -> anyhow::Result<Vec<DeviceCounts>> {
        let devices = std::fs::read_to_string(DEVICES).context(UNCOUNTED)?;
        let shapers = match self.directions.iter().any(|direction| direction.shaper.is_some()) {
            true => read_qdiscs(&output_of(&QDISCS.map(str::to_owned)).map_err(|why| anyhow!(Environment(why)))?)?,
            false => Vec::new(),
        };
        let rows = Rows::of(&devices);
        self.directions.iter().map(|direction| count(direction, &rows, &shapers)).collect()
    }
}

/// Counts a direction from /proc/net/dev and what netem has dropped.
fn count(direction: &Direction, rows: &Rows<'_>, shapers: &[Qdisc]) -> anyhow::Result<DeviceCounts> {
    let passing = Passing::of(direction, rows)?;
    let dropped_by_device = passing.dropped();
    let Passing { came, left, dropped_on_entry, .. } = passing;
    let dropped_by_netem = match &direction.shaper {
        Some(device) => shapers.iter().find(|qdisc| qdisc.is_netem_of(device)).with_context(|| gone(device))?.drops,
        None => 0,
    };
    Ok(DeviceCounts {
        from: direction.from.clone(),
        to: direction.to.clone(),
        offered: came.packets + dropped_on_entry,
        offered_bytes: came.bytes,
        delivered: left.packets,
        delivered_bytes: left.bytes,
        dropped: dropped_by_device + dropped_by_netem,
        dropped_by_fault: dropped_by_device + if direction.is_lossy { 0 } else { dropped_by_netem },
    })
}

/// Packets that the devices have dropped so far, in all directions.
fn dropped(directions: &[Direction], rows: &Rows<'_>) -> anyhow::Result<u64> {
    directions.iter().map(|direction| Ok(Passing::of(direction, rows)?.dropped())).sum()
}

/// The event between two looks, if packets were dropped. A look is its instant, and the packets
/// dropped until then.
fn lost_between(before: (f64, u64), now: (f64, u64)) -> Option<NetworkEvent<'static>> {
    let packets = now.1.checked_sub(before.1).filter(|packets| *packets > 0)?;
    Some(NetworkEvent::Lost { from_unix_s: before.0, to_unix_s: now.0, packets })
}

/// What has passed a direction's devices.
struct Passing {
    came: Passed,
    left: Passed,
    /// What a device drops is not among its packets.
    dropped_on_entry: u64,
    dropped_on_exit: u64,
}

impl Passing {
    fn of(direction: &Direction, rows: &Rows<'_>) -> anyhow::Result<Passing> {
        let (came, left) = (rows.read(&direction.offered)?, rows.read(&direction.delivered)?);
        let dropped_on_exit = if direction.offered == direction.delivered { 0 } else { left.dropped };
        Ok(Passing { dropped_on_entry: came.dropped, dropped_on_exit, came, left })
    }

    fn dropped(&self) -> u64 {
        self.dropped_on_entry + self.dropped_on_exit
    }
}

/// What a device has counted, one way.
struct Passed {
    bytes: u64,
    packets: u64,
    dropped: u64,
}

/// The rows of /proc/net/dev (proc_net(5)) by their devices: bytes, packets, errs and drop of what
/// is received, four more, and the same of what is sent. A packet for which a CPU's backlog is full
/// counts as dropped where it is received, and where it was sent (the kernel's enqueue_to_backlog
/// in net/core/dev.c, veth_xmit in drivers/net/veth.c).
struct Rows<'a>(HashMap<&'a str, &'a str>);

impl Rows<'_> {
    fn of(table: &str) -> Rows<'_> {
        Rows(table.lines().filter_map(|line| line.trim().split_once(':')).collect())
    }

    fn read(&self, passage: &Passage) -> anyhow::Result<Passed> {
        let first = match passage {
            Passage::In(_) => 0,
            Passage::Out(_) => 8,
        };
        let device = passage.device();
        let column = |place: usize| self.0.get(device)?.split_whitespace().nth(first + place)?.parse().ok();
        (|| Some(Passed { bytes: column(0)?, packets: column(1)?, dropped: column(3)? }))()
            .with_context(|| gone(device))
    }
}

fn gone(device: &str) -> String {
    format!("`{device}` is gone: another program removed it; start the link again")
}

/// The statistics of every qdisc of this namespace (tc(8)): /proc/net/dev leaves out what they
/// drop.
const QDISCS: [&str; 5] = ["tc", "-statistics", "-json", "qdisc", "show"];

/// A qdisc, as tc(8) prints it.
#[derive(Debug, Deserialize)]
struct Qdisc {
    dev: String,
    handle: String,
    drops: u64,
}

impl Qdisc {
    fn is_netem_of(&self, device: &str) -> bool {
        self.dev == device && self.handle == NETEM_HANDLE
    }
}

fn read_qdiscs(text: &str) -> anyhow::Result<Vec<Qdisc>> {
    serde_json::from_str(text)
        .with_context(|| format!("`{}` printed no counts; install iproute2 4.18 or later", QDISCS.join(" ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Inter-| Receive                                             | Transmit
 face | bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop fifo colls carrier compressed
   p0x:  1000 10 0 3 0 0 0 0  2000 20 0 4 0 0 0 0
   p0y:  3000 30 0 0 0 0 0 0   700  7 0 2 0 0 0 0
";

    #[test]
    fn what_devices_dropped_between_two_looks_is_told_with_their_instants() {
        let text = r#"{"devices": ["h1"], "switches": ["s1"], "links": [{"ends": ["h1", "s1"]}]}"#;
        let config = Config::read(text).expect("a sound configuration");
        let directions = kernel::directions(&config);
        let device = directions[0].offered.device().to_owned();
        let table = |drops| format!("{device}: 1000 10 0 {drops} 0 0 0 0  2000 20 0 0 0 0 0 0\n");
        let look = |at, drops| (at, dropped(&directions, &Rows::of(&table(drops))).expect("a device"));
        assert!(lost_between(look(1.0, 3), look(1.02, 3)).is_none());
        let Some(NetworkEvent::Lost { from_unix_s, to_unix_s, packets }) = lost_between(look(1.0, 3), look(1.02, 10))
        else {
            panic!("seven packets were lost");
        };
        assert_eq!((from_unix_s, to_unix_s, packets), (1.0, 1.02, 7));
    }

    fn counted(links: &str) -> Vec<DeviceCounts> {
        let text = format!(r#"{{"devices": ["h1"], "switches": ["s1"], "links": [{{"ends": ["h1", "s1"]{links}}}]}}"#);
        let config = Config::read(&text).expect("a sound configuration");
        let qdiscs = r#"[{"kind": "htb", "dev": "p0y", "handle": "1:", "root": true, "drops": 99},
            {"kind": "netem", "dev": "p0y", "handle": "10:", "drops": 5}]"#;
        let shapers = read_qdiscs(qdiscs).expect("JSON");
        let directions = kernel::directions(&config);
        directions.iter().map(|direction| count(direction, &Rows::of(TABLE), &shapers).expect("all is there")).collect()
    }

    fn packets(counts: &DeviceCounts) -> [u64; 4] {
        [counts.offered, counts.delivered, counts.dropped, counts.dropped_by_fault]
    }

    #[test]
    fn what_a_device_drops_was_offered_and_is_a_fault() {
        let counts = counted("");
        assert_eq!(packets(&counts[0]), [13, 10, 3, 3]);
        assert_eq!(packets(&counts[1]), [24, 20, 4, 4]);
    }

    #[test]
    fn what_netem_drops_is_counted_and_a_fault_only_where_nobody_asked_for_it() {
        for (shape, fault) in
            [(r#""loss": "1%""#, 3 + 2), (r#""rate": "1Mbit""#, 3 + 2), (r#""delay": "1ms""#, 3 + 2 + 5)]
        {
            let counts = counted(&format!(r#", {shape}, "reverse": {{}}"#));
            assert_eq!(packets(&counts[0]), [13, 7, 3 + 2 + 5, fault], "{shape}");
        }
    }

    #[test]
    fn a_device_or_a_qdisc_that_is_gone_is_named() {
        let config = r#"{"devices": ["h1"], "switches": ["s1"], "links": [{"ends": ["h1", "s1"], "loss": "1%"}]}"#;
        let direction = kernel::directions(&Config::read(config).expect("a sound configuration")).remove(0);
        for (table, shapers) in [(TABLE, "[]"), ("", r#"[{"dev": "p0y", "handle": "10:", "drops": 0}]"#)] {
            let error =
                count(&direction, &Rows::of(table), &read_qdiscs(shapers).expect("JSON")).expect_err("it is gone");
            assert!(error.to_string().contains("is gone: another program removed it"), "{error}");
        }
    }
}
