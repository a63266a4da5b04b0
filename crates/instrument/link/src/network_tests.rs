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
