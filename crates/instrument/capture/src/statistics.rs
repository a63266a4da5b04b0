//! What the packets come to: totals, packets over time, and TCP.

use std::time::Duration;

use serde::Serialize;

use crate::headers::{self, Content};
use crate::tcp::{self, Analysis};

/// More intervals than this are not kept: a wrong time in a file must not fill the memory. Later packets count in the last one.
const INTERVALS_MAX: usize = 1 << 20;

/// The packets of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// How many.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, those that were cut off included.
    pub bytes: u64,
}

/// What a capture comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Packets seen.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on, those that were cut off included.
    pub bytes: u64,
    /// Packets that the kernel dropped because they were not taken in time; `None` where a file does not say.
    pub kernel_drops: Option<u64>,
    /// TCP packets whose headers were cut off or malformed; they count in the totals, and in nothing of TCP.
    pub unreadable: u64,
    /// From the first packet to the last, in seconds.
    pub elapsed_s: f64,
    /// Pairs of address and port that sent or were sent a TCP segment.
    pub endpoints: usize,
    /// The length of an interval, in seconds.
    pub interval_s: f64,
    /// Packets over time, from the first packet on.
    pub interval: Vec<Interval>,
    /// What went wrong with TCP.
    pub tcp: tcp::Counts,
}

/// Adds packets up.
#[derive(Debug)]
pub struct Statistics {
    length: Duration,
    first: Option<Duration>,
    last: Duration,
    intervals: Vec<Interval>,
    unreadable: u64,
    tcp: Analysis,
}

impl Statistics {
    /// Nothing as yet; `interval`, which is not 0, divides the time.
    pub fn new(interval: Duration) -> Statistics {
        Statistics {
            length: interval,
            first: None,
            last: Duration::ZERO,
            intervals: Vec::new(),
            unreadable: 0,
            tcp: Analysis::default(),
        }
    }

    /// Adds a packet of `length` bytes, of which `bytes` were captured, seen at `time` since 1970.
    pub fn packet(&mut self, time: Duration, bytes: &[u8], length: u32) {
        let first = *self.first.get_or_insert(time);
        self.last = self.last.max(time);
        let number = time.saturating_sub(first).as_nanos() / self.length.as_nanos().max(1);
        let number = usize::try_from(number).map_or(INTERVALS_MAX - 1, |number| number.min(INTERVALS_MAX - 1));
        if self.intervals.len() <= number {
            self.intervals.resize(number + 1, Interval::default());
        }
        self.intervals[number].packets += 1;
        self.intervals[number].bytes += u64::from(length);
        match headers::read(bytes, length) {
            Content::Tcp(segment) => self.tcp.segment(time, &segment),
            Content::Unreadable => self.unreadable += 1,
            Content::Other => {}
        }
    }

    /// What it comes to.
    pub fn summary(&self, kernel_drops: Option<u64>) -> Summary {
        Summary {
            packets: self.intervals.iter().map(|interval| interval.packets).sum(),
            bytes: self.intervals.iter().map(|interval| interval.bytes).sum(),
            kernel_drops,
            unreadable: self.unreadable,
            elapsed_s: self.first.map_or(0.0, |first| (self.last - first).as_secs_f64()),
            endpoints: self.tcp.endpoints(),
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

#[cfg(test)]
mod tests {
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
        assert_eq!((summary.elapsed_s, summary.kernel_drops), (3.9, Some(3)));
    }

    #[test]
    fn a_time_from_the_end_of_days_does_not_fill_the_memory() {
        let mut statistics = Statistics::new(Duration::from_millis(1));
        statistics.packet(Duration::from_secs(1), &[], 1);
        statistics.packet(Duration::MAX, &[], 1);
        assert_eq!(statistics.intervals().len(), INTERVALS_MAX);
        assert_eq!(statistics.summary(None).packets, 2);
    }
}
