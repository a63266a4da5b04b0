//! What a run can record beside its summary: every request, every second, every connection.
//!
//! Records leave an event loop in batches over a channel that never blocks: whoever writes them is another thread, and a slow disk costs memory, not
//! time that would be measured.

use std::sync::mpsc::Sender;

use plimsoll_measure::times::Times;

/// Requests handed over at once.
const BATCH: usize = 4096;

/// Which records are wanted, and where they go.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// A row a completed request.
    pub requests: Option<Sender<Vec<Request>>>,
    /// A part a second and event loop.
    pub seconds: Option<Sender<Second>>,
    /// Whether what became of each connection is kept.
    pub connections: bool,
}

impl Records {
    /// Whether an event loop has to keep account of each connection.
    pub(crate) fn need_connections(&self) -> bool {
        self.connections || self.requests.is_some()
    }
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it was completed, in nanoseconds since 1970.
    pub at: u64,
    /// Its connection's number.
    pub connection: u32,
    /// Its number on the connection, from 1.
    pub request: u32,
    /// Payload bytes of its answer.
    pub bytes: u64,
    /// Its response time.
    pub response_ns: u64,
}

/// What an event loop completed within a second.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// The second's number, from the run's start.
    pub number: u64,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed or timed out.
    pub failed: u64,
    /// Response times of the completed.
    pub response: Times,
}

/// What became of one connection. Its *sequence* is the requests it has to carry in a row (`--each`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sequence {
    /// Its number.
    pub number: u32,
    /// Whether its sequence was completed.
    pub success: bool,
    /// Connects that failed.
    pub failed_connects: u64,
    /// Sequences broken off.
    pub failed_sequences: u64,
    /// Requests that failed or timed out.
    pub failed_requests: u64,
    /// Requests completed, those of broken sequences included.
    pub completed: u64,
    /// Connect call until usable, of the connection that carried the last sequence.
    pub connect_ns: u64,
    /// Sum of the service times of the last sequence.
    pub exchange_ns: u64,
}

/// An event loop's hand on the records.
pub(crate) struct Recorder {
    records: Records,
    batch: Vec<Request>,
    second: Second,
    /// By the connection's place in the loop's share; empty where they are not wanted.
    pub(crate) sequences: Vec<Sequence>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Recorder {
    pub(crate) fn new(records: &Records, numbers: impl Iterator<Item = u32>) -> Recorder {
        let wanted = records.need_connections();
        let sequences = numbers.filter(|_| wanted).map(|number| Sequence { number, ..Sequence::default() }).collect();
        Recorder { records: records.clone(), batch: Vec::new(), second: Second::default(), sequences }
    }

    /// When the next second has to be handed over, in nanoseconds from the run's origin.
    pub(crate) fn next_second(&self) -> Option<u64> {
        self.records.seconds.as_ref().map(|_| (self.second.number + 1) * SECOND_NS)
    }

    /// Hands a second over once it is past.
    pub(crate) fn pass(&mut self, now: u64) {
        if self.next_second().is_some_and(|at| at <= now) {
            self.flush_second(now / SECOND_NS);
        }
    }

    pub(crate) fn completed_in_second(&mut self, response_ns: u64) {
        if self.records.seconds.is_some() {
            self.second.completed += 1;
            self.second.response.record_ns(response_ns);
        }
    }

    pub(crate) fn log(&mut self, request: Request) {
        if self.records.requests.is_some() {
            self.batch.push(request);
            if self.batch.len() == BATCH {
                self.flush_requests();
            }
        }
    }

    pub(crate) fn failed(&mut self) {
        self.second.failed += 1;
    }

    /// Hands over what is left.
    pub(crate) fn finish(&mut self) {
        self.flush_requests();
        self.flush_second(0);
    }

    fn flush_requests(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if let Some(sender) = &self.records.requests {
            // Whoever listens may have given up, a full disk being the usual reason, and has said so.
            let _ = sender.send(batch);
        }
    }

    fn flush_second(&mut self, next: u64) {
        let second = std::mem::replace(&mut self.second, Second { number: next, ..Second::default() });
        if let Some(sender) = &self.records.seconds {
            let _ = sender.send(second);
        }
    }
}
