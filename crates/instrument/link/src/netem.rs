//! The same network made of what the kernel offers: bridges, pairs of virtual devices, htb(8) for the rate and netem(8) for the rest.
//!
//! Pure: a configuration in, the commands that make it out. A link is a bridge of its own between two pairs, so that both of its directions are shaped where
//! this process is, whatever namespace the hosts' devices are moved to:
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

/// One direction of a link: the device that takes packets in, and the one that they leave by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// The device that receives what is offered.
    pub enters: String,
    /// The device whose queue shapes it.
    pub leaves: String,
}

/// The commands that make a network, in order.
pub fn plan(config: &Config) -> Vec<Command> {
    let mut commands = Vec::new();
    for switch in &config.switches {
        commands.extend(bridge(switch));
    }
    for (number, link) in config.links.iter().enumerate() {
        commands.extend(bridge(&format!("p{number}")));
        commands.extend(plug(config, number, link.ends[0], 'x', 'a'));
        commands.extend(plug(config, number, link.ends[1], 'y', 'b'));
        commands.extend(shape(&format!("p{number}y"), &link.there));
        commands.extend(shape(&format!("p{number}x"), &link.back));
    }
    commands
}

/// The commands that remove it again: a pair goes with either of its ends, whichever namespace the other is in.
pub fn undo(config: &Config) -> Vec<Command> {
    let relays =
        (0..config.links.len()).flat_map(|number| [format!("p{number}x"), format!("p{number}y"), format!("p{number}")]);
    relays.chain(config.switches.iter().cloned()).map(|name| command(&["ip", "link", "delete", &name])).collect()
}

/// Each direction of each link, in the order of the configuration.
pub fn ways(config: &Config) -> Vec<Way> {
    let both = |(number, link): (usize, &Link)| {
        let [one, other] = link.ends.map(|end| config.name(end).to_owned());
        let (x, y) = (format!("p{number}x"), format!("p{number}y"));
        [
            Way { from: one.clone(), to: other.clone(), enters: x.clone(), leaves: y.clone() },
            Way { from: other, to: one, enters: y, leaves: x },
        ]
    };
    config.links.iter().enumerate().flat_map(both).collect()
}

/// What a kernel needs, as commands that fail where it is missing, with its name.
pub fn needs() -> Vec<(&'static str, Command)> {
    vec![
        ("bridges (module bridge)", command(&["ip", "link", "add", "name", "plneed0", "type", "bridge"])),
        (
            "virtual pairs (module veth)",
            command(&["ip", "link", "add", "name", "plneed1", "type", "veth", "peer", "name", "plneed2"]),
        ),
        ("htb (module sch_htb)", command(&["tc", "qdisc", "add", "dev", "plneed1", "root", "htb"])),
        (
            "netem (module sch_netem)",
            command(&["tc", "qdisc", "add", "dev", "plneed2", "root", "netem", "delay", "1us"]),
        ),
    ]
}

/// Removes what [`needs`] tried.
pub fn undo_needs() -> Vec<Command> {
    vec![command(&["ip", "link", "delete", "plneed0"]), command(&["ip", "link", "delete", "plneed1"])]
}

fn bridge(name: &str) -> [Command; 2] {
    // Without snooping and a spanning tree a bridge forwards from its first moment on.
    [
        command(&["ip", "link", "add", "name", name, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]),
        command(&["ip", "link", "set", name, "up"]),
    ]
}

/// One end of a link: a pair between the link's own bridge and a host's device or a switch's port.
fn plug(config: &Config, number: usize, end: End, inner: char, port: char) -> Vec<Command> {
    let inner = format!("p{number}{inner}");
    let outer = match end {
        End::Device(device) => config.devices[device].clone(),
        End::Switch(_) => format!("p{number}{port}"),
    };
    let mut commands = vec![
        command(&["ip", "link", "add", "name", &outer, "type", "veth", "peer", "name", &inner]),
        // Rates are charged for each packet that a queue sees, so large segments are cut before they come to one.
        command(&["ip", "link", "set", &outer, "gso_max_segs", "1"]),
        command(&["ip", "link", "set", &inner, "gso_max_segs", "1"]),
        command(&["ip", "link", "set", &inner, "master", &format!("p{number}"), "up"]),
    ];
    if let End::Switch(switch) = end {
        commands.push(command(&["ip", "link", "set", &outer, "master", &config.switches[switch], "up"]));
    }
    commands
}

/// htb for the rate above netem for delay, jitter, loss and the bound of the queue, as Mininet's TCLink has them.
fn shape(device: &str, shape: &Shape) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut place = vec!["root".to_owned()];
    if let Some(rate) = shape.rate {
        let rate = format!("{rate}bit");
        commands.push(command(&["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"]));
        commands.push(command(&[
            "tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", &rate, "ceil", &rate,
        ]));
        place = vec!["parent".to_owned(), "1:1".to_owned()];
    }
    let mut netem = command(&["tc", "qdisc", "add", "dev", device]);
    netem.extend(place);
    netem.extend(command(&["handle", "10:", "netem", "limit", &limit(shape).to_string()]));
    netem.extend(["delay".to_owned(), format!("{}us", shape.delay.as_micros())]);
    if !shape.jitter.is_zero() {
        netem.push(format!("{}us", shape.jitter.as_micros()));
    }
    if shape.loss > 0.0 {
        netem.extend(["loss".to_owned(), format!("{}%", shape.loss * 100.0)]);
    }
    commands.push(netem);
    if shape.order == Order::Kept && !shape.jitter.is_zero() {
        // netem sends in the order of its queue; its own is sorted by time, a plain one is not (tc-netem(8)).
        commands.push(command(&[
            "tc",
            "qdisc",
            "add",
            "dev",
            device,
            "parent",
            "10:",
            "handle",
            "20:",
            "pfifo",
            "limit",
            &limit(shape).to_string(),
        ]));
    }
    commands
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
