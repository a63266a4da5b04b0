//! A file of any bytes: it is read as far as it goes or refused, and what it comes to adds up.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use plimsoll_capture::file::summarise_bytes;

fuzz_target!(|input: &[u8]| {
    // So long that few times of a file make many intervals, which cost memory and time alone.
    let Ok(outcome) = summarise_bytes(input, Duration::from_secs(1_000_000)) else { return };
    let summary = outcome.summary;
    let in_intervals: u64 = summary.interval.iter().map(|interval| interval.packets).sum();
    assert_eq!(summary.packets, in_intervals + summary.untimed + summary.after_intervals);
    assert!(summary.elapsed_s >= 0.0);
    let endpoints: u64 = summary.interval.iter().map(|interval| interval.new_endpoints).sum();
    assert!(endpoints <= summary.endpoints as u64);
});
