//! The analysis of TCP held against tshark's, segment by segment, over random conversations.

use std::process::Command;
use std::time::Duration;

use plimsoll_capture::file::Writer;

use crate::support::network::{PLIMSOLL, Scratch, run};

/// The version whose definitions docs/capture.md states; others judge some segments otherwise.
const TSHARK: &str = "TShark (Wireshark) 4.0";

const SEGMENTS: usize = 6000;
const CONVERSATIONS: usize = 12;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The same numbers each time (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let one = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let other = (one ^ one >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((other ^ other >> 31) % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// What one side has sent.
#[derive(Clone, Default)]
struct Side {
    next: u32,
    acknowledges: u32,
    window: u16,
    /// Sequence number, length and flags.
    sent: Vec<(u32, u32, u8)>,
}

/// A conversation of two sides, some of which begin before the capture does.
struct Conversation {
    port: u16,
    sides: [Side; 2],
    handshake: usize,
}

/// A segment, as its sender numbers it.
struct Segment {
    side: usize,
    sequence: u32,
    length: u32,
    flags: u8,
    acknowledgement: u32,
    window: u16,
}

impl Conversation {
    fn new(random: &mut Random, port: u16) -> Conversation {
        // Some wrap, and at an odd number, as 0 is no number to tshark.
        let next = [random.of(&[99, 3_000_000_001, u32::MAX - 150]), random.of(&[899, 2_000_000_001, u32::MAX - 88])];
        let side =
            |side: usize| Side { next: next[side], acknowledges: next[1 - side] + 1, window: 500, ..Side::default() };
        Conversation { port, sides: [side(0), side(1)], handshake: random.of(&[0, 3]) }
    }

    fn segment(&mut self, random: &mut Random) -> Segment {
        if self.handshake > 0 {
            self.handshake -= 1;
            let (side, flags) = [(0, ACK), (1, SYN | ACK), (0, SYN)][self.handshake];
            return self.send(side, 0, flags);
        }
        let side = random.below(2);
        let furthest = self.sides[side].next;
        match random.below(24) {
            0..7 => {
                let length = random.of(&[1, 3, 11, 101, 1401]);
                self.send(side, length, ACK)
            }
            7..10 if !self.sides[side].sent.is_empty() => {
                let from = self.sides[side].sent.len().saturating_sub(5);
                let (sequence, length, flags) =
                    self.sides[side].sent[from..][random.below(5).min(self.sides[side].sent.len() - from - 1)];
                let skipped = u32::from(length > 1 && random.below(3) == 0);
                self.again(side, sequence.wrapping_add(skipped), length - skipped, flags)
            }
            10 => {
                self.sides[side].next = furthest.wrapping_add(random.of(&[2, 12, 100]));
                self.send(side, 11, ACK)
            }
            11..15 => self.again(side, furthest, 0, ACK),
            15..17 => {
                self.sides[side].acknowledges = self.sides[1 - side].next;
                self.again(side, furthest, 0, ACK)
            }
            17 => {
                self.sides[side].window = random.of(&[0, 500, 600]);
                self.again(side, furthest, 0, ACK)
            }
            18 => self.again(side, furthest.wrapping_sub(1), random.of(&[0, 1]), ACK),
            19 => self.again(side, furthest, 1, ACK),
            20 => self.again(side, furthest.wrapping_sub(random.of(&[2, 5])), random.of(&[1, 2, 9]), ACK),
            21 => {
                let length = random.of(&[0, 5]);
                self.send(side, length, FIN | ACK)
            }
            22 => {
                let length = random.of(&[0, 0, 21]);
                self.send(side, length, RST | ACK)
            }
            _ => {
                // The same ports again.
                *self = Conversation { handshake: 3, ..Conversation::new(random, self.port) };
                for side in &mut self.sides {
                    side.next = side.next.wrapping_add(2 * random.below(1 << 20) as u32 + 2);
                }
                let next = [0, 1].map(|side: usize| self.sides[side].next);
                for side in [0, 1] {
                    self.sides[side].acknowledges = next[1 - side].wrapping_add(1);
                }
                self.segment(random)
            }
        }
    }

    /// New data, or a flag that has a number.
    fn send(&mut self, side: usize, length: u32, flags: u8) -> Segment {
        let sender = &mut self.sides[side];
        let sequence = sender.next;
        sender.next = sequence.wrapping_add(length).wrapping_add(u32::from(flags & (SYN | FIN) != 0));
        if length > 0 || flags & FIN != 0 {
            sender.sent.push((sequence, length, flags));
        }
        self.again(side, sequence, length, flags)
    }

    fn again(&self, side: usize, sequence: u32, length: u32, flags: u8) -> Segment {
        let Side { acknowledges, window, .. } = self.sides[side];
        Segment { side, sequence, length, flags, acknowledgement: acknowledges, window }
    }

    /// Ethernet, IPv4 and TCP without checksums, which neither reader asks for.
    fn frame(&self, segment: &Segment) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let total = 40 + segment.length as u16;
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
        frame.extend([hosts[segment.side], hosts[1 - segment.side]].concat());
        let ports = [self.port, 80];
        frame.extend([ports[segment.side].to_be_bytes(), ports[1 - segment.side].to_be_bytes()].concat());
        frame.extend(segment.sequence.to_be_bytes());
        let acknowledgement = if segment.flags & ACK == 0 { 0 } else { segment.acknowledgement };
        frame.extend(acknowledgement.to_be_bytes());
        frame.extend([0x50, segment.flags]);
        frame.extend(segment.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.resize(frame.len() + segment.length as usize, 0);
        frame
    }
}

#[test]
fn every_segment_of_random_conversations_is_judged_as_by_tshark() {
    let version = Command::new("tshark").arg("--version").output();
    if !version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(TSHARK)) {
        println!("skipped: `tshark` 4.0 is not installed (apt-get install tshark)");
        return;
    }
    let file = Scratch::new(".pcapng");
    let mut writer = Writer::create(&file.0, "random", 0).expect("it can be made");
    let mut random = Random(13);
    let mut conversations: Vec<Conversation> =
        (0..CONVERSATIONS).map(|number| Conversation::new(&mut random, 4000 + number as u16)).collect();
    let mut time = Duration::from_secs(1_800_000_000);
    for _ in 0..SEGMENTS {
        let conversation = &mut conversations[random.below(CONVERSATIONS)];
        let segment = conversation.segment(&mut random);
        let frame = conversation.frame(&segment);
        writer.packet(time, &frame, frame.len() as u32).expect("it can be written");
        // Around 3 and 20 ms, the bounds of the definitions, and each segment in an interval of its
        // own.
        time += Duration::from_nanos(random.of(&[1_000_001, 1_400_000, 2_999_999, 3_000_000, 19_999_999, 20_000_000]));
    }
    writer.finish(time, SEGMENTS as u64, 0).expect("it can be written");

    let summary = run(PLIMSOLL, &["capture", "-r", file.path(), "--interval", "1ms", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("it is JSON");
    const NAMES: [(&str, &str); 4] = [
        ("retransmissions", "tcp.analysis.retransmission"),
        ("out_of_order", "tcp.analysis.out_of_order"),
        ("duplicate_acks", "tcp.analysis.duplicate_ack"),
        ("zero_windows", "tcp.analysis.zero_window"),
    ];
    let intervals = summary["interval"].as_array().expect("intervals");
    let ours: Vec<[bool; 4]> = intervals
        .iter()
        .filter(|interval| interval["packets"] == 1)
        .map(|interval| NAMES.map(|(name, _)| interval[name] == 1))
        .collect();
    assert_eq!(ours.len(), SEGMENTS);
    let mut arguments = vec!["-r", file.path(), "-T", "fields", "-e", "frame.number"];
    arguments.extend(NAMES.iter().flat_map(|(_, field)| ["-e", *field]));
    let mut counts = [0; 4];
    for line in run("tshark", &arguments).lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let number: usize = columns[0].parse().expect("a number");
        let theirs = [1, 2, 3, 4].map(|column: usize| !columns[column].is_empty());
        assert_eq!(ours[number - 1], theirs, "segment {number} of {}: {NAMES:?}", file.path());
        for (count, is_so) in counts.iter_mut().zip(theirs) {
            *count += usize::from(is_so);
        }
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?} of {NAMES:?}");
}
