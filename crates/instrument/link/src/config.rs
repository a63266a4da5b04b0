//! The network that is asked for: TOML or JSON in, a typed configuration out. Unknown keys, values
//! out of range and inconsistent settings are refused.

use std::collections::HashMap;
use std::time::Duration;

use plimsoll_measure::units::{self, UnitError};
use plimsoll_sys::tap::NAME_BYTES;
use serde::Deserialize;
use thiserror::Error;

use crate::queue::{Order, Shape};

/// Packets that a queue holds at least, unless told otherwise.
const QUEUE_PACKETS: u32 = 100;

/// A full Ethernet frame, by which the delay-bandwidth product is counted in packets.
const FULL_FRAME_BYTES: u64 = 1514;

/// From this rate on the cutting of large segments costs more than it shows: one of 64 KiB then
/// takes half a millisecond to send.
const WHOLE_SEGMENTS_RATE: u64 = 1_000_000_000;

/// Packets of two of the largest segments, of 45 full frames each (64 KiB), and the one that
/// departs. The packets of a segment reach a queue together, as those of no network do; a shorter
/// queue would drop them.
const WHOLE_SEGMENTS_QUEUE: u32 = 91;

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not the JSON that is wanted.
    #[error("{0}; see docs/networks.md for what a configuration may hold")]
    Json(#[from] serde_json::Error),
    /// It is not the TOML that is wanted.
    #[error("{what} at line {line}; see docs/networks.md for what a configuration may hold")]
    Toml {
        /// What is wrong.
        what: String,
        /// Where it is wrong, from 1.
        line: usize,
    },
    /// A quantity cannot be read.
    #[error("link {link}: `{key}`: {error}")]
    Quantity {
        /// The link's ends, or "-" for what belongs to none.
        link: String,
        /// The key.
        key: &'static str,
        /// What is wrong.
        error: UnitError,
    },
    /// A value is out of range, or does not go with another.
    #[error("{0}")]
    Value(String),
}

/// Where one end of a link is plugged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A device, by its number.
    Device(usize),
    /// A switch, by its number.
    Switch(usize),
}

/// A link and what it does in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it joins.
    pub ends: [End; 2],
    /// From the first end to the second.
    pub forward: Shape,
    /// From the second end to the first.
    pub reverse: Shape,
}

/// A network whose every part is known and in range. Links and switches form trees: there is one
/// way from device to device.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Losses and jitter follow from it.
    pub seed: u64,
    /// A frame handed over later than this after it was due counts as late.
    pub late_after: Duration,
    /// Whether large segments stay whole.
    pub whole_segments: bool,
    /// The names of the TAP devices.
    pub devices: Vec<String>,
    /// The names of the switches.
    pub switches: Vec<String>,
    /// The links.
    pub links: Vec<Link>,
}

impl Config {
    /// Reads a configuration: JSON where its first character is a brace, with which no TOML begins,
    /// and TOML otherwise.
    pub fn read(text: &str) -> Result<Config, ConfigError> {
        let raw: RawConfig = if text.trim_start().starts_with('{') {
            serde_json::from_str(text)?
        } else {
            toml::from_str(text).map_err(|error| ConfigError::Toml {
                what: error.message().replace('\n', ", "),
                line: 1 + text[..error.span().map_or(0, |span| span.start)].matches('\n').count(),
            })?
        };
        raw.check()
    }

