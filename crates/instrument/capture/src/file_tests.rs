//! Files written and read back, whole and damaged.

use std::path::PathBuf;

use etherparse::PacketBuilder;

use super::*;
use crate::statistics::Summary;

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
    let Outcome { summary, failure } = summarise(&scratch.0, Duration::from_secs(1)).expect("a file");
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!((summary.packets, summary.bytes, summary.kernel_drops, summary.endpoints), (3, 3000, Some(2), 2));
    assert_eq!(summary.elapsed_s, 1.4);
    let packets: Vec<u64> = summary.interval.iter().map(|interval| interval.packets).collect();
    assert_eq!(packets, [2, 1]);
    assert_eq!((summary.tcp.unanswered_syn, summary.tcp.faults.retransmissions), (1, 2));
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
    let Outcome { summary, failure } = cut_to(&whole[..whole.len() - 60]).expect("there are packets");
    let error = failure.expect("the last blocks are cut").to_string();
    assert!(error.contains(&format!("damaged after {} packets", summary.packets)), "{error}");
    assert_eq!((summary.packets, summary.kernel_drops), (2, None));
    let error = cut_to(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n, and more").expect_err("it is no capture");
    assert!(error.to_string().contains("not a pcapng file") && error.to_string().contains("editcap"), "{error}");
    for length in 0..whole.len() {
        let outcome = cut_to(&whole[..length]);
        assert!(
            outcome.is_err() || outcome.is_ok_and(|outcome| outcome.failure.is_some()),
            "{length} bytes are not all"
        );
    }
}

#[test]
fn a_file_whose_capture_was_broken_off_between_two_packets_is_not_taken_for_a_whole_one() {
    let scratch = Scratch::new("broken-off.pcapng");
    let mut writer = Writer::create(&scratch.0, "h1-eth0", 128).expect("a temporary file");
    writer.packet(Duration::from_secs(1_800_000_000), &syn(), 1000).expect("it can be written");
    drop(writer);
    let Outcome { summary, failure } = summarise(&scratch.0, Duration::from_secs(1)).expect("it has a packet");
    assert!(matches!(failure, Some(FileError::BrokenOff { packets: 1 })), "{failure:?}");
    assert_eq!((summary.packets, summary.bytes, summary.kernel_drops), (1, 1000, None));
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
        (
            vec![InterfaceDescriptionOption::IfTsResol(0), InterfaceDescriptionOption::IfTsOffset(-10_i64 as u64)],
            15,
            seconds(5),
        ),
    ] {
        assert_eq!(Resolution::of(&options).time(units), time, "{options:?}");
    }
}

/// A file, written by hand in one byte order.
struct ByHand {
    bytes: Vec<u8>,
    is_big_endian: bool,
}

impl ByHand {
    /// A section with interfaces of these snap lengths, whose times are in microseconds.
    fn new(is_big_endian: bool, snaps: &[u32]) -> ByHand {
        let mut file = ByHand { bytes: Vec::new(), is_big_endian };
        file.section(snaps);
        file
    }

    fn section(&mut self, snaps: &[u32]) {
        // The byte-order magic, version 1.0, a length that is not stated.
        self.block(0x0a0d_0d0a, &[4, 2, 2, 8], &[0x1a2b_3c4d, 1, 0, u64::MAX], &[]);
        for snap in snaps {
            // Ethernet.
            self.block(1, &[2, 2, 4], &[1, 0, u64::from(*snap)], &[]);
        }
    }

    fn number(&self, width: usize, number: u64) -> Vec<u8> {
        if self.is_big_endian {
            number.to_be_bytes()[8 - width..].to_vec()
        } else {
            number.to_le_bytes()[..width].to_vec()
        }
    }

    /// A block that begins with numbers of these widths, and goes on with bytes.
    fn block(&mut self, kind: u32, widths: &[usize], numbers: &[u64], rest: &[u8]) {
        let mut body: Vec<u8> =
            widths.iter().zip(numbers).flat_map(|(width, number)| self.number(*width, *number)).collect();
        body.extend(rest);
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.number(4, body.len() as u64 + 12);
        let kind = self.number(4, u64::from(kind));
        self.bytes.extend([kind, length.clone(), body, length].concat());
    }

