//! The queue in simulated time.

use proptest::prelude::*;

use super::*;

const PACKET: WireSize = WireSize { bytes: 1250, packets: 1 };

/// 1250 bytes at 10 Mbit/s take a millisecond.
fn shape() -> Shape {
    Shape {
        rate: Some(10_000_000),
        delay: Duration::from_millis(5),
        jitter: Duration::ZERO,
        order: Order::Kept,
        loss: 0.0,
        queue: 3,
    }
}

fn ms(start: Instant, milliseconds: u64) -> Outcome {
    Outcome::Arrives(start + Duration::from_millis(milliseconds))
}

#[test]
fn packets_offered_together_arrive_one_sending_time_apart_until_the_queue_is_full() {
    let start = Instant::now();
    let mut queue = Queue::new(shape(), 1);
    let outcomes: Vec<Outcome> = (0..5).map(|_| queue.offer(start, PACKET)).collect();
    assert_eq!(outcomes, [ms(start, 6), ms(start, 7), ms(start, 8), Outcome::QueueFull, Outcome::QueueFull]);
    // The first has departed after a millisecond, and its place is free, long before it arrives.
    let later = start + Duration::from_millis(1);
    assert_eq!([queue.offer(later, PACKET), queue.offer(later, PACKET)], [ms(start, 9), Outcome::QueueFull]);
    let counts = queue.counts();
    assert_eq!((counts.offered, counts.dropped_by_queue), (7, 3));
    // 0, 1 and 2 ms, and 2 ms more of the one that came later; those without room wait for nothing.
    assert_eq!((counts.queue_wait, counts.longest_queue_wait), (Duration::from_millis(5), Duration::from_millis(2)));
    queue.offer(start + Duration::from_secs(1), PACKET);
    assert_eq!(queue.counts().queue_wait, counts.queue_wait, "an empty queue holds nothing up");
}

#[test]
fn a_link_without_a_rate_delays_and_never_drops() {
    let start = Instant::now();
    let mut queue = Queue::new(Shape { rate: None, queue: 1, ..shape() }, 1);
    for _ in 0..1000 {
        assert_eq!(queue.offer(start, PACKET), ms(start, 5));
    }
    assert_eq!(queue.counts().queue_wait, Duration::ZERO);
}

#[test]
fn a_large_segment_takes_as_long_and_as_much_room_as_its_packets() {
    let start = Instant::now();
    let mut queue = Queue::new(shape(), 1);
    let segment = |packets: u32| WireSize { bytes: 1250 * u64::from(packets), packets };
    assert_eq!(queue.offer(start, segment(2)), ms(start, 7));
    assert_eq!(queue.offer(start, segment(2)), Outcome::QueueFull);
    assert_eq!(queue.offer(start, segment(1)), ms(start, 8));
    let emptied = start + Duration::from_millis(3);
    assert_eq!(queue.offer(emptied, segment(9)), ms(start, 17), "an empty queue takes a segment of any size");
    assert_eq!(queue.counts().dropped_by_queue, 2);
}

#[test]
fn there_is_room_for_as_many_packets_as_the_queue_has_places() {
    let start = Instant::now();
    let mut queue = Queue::new(shape(), 1);
    assert_eq!(queue.room(start), 3);
    queue.offer(start, WireSize { bytes: 2500, packets: 2 });
    assert_eq!(queue.room(start), 1);
    // Its packets depart one by one.
    for (microseconds, room) in [(999, 1), (1000, 2), (1999, 2), (2000, 3)] {
        assert_eq!(queue.room(start + Duration::from_micros(microseconds)), room, "{microseconds}");
    }
    queue.refuse(WireSize { bytes: 2500, packets: 2 });
    let Counts { offered, dropped_by_queue, offered_bytes, .. } = queue.counts();
    assert_eq!((offered, dropped_by_queue, offered_bytes), (4, 2, 5000));
    assert_eq!(Queue::new(Shape { rate: None, ..shape() }, 1).room(start), u32::MAX);
}

#[test]
fn what_is_lost_on_the_wire_has_used_it() {
    let start = Instant::now();
    let mut queue = Queue::new(Shape { loss: 1.0, queue: 1, ..shape() }, 1);
    assert_eq!([queue.offer(start, PACKET), queue.offer(start, PACKET)], [Outcome::Lost, Outcome::QueueFull]);
}

#[test]
fn the_share_lost_is_the_share_asked_for() {
    let start = Instant::now();
    let mut queue = Queue::new(Shape { rate: None, loss: 0.02, ..shape() }, 7);
    let lost = (0..100_000).filter(|_| queue.offer(start, PACKET) == Outcome::Lost).count();
    // Five standard deviations of a binomial count, sqrt(100000 * 0.02 * 0.98) = 44.
    assert!(lost.abs_diff(2000) < 220, "{lost}");
}

