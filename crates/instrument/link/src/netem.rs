//! The same network made of what the kernel offers: bridges, pairs of virtual devices, htb(8) for
//! the rate and netem(8) for the rest.
//!
//! Pure: a configuration in, the commands that make it out. A link is a bridge of its own between
//! two pairs, so that both of its directions are shaped where this process is, whatever namespace
//! the hosts' devices are moved to:
//!
//! ```text
//! h1-eth0 === p0x [p0] p0y === p0b [s1]
//! ```
//!
//! What leaves by `p0y` goes there, what leaves by `p0x` comes back.

use crate::config::{Config, End, Link};
use crate::queue::{Order, Shape};

/// A full Ethernet frame, by which packets on their way are counted.
const FULL_FRAME_BITS: u128 = 1514 * 8;

/// A command and its arguments.
pub type Command = Vec<String>;

/// A command, and the one that removes what it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The command.
    pub command: Command,
    /// Removes what the command made, and is to be run only if the command succeeded: a device of
    /// the same name that was there before belongs to somebody else. `None` for a command that
    /// changes a device that an earlier step made.
    pub undo: Option<Command>,
}

impl Step {
    fn change(words: &[&str]) -> Step {
        Step { command: command(words), undo: None }
    }

    /// Makes a device, which goes with `device`: a pair of devices goes with either of its ends.
    fn make(words: &[&str], device: &str) -> Step {
        Step { command: command(words), undo: Some(command(&["ip", "link", "delete", device])) }
    }
}

/// One direction of a link: the device that takes packets in, and the one that they leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// The device that receives what is offered.
    pub enters: String,
    /// The device whose queue shapes it.
    pub leaves: String,
}

/// The steps that make a network, in order.
pub fn plan(config: &Config) -> Vec<Step> {
    let mut steps = Vec::new();
    for switch in &config.switches {
        steps.extend(bridge(switch));
    }
    for (number, link) in config.links.iter().enumerate() {
        steps.extend(bridge(&format!("p{number}")));
        steps.extend(plug(config, number, link.ends[0], 'x', 'a'));
        steps.extend(plug(config, number, link.ends[1], 'y', 'b'));
        steps.extend(shape(&format!("p{number}y"), &link.forward));
        steps.extend(shape(&format!("p{number}x"), &link.reverse));
    }
    steps
}

/// Each direction of each link, in the order of the configuration.
pub fn directions(config: &Config) -> Vec<Direction> {
    let both = |(number, link): (usize, &Link)| {
        let [one, other] = link.ends.map(|end| config.name(end).to_owned());
        let (x, y) = (format!("p{number}x"), format!("p{number}y"));
        [
            Direction { from: one.clone(), to: other.clone(), enters: x.clone(), leaves: y.clone() },
            Direction { from: other, to: one, enters: y, leaves: x },
        ]
    };
    config.links.iter().enumerate().flat_map(both).collect()
}

/// What a kernel needs, by name, as steps that fail where it is missing.
pub fn needs() -> Vec<(&'static str, Step)> {
    let pair = ["ip", "link", "add", "name", "plneed1", "type", "veth", "peer", "name", "plneed2"];
    vec![
        ("bridges (module bridge)", Step::make(&["ip", "link", "add", "name", "plneed0", "type", "bridge"], "plneed0")),
        ("virtual pairs (module veth)", Step::make(&pair, "plneed1")),
        ("htb (module sch_htb)", Step::change(&["tc", "qdisc", "add", "dev", "plneed1", "root", "htb"])),
        (
            "netem (module sch_netem)",
            Step::change(&["tc", "qdisc", "add", "dev", "plneed2", "root", "netem", "delay", "1us"]),
        ),
    ]
}

fn bridge(name: &str) -> [Step; 2] {
    // Without snooping and a spanning tree a bridge forwards from its first moment on.
    let make = ["ip", "link", "add", "name", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"];
    [Step::make(&make, name), Step::change(&["ip", "link", "set", name, "up"])]
}

/// One end of a link: a pair between the link's own bridge and a host's device or a switch's port.
fn plug(config: &Config, number: usize, end: End, inner: char, port: char) -> Vec<Step> {
    let inner = format!("p{number}{inner}");
    let outer = match end {
        End::Device(device) => config.devices[device].clone(),
        End::Switch(_) => format!("p{number}{port}"),
    };
    let mut steps = vec![
        // The outer end may be moved to a host's namespace; the inner one stays here, and the pair
        // goes with it.
        Step::make(&["ip", "link", "add", "name", &outer, "type", "veth", "peer", "name", &inner], &inner),
        // Rates are charged for each packet that a queue sees, so large segments are cut before
        // they come to one.
        Step::change(&["ip", "link", "set", &outer, "gso_max_segs", "1"]),
        Step::change(&["ip", "link", "set", &inner, "gso_max_segs", "1"]),
        Step::change(&["ip", "link", "set", &inner, "master", &format!("p{number}"), "up"]),
    ];
    if let End::Switch(switch) = end {
        steps.push(Step::change(&["ip", "link", "set", &outer, "master", &config.switches[switch], "up"]));
    }
    steps
}

/// htb for the rate above netem for delay, jitter, loss and the bound of the queue, as Mininet's
/// TCLink has them.
fn shape(device: &str, shape: &Shape) -> Vec<Step> {
    let qdisc = ["tc", "qdisc", "add", "dev", device];
    let class = ["tc", "class", "add", "dev", device];
    let mut steps = Vec::new();
    let mut place = &["root"][..];
    if let Some(rate) = shape.rate {
        let rate = format!("{rate}bit");
        steps.push(Step::change(&[&qdisc[..], &["root", "handle", "1:", "htb", "default", "1"]].concat()));
        let of_class = ["parent", "1:", "classid", "1:1", "htb", "rate", &rate, "ceil", &rate];
        steps.push(Step::change(&[&class[..], &of_class].concat()));
        place = &["parent", "1:1"];
    }
    let limit = limit(shape).to_string();
    let delay = format!("{}us", shape.delay.as_micros());
    let jitter = format!("{}us", shape.jitter.as_micros());
    let loss = format!("{}%", shape.loss * 100.0);
    let mut netem = [&qdisc[..], place, &["handle", "10:", "netem", "limit", &limit, "delay", &delay]].concat();
    if !shape.jitter.is_zero() {
        netem.push(&jitter);
    }
    if shape.loss > 0.0 {
        netem.extend(["loss", &loss]);
    }
    steps.push(Step::change(&netem));
    if shape.order == Order::Kept && !shape.jitter.is_zero() {
        // netem sends in the order of its queue; its own is sorted by time, a plain one is not
        // (tc-netem(8)).
        let plain = ["parent", "10:", "handle", "20:", "pfifo", "limit", &limit];
        steps.push(Step::change(&[&qdisc[..], &plain].concat()));
    }
    steps
}

/// Packets that netem holds: those that wait, and those on the wire, which it counts too.
fn limit(shape: &Shape) -> u64 {
    let Some(rate) = shape.rate else { return u64::from(u32::MAX >> 1) };
    let on_the_wire =
        ((shape.delay + shape.jitter).as_nanos() * u128::from(rate)).div_ceil(FULL_FRAME_BITS * 1_000_000_000);
    u64::from(shape.queue) + u64::try_from(on_the_wire).unwrap_or(u64::from(u32::MAX >> 1))
}

fn command(words: &[&str]) -> Command {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
#[path = "netem_tests.rs"]
mod tests;
