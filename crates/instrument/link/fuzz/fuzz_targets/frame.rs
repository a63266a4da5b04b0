//! A frame of any bytes with any header of its device: it is charged for at least itself, and cut
//! only into a part that is charged for the packets that were asked for, with the rest told
//! exactly. The same frames cross a network, which loses none in silence.
//!
//! An input is a byte for the packets to cut at, the device's header, and the frame.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use plimsoll_link::config::Config;
use plimsoll_link::frame::Frame;
use plimsoll_link::network::Network;

const NETWORK: &str = r#"{"devices": ["a", "b"], "switches": ["s"], "links": [
    {"ends": ["a", "s"], "rate": "1Mbit", "queue": 5}, {"ends": ["b", "s"], "loss": "10%"}]}"#;

fuzz_target!(|input: &[u8]| {
    let Some((packets, rest)) = input.split_first() else { return };
    let Some((header, bytes)) = rest.split_first_chunk() else { return };
    let frame = || Frame { header: *header, bytes: bytes.to_vec() };
    let mut cut = frame();
    let whole = cut.wire_size();
    assert!(whole.packets >= 1 && whole.bytes >= bytes.len() as u64);
    match cut.shorten(u32::from(*packets)) {
        None => assert_eq!(cut.bytes, bytes, "a frame that is not cut is not changed"),
        Some(rest) => {
            let kept = cut.wire_size();
            assert_eq!(kept.packets, u32::from(*packets));
            assert_eq!((kept.packets + rest.packets, kept.bytes + rest.bytes), (whole.packets, whole.bytes));
        }
    }
    let start = Instant::now();
    let mut network = Network::new(&Config::read(NETWORK).expect("it is valid"));
    for _ in 0..4 {
        network.send(start, 0, frame());
        network.send(start, 1, frame());
    }
    let end = start + Duration::from_secs(3600);
    while let Some(delivery) = network.deliver(end) {
        network.delivered(end, delivery, true);
    }
    assert_eq!(network.next_due(), None);
    for counts in network.counts().flatten() {
        let ended = counts.delivered + counts.dropped_by_queue + counts.dropped_by_loss + counts.dropped_by_fault;
        assert_eq!(counts.offered, ended, "{counts:?}");
    }
});
