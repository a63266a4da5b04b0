//! Files written and read back, whole and damaged.

use std::path::PathBuf;

use etherparse::PacketBuilder;
use proptest::prelude::*;

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
    assert!(matches!(failure, Some(FileError::CutShort { packets: 2 })), "{failure:?}");
    assert_eq!((summary.packets, summary.kernel_drops), (2, None));
    assert!(matches!(cut_to(b""), Err(FileError::CutShort { packets: 0 })), "a capture that has just begun");
    let longer = cut_to(&[&whole[..], &[0; 3]].concat()).expect("there are packets");
    assert!(matches!(longer.failure, Some(FileError::CutShort { packets: 3 })), "{:?}", longer.failure);
    let mut damaged = whole.clone();
    damaged[whole.len() - 1] = 1;
    let damaged = cut_to(&damaged).expect("there are packets");
    assert!(matches!(damaged.failure, Some(FileError::Damaged { packets: 3, .. })), "{:?}", damaged.failure);
    let error = cut_to(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n, and more").expect_err("it is no capture");
    assert!(error.to_string().contains("not a pcapng file") && error.to_string().contains("editcap"), "{error}");
    assert!(matches!(cut_to(b"hi\n"), Err(FileError::NotPcapng)), "however short");
    // The headers of the section and the interface alone are a file of no packets.
    let headers = [52, 52 + 44];
    for length in (0..whole.len()).filter(|length| !headers.contains(length)) {
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
    assert!(matches!(failure, Some(FileError::CutShort { packets: 1 })), "{failure:?}");
    assert_eq!((summary.packets, summary.bytes, summary.kernel_drops), (1, 1000, None));
}

/// Linux cooked capture, of the interface `any`.
const COOKED: u16 = 113;

const IF_NAME: u64 = 2;
const IF_TSRESOL: u64 = 9;
const IF_TZONE: u64 = 10;
const IF_TSOFFSET: u64 = 14;

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
        self.section_of(&[]);
        for snap in snaps {
            self.interface(ETHERNET, *snap, &[]);
        }
    }

    fn section_of(&mut self, options: &[u8]) {
        // The byte-order magic, version 1.0, a length that is not stated.
        self.block(0x0a0d_0d0a, &[4, 2, 2, 8], &[0x1a2b_3c4d, 1, 0, u64::MAX], options);
    }

    fn interface(&mut self, link_type: u16, snap: u32, options: &[u8]) {
        self.block(1, &[2, 2, 4], &[u64::from(link_type), 0, u64::from(snap)], options);
    }

    fn option(&self, code: u64, value: &[u8]) -> Vec<u8> {
        let mut option = [self.number(2, code), self.number(2, value.len() as u64), value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    /// All options of a block, with their end.
    fn options(&self, options: &[(u64, &[u8])]) -> Vec<u8> {
        let options = options.iter().map(|(code, value)| self.option(*code, value));
        options.chain([self.number(4, 0)]).collect::<Vec<_>>().concat()
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
            rest.extend(self.options(&[(4, &self.number(8, drops))]));
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
        let options = self.options(&[(5, &self.number(8, by_interface)), (7, &self.number(8, by_kernel))]);
        self.block(5, &[4; 3], &[interface, 0, 0], &options);
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

/// The bytes of a capture of one packet, from an interface that dropped two; whole, or broken off
/// before its end.
fn capture_of_one(is_whole: bool) -> Vec<u8> {
    let scratch = Scratch::new(if is_whole { "one.pcapng" } else { "one-broken-off.pcapng" });
    let mut writer = Writer::create(&scratch.0, "h1-eth0", 128).expect("a temporary file");
    let time = Duration::from_secs(1_800_000_000);
    writer.packet(time, &syn(), 1000).expect("it can be written");
    if is_whole {
        writer.finish(time, 1, 2).expect("it can be written");
    } else {
        drop(writer);
    }
    std::fs::read(&scratch.0).expect("it was written")
}

#[test]
fn a_section_that_is_broken_off_is_told_whatever_follows_it() {
    let mut foreign = ByHand::new(false, &[0]);
    foreign.packet(0, 1, None);
    foreign.statistics(0, 0, 0);
    for next in [capture_of_one(true), foreign.bytes] {
        let both = [capture_of_one(false), next.clone()].concat();
        let Outcome { summary, failure } = summarise_bytes(&both[..], Duration::from_secs(1)).expect("packets");
        assert!(matches!(failure, Some(FileError::CutShort { packets: 2 })), "{failure:?}");
        assert_eq!((summary.packets, summary.kernel_drops), (2, None));
        let both = [capture_of_one(true), next].concat();
        let Outcome { summary, failure } = summarise_bytes(&both[..], Duration::from_secs(1)).expect("packets");
        assert!(failure.is_none() && summary.kernel_drops.is_some(), "{failure:?}: {summary:?}");
    }
}

#[test]
fn drops_are_unknown_where_one_interface_does_not_say() {
    let mut file = ByHand::new(false, &[0, 0]);
    file.packet(0, 1, None);
    file.statistics(0, 0, 3);
    file.packet(1, 2, None);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, None);
    file.statistics(1, 0, 4);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, Some(7));
    file.section(&[0]);
    file.packet(0, 3, None);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, None, "of another section");
}

#[test]
fn a_copy_by_a_tool_that_leaves_the_statistics_out_is_whole_and_its_drops_are_unknown() {
    let mut file = ByHand::new(false, &[]);
    file.section_of(&file.options(&[(4, b"plimsoll capture")]));
    file.interface(ETHERNET, 128, &[]);
    file.packet(0, 1, None);
    assert_eq!(file.summary().expect("it is whole").kernel_drops, None);
}

