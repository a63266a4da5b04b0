//! The judgement of segments, one definition at a time.

#[path = "tcp_memory_tests.rs"]
mod memory;

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;

const A: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
const B: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

fn of(faults: Faults) -> Counts {
    Counts { faults, ..Counts::default() }
}

/// A conversation of which a part is written down: sequence numbers of A begin at 100, of B at 900.
#[derive(Default)]
struct Conversation {
    analysis: Analysis,
    now_us: u64,
}

impl Conversation {
    /// A handshake of a round trip of 1000 us, then quiet until a full second has passed.
    fn new() -> Conversation {
        let mut conversation = Conversation::default();
        conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
        conversation.at(900, B, 899, Some(100), 0, |segment| segment.syn = true);
        conversation.at(1000, A, 100, Some(900), 0, |_| {});
        assert_eq!(conversation.analysis.counts(), Counts::default());
        conversation.now_us = 1_000_000;
        conversation
    }

    fn at(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        sequence: u32,
        ack: Option<u32>,
        length: u32,
        change: fn(&mut Segment),
    ) {
        let mut segment = Segment {
            from,
            to: if from == A { B } else { A },
            sequence,
            acknowledgement: ack.unwrap_or(0),
            window: 500,
            length,
            syn: false,
            ack: ack.is_some(),
            fin: false,
            rst: false,
            psh: false,
            urg: false,
            ece: false,
            cwr: false,
        };
        change(&mut segment);
        self.analysis.segment(Duration::from_micros(now_us), &segment);
    }

    /// The next segment, `later_us` after the last.
    fn next(&mut self, later_us: u64, from: SocketAddr, sequence: u32, ack: u32, length: u32) {
        self.now_us += later_us;
        self.at(self.now_us, from, sequence, Some(ack), length, |_| {});
    }

    fn counts(&self) -> Counts {
        self.analysis.counts()
    }
}

#[test]
fn bytes_that_come_again_after_a_round_trip_are_retransmitted_and_before_that_out_of_order() {
    for (later_us, retransmissions, out_of_order) in [(999, 0, 1), (1000, 1, 0)] {
        let mut conversation = Conversation::new();
        conversation.next(0, A, 100, 900, 10);
        conversation.next(0, A, 120, 900, 10);
        conversation.next(later_us, A, 110, 900, 10);
        let counts = conversation.counts();
        assert_eq!(
            (counts.faults.retransmissions, counts.faults.out_of_order),
            (retransmissions, out_of_order),
            "{later_us} us"
        );
    }
}

#[test]
fn the_furthest_segment_once_more_is_a_retransmission_however_soon() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    conversation.next(5, A, 100, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, ..Faults::default() }));
}

#[test]
fn acknowledged_bytes_once_more_are_a_retransmission_however_soon() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    conversation.next(0, A, 110, 900, 10);
    conversation.next(1, B, 900, 110, 0);
    conversation.next(1, A, 100, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, ..Faults::default() }));
}

#[test]
fn duplicate_acknowledgements_make_what_they_ask_for_a_retransmission() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    conversation.next(0, B, 900, 110, 0);
    conversation.next(0, A, 120, 900, 10);
    conversation.next(1, B, 900, 110, 0);
    conversation.next(1, B, 900, 110, 0);
    conversation.next(1, A, 110, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, duplicate_acks: 2, ..Faults::default() }));
}

#[test]
fn an_acknowledgement_with_data_or_another_window_is_no_duplicate() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    conversation.next(1, B, 900, 110, 0);
    conversation.next(1, B, 900, 110, 5);
    conversation.now_us += 1;
    let now = conversation.now_us;
    conversation.at(now, B, 905, Some(110), 0, |segment| segment.window = 400);
    assert_eq!(conversation.counts(), Counts::default());
    conversation.at(now, B, 905, Some(110), 0, |segment| segment.window = 400);
    assert_eq!(conversation.counts().faults.duplicate_acks, 1);
}

#[test]
fn a_keep_alive_is_no_retransmission_and_its_answer_no_duplicate() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    conversation.next(1, B, 900, 110, 0);
    conversation.next(1_000_000, A, 109, 900, 0);
    conversation.next(1, B, 900, 110, 0);
    assert_eq!(conversation.counts(), Counts::default());
}

