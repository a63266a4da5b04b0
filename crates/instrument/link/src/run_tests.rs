//! The handing over of frames, with a clock and devices of the test's own.

use std::cell::Cell;

use super::*;

const CONFIG: &str = r#"{"devices": ["a", "b"], "links": [{"ends": ["a", "b"]}]}"#;

/// A network in which `count` frames are due at `start`.
fn waiting(count: usize, start: Instant) -> Network {
    let mut network = Network::new(&Config::read(CONFIG).expect("it is valid"));
    for _ in 0..count {
        let frame = network.buffers.frame([0; HEADER_BYTES], &[0; 60]);
        network.send(start, 0, frame);
    }
    network
}

#[test]
fn an_overloaded_link_comes_back_to_its_devices_and_signals() {
    let start = Instant::now();
    let (mut network, mut disturbances) = (waiting(10 * DELIVERIES_PER_ROUND, start), Disturbances::default());
    let (clock, sent) = (Cell::new(start), Cell::new(0));
    let send = |_: usize, _: &Frame| {
        sent.set(sent.get() + 1);
        clock.set(clock.get() + Duration::from_millis(1));
        Ok(())
    };
    hand_over(&mut network, &mut disturbances, || clock.get(), send).expect("no device is gone");
    assert_eq!(sent.get(), DELIVERIES_PER_ROUND);
    assert_eq!(network.next_due(), Some(start), "the others are still due");
    let late = disturbances.take().expect("the frames past the first millisecond are late");
    assert_eq!(late.late_frames as usize, DELIVERIES_PER_ROUND - 2);
    assert_eq!(late.worst, Duration::from_millis(DELIVERIES_PER_ROUND as u64 - 1));
}

#[test]
fn a_refused_frame_is_lost_and_a_deleted_device_ends_the_link() {
    let start = Instant::now();
    let (mut network, mut disturbances) = (waiting(3, start), Disturbances::default());
    let down = |_: usize, _: &Frame| Err(io::Error::from_raw_os_error(5));
    assert_eq!(hand_over(&mut network, &mut disturbances, || start, down), Ok(()));
    assert_eq!(disturbances.take().map(|each| (each.late_frames, each.lost_frames)), Some((0, 3)));
    let [forward, _] = network.counts().next().expect("a link");
    assert_eq!((forward.offered, forward.delivered, forward.dropped_by_fault), (3, 0, 3));

    let mut network = waiting(3, start);
    let gone = |_: usize, _: &Frame| Err(io::Error::from_raw_os_error(EBADFD));
    assert_eq!(hand_over(&mut network, &mut disturbances, || start, gone), Err(1));
}

#[test]
fn frames_that_were_never_read_are_offered_and_lost_by_fault() {
    let mut network = waiting(2, Instant::now());
    network.never_read(0, 40);
    network.never_read(1, 3);
    let [forward, reverse] = network.counts().next().expect("a link");
    assert_eq!((forward.offered, forward.dropped_by_fault), (42, 40));
    assert_eq!((reverse.offered, reverse.dropped_by_fault), (3, 3));
}

#[test]
fn a_device_that_cannot_be_made_says_what_would_help() {
    let why = |code| explain(&io::Error::from_raw_os_error(code));
    // EPERM, EACCES, ENOENT, ENODEV and EBUSY (errno(3)).
    for (code, help) in [
        (1, "unshare -rn"),
        (13, "chmod a+rw /dev/net/tun"),
        (2, "load the kernel module"),
        (19, "load the kernel module"),
        (16, "choose another name"),
    ] {
        assert!(why(code).contains(help), "{code}: {}", why(code));
    }
    assert!(!why(13).contains("unshare"), "a namespace of one's own opens no device file");
}
