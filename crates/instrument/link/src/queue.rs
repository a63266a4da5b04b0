//! One direction of one link: when does a packet that is offered now arrive, if it does?
//!
//! A packet waits until all before it have departed, departs at the link's rate, and arrives after
//! the delay. A packet that finds the queue full is dropped. A packet that is lost on the wire has
//! used the wire's rate. Pure: the time is an argument, and the same seed gives the same outcomes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Serialize, Serializer};

/// What a frame is on the wire: several packets where the kernel handed over a large segment uncut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSize {
    /// Bytes from the Ethernet header on, as tc(8) counts them: no preamble, checksum or gap (24
    /// bytes more a packet on a real wire).
    pub bytes: u64,
    /// Packets.
    pub packets: u32,
}

/// What one direction of a link does to packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Bits a second, each packet charged by its [`WireSize`] bytes; `None` is a wire without a
    /// limit, and without a queue.
    pub rate: Option<u64>,
    /// From departure to arrival.
    pub delay: Duration,
    /// The delay varies evenly by up to this much either way; at most the delay.
    pub jitter: Duration,
    /// What jitter may do.
    pub order: Order,
    /// How probable it is that a packet is lost, from 0 to 1.
    pub loss: f64,
    /// How many packets may wait to depart, the one departing included.
    pub queue: u32,
}

/// Whether a packet may overtake another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// No: a packet that jitter would make overtake arrives together with its predecessor.
    Kept,
    /// Yes.
    Free,
}

/// What becomes of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrives then.
    Arrives(Instant),
    /// It found no room in the queue.
    QueueFull,
    /// It is lost on the wire.
    Lost,
}

/// What has become of all packets so far. Offered packets that are in no other count are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that came to the link, those among them that the emulator did not read in time.
    pub offered: u64,
    /// Packets that have arrived.
    pub delivered: u64,
    /// Packets that found the queue full.
    pub dropped_by_queue: u64,
    /// Packets lost on the wire.
    pub dropped_by_loss: u64,
    /// Packets that the emulator itself lost: it ran out of memory, a device refused them, or a
    /// device dropped them because the emulator had not read the earlier ones (a large segment
    /// then counts as one). On a sound run, none.
    pub dropped_by_fault: u64,
    /// Packets handed to a host later than they were due by more than the tolerance: the emulator's
    /// doing. They are among the delivered.
    pub released_late: u64,
    /// Bytes on the wire of the packets that were offered and read.
    pub offered_bytes: u64,
    /// Bytes on the wire of the packets that have arrived.
    pub delivered_bytes: u64,
    /// For how long packets waited until the ones before them had departed, all together. Over the
    /// packets that found room, those offered less those dropped by the queue, it is the mean wait.
    #[serde(rename = "queue_wait_us_total", serialize_with = "microseconds")]
    pub queue_wait: Duration,
    /// The longest of these waits.
    #[serde(rename = "queue_wait_us_max", serialize_with = "microseconds")]
    pub longest_queue_wait: Duration,
}

fn microseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_nanos() as f64 / 1e3)
}

/// One direction of a link, in time.
#[derive(Debug)]
pub struct Queue {
    shape: Shape,
    random: StdRng,
    /// When the last accepted packet will have departed.
    free_at: Option<Instant>,
    /// When the last packet in order arrives.
    last_arrival: Option<Instant>,
    /// Each frame that has not departed, first in first out.
    waiting: VecDeque<QueuedFrame>,
    /// Packets of all of them.
    backlog: u32,
    counts: Counts,
}

/// A frame that has not departed wholly.
#[derive(Debug)]
struct QueuedFrame {
    begins: Instant,
    departs: Instant,
    packets: u32,
}

impl QueuedFrame {
    /// How many of its packets have departed by `now`, which is before the last one does.
    fn departed(&self, now: Instant) -> u32 {
        let (gone, all) = (now.saturating_duration_since(self.begins), self.departs - self.begins);
        // Below its packets, as less time is gone than all of it.
        (gone.as_nanos() * u128::from(self.packets) / all.as_nanos().max(1)) as u32
    }
}

impl Queue {
    /// An empty queue whose losses and jitter follow from `seed`.
    pub fn new(shape: Shape, seed: u64) -> Queue {
        Queue {
            shape,
            random: StdRng::seed_from_u64(seed),
            free_at: None,
            last_arrival: None,
            waiting: VecDeque::new(),
            backlog: 0,
            counts: Counts::default(),
        }
    }