#[test]
fn jitter_spreads_arrivals_evenly_about_the_delay() {
    let start = Instant::now();
    let free = Shape { rate: None, jitter: Duration::from_millis(2), order: Order::Free, ..shape() };
    let mut queue = Queue::new(free, 3);
    let mut arrivals: Vec<f64> = (0..10_000)
        .map(|_| match queue.offer(start, PACKET) {
            Outcome::Arrives(at) => (at - start).as_secs_f64() * 1e3,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(arrivals.windows(2).any(|pair| pair[1] < pair[0]), "some packet overtakes another");
    arrivals.sort_by(f64::total_cmp);
    for (rank, wanted) in [(0, 3.0), (2500, 4.0), (5000, 5.0), (7500, 6.0), (9999, 7.0)] {
        assert!((arrivals[rank] - wanted).abs() < 0.1, "{rank}: {}", arrivals[rank]);
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (prop::option::of(1_000_u64..1 << 34), 0_u64..20_000, 0_u64..20_000, any::<bool>(), 0.0..0.5, 1_u32..50).prop_map(
        |(rate, delay, jitter, kept, loss, queue)| Shape {
            rate,
            delay: Duration::from_micros(delay.max(jitter)),
            jitter: Duration::from_micros(jitter),
            order: if kept { Order::Kept } else { Order::Free },
            loss,
            queue,
        },
    )
}

/// Pauses before packets, and their sizes.
fn traffic() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0_u64..3_000_000, 60_u64..1514), 1..300)
}

proptest! {
    #[test]
    fn a_segment_cut_to_its_room_fares_as_its_packets_would_one_by_one(
        places in 1_u32..200,
        bytes in 60_u64..1515,
        traffic in prop::collection::vec((0_u64..1_000_000, 1_u32..46), 1..100),
    ) {
        // At 1 Gbit/s each byte takes 8 ns: nothing is rounded.
        let shape = Shape { rate: Some(1_000_000_000), queue: places, ..shape() };
        let (mut whole, mut single) = (Queue::new(shape.clone(), 1), Queue::new(shape, 1));
        let mut now = Instant::now();
        for (pause, packets) in traffic {
            now += Duration::from_nanos(pause);
            let size = |packets| WireSize { bytes: bytes * u64::from(packets), packets };
            let taken = packets.min(whole.room(now));
            let outcome = if taken > 0 { whole.offer(now, size(taken)) } else { Outcome::QueueFull };
            whole.refuse(size(packets - taken));
            let outcomes: Vec<Outcome> = (0..packets).map(|_| single.offer(now, size(1))).collect();
            let reached = outcomes.iter().rfind(|each| **each != Outcome::QueueFull).copied();
            let last = reached.unwrap_or(Outcome::QueueFull);
            prop_assert_eq!(outcome, last);
            prop_assert_eq!(whole.counts(), single.counts());
        }
    }

    #[test]
    fn packets_keep_to_rate_delay_order_and_queue(shape in shapes(), traffic in traffic(), seed: u64) {
        let start = Instant::now();
        let (mut queue, mut twin) = (Queue::new(shape.clone(), seed), Queue::new(shape.clone(), seed));
        let mut now = start;
        let mut last = start;
        let (mut arrived, mut arrived_bytes, mut dropped) = (0_u64, 0_u64, 0_u64);
        for (pause, bytes) in traffic {
            now += Duration::from_nanos(pause);
            let size = WireSize { bytes, packets: 1 };
            let outcome = queue.offer(now, size);
            prop_assert_eq!(outcome, twin.offer(now, size), "the same seed gives the same fates");
            let Outcome::Arrives(at) = outcome else { dropped += 1; continue };
            arrived += 1;
            arrived_bytes += bytes;
            prop_assert!(at >= now + shape.delay - shape.jitter);
            if shape.order == Order::Kept {
                prop_assert!(at >= last);
                last = at;
            }
            if let Some(rate) = shape.rate {
                // All that has arrived had to be sent since the start; a nanosecond a packet for
                // rounding.
                let sending = (at - start + shape.jitter).saturating_sub(shape.delay) + Duration::from_nanos(arrived);
                if shape.order == Order::Kept || shape.jitter.is_zero() {
                    prop_assert!(arrived_bytes as f64 * 8.0 <= sending.as_secs_f64() * rate as f64 + 1.0);
                }
                // A packet waits for no more than a full queue, itself included.
                let most = Duration::from_secs_f64(f64::from(shape.queue) * 1514.0 * 8.0 / rate as f64);
                if shape.order == Order::Free {
                    prop_assert!(at <= now + most + shape.delay + shape.jitter + Duration::from_micros(1));
                }
            }
        }
        let counts = queue.counts();
        prop_assert_eq!(counts.dropped_by_queue + counts.dropped_by_loss, dropped);
        prop_assert_eq!(counts.offered, arrived + dropped);
        prop_assert!(shape.rate.is_some() || counts.dropped_by_queue == 0);
    }

    #[test]
    fn a_busy_link_sends_at_exactly_its_rate(
        rate in 10_000_u64..1 << 34, bytes in 60_u64..65_536, count in 1_u32..500,
    ) {
        let start = Instant::now();
        let shape = Shape { rate: Some(rate), delay: Duration::ZERO, queue: u32::MAX, ..shape() };
        let mut queue = Queue::new(shape, 0);
        let mut last = Outcome::Lost;
        for _ in 0..count {
            last = queue.offer(start, WireSize { bytes, packets: 1 });
        }
        let Outcome::Arrives(at) = last else { panic!("nothing is dropped: {last:?}") };
        let wanted = f64::from(count) * bytes as f64 * 8.0 / rate as f64;
        // Half a nanosecond of rounding a packet.
        prop_assert!(((at - start).as_secs_f64() - wanted).abs() <= f64::from(count) * 0.51e-9 + wanted * 1e-12);
    }
}
