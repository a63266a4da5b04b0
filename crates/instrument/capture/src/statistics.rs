//! What the packets come to: totals, packets over time, and TCP.

use std::time::Duration;

use serde::Serialize;

use crate::headers::{self, Content, Segment};
use crate::tcp::{self, Analysis, Faults};

/// More intervals than this are not kept: a wrong time in a file must not fill the memory. Packets
/// after them are counted apart.
const INTERVALS_MAX: usize = 1 << 20;

/// The packets of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// How many.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, those that were cut off included.
    pub bytes: u64,
    /// Pairs of address and port that were seen for the first time.
    pub new_endpoints: u64,
    /// TCP segments with each flag.
    pub flags: Flags,
    /// What went wrong with TCP.
    #[serde(flatten)]
    pub faults: Faults,
}

/// TCP segments with each flag (RFC 9293, section 3.1). A segment with two flags counts under both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the RFC's own names")]
pub struct Flags {
    pub fin: u64,
    pub syn: u64,
    pub rst: u64,
    pub psh: u64,
    pub ack: u64,
    pub urg: u64,
    pub ece: u64,
    pub cwr: u64,
}

impl Flags {
    fn of(segment: &Segment) -> Flags {
        Flags {
            fin: u64::from(segment.fin),
            syn: u64::from(segment.syn),
            rst: u64::from(segment.rst),
            psh: u64::from(segment.psh),
            ack: u64::from(segment.ack),
            urg: u64::from(segment.urg),
            ece: u64::from(segment.ece),
            cwr: u64::from(segment.cwr),
        }
    }
}

impl std::ops::AddAssign for Flags {
    fn add_assign(&mut self, other: Flags) {
        self.fin += other.fin;
        self.syn += other.syn;
        self.rst += other.rst;
        self.psh += other.psh;
        self.ack += other.ack;
        self.urg += other.urg;
        self.ece += other.ece;
        self.cwr += other.cwr;
    }
}

/// The figures of a capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Packets seen.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, those that were cut off included.
    pub bytes: u64,
    /// Packets that the kernel dropped because they were not taken in time; `None` where a file
    /// does not say.
    pub kernel_drops: Option<u64>,
    /// TCP packets whose headers were cut off or malformed, and those in fragments; they count in
    /// the totals, and in nothing of TCP.
    pub unreadable: u64,
    /// Those of them whose headers a snap length cut off.
    pub cut_off: u64,
    /// Packets that a file has without a time; they count in the totals, and in no interval and
    /// nothing of TCP.
    pub untimed: u64,
    /// Packets after the last interval that is kept; they count everywhere else.
    pub after_intervals: u64,
    /// From the earliest packet to the latest, in seconds.
    pub elapsed_s: f64,
    /// Pairs of address and port that sent or were sent a TCP segment.
    pub endpoints: usize,
    /// Whether there were more endpoints than can be counted, so that `endpoints` is the least that
    /// there were.
    pub endpoints_at_least: bool,
    /// TCP segments with each flag.
    pub flags: Flags,
    /// The length of an interval, in seconds.
    pub interval_s: f64,
    /// Packets over time, from the first packet on.
    pub interval: Vec<Interval>,
    /// What went wrong with TCP.
    pub tcp: tcp::Counts,
}

/// What was counted, and what ended it before its end, if anything did.
#[derive(Debug)]
pub struct Outcome<E> {
    /// Of all packets until then.
    pub summary: Summary,
    /// What ended it.
    pub failure: Option<E>,
}

/// Adds packets up.
#[derive(Debug)]
pub struct Statistics {
    length: Duration,
    first: Option<Duration>,
    earliest: Duration,
    latest: Duration,
    packets: u64,
    bytes: u64,
    intervals: Vec<Interval>,
    unreadable: u64,
    cut_off: u64,
    untimed: u64,
    after_intervals: u64,
    flags: Flags,
    tcp: Analysis,
}

