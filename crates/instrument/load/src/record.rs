//! What a run can record beside its summary: every request, every second, every connection.
//!
//! Records leave an event loop in batches over a channel that never blocks: another thread writes
//! them, and a slow disk costs memory, not time that would be measured.

use std::sync::mpsc::Sender;

use plimsoll_measure::tally::{Cause, Errors};
use plimsoll_measure::times::Times;

/// Requests handed over at once, where a second brings more.
const BATCH: usize = 4096;

/// Which records are wanted, and where they go.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// A row for each request that ended on a connection.
    pub requests: Option<Sender<Vec<Row>>>,
    /// A part for each second, phase and event loop.
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

/// The phases of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before the window.
    #[default]
    WarmUp,
    /// The measured window.
    Window,
    /// After it.
    Drain,
}

impl Phase {
    /// Its name, as records have it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::WarmUp => "warm_up",
            Phase::Window => "window",
            Phase::Drain => "drain",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With the right answer.
    #[default]
    Ok,
    /// With an error status.
    Status,
    /// Without an answer in time.
    Timeout,
    /// Its connection could not be opened.
    Connect,
    /// Reading failed.
    Read,
    /// Writing failed.
    Write,
    /// With a wrong answer.
    Mismatch,
    /// The server closed the connection.
    Closed,
}

impl Outcome {
    pub(crate) fn of(cause: Cause) -> Outcome {
        match cause {
            Cause::Connect => Outcome::Connect,
            Cause::Read => Outcome::Read,
            Cause::Write => Outcome::Write,
            Cause::Timeout => Outcome::Timeout,
            Cause::Mismatch => Outcome::Mismatch,
            Cause::Closed => Outcome::Closed,
            Cause::Status => Outcome::Status,
        }
    }

    /// Its name, as records have it: that of the summary's `errors`, or `ok`.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Status => "status",
            Outcome::Timeout => "timeout",
            Outcome::Connect => "connect",
            Outcome::Read => "read",
            Outcome::Write => "write",
            Outcome::Mismatch => "mismatch",
            Outcome::Closed => "closed",
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// When it ended, in nanoseconds since 1970.
    pub at: u64,
    /// Its connection's number.
    pub connection: u32,
    /// Its number among those that ended on the connection, from 1.
    pub request: u32,
    /// Payload bytes of its answer.
    pub bytes: u64,
    /// Its response time; of one without an answer, its age.
    pub response_ns: u64,
    /// The phase in which it is counted.
    pub phase: Phase,
    /// How it ended.
    pub outcome: Outcome,
}

/// What an event loop counted within the part of a second that lies in one phase.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// The second's number, from the run's start.
    pub number: u64,
    /// When that second began, in nanoseconds since 1970.
    pub began: u64,
    /// The part of it that this is of, in the same unit: from here.
    pub from: u64,
    /// To here.
    pub to: u64,
    /// The phase.
    pub phase: Phase,
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Requests timed out.
    pub timed_out: u64,
    /// Causes of those that failed or timed out, and connects that failed.
    pub errors: Errors,
    /// Response times of the completed.
    pub response: Times,
}

impl Second {
    /// Whether nothing happened in it.
    pub fn is_empty(&self) -> bool {
        self.completed + self.failed + self.timed_out == 0 && self.errors == Errors::default()
    }
}

/// What became of one connection: of its requests in the window, and of its connects in the whole
/// run. Its *sequence* is the requests that it has to complete in a row (`--each`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sequence {
    /// Its number.
    pub number: u32,
    /// Whether its sequence was completed; without `--each`, whether a request was.
    pub success: bool,
    /// Connects that failed.
    pub failed_connects: u64,
    /// Sequences broken off.
    pub failed_sequences: u64,
    /// Requests that failed or timed out.
    pub failed_requests: u64,
    /// Requests completed, those of broken sequences included.
    pub completed: u64,
    /// Connect call until usable, of the connection of the last sequence.
    pub connect_ns: u64,
    /// Sum of the service times of the completed requests; with `--each`, of those of the last
    /// sequence.
    pub exchange_ns: u64,
}