    /// The name of a device or switch.
    pub fn name(&self, end: End) -> &str {
        match end {
            End::Device(number) => &self.devices[number],
            End::Switch(number) => &self.switches[number],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    #[serde(default)]
    seed: u64,
    late_after: Option<String>,
    #[serde(default)]
    large_segments: LargeSegments,
    devices: Vec<String>,
    #[serde(default)]
    switches: Vec<String>,
    links: Vec<RawLink>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LargeSegments {
    #[default]
    Auto,
    Whole,
    Cut,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    ends: Vec<String>,
    rate: Option<String>,
    delay: Option<String>,
    jitter: Option<String>,
    order: Option<RawOrder>,
    loss: Option<String>,
    queue: Option<u32>,
    reverse: Option<RawShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShape {
    rate: Option<String>,
    delay: Option<String>,
    jitter: Option<String>,
    order: Option<RawOrder>,
    loss: Option<String>,
    queue: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawOrder {
    Kept,
    Free,
}

impl RawConfig {
    fn check(self) -> Result<Config, ConfigError> {
        let late_after = match &self.late_after {
            Some(text) => units::duration(text).map_err(|error| quantity("-", "late_after", error))?,
            None => Duration::from_millis(1),
        };
        let ends = names(&self.devices, &self.switches)?;
        let mut links = Vec::new();
        for raw in &self.links {
            links.push(raw.check(&ends)?);
        }
        check_devices(&self.devices, &links)?;
        check_trees(self.devices.len(), self.switches.len(), &links)?;
        let whole_segments = match self.large_segments {
            LargeSegments::Cut => false,
            LargeSegments::Whole => true,
            LargeSegments::Auto => links.iter().flat_map(|link| [&link.forward, &link.reverse]).all(carries_whole),
        };
        Ok(Config {
            seed: self.seed,
            late_after,
            whole_segments,
            devices: self.devices,
            switches: self.switches,
            links,
        })
    }
}

/// Whether a host could hardly notice that a large segment is not cut: nothing is lost from its
/// middle, and it neither delays other packets nor fills a queue.
fn carries_whole(shape: &Shape) -> bool {
    shape.loss == 0.0
        && shape.order == Order::Kept
        && shape.rate.is_none_or(|rate| rate >= WHOLE_SEGMENTS_RATE)
        && shape.queue >= WHOLE_SEGMENTS_QUEUE
}

fn names(devices: &[String], switches: &[String]) -> Result<HashMap<String, End>, ConfigError> {
    let mut ends = HashMap::new();
    let devices = devices.iter().enumerate().map(|(number, name)| (name, End::Device(number)));
    let switches = switches.iter().enumerate().map(|(number, name)| (name, End::Switch(number)));
    for (name, end) in devices.chain(switches) {
        // What the kernel allows in an interface's name (dev_valid_name in net/core/dev.c); a `%`
        // would be a pattern.
        let is_valid = !name.is_empty()
            && name.len() <= NAME_BYTES
            && ![".", ".."].contains(&name.as_str())
            && name.chars().all(|c| c.is_ascii_graphic() && !['/', ':', '%'].contains(&c));
        if !is_valid {
            return Err(ConfigError::Value(format!(
                "`{name}` cannot name an interface; use 1 to {NAME_BYTES} letters, digits, `-`, `_` or `.`"
            )));
        }
        if ends.insert(name.clone(), end).is_some() {
            return Err(ConfigError::Value(format!(
                "`{name}` is named twice among devices and switches; give each its own name"
            )));
        }
    }
    Ok(ends)
}

impl RawLink {
    fn check(&self, ends: &HashMap<String, End>) -> Result<Link, ConfigError> {
        let label = self.ends.join(" - ");
        // TOML drops what is more than an array has places for.
        let [one, other] = &self.ends[..] else {
            return Err(ConfigError::Value(format!(
                "link {label}: `ends` has {} names; a link joins two: join more by a switch",
                self.ends.len()
            )));
        };
        let end = |name: &String| {
            ends.get(name).copied().ok_or_else(|| {
                ConfigError::Value(format!(
                    "link {label}: `{name}` is neither in `devices` nor in `switches`; add it to one"
                ))
            })
        };
        let mut forward = RawShape {
            rate: self.rate.clone(),
            delay: self.delay.clone(),
            jitter: self.jitter.clone(),
            order: self.order,
            loss: self.loss.clone(),
            queue: self.queue,
        }
        .check(&label)?;
        let mut reverse = match &self.reverse {
            Some(raw) => raw.check(&format!("{label}, reverse"))?,
            None => forward.clone(),
        };
        let round_trip = forward.delay + reverse.delay;
        let queues = [self.queue, self.reverse.as_ref().map_or(self.queue, |raw| raw.queue)];
        for (shape, queue) in [&mut forward, &mut reverse].into_iter().zip(queues) {
            let default = || shape.rate.map_or(u32::MAX, |rate| default_queue(rate, round_trip));
            shape.queue = queue.unwrap_or_else(default);
        }
        Ok(Link { ends: [end(one)?, end(other)?], forward, reverse })
    }
}

impl RawShape {
    /// Its queue, where none is given, depends on both ways of the link.
    fn check(&self, link: &str) -> Result<Shape, ConfigError> {
        let time = |key, text: &Option<String>| match text {
            Some(text) => units::duration(text).map_err(|error| quantity(link, key, error)),
            None => Ok(Duration::ZERO),
        };
        let refuse = |why: &str| Err(ConfigError::Value(format!("link {link}: {why}")));
        let rate =
            self.rate.as_deref().map(units::bit_rate).transpose().map_err(|error| quantity(link, "rate", error))?;
        let (delay, jitter) = (time("delay", &self.delay)?, time("jitter", &self.jitter)?);
        let loss = self.loss.as_deref().map_or(Ok(0.0), units::ratio).map_err(|error| quantity(link, "loss", error))?;
        if jitter > delay {
            return refuse(
                "`jitter` is more than `delay`, and nothing arrives before it was sent; raise `delay`, or lower \
                 `jitter`",
            );
        }
        if loss > 1.0 {
            return refuse("`loss` is more than 100%; write a percentage such as 0.1%");
        }
        if self.queue == Some(0) {
            return refuse("`queue` is 0, and a packet needs a place while it is sent; write at least 1");
        }
        if self.queue.is_some() && rate.is_none() {
            return refuse(
                "`queue` needs a `rate`: nothing waits where nothing takes time to send; add a rate, or leave the \
                 queue out",
            );
        }
        let order = if matches!(self.order, Some(RawOrder::Free)) { Order::Free } else { Order::Kept };
        if order == Order::Free && jitter.is_zero() {
            return refuse(
                "`order` is \"free\", but without `jitter` nothing changes places; add a jitter, or leave the order \
                 out",
            );
        }
        let queue = self.queue.unwrap_or(u32::MAX);
        Ok(Shape { rate, delay, jitter, order, loss, queue })
    }
}

/// What fills the link's round trip, in full frames, and at least a hundred packets.
fn default_queue(rate: u64, round_trip: Duration) -> u32 {
    let bits = round_trip.as_secs_f64() * rate as f64;
    // A float beyond the range of u32 becomes its largest.
    ((bits / (8 * FULL_FRAME_BYTES) as f64).ceil() as u32).max(QUEUE_PACKETS)
}

fn quantity(link: &str, key: &'static str, error: UnitError) -> ConfigError {
    ConfigError::Quantity { link: link.to_owned(), key, error }
}

/// A device is the only interface of one host: it has one link.
fn check_devices(devices: &[String], links: &[Link]) -> Result<(), ConfigError> {
    for (number, name) in devices.iter().enumerate() {
        let count = links.iter().flat_map(|link| link.ends).filter(|end| *end == End::Device(number)).count();
        if count != 1 {
            return Err(ConfigError::Value(format!(
                "device `{name}` is in {count} links; a device has one: join further links by a switch"
            )));
        }
    }
    Ok(())
}

/// Without loops no frame circles for ever: the switches have no spanning tree protocol.
fn check_trees(devices: usize, switches: usize, links: &[Link]) -> Result<(), ConfigError> {
    let number = |end| match end {
        End::Device(device) => device,
        End::Switch(switch) => devices + switch,
    };
    let mut tree: Vec<usize> = (0..devices + switches).collect();
    for link in links {
        let (one, other) = (tree[number(link.ends[0])], tree[number(link.ends[1])]);
        if one == other {
            return Err(ConfigError::Value(
                "the links form a loop, in which a broadcast would circle for ever; leave one of them out".to_owned(),
            ));
        }
        for root in &mut tree {
            if *root == one {
                *root = other;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