impl Statistics {
    /// Nothing as yet; `interval`, which is not 0, divides the time.
    pub fn new(interval: Duration) -> Statistics {
        Statistics {
            length: interval,
            first: None,
            earliest: Duration::MAX,
            latest: Duration::ZERO,
            packets: 0,
            bytes: 0,
            intervals: Vec::new(),
            unreadable: 0,
            cut_off: 0,
            untimed: 0,
            after_intervals: 0,
            flags: Flags::default(),
            tcp: Analysis::default(),
        }
    }

    /// Adds a packet of `length` bytes, of which `bytes` were captured, seen at `time` since an
    /// instant that is the same for all.
    pub fn packet(&mut self, time: Duration, bytes: &[u8], length: u32) {
        let mut new = Interval { packets: 1, bytes: u64::from(length), ..Interval::default() };
        match headers::read(bytes, length) {
            Content::Tcp(segment) => {
                let judgement = self.tcp.segment(time, &segment);
                new.flags = Flags::of(&segment);
                self.flags += new.flags;
                (new.faults, new.new_endpoints) = (judgement.faults, judgement.new_endpoints);
            }
            Content::CutOff => {
                self.cut_off += 1;
                self.unreadable += 1;
            }
            Content::Unreadable => self.unreadable += 1,
            Content::Other => {}
        }
        self.packets += 1;
        self.bytes += u64::from(length);
        let first = *self.first.get_or_insert(time);
        self.earliest = self.earliest.min(time);
        self.latest = self.latest.max(time);
        // A packet from before the first counts with it: times of one interface are in order, and
        // those of several nearly.
        let number = time.saturating_sub(first).as_nanos() / self.length.as_nanos().max(1);
        match usize::try_from(number).ok().filter(|number| *number < INTERVALS_MAX) {
            None => self.after_intervals += 1,
            Some(number) => {
                if self.intervals.len() <= number {
                    self.intervals.resize(number + 1, Interval::default());
                }
                self.intervals[number].add(new);
            }
        }
    }

    /// Adds a packet of `length` bytes whose time is not known.
    pub fn untimed_packet(&mut self, length: u32) {
        self.packets += 1;
        self.bytes += u64::from(length);
        self.untimed += 1;
    }

    /// The figures so far.
    pub fn summary(&self, kernel_drops: Option<u64>) -> Summary {
        let (endpoints, endpoints_at_least) = self.tcp.endpoints();
        Summary {
            packets: self.packets,
            bytes: self.bytes,
            kernel_drops,
            unreadable: self.unreadable,
            cut_off: self.cut_off,
            untimed: self.untimed,
            after_intervals: self.after_intervals,
            elapsed_s: self.latest.saturating_sub(self.earliest).as_secs_f64(),
            endpoints,
            endpoints_at_least,
            flags: self.flags,
            interval_s: self.length.as_secs_f64(),
            interval: self.intervals.clone(),
            tcp: self.tcp.counts(),
        }
    }

    /// The intervals so far, the last of which may still grow.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }
}

impl Interval {
    fn add(&mut self, other: Interval) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.new_endpoints += other.new_endpoints;
        self.flags += other.flags;
        self.faults += other.faults;
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn intervals_run_from_the_first_packet_and_empty_ones_are_kept() {
        let mut statistics = Statistics::new(Duration::from_secs(1));
        for (milliseconds, length) in [(10_500, 60), (11_499, 100), (11_500, 7), (14_400, 5), (10_499, 1)] {
            statistics.packet(Duration::from_millis(milliseconds), &[], length);
        }
        let summary = statistics.summary(Some(3));
        let packets: Vec<u64> = summary.interval.iter().map(|interval| interval.packets).collect();
        assert_eq!(packets, [3, 1, 0, 1]);
        assert_eq!((summary.packets, summary.bytes, summary.interval[0].bytes), (5, 173, 161));
        assert_eq!((summary.elapsed_s, summary.kernel_drops), (3.901, Some(3)), "a packet came before the first");
    }