#[test]
fn times_before_1970_are_as_far_apart_as_later_ones() {
    for (offset_s, begin_s) in [(-200_i64, 100), (-1_700_000_000, 1_699_999_997)] {
        let mut file = ByHand::new(false, &[]);
        file.interface(ETHERNET, 0, &file.options(&[(IF_TSOFFSET, &file.number(8, offset_s as u64))]));
        file.packet(0, begin_s * 1_000_000, None);
        file.packet(0, begin_s * 1_000_000 + 5_250_000, None);
        let summary = file.summary().expect("it is whole");
        assert_eq!((summary.elapsed_s, summary.interval.len()), (5.25, 6), "{offset_s} s");
    }
}

#[test]
fn an_offset_moves_the_times_of_its_own_interface() {
    let mut file = ByHand::new(true, &[]);
    for offset_s in [50_i64, -50] {
        file.interface(ETHERNET, 0, &file.options(&[(IF_TSOFFSET, &file.number(8, offset_s as u64))]));
    }
    file.packet(0, 100_000_000, None);
    file.packet(1, 203_000_000, None);
    assert_eq!(file.summary().expect("it is whole").elapsed_s, 3.0);
}

#[test]
fn times_too_far_from_1970_for_any_clock_are_damage() {
    for offset_s in [i64::MIN, i64::MAX] {
        let mut file = ByHand::new(false, &[]);
        // Whole seconds.
        let options = file.options(&[(IF_TSRESOL, &[0]), (IF_TSOFFSET, &file.number(8, offset_s as u64))]);
        file.interface(ETHERNET, 0, &options);
        file.packet(0, u64::from(offset_s > 0) << 63, None);
        assert!(matches!(file.summary(), Err(FileError::Damaged { packets: 0, .. })), "{offset_s}");
    }
}

#[test]
fn times_are_in_the_unit_that_their_interface_states_however_small() {
    for (power, units, elapsed_s) in [
        (9, 1_500_000_000, 1.5),
        (0, 7, 7.0),
        (0x80 | 10, 1024 + 512, 1.5),
        (20, 5_000_000_000_000_000_000, 0.05),
        (0x80 | 63, 1 << 61, 0.25),
        (0x80 | 64, 1 << 61, 0.125),
        (38, u64::MAX, 0.0),
        (127, u64::MAX, 0.0),
        (0xff, u64::MAX, 0.0),
    ] {
        let mut file = ByHand::new(true, &[]);
        file.interface(ETHERNET, 0, &file.options(&[(IF_TSRESOL, &[power])]));
        file.packet(0, 0, None);
        file.packet(0, units, None);
        assert_eq!(file.summary().expect("it is whole").elapsed_s, elapsed_s, "{power:#x}");
    }
}

#[test]
fn an_option_that_the_figures_do_not_need_may_hold_anything() {
    for is_big_endian in [false, true] {
        let mut file = ByHand::new(is_big_endian, &[]);
        // None of these ends its list of options.
        for (code, value) in [(IF_NAME, &b"eth0"[..]), (IF_NAME, b"eth\xe9"), (IF_TZONE, &[0; 4]), (0xabcd, b"x")] {
            file.interface(ETHERNET, 0, &file.option(code, value));
        }
        for interface in 0..4 {
            file.packet(interface, interface, None);
        }
        assert_eq!(file.summary().expect("it is whole").packets, 4);
        file.interface(ETHERNET, 0, &file.option(IF_TSRESOL, &[9, 9]));
        assert!(matches!(file.summary(), Err(FileError::Damaged { packets: 4, .. })), "one that they need");
    }
}

#[test]
fn an_interface_without_ethernet_frames_is_refused_at_its_first_packet() {
    let mut file = ByHand::new(false, &[0]);
    file.interface(COOKED, 0, &[]);
    file.packet(0, 1, None);
    assert_eq!(file.summary().expect("it is not used").packets, 1);
    file.packet(1, 2, None);
    assert!(matches!(file.summary(), Err(FileError::NotEthernet(1))));
}

#[test]
fn a_block_that_the_figures_do_not_need_may_be_long() {
    let mut file = ByHand::new(false, &[0]);
    file.block(0x0bad, &[4], &[0], &vec![0; 9_000_000]);
    file.packet(0, 1, None);
    assert_eq!(file.summary().expect("it is whole").packets, 1);
}

proptest! {
    #[test]
    fn no_damage_to_a_file_panics(
        is_big_endian: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kept: prop::sample::Index,
    ) {
        let mut file = ByHand::new(is_big_endian, &[]);
        let options = file.options(&[(IF_TSRESOL, &[9]), (IF_TSOFFSET, &file.number(8, 100))]);
        file.interface(ETHERNET, 64, &options);
        file.packet(0, 1, Some(2));
        file.old_packet(0, 3, 2);
        file.simple_packet(1000, &[0; 64]);
        file.statistics(0, 4, 5);
        for (place, byte) in damage {
            *place.get_mut(&mut file.bytes) = byte;
        }
        file.bytes.truncate(kept.index(file.bytes.len() + 1));
        if let Ok(Outcome { summary, .. }) = summarise_bytes(&file.bytes[..], Duration::from_secs(1_000_000)) {
            let in_intervals: u64 = summary.interval.iter().map(|interval| interval.packets).sum();
            prop_assert_eq!(summary.packets, in_intervals + summary.untimed + summary.after_intervals);
        }
    }
}
