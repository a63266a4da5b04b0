//! The memory of the judgement: bounded, however many connections there are.

use super::*;

const SMALL: Bounds = Bounds { half_open: 10, closed: 20, connections: 100, endpoints: 1000 };

/// Segments of many connections to B, each from a port of its own.
struct Crowd(Analysis);

impl Crowd {
    fn says(&mut self, port: u16, from_client: bool, change: fn(&mut Segment)) -> Judgement {
        let client = SocketAddr::new(A.ip(), port);
        let (from, to) = if from_client { (client, B) } else { (B, client) };
        let mut segment = Segment {
            from,
            to,
            sequence: 7,
            acknowledgement: 0,
            window: 500,
            length: 0,
            syn: false,
            ack: true,
            fin: false,
            rst: false,
            psh: false,
            urg: false,
            ece: false,
            cwr: false,
        };
        change(&mut segment);
        self.0.segment(Duration::from_secs(1), &segment)
    }

    fn syn(&mut self, port: u16) -> Judgement {
        self.says(port, true, |segment| (segment.syn, segment.ack) = (true, false))
    }

    fn open(&mut self, port: u16) {
        self.syn(port);
        self.says(port, false, |segment| segment.syn = true);
        self.says(port, true, |segment| segment.sequence = 8);
    }
}

#[test]
fn a_syn_flood_is_counted_whole_in_bounded_memory() {
    for answer in [
        |_: &mut Crowd, _| Judgement::default(),
        |crowd: &mut Crowd, port| crowd.says(port, false, |segment| segment.syn = true),
    ] {
        let mut crowd = Crowd(Analysis::within(SMALL));
        crowd.open(1);
        let mut new_endpoints = 2;
        for port in 2..=60_000 {
            new_endpoints += crowd.syn(port).new_endpoints;
            answer(&mut crowd, port);
            assert!(crowd.0.connections.len() <= SMALL.half_open + 1);
            assert!(crowd.0.begun.len() <= 4 * SMALL.half_open);
        }
        let counts = crowd.0.counts();
        assert_eq!(counts.forgotten, 59_999 - SMALL.half_open as u64);
        assert_eq!(crowd.0.endpoints(), (SMALL.endpoints, true), "at least so many");
        assert_eq!(new_endpoints, SMALL.endpoints as u64);
        // What was open before is still known: its bytes are not new.
        assert_eq!(
            crowd.says(1, true, |segment| (segment.sequence, segment.length) = (6, 2)).faults.retransmissions,
            1
        );
    }
    let mut crowd = Crowd(Analysis::within(SMALL));
    for port in 1..=5000 {
        crowd.syn(port);
    }
    assert_eq!(crowd.0.counts().unanswered_syn, 5000, "the forgotten ones too");
}

#[test]
fn connections_that_are_over_are_forgotten_in_the_order_in_which_they_ended() {
    for resets in [false, true] {
        let mut crowd = Crowd(Analysis::within(SMALL));
        for port in 1..=5000 {
            crowd.open(port);
            if resets {
                crowd.says(port, false, |segment| segment.rst = true);
            } else {
                crowd.says(port, true, |segment| (segment.sequence, segment.fin) = (8, true));
                crowd.says(port, false, |segment| (segment.sequence, segment.fin) = (8, true));
            }
            assert!(crowd.0.connections.len() <= SMALL.closed);
        }
        assert_eq!(crowd.0.counts().forgotten, 5000 - SMALL.closed as u64);
        assert_eq!(crowd.0.half_open, 0);
        // A FIN that comes late goes back where the connection is remembered, and nothing where it
        // is not.
        for (port, again) in [(5000, 1), (1, 0)] {
            let late = crowd.says(port, true, |segment| (segment.sequence, segment.fin) = (7, true)).faults;
            assert_eq!(late.retransmissions + late.out_of_order, again, "port {port}");
        }
    }
}

#[test]
fn segments_of_more_open_connections_than_can_be_remembered_are_counted_as_unjudged() {
    let mut crowd = Crowd(Analysis::within(SMALL));
    for port in 1..=110 {
        crowd.open(port);
    }
    assert_eq!(crowd.0.counts().unjudged, 10 * 3);
    assert_eq!(crowd.0.endpoints(), (111, false), "endpoints are counted all the same");
    assert_eq!(crowd.says(100, true, |segment| (segment.sequence, segment.length) = (6, 2)).faults.retransmissions, 1);
}

#[test]
fn ports_used_again_leave_the_counts_of_half_open_connections_right() {
    let mut crowd = Crowd(Analysis::within(SMALL));
    for number in 0..100 {
        crowd.says(
            1,
            true,
            if number % 2 == 0 {
                |segment| (segment.syn, segment.ack) = (true, false)
            } else {
                |segment| (segment.syn, segment.ack, segment.sequence) = (true, false, 9)
            },
        );
        assert_eq!((crowd.0.half_open, crowd.0.connections.len()), (1, 1));
    }
    assert_eq!((crowd.0.counts().unanswered_syn, crowd.0.counts().forgotten), (100, 0));
}
