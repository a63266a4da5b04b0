//! What went wrong with TCP, judged from the segments that passed one point.
//!
//! Each figure is defined as Wireshark defines the analysis flag of the same name, so that the two
//! can be compared; `docs/capture.md` states the definitions. Where a segment fits several, the
//! order in `Connection::judge_data` decides. Pure: times are the packets' own.
//!
//! Memory is bounded, whatever passes: a flood of connections that nobody completes must not end a
//! capture. [`Counts`] says what was forgotten.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use crate::headers::Segment;

/// What went wrong, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Sent again: the bytes had passed before, or can only be a repetition.
    pub retransmissions: u64,
    /// Behind what had passed, but too soon after it to be sent again.
    pub out_of_order: u64,
    /// The same acknowledgement once more, without data or a new window.
    pub duplicate_acks: u64,
    /// The receiver has no room.
    pub zero_windows: u64,
    /// RST.
    pub resets: u64,
}

impl std::ops::AddAssign for Faults {
    fn add_assign(&mut self, other: Faults) {
        self.retransmissions += other.retransmissions;
        self.out_of_order += other.out_of_order;
        self.duplicate_acks += other.duplicate_acks;
        self.zero_windows += other.zero_windows;
        self.resets += other.resets;
    }
}

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

/// Within this much of the furthest segment one behind it is out of order, where the connection's
/// first round trip was not seen.
const OUT_OF_ORDER_WITHIN: Duration = Duration::from_millis(3);

/// After duplicate acknowledgements a repetition within this much is a fast retransmission.
const FAST_WITHIN: Duration = Duration::from_millis(20);

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

/// What has been seen of a connection.
#[derive(Debug, Default)]
struct Connection {
    /// Which connection of these endpoints it is.
    number: u64,
    state: State,
    /// From the lower endpoint, and from the higher.
    flows: [Flow; 2],
    /// Which flow's SYN began it, and when the last such came.
    syn: Option<(usize, Duration)>,
    /// From the SYN to the acknowledgement that completes the handshake.
    first_round_trip: Option<Duration>,
    answered: bool,
    /// Which flows have had their FIN.
    finished: [bool; 2],
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// One side alone has been seen, or both but nothing beyond their SYNs.
    #[default]
    HalfOpen,
    Open,
    /// A reset, or FINs of both sides.
    Closed,
}

/// What has been seen in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The sequence number of its SYN.
    initial: Option<u32>,
    /// The sequence number after the furthest seen, and when that was seen.
    next: Option<(u32, Duration)>,
    /// The acknowledgement number of the last segment, if it had one, and when it came.
    acknowledgement: Option<(u32, Duration)>,
    window: u16,
    duplicate_acks: u32,
    last: Kind,
}

