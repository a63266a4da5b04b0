//! Whole networks in simulated time.

use plimsoll_sys::tap::HEADER_BYTES;

use super::*;
use crate::frame::Address;

const EVERYBODY: Address = [0xff; 6];

fn station(number: u8) -> Address {
    [2, 0, 0, 0, 0, number]
}

fn network(json: &str) -> Network {
    Network::new(&Config::read(json).expect("a valid configuration"))
}

/// `single,3`: 100 Mbit/s and 1 ms on each link.
fn star() -> Network {
    network(
        r#"{"devices": ["h1", "h2", "h3"], "switches": ["s1"], "links": [
            {"ends": ["h1", "s1"], "rate": "100Mbit", "delay": "1ms"},
            {"ends": ["s1", "h2"], "rate": "100Mbit", "delay": "1ms"},
            {"ends": ["h3", "s1"], "rate": "100Mbit", "delay": "1ms"}]}"#,
    )
}

fn frame(network: &mut Network, receiver: Address, sender: Address, length: usize) -> Frame {
    let mut bytes = [receiver, sender].concat();
    bytes.resize(length, 0);
    network.buffers.frame([0; HEADER_BYTES], &bytes)
}

fn send(network: &mut Network, now: Instant, device: usize, receiver: Address, length: usize) {
    let frame = frame(network, receiver, station(device as u8), length);
    network.send(now, device, frame);
}

/// Hands over all there is: device, and microseconds after `start`.
fn drain(network: &mut Network, start: Instant) -> Vec<(usize, u128)> {
    let mut seen = Vec::new();
    while let Some(now) = network.next_due() {
        while let Some(delivery) = network.deliver(now) {
            seen.push((delivery.device, (delivery.due - start).as_micros()));
            assert_eq!(network.delivered(now, delivery, true), None);
        }
    }
    seen.sort_unstable();
    seen
}

#[test]
fn a_frame_crosses_two_links_in_twice_the_delay_and_two_sending_times() {
    let start = Instant::now();
    let mut network = star();
    send(&mut network, start, 0, EVERYBODY, 1250);
    // 1250 bytes at 100 Mbit/s take 100 us, on each of two links.
    assert_eq!(drain(&mut network, start), [(1, 2200), (2, 2200)], "a broadcast reaches all but its sender");
    let later = start + Duration::from_secs(1);
    send(&mut network, later, 1, station(0), 1250);
    assert_eq!(drain(&mut network, later), [(0, 2200)], "the switch has learnt where the sender is");
}

#[test]
fn late_wake_ups_do_not_add_up_on_the_way() {
    let start = Instant::now();
    let mut network = star();
    send(&mut network, start, 0, EVERYBODY, 1250);
    // Nobody looks until the frame should have arrived long ago.
    let late = start + Duration::from_millis(9);
    let delivery = network.deliver(late).expect("it has arrived");
    assert_eq!(delivery.due - start, Duration::from_micros(2200));
    assert_eq!(network.delivered(late, delivery, true), Some(Duration::from_micros(6800)));
    let counts: Vec<[Counts; 2]> = network.counts().collect();
    assert_eq!(counts[1][0].released_late, 1);
}

#[test]
fn every_packet_is_in_exactly_one_count() {
    let start = Instant::now();
    let mut network = network(
        r#"{"devices": ["a", "b"], "links": [
            {"ends": ["a", "b"], "rate": "10Mbit", "delay": "1ms", "loss": "20%", "queue": 5}]}"#,
    );
    for number in 0..1000 {
        send(&mut network, start + Duration::from_micros(number * 300), 0, EVERYBODY, 500);
    }
    let middle = start + Duration::from_millis(200);
    let mut handed_over = 0;
    while let Some(delivery) = network.deliver(middle) {
        handed_over += 1;
        let now = delivery.due;
        network.delivered(now, delivery, handed_over % 10 != 0);
    }
    let forward = network.counts().next().expect("one link")[0];
    assert_eq!(forward.offered, 1000);
    assert_eq!(forward.delivered + forward.dropped_by_fault, handed_over);
    assert_eq!(forward.dropped_by_fault, handed_over / 10);
    let under_way = network.in_flight.len() as u64;
    let dropped = forward.dropped_by_queue + forward.dropped_by_loss + forward.dropped_by_fault;
    assert_eq!(forward.offered, forward.delivered + dropped + under_way);
    assert!(forward.dropped_by_queue > 100 && forward.dropped_by_loss > 50 && under_way > 10, "{forward:?}");
    assert_eq!(network.counts().next().expect("one link")[1], Counts::default());
}

