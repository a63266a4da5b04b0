//! What went wrong with TCP, judged from the segments that passed one point. Pure: times are the
//! packets' own.
//!
//! Memory is bounded, whatever passes: a flood of connections that are never completed must not end
//! a capture. [`Counts`] says what was forgotten.

mod connection;

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::headers::Segment;

pub use connection::Faults;
use connection::{Connection, State};

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// In segments.
    #[serde(flatten)]
    pub faults: Faults,
    /// Connections whose SYN was answered by neither a SYN nor a reset.
    pub unanswered_syn: u64,
    /// Connections that were forgotten to bound the memory, over or without a handshake: a later
    /// segment of one counts as the first of a new one.
    pub forgotten: u64,
    /// Segments of connections that came while as many as can be remembered were open: nothing is
    /// said of these.
    pub unjudged: u64,
}

/// What a segment was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What was wrong with it.
    pub faults: Faults,
    /// How many of its two endpoints had not been seen before.
    pub new_endpoints: u64,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Connections without a complete handshake. Past it the oldest is forgotten.
    half_open: usize,
    /// Connections that are over, for segments that come late. Past it the first to end is
    /// forgotten.
    closed: usize,
    /// Connections of all kinds. Past it no further one is taken up.
    connections: usize,
    /// Endpoints. Past it no further one is counted.
    endpoints: usize,
}

/// Half-open and closed connections take at most some 60 MiB, endpoints 38 MiB. Two million
/// connections are the most that this project opens at once between two programs.
const BOUNDS: Bounds = Bounds { half_open: 65_536, closed: 131_072, connections: 2_200_000, endpoints: 3_500_000 };

/// An address and port. IPv4 addresses are mapped (RFC 4291, section 2.5.5.2), as this is half as
/// large as a `SocketAddr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Endpoint {
    address: [u8; 16],
    port: u16,
}

impl From<SocketAddr> for Endpoint {
    fn from(socket: SocketAddr) -> Endpoint {
        let address = match socket.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Endpoint { address: address.octets(), port: socket.port() }
    }
}

/// The lower endpoint first.
type Pair = (Endpoint, Endpoint);

/// Judges segments, connection by connection.
#[derive(Debug)]
pub struct Analysis {
    bounds: Bounds,
    connections: HashMap<Pair, Connection>,
    /// Connections in the order in which they began, with their numbers, and those that are no
    /// longer half-open among them.
    begun: VecDeque<(Pair, u64)>,
    half_open: usize,
    /// Connections in the order in which they ended, with their numbers.
    closed: VecDeque<(Pair, u64)>,
    /// Counts the connections that began.
    number: u64,
    /// A hash of each endpoint. That two of three million have the same 64 bits is less likely than
    /// one in a million.
    endpoints: HashSet<u64>,
    hasher: RandomState,
    missed_endpoints: bool,
    faults: Faults,
    /// Those of connections that are forgotten, or whose addresses and ports have been used again
    /// since.
    unanswered_before: u64,
    forgotten: u64,
    unjudged: u64,
}

impl Default for Analysis {
    fn default() -> Analysis {
        Analysis::within(BOUNDS)
    }
}

impl Analysis {
    fn within(bounds: Bounds) -> Analysis {
        Analysis {
            bounds,
            connections: HashMap::new(),
            begun: VecDeque::new(),
            half_open: 0,
            closed: VecDeque::new(),
            number: 0,
            endpoints: HashSet::new(),
            hasher: RandomState::new(),
            missed_endpoints: false,
            faults: Faults::default(),
            unanswered_before: 0,
            forgotten: 0,
            unjudged: 0,
        }
    }