    /// Offers a frame at `now`, which never goes back by more than a wake-up is late.
    pub fn offer(&mut self, now: Instant, size: WireSize) -> Outcome {
        let Some(departure) = self.depart(now, size) else {
            self.refuse(size);
            return Outcome::QueueFull;
        };
        self.counts.offered += u64::from(size.packets);
        self.counts.offered_bytes += size.bytes;
        if self.shape.loss > 0.0 && self.random.random::<f64>() < self.shape.loss {
            self.counts.dropped_by_loss += u64::from(size.packets);
            return Outcome::Lost;
        }
        let mut arrival = departure + self.delay();
        if self.shape.order == Order::Kept {
            arrival = self.last_arrival.map_or(arrival, |last| arrival.max(last));
            self.last_arrival = Some(arrival);
        }
        Outcome::Arrives(arrival)
    }

    /// How many packets of a frame offered at `now` there is room for. A larger frame is to be cut
    /// there, and its rest [refused](Queue::refuse).
    pub fn room(&mut self, now: Instant) -> u32 {
        if self.shape.rate.is_none() {
            return u32::MAX;
        }
        self.shape.queue.saturating_sub(self.backlog(now))
    }

    /// Notes that there was no room for these packets.
    pub fn refuse(&mut self, size: WireSize) {
        self.counts.offered += u64::from(size.packets);
        self.counts.offered_bytes += size.bytes;
        self.counts.dropped_by_queue += u64::from(size.packets);
    }

    /// Notes that a frame has arrived, and whether that was later than it should have been by more
    /// than is tolerated.
    pub fn delivered(&mut self, size: WireSize, late: bool) {
        self.counts.delivered += u64::from(size.packets);
        self.counts.delivered_bytes += size.bytes;
        if late {
            self.counts.released_late += u64::from(size.packets);
        }
    }

    /// Notes that the emulator has lost a frame.
    pub fn faulted(&mut self, size: WireSize) {
        self.counts.dropped_by_fault += u64::from(size.packets);
    }

    /// Notes frames that a device dropped because the emulator had not read the earlier ones.
    pub fn never_read(&mut self, frames: u64) {
        self.counts.offered += frames;
        self.counts.dropped_by_fault += frames;
    }

    /// What has become of all packets so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When a frame offered at `now` has departed, or `None` where the queue has no room for all of
    /// it.
    fn depart(&mut self, now: Instant, size: WireSize) -> Option<Instant> {
        let Some(rate) = self.shape.rate else { return Some(now) };
        // An empty queue takes a frame of any size: a frame that cannot be cut must be able to
        // pass.
        let backlog = self.backlog(now);
        if backlog > 0 && backlog + size.packets > self.shape.queue {
            return None;
        }
        let nanoseconds = (u128::from(size.bytes) * 8 * 1_000_000_000 + u128::from(rate / 2)) / u128::from(rate);
        let start = self.free_at.map_or(now, |free| free.max(now));
        let departure = start + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX >> 2));
        self.free_at = Some(departure);
        self.note_wait(start - now, departure - start, size.packets);
        self.waiting.push_back(QueuedFrame { begins: start, departs: departure, packets: size.packets });
        self.backlog += size.packets;
        Some(departure)
    }

    /// Notes for how long packets wait of which the first departs after `wait`, and all within
    /// `sending` from then on, one after another.
    fn note_wait(&mut self, wait: Duration, sending: Duration, packets: u32) {
        let behind_first = packets.saturating_sub(1);
        self.counts.queue_wait += wait * packets + sending * behind_first / 2;
        let longest = wait + sending * behind_first / packets.max(1);
        self.counts.longest_queue_wait = self.counts.longest_queue_wait.max(longest);
    }

    /// Packets that have not departed by `now`.
    fn backlog(&mut self, now: Instant) -> u32 {
        while let Some(first) = self.waiting.front().filter(|first| first.departs <= now) {
            self.backlog -= first.packets;
            self.waiting.pop_front();
        }
        self.backlog - self.waiting.front().map_or(0, |first| first.departed(now))
    }

    fn delay(&mut self) -> Duration {
        if self.shape.jitter.is_zero() {
            return self.shape.delay;
        }
        let spread = 2 * self.shape.jitter.as_nanos() as u64;
        self.shape.delay - self.shape.jitter + Duration::from_nanos(self.random.random_range(0..=spread))
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
