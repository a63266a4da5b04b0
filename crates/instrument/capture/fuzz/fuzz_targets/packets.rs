//! Packets of any bytes at any times: none panics, and the totals are the sums over the intervals.
//!
//! An input is packets one after another: a byte for the time since the one before, in
//! milliseconds, a byte for how long the frame is, a byte for how much of it was cut off, and the
//! frame.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use plimsoll_capture::headers::{self, Content};
use plimsoll_capture::statistics::Statistics;

fuzz_target!(|input: &[u8]| {
    let mut statistics = Statistics::new(Duration::from_millis(100));
    let (mut time, mut rest, mut count) = (Duration::from_secs(1), input, 0);
    while let [later, kept, cut, frames @ ..] = rest {
        let (frame, others) = frames.split_at(frames.len().min(usize::from(*kept)));
        let length = frame.len() as u32 + u32::from(*cut);
        if let Content::Tcp(segment) = headers::read(frame, length) {
            // No IPv4 or IPv6 length field tells of more than 64 KiB; where it tells of none, the
            // frame does.
            assert!(segment.length < 1 << 16 || segment.length <= length);
        }
        time += Duration::from_millis(u64::from(*later));
        statistics.packet(time, frame, length);
        (rest, count) = (others, count + 1);
    }
    let summary = statistics.summary(None);
    assert_eq!((summary.packets, summary.after_intervals), (count, 0));
    let sum = |of: fn(&plimsoll_capture::statistics::Interval) -> u64| summary.interval.iter().map(of).sum::<u64>();
    assert_eq!(sum(|each| each.packets), count);
    assert_eq!(sum(|each| each.bytes), summary.bytes);
    assert_eq!(sum(|each| each.flags.rst), summary.tcp.faults.resets);
    assert_eq!(sum(|each| each.faults.resets), summary.tcp.faults.resets);
    assert_eq!(sum(|each| each.faults.retransmissions), summary.tcp.faults.retransmissions);
    assert_eq!(sum(|each| each.new_endpoints), summary.endpoints as u64);
    assert!(summary.tcp.unanswered_syn <= summary.flags.syn);
});
