//! Files written and read back, whole and damaged.

use std::path::PathBuf;

use etherparse::PacketBuilder;

use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("plimsoll-capture-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn syn() -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder =
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(4000, 80, 7, 512).syn();
    builder.write(&mut bytes, &[]).expect("a vector can be written to");
    bytes
}

fn write(scratch: &Scratch) {
    let mut writer = Writer::create(&scratch.0, "h1-eth0", 128).expect("a temporary file");
    let start = Duration::new(1_800_000_000, 123_456_789);
    for number in 0..3 {
        writer.packet(start + number * Duration::from_millis(700), &syn(), 1000).expect("it can be written");
    }
    writer.finish(start + Duration::from_secs(2), 5, 2).expect("it can be written");
}

#[test]
fn what_was_written_reads_back_the_same() {
    let scratch = Scratch::new("whole.pcapng");
    write(&scratch);
    let summary = summarise(&scratch.0, Duration::from_secs(1)).expect("it is whole");
    assert_eq!((summary.packets, summary.bytes, summary.kernel_drops, summary.endpoints), (3, 3000, Some(2), 2));
    assert_eq!(summary.elapsed_s, 1.4);
    let packets: Vec<u64> = summary.interval.iter().map(|interval| interval.packets).collect();
    assert_eq!(packets, [2, 1]);
    assert_eq!((summary.tcp.unanswered_syn, summary.tcp.retransmissions), (1, 2));
}

#[test]
fn a_file_cut_short_or_not_pcapng_is_told_with_what_was_read() {
    let scratch = Scratch::new("cut.pcapng");
    write(&scratch);
    let whole = std::fs::read(&scratch.0).expect("it was written");
    let cut_to = |bytes: &[u8]| {
        std::fs::write(&scratch.0, bytes).expect("it can be written");
        summarise(&scratch.0, Duration::from_secs(1))
    };
    let error = cut_to(&whole[..whole.len() - 60]).expect_err("the last blocks are cut");
    assert!(error.to_string().contains("damaged after"), "{error}");
    let error = cut_to(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n, and more").expect_err("it is no capture");
    assert!(error.to_string().contains("not a pcapng file") && error.to_string().contains("editcap"), "{error}");
    for length in 0..whole.len() {
        let _ = cut_to(&whole[..length]);
    }
}

#[test]
fn times_are_in_the_unit_that_the_interface_states() {
    let seconds = Duration::from_secs;
    for (options, units, time) in [
        (vec![], 1_500_000, Duration::from_millis(1500)),
        (vec![InterfaceDescriptionOption::IfTsResol(9)], 1_500_000_000, Duration::from_millis(1500)),
        (vec![InterfaceDescriptionOption::IfTsResol(0)], 7, seconds(7)),
        (vec![InterfaceDescriptionOption::IfTsResol(0x80 | 10)], 1024 + 512, Duration::from_millis(1500)),
        (vec![InterfaceDescriptionOption::IfTsResol(255)], u64::MAX, seconds(1)),
        (
            vec![InterfaceDescriptionOption::IfTsResol(3), InterfaceDescriptionOption::IfTsOffset(10)],
            1500,
            Duration::from_millis(11_500),
        ),
    ] {
        assert_eq!(Resolution::of(&options).time(units), time, "{options:?}");
    }
}
