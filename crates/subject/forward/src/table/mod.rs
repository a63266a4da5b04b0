//! The forwarder's table: listening addresses, their destinations, and time limits.
//!
//! Read from one-line mappings ([`mapping`]), `forward.toml` ([`toml`]), or the files of port_fwd
//! and rinetd ([`lines`]). Below this module nothing is invalid: every rule listens at one address
//! and has at least one destination. Pure: text in, rules or a [`Fault`] with its place out.

pub mod access;
pub mod lines;
pub mod mapping;
pub mod toml;

mod cycle;
mod sources;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

pub use access::{Access, Network, Pattern};
pub use cycle::refuse_cycles;
pub use sources::Sources;

/// A whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// In the order given. No two listen at the same address, but for port 0, which picks a free
    /// one each time.
    pub rules: Vec<Rule>,
    /// Past this many connections in all, accepting pauses.
    pub max_connections: Option<u64>,
    /// Where the connection log goes, if the table says.
    pub log: Option<LogTarget>,
    /// Where metrics and the state of the table are shown, if the table says.
    pub admin: Option<SocketAddr>,
    /// The file it was read from, for messages.
    pub file: Option<PathBuf>,
    /// What was read and has no effect here, to be said.
    pub notes: Vec<String>,
}

impl Table {
    /// A fault as a sentence, with the file that it is in.
    pub fn sentence(&self, fault: &Fault) -> String {
        self.file.as_ref().map_or_else(|| fault.to_string(), |file| format!("{}: {fault}", file.display()))
    }
}

/// One listening address and its destinations.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Where it listens.
    pub listen: Listen,
    /// It is one of the two addresses of `*`: on a machine without IPv6 it may be missing.
    pub wildcard: bool,
    /// The permissions of a Unix socket that it listens at; none: as the process's umask has them.
    pub mode: Option<u32>,
    /// Where it connects to; at least one.
    pub to: Vec<Destination>,
    /// Which of several it connects to.
    pub balance: Balance,
    /// How long things may take.
    pub limits: Limits,
    /// How much may go through it.
    pub quota: Quota,
    /// Local addresses to connect from, in turn; none: the kernel chooses, and where its ports to a
    /// loopback address would run out, several of loopback have their turn.
    pub source: Sources,
    /// Who may connect: whom each of these admits.
    pub access: Vec<Access>,
    /// How its destinations are asked whether they are there.
    pub check: Option<Check>,
    /// Whether a destination gets the client's address, by the PROXY protocol.
    pub send_proxy: Option<ProxyVersion>,
    /// The proxies that send their clients' addresses, by the PROXY protocol.
    pub accept_proxy: Vec<Network>,
    /// Its place in the table, for messages.
    pub place: Place,
}

impl Rule {
    /// A rule with nothing set.
    pub fn new(listen: Listen, to: Vec<Destination>, place: Place) -> Rule {
        Rule {
            listen,
            wildcard: false,
            mode: None,
            to,
            balance: Balance::default(),
            limits: Limits::default(),
            quota: Quota::default(),
            source: Sources::default(),
            access: Vec::new(),
            check: None,
            send_proxy: None,
            accept_proxy: Vec::new(),
            place,
        }
    }
}

/// How much may go through a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Connections at once.
    pub connections: Option<u64>,
    /// Connections a second; as many may come at once after a pause.
    pub rate: Option<f64>,
    /// Bytes a second, of all connections together, in each direction.
    pub bandwidth: Option<u64>,
}

/// How a destination is asked whether it is there: by a connection, from the first of the rule's
/// sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// From one question to the next.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// After so many failures in a row no connection is led there.
    pub fall: u32,
    /// After so many answers in a row connections are led there again.
    pub rise: u32,
}

impl Default for Check {
    fn default() -> Check {
        Check { every: Duration::from_secs(2), timeout: Duration::from_secs(1), fall: 3, rise: 2 }
    }
}