#[test]
fn a_closed_window_counts_each_time_it_is_told_and_a_probe_is_no_data() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    let now = conversation.now_us;
    conversation.at(now, B, 900, Some(110), 0, |segment| segment.window = 0);
    conversation.next(300_000, A, 110, 900, 1);
    conversation.at(now + 300_001, B, 900, Some(110), 0, |segment| segment.window = 0);
    conversation.next(300_000, A, 110, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { zero_windows: 2, ..Faults::default() }));
}

/// How the answer differs from an acknowledgement, and the unanswered SYNs and resets there are
/// after it.
type Answer = (fn(&mut Segment), u64, u64);

#[test]
fn a_syn_is_unanswered_until_a_syn_or_a_reset_comes_back() {
    let answers: [Answer; 3] =
        [(|segment| segment.syn = true, 0, 0), (|segment| segment.rst = true, 0, 1), (|_| {}, 1, 0)];
    for (answer, unanswered_syn, resets) in answers {
        let mut conversation = Conversation::default();
        conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
        assert_eq!(conversation.counts().unanswered_syn, 1);
        conversation.at(2_000_000, A, 99, None, 0, |segment| segment.syn = true);
        let again = conversation.counts();
        assert_eq!(
            (again.unanswered_syn, again.faults.retransmissions),
            (1, 1),
            "one connection, whose SYN was sent again"
        );
        conversation.at(2_000_001, B, 899, Some(100), 0, answer);
        let counts = conversation.counts();
        assert_eq!((counts.unanswered_syn, counts.faults.resets), (unanswered_syn, resets));
    }
}

#[test]
fn ports_used_again_are_another_connection() {
    let mut conversation = Conversation::default();
    conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(1, A, 7, None, 0, |segment| segment.syn = true);
    conversation.at(2, B, 1, Some(8), 0, |segment| segment.syn = true);
    assert_eq!(conversation.counts(), Counts { unanswered_syn: 1, ..Counts::default() });
    assert_eq!(conversation.analysis.endpoints(), (2, false));
}

#[test]
fn a_syn_begins_another_connection_though_the_one_before_began_before_the_capture() {
    let mut conversation = Conversation::default();
    conversation.next(0, A, 5_000_100, 900_900, 10);
    conversation.next(1000, B, 900_900, 5_000_110, 10);
    // The same ports once more, from lower sequence numbers: nothing of it is sent again.
    conversation.at(2_000_000, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(2_000_900, B, 899, Some(100), 0, |segment| segment.syn = true);
    conversation.at(2_001_000, A, 100, Some(900), 10, |_| {});
    conversation.at(2_500_000, B, 900, Some(110), 10, |_| {});
    assert_eq!(conversation.counts(), Counts::default());
}

#[test]
fn a_syn_in_answer_begins_another_connection_where_the_syn_before_it_was_missed() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 1000);
    conversation.next(1000, B, 900, 1100, 1000);
    conversation.at(2_000_000, B, 499, Some(50), 0, |segment| segment.syn = true);
    conversation.at(2_000_100, A, 50, Some(500), 10, |_| {});
    conversation.at(2_500_000, B, 500, Some(60), 10, |_| {});
    assert_eq!(conversation.counts(), Counts::default());
}

/// RFC 9293, section 3.10.7.4: a host that still has the connection before asks for a reset first.
#[test]
fn a_syn_that_an_old_connection_is_in_the_way_of_is_answered_by_the_syn_that_acknowledges_it() {
    let mut conversation = Conversation::default();
    conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(100, B, 5_000_000, Some(7), 0, |_| {});
    conversation.at(200, A, 7, None, 0, |segment| segment.rst = true);
    assert_eq!(conversation.counts().unanswered_syn, 1);
    conversation.at(1_000_000, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(1_000_100, B, 899, Some(100), 0, |segment| segment.syn = true);
    conversation.at(1_000_200, A, 100, Some(900), 0, |_| {});
    conversation.at(1_500_000, B, 900, Some(100), 10, |_| {});
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, resets: 1, ..Faults::default() }));
}

