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
//! `p0y` sends towards the switch, `p0x` back to the host. A link from a host to a switch that
//! shapes nothing has no bridge in between, and needs neither htb nor netem:
//!
//! ```text
//! h1-eth0 === p0x [s1]
//! ```

use crate::config::{Config, End, Link};
use crate::queue::{Order, Shape};

/// A full Ethernet frame, by which packets on their way are counted.
const FULL_FRAME_BITS: u128 = 1514 * 8;

/// The handle of every netem that is made.
pub const NETEM_HANDLE: &str = "10:";

/// netem sorts its packets by the time at which they leave, and with a rate none of them leaves
/// before its predecessor (netem_enqueue in the kernel's net/sched/sch_netem.c). At this rate a
/// full frame takes 12 ns.
const KEEPS_ORDER: &str = "1000gbit";

/// A command and its arguments.
pub type Command = Vec<String>;

/// A command, and the one that removes what it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The command.
    pub command: Command,
    /// Removes what the command made, and is to be run only if the command succeeded: a device of
    /// the same name may belong to another program. `None` for a command that changes a device that
    /// an earlier step made.
    pub undo: Option<Command>,
    /// Whether it is to be left out where the kernel does not speak IPv6.
    pub is_of_ipv6: bool,
}

impl Step {
    fn change(words: &[&str]) -> Step {
        Step { command: command(words), undo: None, is_of_ipv6: false }
    }

    /// Gives a device no address of its own, for which it would send packets that no host sends
    /// (RFC 4862 section 5.4, RFC 3810).
    fn silence(device: &str) -> Step {
        Step { is_of_ipv6: true, ..Step::change(&["ip", "link", "set", "dev", device, "addrgenmode", "none"]) }
    }

    /// Makes a device, which goes with `device`: a pair of devices goes with either of its ends.
    fn make(words: &[&str], device: &str) -> Step {
        Step { undo: Some(command(&["ip", "link", "delete", "dev", device])), ..Step::change(words) }
    }
}

/// A device of this namespace, and which way packets pass it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It receives them.
    In(String),
    /// It sends them.
    Out(String),
}

impl Passage {
    /// The device.
    pub fn device(&self) -> &str {
        match self {
            Passage::In(device) | Passage::Out(device) => device,
        }
    }
}

/// One direction of a link: where its packets are counted as they come and as they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Where packets come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// Where they come in.
    pub offered: Passage,
    /// Where they go out; the same for a link that is one device.
    pub delivered: Passage,
    /// The device whose netem ([`NETEM_HANDLE`]) shapes them. It counts what it drops, and its
    /// device does not.
    pub shaper: Option<String>,
    /// Whether netem may drop packets because it was asked to: in a rate's queue, or by chance.
    pub is_lossy: bool,
}

/// The steps that make a network, in order.
pub fn plan(config: &Config) -> Vec<Step> {
    let mut steps = Vec::new();
    for switch in &config.switches {
        steps.extend(bridge(switch));
    }
    for (number, link) in config.links.iter().enumerate() {
        if let Some((device, switch)) = bare(link) {
            steps.extend(pair(&config.devices[device], &format!("p{number}x")));
            steps.extend(attach(&format!("p{number}x"), &config.switches[switch]));
            continue;
        }
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
        let [there, back] = match (bare(link), link.ends) {
            (None, _) => [[Passage::In(x.clone()), Passage::Out(y.clone())], [Passage::In(y), Passage::Out(x)]],
            // One device is all there is to a bare link here: it receives what the host sends.
            (Some(_), [End::Device(_), _]) => {
                [[Passage::In(x.clone()), Passage::In(x.clone())], [Passage::Out(x.clone()), Passage::Out(x)]]
            }
            (Some(_), _) => {
                [[Passage::Out(x.clone()), Passage::Out(x.clone())], [Passage::In(x.clone()), Passage::In(x)]]
            }
        };
        [(one.clone(), other.clone(), there, &link.forward), (other, one, back, &link.reverse)].map(
            |(from, to, [offered, delivered], shape)| {
                let is_lossy = shape.rate.is_some() || shape.loss > 0.0;
                let shaper = is_shaped(shape).then(|| delivered.device().to_owned());
                Direction { from, to, offered, delivered, shaper, is_lossy }
            },
        )
    };
    config.links.iter().enumerate().flat_map(both).collect()
}