    /// Judges a segment that passed at `time`.
    pub fn segment(&mut self, time: Duration, segment: &Segment) -> Judgement {
        let (from, to) = (Endpoint::from(segment.from), Endpoint::from(segment.to));
        let (pair, side) = if from <= to { ((from, to), 0) } else { ((to, from), 1) };
        let mut judgement = Judgement::default();
        let is_full = self.connections.len() >= self.bounds.connections;
        let mut begins = false;
        let connection = match self.connections.entry(pair) {
            Entry::Occupied(entry) => {
                let connection = entry.into_mut();
                if connection.is_begun_anew(segment, side) {
                    self.unanswered_before += u64::from(connection.is_unanswered());
                    self.half_open -= usize::from(connection.state == State::HalfOpen);
                    *connection = Connection::default();
                    begins = true;
                }
                connection
            }
            Entry::Vacant(_) if is_full => {
                self.unjudged += 1;
                judgement.new_endpoints = self.note_endpoints([from, to]);
                return judgement;
            }
            Entry::Vacant(entry) => {
                begins = true;
                entry.insert(Connection::default())
            }
        };
        if begins {
            self.number += 1;
            self.half_open += 1;
            connection.number = self.number;
            self.begun.push_back((pair, self.number));
        }
        judgement.faults = connection.judge(time, segment, side);
        self.faults += judgement.faults;
        let (before, number) = (connection.state, connection.number);
        connection.advance(segment, side);
        let after = connection.state;
        self.half_open -= usize::from(before == State::HalfOpen && after != State::HalfOpen);
        if after == State::Closed && before != State::Closed {
            self.closed.push_back((pair, number));
        }
        if begins {
            judgement.new_endpoints = self.note_endpoints([from, to]);
        }
        self.keep_bounds();
        judgement
    }

    /// How many pairs of address and port sent or were sent a segment, and whether there were more
    /// than could be counted.
    pub fn endpoints(&self) -> (usize, bool) {
        (self.endpoints.len(), self.missed_endpoints)
    }

    /// What went wrong so far.
    pub fn counts(&self) -> Counts {
        let unanswered = self.connections.values().filter(|connection| connection.is_unanswered()).count() as u64;
        Counts {
            faults: self.faults,
            unanswered_syn: self.unanswered_before + unanswered,
            forgotten: self.forgotten,
            unjudged: self.unjudged,
        }
    }

    /// Counts the endpoints of a connection that begins; returns how many of them are new.
    fn note_endpoints(&mut self, endpoints: [Endpoint; 2]) -> u64 {
        let mut new = 0;
        for endpoint in endpoints {
            let hash = self.hasher.hash_one(endpoint);
            if self.endpoints.len() < self.bounds.endpoints {
                new += u64::from(self.endpoints.insert(hash));
            } else {
                self.missed_endpoints |= !self.endpoints.contains(&hash);
            }
        }
        new
    }

    /// Forgets the oldest of the connections that nothing more is expected of, where there are too
    /// many.
    fn keep_bounds(&mut self) {
        while self.half_open > self.bounds.half_open {
            let Some((pair, number)) = self.begun.pop_front() else { break };
            self.forget(pair, number, State::HalfOpen);
        }
        // Connections that were completed or forgotten stay here until it pays to look for them.
        if self.begun.len() > 4 * self.bounds.half_open {
            let connections = &self.connections;
            let is_half_open = |(pair, number): &(Pair, u64)| {
                let connection = connections.get(pair);
                connection.is_some_and(|each| each.number == *number && each.state == State::HalfOpen)
            };
            self.begun.retain(is_half_open);
        }
        while self.closed.len() > self.bounds.closed {
            let Some((pair, number)) = self.closed.pop_front() else { break };
            self.forget(pair, number, State::Closed);
        }
    }

    /// Forgets a connection if it still is what it was noted as.
    fn forget(&mut self, pair: Pair, number: u64, state: State) {
        if let Entry::Occupied(entry) = self.connections.entry(pair)
            && entry.get().number == number
            && entry.get().state == state
        {
            let connection = entry.remove();
            self.unanswered_before += u64::from(connection.is_unanswered());
            self.half_open -= usize::from(state == State::HalfOpen);
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