#[test]
fn a_line_of_switches_carries_frames_from_end_to_end() {
    let start = Instant::now();
    let mut network = network(
        r#"{"devices": ["h1", "h2"], "switches": ["s1", "s2", "s3"], "links": [
            {"ends": ["h1", "s1"]}, {"ends": ["s1", "s2"], "delay": "3ms"},
            {"ends": ["s2", "s3"], "delay": "4ms", "reverse": {"delay": "40ms"}}, {"ends": ["h2", "s3"]}]}"#,
    );
    send(&mut network, start, 0, station(1), 100);
    assert_eq!(drain(&mut network, start), [(1, 7000)]);
    send(&mut network, start, 1, station(0), 100);
    assert_eq!(drain(&mut network, start), [(0, 43_000)], "each direction has its own shape");
}

#[test]
fn a_frame_too_short_for_addresses_goes_no_further_than_the_switch() {
    let start = Instant::now();
    let mut network = star();
    let stump = network.buffers.frame([0; HEADER_BYTES], &[1, 2, 3]);
    network.send(start, 0, stump);
    assert_eq!(drain(&mut network, start), []);
}

#[test]
fn a_frame_for_a_station_behind_the_port_it_came_in_by_is_not_sent_back() {
    let start = Instant::now();
    let mut network = star();
    send(&mut network, start, 0, EVERYBODY, 100);
    drain(&mut network, start);
    send(&mut network, start, 0, station(0), 100);
    assert_eq!(drain(&mut network, start), []);
}

#[test]
fn frames_under_way_hold_no_more_memory_than_they_may() {
    let start = Instant::now();
    let mut network = network(r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"], "delay": "30s"}]}"#);
    network.memory_left = 1 << 20;
    let held = |network: &Network| -> usize {
        network.in_flight.iter().map(|Reverse(each)| size_of::<InFlight>() + each.frame.bytes.capacity()).sum()
    };
    // Small frames have buffers that are much larger.
    for _ in 0..1000 {
        send(&mut network, start, 0, EVERYBODY, 60);
    }
    let under_way = network.in_flight.len() as u64;
    assert!((1 << 19..=1 << 20).contains(&held(&network)), "{}", held(&network));
    assert_eq!(network.take_faults(), 1000 - under_way);
    assert_eq!(network.counts().next().expect("one link")[0].dropped_by_fault, 1000 - under_way);
    drain(&mut network, start);
    assert_eq!(network.memory_left, 1 << 20);
    // A jumbo frame does not hold what a large segment does.
    for _ in 0..60 {
        send(&mut network, start, 0, EVERYBODY, 9014);
    }
    assert_eq!((network.take_faults(), network.in_flight.len()), (0, 60));
}

/// Ethernet, IPv4 and TCP headers of 54 bytes before this many packets of 1,448 bytes.
fn segment(network: &mut Network, packets: usize) -> Frame {
    let mut bytes = [EVERYBODY, station(0)].concat();
    bytes.resize(54 + packets * 1448, 0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[34 + 12] = 5 << 4;
    let mut header = [0; HEADER_BYTES];
    header[1] = 1;
    header[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
    header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
    network.buffers.frame(header, &bytes)
}

#[test]
fn segments_that_stay_whole_lose_nothing_behind_a_link_of_the_same_rate() {
    let start = Instant::now();
    let mut has_whole = Vec::new();
    for queue in [10, 45, 90, 91, 100] {
        let links = format!(
            r#"{{"devices": ["a", "b"], "switches": ["s"], "links": [
                {{"ends": ["a", "s"], "rate": "1Gbit"}},
                {{"ends": ["s", "b"], "rate": "1Gbit", "queue": {queue}}}]}}"#
        );
        let config = Config::read(&links).expect("a valid configuration");
        has_whole.push(config.whole_segments);
        if !config.whole_segments {
            continue;
        }
        let mut network = Network::new(&config);
        for _ in 0..2 {
            let segment = segment(&mut network, 45);
            network.send(start, 0, segment);
        }
        drain(&mut network, start);
        let counts: Vec<[Counts; 2]> = network.counts().collect();
        assert_eq!((counts[1][0].offered, counts[1][0].dropped_by_queue), (90, 0), "queue of {queue}");
    }
    assert_eq!(has_whole, [false, false, false, true, true]);
}