/// What a kernel needs for these links, by name, as steps that fail where it is missing.
pub fn needs(config: &Config) -> Vec<(&'static str, Step)> {
    let shapes = || config.links.iter().flat_map(|link| [&link.forward, &link.reverse]);
    let veth = ["ip", "link", "add", "name", "plneed1", "type", "veth", "peer", "name", "plneed2"];
    let mut needs = vec![
        ("bridges (module bridge)", Step::make(&["ip", "link", "add", "name", "plneed0", "type", "bridge"], "plneed0")),
        ("virtual pairs (module veth)", Step::make(&veth, "plneed1")),
    ];
    if shapes().any(|shape| shape.rate.is_some()) {
        needs.push(("htb (module sch_htb)", Step::change(&["tc", "qdisc", "add", "dev", "plneed1", "root", "htb"])));
    }
    if shapes().any(is_shaped) {
        needs.push((
            "netem (module sch_netem)",
            Step::change(&["tc", "qdisc", "add", "dev", "plneed2", "root", "netem", "delay", "1us"]),
        ));
    }
    needs
}

/// Whether a direction differs from a bare wire.
fn is_shaped(shape: &Shape) -> bool {
    shape.rate.is_some() || !shape.delay.is_zero() || shape.loss > 0.0
}

/// The device and the switch of a link between a host and a switch that shapes nothing.
fn bare(link: &Link) -> Option<(usize, usize)> {
    match link.ends {
        _ if is_shaped(&link.forward) || is_shaped(&link.reverse) => None,
        [End::Device(device), End::Switch(switch)] | [End::Switch(switch), End::Device(device)] => {
            Some((device, switch))
        }
        _ => None,
    }
}

fn bridge(name: &str) -> [Step; 3] {
    // Without snooping and a spanning tree a bridge forwards from its first moment on. It forwards
    // frames for other bridges too, such as LLDP's, as a wire does (all that the kernel allows to):
    // those it keeps have no receiver, and count as received and as dropped.
    let settings = ["stp_state", "0", "mcast_snooping", "0", "group_fwd_mask", "0xfff8"];
    let make = [&["ip", "link", "add", "name", name, "type", "bridge"], &settings[..]].concat();
    [Step::make(&make, name), Step::silence(name), Step::change(&["ip", "link", "set", "dev", name, "up"])]
}

/// One end of a link: a pair between the link's own bridge and a host's device or a switch's port.
fn plug(config: &Config, number: usize, end: End, inner: char, port: char) -> Vec<Step> {
    let inner = format!("p{number}{inner}");
    let outer = match end {
        End::Device(device) => config.devices[device].clone(),
        End::Switch(_) => format!("p{number}{port}"),
    };
    let mut steps = Vec::from(pair(&outer, &inner));
    steps.extend(attach(&inner, &format!("p{number}")));
    if let End::Switch(switch) = end {
        steps.extend(attach(&outer, &config.switches[switch]));
    }
    steps
}

/// Two joined devices. The outer one may be moved to a host's namespace; the inner one stays here,
/// and the pair goes with it.
fn pair(outer: &str, inner: &str) -> [Step; 3] {
    [
        Step::make(&["ip", "link", "add", "name", outer, "type", "veth", "peer", "name", inner], inner),
        // Rates are charged for each packet that a queue sees, and packets are counted, so large
        // segments are cut before they come to either.
        Step::change(&["ip", "link", "set", "dev", outer, "gso_max_segs", "1"]),
        Step::change(&["ip", "link", "set", "dev", inner, "gso_max_segs", "1"]),
    ]
}

/// Makes a device a port of a bridge.
fn attach(device: &str, bridge: &str) -> [Step; 2] {
    [Step::silence(device), Step::change(&["ip", "link", "set", "dev", device, "master", bridge, "up"])]
}

/// htb for the rate above netem for delay, jitter, loss and the bound of the queue, as Mininet's
/// TCLink has them; nothing where a direction shapes nothing, as a kernel may lack both.
fn shape(device: &str, shape: &Shape) -> Vec<Step> {
    if !is_shaped(shape) {
        return Vec::new();
    }
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
    let microseconds = |time: std::time::Duration| format!("{}us", time.as_nanos() as f64 / 1e3);
    let (delay, jitter) = (microseconds(shape.delay), microseconds(shape.jitter));
    let loss = format!("{}%", shape.loss * 100.0);
    let mut netem = [&qdisc[..], place, &["handle", NETEM_HANDLE, "netem", "limit", &limit, "delay", &delay]].concat();
    if !shape.jitter.is_zero() {
        netem.push(&jitter);
    }
    if shape.loss > 0.0 {
        netem.extend(["loss", &loss]);
    }
    if shape.order == Order::Kept && !shape.jitter.is_zero() {
        netem.extend(["rate", KEEPS_ORDER]);
    }
    steps.push(Step::change(&netem));
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
#[path = "kernel_tests.rs"]
mod tests;