    #[test]
    fn packets_after_the_last_interval_do_not_fill_the_memory_and_are_counted_apart() {
        let mut statistics = Statistics::new(Duration::from_millis(1));
        statistics.packet(Duration::from_secs(1), &[], 1);
        statistics.packet(Duration::MAX, &[], 1);
        assert_eq!(statistics.intervals().len(), 1);
        let last_kept = Duration::from_secs(1) + (INTERVALS_MAX as u32 - 1) * Duration::from_millis(1);
        statistics.packet(last_kept, &[], 1);
        statistics.packet(last_kept + Duration::from_millis(1), &[], 1);
        assert_eq!(
            (statistics.intervals().len(), statistics.intervals()[INTERVALS_MAX - 1].packets),
            (INTERVALS_MAX, 1)
        );
        let summary = statistics.summary(None);
        assert_eq!((summary.packets, summary.after_intervals), (4, 2));
    }

    #[test]
    fn a_header_that_was_cut_off_is_told_apart_from_one_that_is_malformed() {
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut bytes = Vec::new();
        ip.tcp(4000, 80, 7, 512).write(&mut bytes, b"data").expect("a vector can be written to");
        let mut statistics = Statistics::new(Duration::from_secs(1));
        statistics.packet(Duration::ZERO, &bytes[..40], bytes.len() as u32);
        // The length of the TCP header.
        bytes[46] = 0;
        statistics.packet(Duration::ZERO, &bytes, bytes.len() as u32);
        let summary = statistics.summary(None);
        assert_eq!((summary.packets, summary.unreadable, summary.cut_off), (2, 2, 1));
    }

    #[test]
    fn a_packet_without_a_time_counts_in_the_totals_alone() {
        let mut statistics = Statistics::new(Duration::from_secs(1));
        statistics.untimed_packet(100);
        assert_eq!(statistics.summary(None).elapsed_s, 0.0);
        statistics.packet(Duration::from_secs(5), &[], 60);
        let summary = statistics.summary(None);
        assert_eq!((summary.packets, summary.bytes, summary.untimed), (2, 160, 1));
        assert_eq!((summary.interval.len(), summary.interval[0].packets), (1, 1));
    }

    #[test]
    fn each_interval_has_its_own_flags_endpoints_and_retransmissions_which_sum_up_to_the_totals() {
        let frame = |port: u16, syn: bool, payload: &[u8]| {
            let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
            let tcp = ip.tcp(port, 80, if syn { 6 } else { 7 }, 512);
            let mut bytes = Vec::new();
            if syn { tcp.syn() } else { tcp.ack(9).psh() }
                .write(&mut bytes, payload)
                .expect("a vector can be written to");
            bytes
        };
        let mut statistics = Statistics::new(Duration::from_secs(1));
        for (milliseconds, bytes) in [
            (0, frame(4000, true, b"")),
            (10, frame(4000, false, b"data")),
            (1500, frame(4000, false, b"data")),
            (1600, frame(4001, true, b"")),
            (3000, vec![0xff; 60]),
        ] {
            statistics.packet(Duration::from_millis(milliseconds), &bytes, bytes.len() as u32);
        }
        let summary = statistics.summary(None);
        let column = |of: fn(&Interval) -> u64| summary.interval.iter().map(of).collect::<Vec<u64>>();
        assert_eq!(column(|each| each.new_endpoints), [2, 1, 0, 0]);
        assert_eq!(column(|each| each.flags.syn), [1, 1, 0, 0]);
        assert_eq!(column(|each| each.flags.psh), [1, 1, 0, 0]);
        assert_eq!(column(|each| each.flags.ack), [1, 1, 0, 0]);
        assert_eq!(column(|each| each.faults.retransmissions), [0, 1, 0, 0]);
        assert_eq!((summary.endpoints, summary.flags), (3, Flags { syn: 2, psh: 2, ack: 2, ..Flags::default() }));
        assert_eq!(summary.tcp.faults.retransmissions, 1);
    }
}
