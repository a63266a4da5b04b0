//! The forwarder's table: which address leads where, and how long things may take.
//!
//! Read from one-line mappings ([`mapping`]), `forward.toml` ([`toml`]), or the files of port_fwd and rinetd ([`lines`]). Below this module nothing is
//! invalid: every rule listens at one address and has at least one destination. Pure: text in, rules or a [`Fault`] with its place out.

pub mod lines;
pub mod mapping;
pub mod toml;

mod cycle;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use cycle::refuse_cycles;

/// A whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// In the order given. No two listen at the same address, but for port 0, which picks a free one each time.
    pub rules: Vec<Rule>,
    /// Past this many connections in all, accepting pauses.
    pub max_connections: Option<u64>,
    /// Where the connection log goes, if the table says.
    pub log: Option<LogTarget>,
    /// What was read and has no effect here, to be said.
    pub notes: Vec<String>,
}

/// One address and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it listens.
    pub listen: Listen,
    /// Where it connects to; at least one.
    pub to: Vec<Destination>,
    /// Which of several it connects to.
    pub balance: Balance,
    /// How long things may take.
    pub limits: Limits,
    /// Local addresses to connect from, in turn; none: the kernel chooses.
    pub source: Vec<IpAddr>,
    /// Where in the table it stands, for messages.
    pub place: Place,
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

/// Which of several destinations a connection is led to. The others are tried, in order, where that one does not take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The first that takes it.
    First,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From accepting a connection until a destination has taken it, all attempts together.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Without a byte in the one direction that is left when the other has ended.
    pub half_close: Duration,
    /// Until names are resolved again. The resolver keeps what it was told as long as it may, so asking is cheap.
    pub resolve: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(3600),
            half_close: Duration::from_secs(60),
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

/// Refuses two rules for one address.
fn refuse_twins(rules: &[Rule]) -> Result<(), Fault> {
    let mut seen = std::collections::HashMap::new();
    for rule in rules {
        if matches!(&rule.listen, Listen::Tcp(address) if address.port() == 0) {
            continue;
        }
        if let Some(former) = seen.insert(&rule.listen, rule.place) {
            let also = if former.line > 0 { format!(" (the other is on line {})", former.line) } else { String::new() };
            let what =
                format!("{} is listened on twice{also}; give one rule both destinations, or another port", rule.listen);
            return Err(Fault::new(rule.place, what));
        }
    }
    Ok(())
}

/// The addresses that `*` stands for.
const EVERY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