/// An event loop's part of the records.
pub(crate) struct Recorder {
    records: Records,
    /// The run's origin, in nanoseconds since 1970.
    unix_origin: u64,
    batch: Vec<Row>,
    second: Second,
    /// When the current part of the second began, and the last instant that was reported, in
    /// nanoseconds from the run's origin.
    since: u64,
    now: u64,
    /// By the connection's place in the loop's share; empty where they are not wanted.
    pub(crate) sequences: Vec<Sequence>,
    /// Requests that were logged, by the same place.
    logged: Vec<u32>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Recorder {
    pub(crate) fn new(records: &Records, unix_origin: u64, numbers: impl Iterator<Item = u32>) -> Recorder {
        let wanted = records.need_connections();
        let sequences = numbers.filter(|_| wanted).map(|number| Sequence { number, ..Sequence::default() });
        let sequences: Vec<Sequence> = sequences.collect();
        let logged = vec![0; if records.requests.is_some() { sequences.len() } else { 0 }];
        let second = Second { began: unix_origin, ..Second::default() };
        let records = records.clone();
        Recorder { records, unix_origin, batch: Vec::new(), second, since: 0, now: 0, sequences, logged }
    }

    /// The run's origin is this one from here on: the wall clock was read anew before requests
    /// begin, as it may have been set since the run began.
    pub(crate) fn follow_clock(&mut self, unix_origin: u64) {
        self.unix_origin = unix_origin;
        self.second.began = unix_origin + self.second.number * SECOND_NS;
    }

    /// When the second is over, in nanoseconds from the run's origin; `None` where nothing is
    /// recorded.
    pub(crate) fn next(&self) -> Option<u64> {
        let wanted = self.records.seconds.is_some() || self.records.requests.is_some();
        wanted.then_some((self.second.number + 1) * SECOND_NS)
    }

    /// Hands over each second that is past. Where the loop had no CPU, several are: the first has
    /// all that was counted, and the others are empty.
    pub(crate) fn pass(&mut self, now: u64, phase: Phase) {
        self.now = self.now.max(now);
        while let Some(end) = self.next().filter(|end| *end <= now) {
            self.flush_requests();
            self.flush_second(end, self.second.number + 1, phase);
        }
    }

    /// Hands over the part of the second that lies in the phase that ends. A loop may come to it
    /// late: a second that was over before has no part in the next phase.
    pub(crate) fn end_phase(&mut self, at: u64, phase: Phase) {
        self.pass(at, phase);
        if self.next().is_some() {
            self.flush_second(at, self.second.number, phase);
        }
    }

    /// Hands over what is left.
    pub(crate) fn finish(&mut self, phase: Phase) {
        self.flush_requests();
        self.flush_second(self.now, 0, phase);
    }

    /// What became of a connection so far, where that is wanted.
    pub(crate) fn sequence(&mut self, place: usize) -> Option<&mut Sequence> {
        self.sequences.get_mut(place)
    }

    /// A request was answered.
    pub(crate) fn ended(&mut self, response_ns: u64, outcome: Outcome) {
        if self.records.seconds.is_none() {
            return;
        }
        if outcome == Outcome::Ok {
            self.second.completed += 1;
            self.second.response.record_ns(response_ns);
        } else {
            self.second.failed += 1;
            self.second.errors.count(Cause::Status);
        }
    }

    /// A request was lost, or timed out without a connection.
    pub(crate) fn lost(&mut self, cause: Option<Cause>) {
        let cause = cause.unwrap_or(Cause::Timeout);
        if cause != Cause::Connect {
            // Connects are counted as they fail, with a request under way or without.
            self.second.errors.count(cause);
        }
        match cause {
            Cause::Timeout => self.second.timed_out += 1,
            _ => self.second.failed += 1,
        }
    }

    /// A connect failed.
    pub(crate) fn connect_failed(&mut self) {
        self.second.errors.count(Cause::Connect);
    }

    /// Logs a request of the connection in that place, whose instant is from the run's origin.
    pub(crate) fn log(&mut self, place: usize, row: Row) {
        let Some(request) = self.logged.get_mut(place) else { return };
        *request += 1;
        let (at, connection, request) = (self.unix_origin + row.at, self.sequences[place].number, *request);
        self.batch.push(Row { at, connection, request, ..row });
        if self.batch.len() == BATCH {
            self.flush_requests();
        }
    }

    fn flush_requests(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(sender) = self.records.requests.as_ref().filter(|_| !batch.is_empty()) {
            // The writer may have ended, for a full disk most often, and has reported it.
            let _ = sender.send(batch);
        }
    }

    /// Hands over the part of the second up to `to`; the `next` second's goes on from there.
    fn flush_second(&mut self, to: u64, next: u64, phase: Phase) {
        let began = self.unix_origin + next * SECOND_NS;
        let next = Second { number: next, began, ..Second::default() };
        let to = to.max(self.since);
        let from = std::mem::replace(&mut self.since, to);
        let (from, to) = (self.unix_origin + from, self.unix_origin + to);
        let second = Second { phase, from, to, ..std::mem::replace(&mut self.second, next) };
        if let Some(sender) = self.records.seconds.as_ref().filter(|_| from < to || !second.is_empty()) {
            let _ = sender.send(second);
        }
    }
}
