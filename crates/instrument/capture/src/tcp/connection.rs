//! What went wrong with one connection, judged from its segments.
//!
//! Each figure is defined as Wireshark defines the analysis flag of the same name, so that the two
//! can be compared; `docs/capture.md` states the definitions. Where a segment fits several, the
//! order in `Connection::judge_data` decides.

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

/// Within this much of the furthest segment one behind it is out of order, where the connection's
/// first round trip was not seen.
const OUT_OF_ORDER_WITHIN: Duration = Duration::from_millis(3);

/// After duplicate acknowledgements a repetition within this much is a fast retransmission.
const FAST_WITHIN: Duration = Duration::from_millis(20);

/// What has been seen of a connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Which connection of these endpoints it is.
    pub(super) number: u64,
    pub(super) state: State,
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
pub(super) enum State {
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
    /// The sequence number of its SYN, or the one before its first segment where the SYN was not
    /// seen.
    base: Option<u32>,
    has_syn: bool,
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

impl Connection {
    /// Whether this is the SYN of another connection of the same endpoints, or the answer to one
    /// that was not seen.
    pub(super) fn is_begun_anew(&self, segment: &Segment, side: usize) -> bool {
        self.flows[side].is_renumbered_by(segment) && !self.flows[1 - side].is_syn_acknowledged_by(segment)
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.syn.is_some() && !self.answered
    }

    /// Notes how far the connection is after a segment.
    pub(super) fn advance(&mut self, segment: &Segment, side: usize) {
        self.finished[side] |= segment.fin;
        let both_seen = self.flows.iter().all(|flow| flow.next.is_some());
        if segment.rst || self.finished == [true; 2] {
            self.state = State::Closed;
        } else if self.state == State::HalfOpen && both_seen && !segment.syn {
            self.state = State::Open;
        }
    }

    pub(super) fn judge(&mut self, time: Duration, segment: &Segment, side: usize) -> Faults {
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
        self.note_round_trip(time, segment, side);
        faults
    }

    fn judge_handshake(&mut self, time: Duration, segment: &Segment, side: usize) {
        let has_other_syn = self.flows[1 - side].has_syn;
        let flow = &mut self.flows[side];
        if flow.is_renumbered_by(segment) {
            *flow = Flow::default();
        }
        let before_first = if segment.syn { segment.sequence } else { segment.sequence.wrapping_sub(1) };
        flow.base.get_or_insert(before_first);
        flow.has_syn |= segment.syn;
        if segment.syn && !segment.ack && !has_other_syn {
            self.syn = Some((side, time));
        }
        // The other side has answered the SYN: by a SYN or a reset.
        self.answered |= has_other_syn && (segment.syn || segment.rst);
    }

    /// Notes the first round trip once the side that began acknowledges the other's SYN.
    fn note_round_trip(&mut self, time: Duration, segment: &Segment, side: usize) {
        if let Some((begun_by, at)) = self.syn
            && begun_by == side
            && self.first_round_trip.is_none()
            && self.flows[1 - side].has_syn
            && segment.ack
            && !segment.syn
        {
            // A file's times may be too coarse to measure it.
            self.first_round_trip = Some(time.saturating_sub(at)).filter(|round_trip| !round_trip.is_zero());
        }
    }

    /// A segment with data, SYN or FIN that goes back behind what has passed is out of order or
    /// sent again. Which of them is a guess from times. Data that was acknowledged before is sent
    /// again, though the capture missed the first time.
    fn judge_data(&self, time: Duration, segment: &Segment, side: usize, faults: &mut Faults) {
        let (flow, back) = (&self.flows[side], &self.flows[1 - side]);
        let data_end = segment.sequence.wrapping_add(segment.length);
        if segment.length > 0 && back.acknowledgement.is_some_and(|(number, _)| !precedes(number, data_end)) {
            faults.retransmissions += 1;
            return;
        }
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
        let within = self.first_round_trip.unwrap_or(OUT_OF_ORDER_WITHIN);
        let is_soon = time.saturating_sub(next_at) < within && end(segment) != next;
        if is_soon && !is_fast {
            faults.out_of_order += 1;
        } else {
            faults.retransmissions += 1;
        }
    }
}

impl Flow {
    /// Whether this is a SYN with which its numbering begins anew.
    fn is_renumbered_by(&self, segment: &Segment) -> bool {
        segment.syn && self.base.is_some_and(|base| base != segment.sequence)
    }

    fn is_syn_acknowledged_by(&self, segment: &Segment) -> bool {
        let after_syn = self.base.map(|base| base.wrapping_add(1));
        self.has_syn && segment.ack && after_syn == Some(segment.acknowledgement)
    }

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
        let end = end(segment);
        // A probe's byte is sent again as data.
        let moves = kind == Kind::Ordinary;
        if self.next.is_none() || moves && self.next.is_some_and(|(next, _)| precedes(next, end)) {
            self.next = Some((end, time));
        }
    }
}

/// The sequence number after a segment's last: a SYN and a FIN have one each (RFC 9293, section
/// 3.4).
fn end(segment: &Segment) -> u32 {
    segment.sequence.wrapping_add(segment.length).wrapping_add(u32::from(segment.syn || segment.fin))
}

/// Whether a sequence number is before another (RFC 9293, section 3.4: modulo 2^32).
fn precedes(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}