#[test]
fn a_syn_or_fin_once_more_is_a_retransmission_however_soon() {
    let mut conversation = Conversation::default();
    conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(5, A, 99, None, 0, |segment| segment.syn = true);
    assert_eq!(conversation.counts().faults, Faults { retransmissions: 1, ..Faults::default() });
    let mut conversation = Conversation::new();
    conversation.at(1_000_000, A, 100, Some(900), 10, |segment| segment.fin = true);
    conversation.at(1_000_005, A, 100, Some(900), 10, |segment| segment.fin = true);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, ..Faults::default() }));
}

#[test]
fn bytes_that_were_acknowledged_before_they_passed_are_a_retransmission() {
    let mut conversation = Conversation::new();
    conversation.next(0, A, 100, 900, 10);
    // The capture missed the next ten bytes, and not their acknowledgement.
    conversation.next(1, B, 900, 120, 0);
    conversation.next(1, A, 110, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, ..Faults::default() }));
    let mut conversation = Conversation::default();
    conversation.next(0, B, 900, 110, 0);
    conversation.next(1, A, 100, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, ..Faults::default() }));
}

#[test]
fn the_data_of_a_reset_once_more_is_a_retransmission() {
    let mut conversation = Conversation::new();
    for later_us in [0, 10_000] {
        conversation.now_us += later_us;
        conversation.at(conversation.now_us, B, 900, Some(100), 20, |segment| segment.rst = true);
    }
    assert_eq!(conversation.counts(), of(Faults { retransmissions: 1, resets: 2, ..Faults::default() }));
}

#[test]
fn a_first_round_trip_without_a_length_is_none() {
    let mut conversation = Conversation::default();
    conversation.at(0, A, 99, None, 0, |segment| segment.syn = true);
    conversation.at(0, B, 899, Some(100), 0, |segment| segment.syn = true);
    conversation.at(0, A, 100, Some(900), 0, |_| {});
    conversation.next(0, A, 100, 900, 10);
    conversation.next(0, A, 120, 900, 10);
    conversation.next(1, A, 110, 900, 10);
    assert_eq!(conversation.counts(), of(Faults { out_of_order: 1, ..Faults::default() }));
}

#[test]
fn sequence_numbers_wrap() {
    let mut conversation = Conversation::default();
    conversation.at(0, A, u32::MAX - 9, Some(1), 10, |_| {});
    conversation.at(1, A, 0, Some(1), 10, |_| {});
    assert_eq!(conversation.counts(), Counts::default());
    conversation.at(1_000_000, A, u32::MAX - 9, Some(1), 10, |_| {});
    assert_eq!(conversation.counts().faults.retransmissions, 1);
}

proptest! {
    #[test]
    fn a_transfer_in_order_has_nothing_wrong(
        lengths in prop::collection::vec(1_u32..65_536, 1..200),
        start: u32,
        pause in 0_u64..100_000,
    ) {
        let mut conversation = Conversation::default();
        let mut sequence = start;
        for (number, length) in (0..).zip(lengths) {
            conversation.at(number * pause, A, sequence, Some(7), length, |_| {});
            sequence = sequence.wrapping_add(length);
            conversation.at(number * pause + 1, B, 7, Some(sequence), 0, |_| {});
        }
        prop_assert_eq!(conversation.counts(), Counts::default());
    }

    #[test]
    fn no_segments_panic(
        numbers in prop::collection::vec(
            (any::<u32>(), any::<u32>(), any::<u16>(), 0_u32..70_000, any::<[bool; 5]>(), any::<u64>()),
            0..100,
        ),
    ) {
        let mut conversation = Conversation::default();
        for (sequence, acknowledgement, window, length, [from_a, syn, ack, fin, rst], time) in numbers {
            let (from, to) = if from_a { (A, B) } else { (B, A) };
            let [psh, urg, ece, cwr] = [false; 4];
            let segment = Segment {
                from, to, sequence, acknowledgement, window, length, syn, ack, fin, rst, psh, urg, ece, cwr,
            };
            conversation.analysis.segment(Duration::from_nanos(time), &segment);
        }
        let _ = conversation.counts();
    }
}