/// Segments that are about being alive, not about data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Ordinary,
    KeepAlive,
    ZeroWindowProbe,
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
                let initial = connection.flows[side].initial;
                if segment.syn && !segment.ack && initial.is_some_and(|initial| initial != segment.sequence) {
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

impl Connection {
    fn is_unanswered(&self) -> bool {
        self.syn.is_some() && !self.answered
    }

    /// Notes how far the connection is after a segment.
    fn advance(&mut self, segment: &Segment, side: usize) {
        self.finished[side] |= segment.fin;
        let both_seen = self.flows.iter().all(|flow| flow.next.is_some());
        if segment.rst || self.finished == [true; 2] {
            self.state = State::Closed;
        } else if self.state == State::HalfOpen && both_seen && !segment.syn {
            self.state = State::Open;
        }
    }

    fn judge(&mut self, time: Duration, segment: &Segment, side: usize) -> Faults {
        let mut faults = Faults { resets: u64::from(segment.rst), ..Faults::default() };
        self.judge_handshake(time, segment, side);
        let (flow, back) = (&self.flows[side], &self.flows[1 - side]);
        let kind = flow.kind(segment, back);
        if kind != Kind::ZeroWindowProbe {
            let is_control = segment.syn || segment.fin || segment.rst;
            faults.zero_windows += u64::from(segment.window == 0 && !is_control);
            if flow.repeats_acknowledgement(segment, back) {
                faults.duplicate_acks += 1;
                self.flows[side].duplicate_acks += 1;
            }
        }
        if kind != Kind::KeepAlive {
            self.judge_data(time, segment, side, &mut faults);
        }
        self.flows[side].note(time, segment, kind);
        faults
    }

    fn judge_handshake(&mut self, time: Duration, segment: &Segment, side: usize) {
        if segment.syn {
            self.flows[side].initial = Some(segment.sequence);
        }
        match (segment.syn, segment.ack) {
            (true, false) if self.flows[1 - side].initial.is_none() => self.syn = Some((side, time)),
            (false, true) if self.first_round_trip.is_none() && self.flows[1 - side].initial.is_some() => {
                let syn_at = self.syn.filter(|(begun_by, _)| *begun_by == side).map(|(_, at)| at);
                self.first_round_trip = syn_at.map(|at| time.saturating_sub(at));
            }
            _ => {}
        }
        // The other side of the one that began has said something: a SYN or a reset in answer.
        let begun_by_other = self.flows[1 - side].initial.is_some();
        self.answered |= begun_by_other && (segment.syn || segment.rst);
    }

    /// A segment with data, SYN or FIN that goes back behind what has passed is out of order or
    /// sent again. Which of them is a guess from times.
    fn judge_data(&self, time: Duration, segment: &Segment, side: usize, faults: &mut Faults) {
        let (flow, back) = (&self.flows[side], &self.flows[1 - side]);
        let Some((next, next_at)) = flow.next else { return };
        let carries = segment.length > 0 || segment.syn || segment.fin;
        if !carries || !precedes(segment.sequence, next) {
            return;
        }
        // More than a byte from just before the furthest: new data behind a probe of one byte.
        if segment.length > 1 && next.wrapping_sub(1) == segment.sequence {
            return;
        }
        let is_fast = back.duplicate_acks >= 2
            && back
                .acknowledgement
                .is_some_and(|(number, at)| number == segment.sequence && time.saturating_sub(at) < FAST_WITHIN);
        let end = segment.sequence.wrapping_add(segment.length);
        let is_acknowledged =
            segment.length > 0 && back.acknowledgement.is_some_and(|(number, _)| !precedes(number, end));
        let within = self.first_round_trip.unwrap_or(OUT_OF_ORDER_WITHIN);
        let is_soon = time.saturating_sub(next_at) < within && end != next;
        if is_soon && !is_fast && !is_acknowledged {
            faults.out_of_order += 1;
        } else {
            faults.retransmissions += 1;
        }
    }
}

impl Flow {
    fn kind(&self, segment: &Segment, back: &Flow) -> Kind {
        let Some((next, _)) = self.next else { return Kind::Ordinary };
        let is_control = segment.syn || segment.fin || segment.rst;
        if segment.length == 1 && segment.sequence == next && back.window == 0 && back.next.is_some() {
            Kind::ZeroWindowProbe
        } else if segment.length <= 1 && segment.sequence == next.wrapping_sub(1) && !is_control {
            Kind::KeepAlive
        } else {
            Kind::Ordinary
        }
    }

    fn repeats_acknowledgement(&self, segment: &Segment, back: &Flow) -> bool {
        segment.length == 0
            && segment.window != 0
            && segment.window == self.window
            && self.next.is_some_and(|(next, _)| segment.sequence == next)
            && self.acknowledgement.is_some_and(|(number, _)| segment.acknowledgement == number)
            && !(segment.syn || segment.fin || segment.rst)
            // The answer to a keep-alive looks just the same.
            && back.last != Kind::KeepAlive
    }

    fn note(&mut self, time: Duration, segment: &Segment, kind: Kind) {
        if self.acknowledgement.is_none_or(|(number, _)| number != segment.acknowledgement) {
            self.duplicate_acks = 0;
        }
        self.acknowledgement = segment.ack.then_some((segment.acknowledgement, time));
        self.window = segment.window;
        self.last = kind;
        let end = segment.sequence.wrapping_add(segment.length).wrapping_add(u32::from(segment.syn || segment.fin));
        // A probe's byte is sent again as data, and a reset ends the numbering.
        let moves = kind == Kind::Ordinary && !segment.rst;
        if self.next.is_none() || moves && self.next.is_some_and(|(next, _)| precedes(next, end)) {
            self.next = Some((end, time));
        }
    }
}

/// Whether a sequence number is before another (RFC 9293, section 3.4: modulo 2^32).
fn precedes(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
