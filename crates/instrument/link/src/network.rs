//! Links and switches joined: frames in from devices, frames out to devices, each at its time.
//!
//! Pure: the time and the frames are arguments. Between links a frame goes on at the moment it was
//! due, not at the moment of the wake-up, so that late wake-ups do not add up on the way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::config::{Config, End};
use crate::frame::{Buffers, Frame};
use crate::queue::{Counts, Outcome, Queue};
use crate::switch::MacTable;

/// Memory for the frames under way, over all links, without which the emulator drops and says that
/// it was at fault: a third of a million of ordinary frames, or half a second of 10 Gbit/s in large
/// segments.
const MEMORY_BYTES: usize = 640 << 20;

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    queue: Queue,
    to: End,
    /// Which of the switch's ports it comes in by, where it leads to a switch: the direction that
    /// leaves by that port.
    port: usize,
}

/// A frame in one direction of a link, soonest first; of those due together the first offered.
#[derive(Debug)]
struct InFlight {
    due: Instant,
    sequence: u64,
    direction: usize,
    frame: Frame,
}

impl InFlight {
    /// What a frame holds while it is under way, in bytes: its buffer is larger than a small frame.
    fn memory(frame: &Frame) -> usize {
        size_of::<InFlight>() + frame.bytes.capacity()
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &InFlight) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &InFlight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &InFlight) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

/// A frame that is due at a device.
#[derive(Debug)]
pub struct Delivery {
    /// The device, by its number in the configuration.
    pub device: usize,
    /// When it was due.
    pub due: Instant,
    /// The frame.
    pub frame: Frame,
    direction: usize,
}

/// All links and switches of a configuration.
#[derive(Debug)]
pub struct Network {
    directions: Vec<Direction>,
    /// The direction that leaves each device.
    leaving: Vec<usize>,
    /// The directions that leave each switch.
    ports: Vec<Vec<usize>>,
    mac_tables: Vec<MacTable>,
    in_flight: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    /// What frames under way may hold besides those that are.
    memory_left: usize,
    late_after: Duration,
    faults: u64,
    /// Buffers of former frames, for the frames that are read from devices.
    pub buffers: Buffers,
}

impl Network {
    /// A network without a frame.
    pub fn new(config: &Config) -> Network {
        let mut network = Network {
            directions: Vec::new(),
            leaving: vec![0; config.devices.len()],
            ports: vec![Vec::new(); config.switches.len()],
            mac_tables: config.switches.iter().map(|_| MacTable::default()).collect(),
            in_flight: BinaryHeap::new(),
            sequence: 0,
            memory_left: MEMORY_BYTES,
            late_after: config.late_after,
            faults: 0,
            buffers: Buffers::default(),
        };
        for link in &config.links {
            for (from, to, shape) in
                [(link.ends[0], link.ends[1], &link.forward), (link.ends[1], link.ends[0], &link.reverse)]
            {
                let number = network.directions.len();
                // Each direction draws from a sequence of its own, so that traffic on one does not
                // change what happens on another.
                let queue = Queue::new(shape.clone(), config.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
                network.directions.push(Direction { queue, to, port: number ^ 1 });
                match from {
                    End::Device(device) => network.leaving[device] = number,
                    End::Switch(switch) => network.ports[switch].push(number),
                }
            }
        }
        network
    }

    /// Takes a frame that a device has sent at `now`.
    pub fn send(&mut self, now: Instant, device: usize, frame: Frame) {
        self.offer(now, self.leaving[device], frame);
    }

    /// When the next frame is due somewhere.
    pub fn next_due(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(in_flight)| in_flight.due)
    }

    /// The next frame that is due at a device by `now`. The caller reports what became of it by
    /// [`Network::delivered`].
    pub fn deliver(&mut self, now: Instant) -> Option<Delivery> {
        while self.next_due().is_some_and(|due| due <= now) {
            let Reverse(InFlight { due, direction, frame, .. }) = self.in_flight.pop()?;
            self.memory_left += InFlight::memory(&frame);
            match self.directions[direction].to {
                End::Device(device) => return Some(Delivery { device, due, frame, direction }),
                End::Switch(switch) => {
                    self.directions[direction].queue.delivered(frame.wire_size(), false);
                    self.switch(due, switch, self.directions[direction].port, frame);
                }
            }
        }
        None
    }

    /// Notes what became of a delivery: handed over at `now`, or refused by the device. Returns by
    /// how much it was late, if beyond tolerance.
    pub fn delivered(&mut self, now: Instant, delivery: Delivery, accepted: bool) -> Option<Duration> {
        let queue = &mut self.directions[delivery.direction].queue;
        let size = delivery.frame.wire_size();
        let lateness = now.saturating_duration_since(delivery.due);
        let late = lateness > self.late_after;
        if accepted {
            queue.delivered(size, late);
        } else {
            queue.faulted(size);
        }
        self.buffers.recycle(delivery.frame);
        (accepted && late).then_some(lateness)
    }

    /// Notes frames that a device dropped because earlier ones had not been read.
    pub fn never_read(&mut self, device: usize, frames: u64) {
        self.directions[self.leaving[device]].queue.never_read(frames);
    }

    /// How many frames were lost for want of memory since this was last asked.
    pub fn take_faults(&mut self) -> u64 {
        std::mem::take(&mut self.faults)
    }

    /// The counts of each link in the order of the configuration: from its first end to its second,
    /// and back.
    pub fn counts(&self) -> impl Iterator<Item = [Counts; 2]> + '_ {
        self.directions.chunks_exact(2).map(|directions| [directions[0].queue.counts(), directions[1].queue.counts()])
    }

    /// Packets that came from devices, those among them that were never read.
    pub fn sent_by_hosts(&self) -> u64 {
        self.leaving.iter().map(|direction| self.directions[*direction].queue.counts().offered).sum()
    }

    fn switch(&mut self, now: Instant, switch: usize, port: usize, frame: Frame) {
        let Some((receiver, sender)) = frame.addresses() else { return self.buffers.recycle(frame) };
        self.mac_tables[switch].learn(now, sender, port);
        match self.mac_tables[switch].port(now, receiver) {
            // A station behind the port it came from has had it already.
            Some(leaving) if leaving == port => self.buffers.recycle(frame),
            Some(leaving) => self.offer(now, leaving, frame),
            None => {
                for place in 0..self.ports[switch].len() {
                    let leaving = self.ports[switch][place];
                    if leaving != port {
                        let copy = self.buffers.frame(frame.header, &frame.bytes);
                        self.offer(now, leaving, copy);
                    }
                }
                self.buffers.recycle(frame);
            }
        }
    }

    fn offer(&mut self, now: Instant, direction: usize, mut frame: Frame) {
        let queue = &mut self.directions[direction].queue;
        // A large segment replaces packets that come one after another: the first ones find room,
        // the last ones do not.
        if let Some(rest) = frame.shorten(queue.room(now)) {
            queue.refuse(rest);
        }
        let size = frame.wire_size();
        let Outcome::Arrives(due) = queue.offer(now, size) else { return self.buffers.recycle(frame) };
        let Some(left) = self.memory_left.checked_sub(InFlight::memory(&frame)) else {
            queue.faulted(size);
            self.faults += 1;
            return self.buffers.recycle(frame);
        };
        self.memory_left = left;
        self.sequence += 1;
        self.in_flight.push(Reverse(InFlight { due, sequence: self.sequence, direction, frame }));
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