/// A version of the PROXY protocol's header (haproxy's proxy-protocol.txt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Where a rule listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// A TCP address. `*` in a table has become two rules, one for each IP version.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(formatter, "{address}"),
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Where a rule connects to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A name, resolved when the table is loaded and again from time to time, and a port.
    Name(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Tcp(address) => write!(formatter, "{address}"),
            Destination::Name(name, port) => write!(formatter, "{name}:{port}"),
            Destination::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Which of several destinations a connection is led to. The others are tried, in order, where that
/// one does not take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The first that takes it.
    First,
    /// The one with the fewest open connections.
    LeastConnections,
    /// The same one for the same client address, as long as the destinations stay the same.
    SourceHash,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From accepting a connection until a destination has taken it. Each attempt has an equal
    /// share of what is left.
    pub connect: Duration,
    /// Without a byte in either direction, and without one that a side acknowledges.
    pub idle: Duration,
    /// The same in the one direction that is left when the other has ended.
    pub half_close: Duration,
    /// Without a byte that a side acknowledges while bytes wait for it.
    pub send: Duration,
    /// Until names are resolved again. The resolver caches answers, so asking is cheap.
    pub resolve: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            half_close: Duration::from_secs(60),
            send: Duration::from_secs(60),
            resolve: Duration::from_secs(30),
        }
    }
}

/// Where the connection log goes, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTarget {
    /// A file that rows are added to; `None` is standard output.
    pub path: Option<PathBuf>,
    /// The form of a row.
    pub format: LogFormat,
}

/// The form of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Comma-separated, under a header.
    #[default]
    Csv,
    /// A JSON object a line.
    Json,
}

/// A place in a text, both counted from 1. A column counts characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The line; 0 where there are none, as in an argument.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Finds the place of a byte. A table may have thousands of rules: the lines are counted once.
struct Places<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl Places<'_> {
    fn new(text: &str) -> Places<'_> {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Places { text, line_starts }
    }

    fn at(&self, offset: usize) -> Place {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let before = &self.text.as_bytes()[self.line_starts[line - 1]..offset.min(self.text.len())];
        // Continuation bytes of UTF-8 are no characters of their own.
        Place { line, column: before.iter().filter(|byte| **byte & 0xc0 != 0x80).count() + 1 }
    }
}

/// Why a table is refused: what, why and how to fix it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What, why, and how to fix it.
    pub what: String,
}

impl Fault {
    fn new(place: Place, what: impl Into<String>) -> Fault {
        Fault { place, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.line > 0 {
            write!(formatter, "line {}, column {}: ", self.place.line, self.place.column)?;
        }
        formatter.write_str(&self.what)
    }
}

/// A number in plain digits. Its own parser would take a sign before them.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses two rules for one address, and a rule for one address beside a rule for every address at
/// the same port.
fn reject_duplicates(rules: &[Rule]) -> Result<(), Fault> {
    let mut seen: HashMap<&Listen, Place> = HashMap::new();
    let mut everywhere: HashMap<(u16, bool), &Rule> = HashMap::new();
    let also = |place: Place| {
        if place.line > 0 { format!(" (the other is on line {})", place.line) } else { String::new() }
    };
    for rule in rules {
        if matches!(&rule.listen, Listen::Tcp(address) if address.port() == 0) {
            continue;
        }
        if let Some(former) = seen.insert(&rule.listen, rule.place) {
            let what = format!(
                "{} is listened on twice{}; give one rule both destinations, or another port",
                rule.listen,
                also(former)
            );
            return Err(Fault::new(rule.place, what));
        }
        if let Listen::Tcp(address) = rule.listen
            && address.ip().is_unspecified()
        {
            everywhere.insert((address.port(), address.is_ipv4()), rule);
        }
    }
    for rule in rules {
        if let Listen::Tcp(address) = rule.listen
            && let Some(other) = everywhere.get(&(address.port(), address.is_ipv4()))
            && !address.ip().is_unspecified()
        {
            let (first, second) = if rule.place.line < other.place.line { (rule, *other) } else { (*other, rule) };
            let what = format!(
                "{} and {} cannot both be listened on{}; the one for every address takes the other's connections too",
                second.listen,
                first.listen,
                also(first.place)
            );
            return Err(Fault::new(second.place, what));
        }
    }
    Ok(())
}

/// The addresses of `*`.
const EVERY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