    /// An Enhanced Packet Block with an option that tells of drops before it.
    fn packet(&mut self, interface: u64, time_us: u64, drops_before: Option<u64>) {
        let mut rest = syn();
        rest.resize(rest.len().next_multiple_of(4), 0);
        let length = syn().len() as u64;
        if let Some(drops) = drops_before {
            rest.extend([self.number(2, 4), self.number(2, 8), self.number(8, drops), self.number(4, 0)].concat());
        }
        self.block(6, &[4; 5], &[interface, time_us >> 32, time_us & 0xffff_ffff, length, length], &rest);
    }

    /// The obsolete Packet Block.
    fn old_packet(&mut self, interface: u64, drops_before: u64, time_us: u64) {
        let length = syn().len() as u64;
        let numbers = [interface, drops_before, time_us >> 32, time_us & 0xffff_ffff, length, length];
        self.block(2, &[2, 2, 4, 4, 4, 4], &numbers, &syn());
    }

    fn simple_packet(&mut self, length: u64, kept: &[u8]) {
        self.block(3, &[4], &[length], kept);
    }

    /// The interface's drops since the beginning of the capture.
    fn statistics(&mut self, interface: u64, by_interface: u64, by_kernel: u64) {
        let options = [
            [self.number(2, 5), self.number(2, 8), self.number(8, by_interface)].concat(),
            [self.number(2, 7), self.number(2, 8), self.number(8, by_kernel)].concat(),
            self.number(4, 0),
        ];
        self.block(5, &[4; 3], &[interface, 0, 0], &options.concat());
    }

    fn summary(&self) -> Result<Summary, FileError> {
        let outcome = summarise_bytes(&self.bytes[..], Duration::from_secs(1))?;
        outcome.failure.map_or(Ok(outcome.summary), Err)
    }
}

#[test]
fn packets_in_blocks_of_every_kind_are_counted() {
    for is_big_endian in [false, true] {
        let mut file = ByHand::new(is_big_endian, &[64, 0]);
        let begin_us = 1_800_000_000_000_000;
        file.packet(0, begin_us, None);
        file.old_packet(1, 0, begin_us + 1_500_000);
        file.simple_packet(1000, &[0; 64]);
        file.packet(1, begin_us + 2_000_000, None);
        let summary = file.summary().expect("it is whole");
        let length = syn().len() as u64;
        assert_eq!((summary.packets, summary.bytes, summary.untimed), (4, 1000 + 3 * length, 1));
        assert_eq!(summary.elapsed_s, 2.0, "an old packet's time is read in its own byte order");
        let packets: Vec<u64> = summary.interval.iter().map(|interval| interval.packets).collect();
        assert_eq!(packets, [1, 1, 1]);
        assert_eq!((summary.flags.syn, summary.tcp.faults.retransmissions), (3, 2));
    }
}

#[test]
fn a_simple_packet_that_is_cut_short_is_damage() {
    let mut file = ByHand::new(false, &[0]);
    file.simple_packet(1000, &[0; 64]);
    assert!(matches!(file.summary(), Err(FileError::Damaged { packets: 0, .. })));
    let mut file = ByHand::new(false, &[]);
    file.simple_packet(64, &[0; 64]);
    assert!(matches!(file.summary(), Err(FileError::Damaged { .. })), "of no interface");
}

#[test]
fn drops_are_those_of_each_interfaces_last_statistics_over_all_sections() {
    let mut file = ByHand::new(false, &[0, 0]);
    file.statistics(0, 0, 3);
    file.statistics(0, 1, 5);
    file.statistics(1, 0, 10);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, Some(16), "each counts from the beginning");
    file.section(&[0]);
    file.statistics(0, 0, 100);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, Some(116));
    assert_eq!(ByHand::new(false, &[0]).summary().expect("it is whole").kernel_drops, None);
}

#[test]
fn drops_that_packets_tell_of_count_where_the_interface_has_no_statistics() {
    let mut file = ByHand::new(true, &[0, 0]);
    file.packet(0, 1, Some(2));
    file.packet(0, 2, Some(3));
    file.old_packet(1, 4, 3);
    file.old_packet(1, u64::from(u16::MAX), 4);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, Some(9), "all ones are no count");
    file.statistics(0, 0, 6);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, Some(10), "the statistics tell of all drops");
}
