//! Counts what becomes of every request and connection; nothing is counted elsewhere. Pure: the
//! instants are arguments, in nanoseconds from the run's origin.
//!
//! The rule: an engine reports what has happened (`due`, `sent`, `answered`, `lost`,
//! `established`), and when; the ledger decides what is counted, in which span. A request belongs
//! to the span in which it ends. So a request under way when the window opens belongs to the
//! window. A request under way when the window closes is in flight.

use plimsoll_measure::tally::{Cause, Connections, Tally};

use crate::config::{Config, StopCondition};
use crate::control::Shown;
use crate::record::{Outcome, Phase, Recorder, Row, Sequence};

/// What one event loop, or one connection's thread, counts.
pub(crate) struct Ledger {
    has_schedule: bool,
    /// Whether the service time can differ from the response time.
    keeps_service: bool,
    tells_transmission: bool,
    each: bool,
    shares_count: bool,
    /// A warm-up was asked for: what comes before the window is its own.
    warms_up: bool,
    timeout: u64,
    phase: Phase,
    tally: Tally,
    warm_up: Option<Tally>,
    window: Tally,
    connections: Connections,
    recorder: Recorder,
    /// Requests under way that the span counts.
    under_way: u64,
    /// Requests of the window that will not be sent, as was known before it opened.
    missing: u64,
    /// Connections that are wanted and cannot be used, and since when that number has been so.
    unusable: u64,
    unusable_since: u64,
    /// When the window closed, and how many connections were unusable then.
    ended_at: u64,
    unusable_at_end: u64,
    /// When the last request of the window was begun.
    last_begun: u64,
    /// Requests of a count that have ended and were not told yet, and when the last of all did.
    untold: u64,
    last_end: u64,
    shown: Shown,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Its connection's place among those of the ledger.
    pub(crate) place: usize,
    /// When it was due.
    pub(crate) intended: u64,
    /// When it was sent.
    pub(crate) sent: u64,
    /// Whether the run counts it. The window of a counted run (`-n`) begins with requests under way
    /// that exceed the count; they are no part of it.
    pub(crate) counted: bool,
    /// Whether it is the last of its connection's sequence.
    pub(crate) last: bool,
}

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Payload bytes.
    pub(crate) payload: u64,
    /// Its status, or 0 where answers have none. From 400 on the request has failed.
    pub(crate) status: u16,
}

/// What a ledger amounts to.
pub(crate) struct Books {
    pub(crate) warm_up: Option<Tally>,
    pub(crate) window: Tally,
    pub(crate) connections: Connections,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) ended_at: u64,
    pub(crate) last_begun: u64,
    /// Connections that were wanted and could not be used at `ended_at`.
    pub(crate) unusable: u64,
}

impl Ledger {
    /// The ledger of so many connections.
    pub(crate) fn new(config: &Config, tells_transmission: bool, connections: usize, recorder: Recorder) -> Ledger {
        let has_schedule = config.pace.has_schedule();
        Ledger {
            has_schedule,
            keeps_service: has_schedule || config.opening.reconnect,
            tells_transmission,
            each: matches!(config.stop_condition, StopCondition::Each(_)),
            shares_count: config.stop_condition.shared_count().is_some(),
            warms_up: !config.warm_up.is_zero(),
            timeout: config.timeout.as_nanos() as u64,
            phase: Phase::WarmUp,
            tally: Tally::default(),
            warm_up: None,
            window: Tally::default(),
            connections: Connections::default(),
            recorder,
            under_way: 0,
            missing: 0,
            // Where each request has a connection of its own, none is wanted before.
            unusable: if config.opening.reconnect { 0 } else { connections as u64 },
            unusable_since: 0,
            ended_at: 0,
            unusable_at_end: 0,
            last_begun: 0,
            untold: 0,
            last_end: 0,
            shown: Shown::default(),
        }
    }

    /// Where the run is.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// What is shown of it while it runs.
    pub(crate) fn shown(&self) -> Shown {
        self.shown
    }

    /// How many requests of the run's count have ended since this was asked before, and when the
    /// last of all did; `None` where none has.
    pub(crate) fn take_ended(&mut self) -> Option<(u64, u64)> {
        let count = std::mem::take(&mut self.untold);
        (count > 0).then_some((count, self.last_end))
    }

    /// Requests may begin: records are by the wall clock as it is now, whose time of the run's
    /// origin this is.
    pub(crate) fn follow_clock(&mut self, unix_origin: u64) {
        self.recorder.follow_clock(unix_origin);
    }

    /// When it has records to hand over next.
    pub(crate) fn next_record(&self) -> Option<u64> {
        self.recorder.next()
    }

    /// Hands over the records of the seconds that are past.
    pub(crate) fn record(&mut self, now: u64) {
        self.recorder.pass(now, self.phase);
    }

    /// The window opens. So many of the requests under way are not counted ([`Request::counted`]).
    pub(crate) fn open(&mut self, at: u64, uncounted: u64) {
        self.recorder.end_phase(at, self.phase);
        let mut warm_up = std::mem::take(&mut self.tally);
        warm_up.requests.in_flight = self.under_way;
        if !self.warms_up {
            // Connections are opened before the window all the same.
            self.tally.errors.connect = std::mem::take(&mut warm_up.errors.connect);
        }
        self.under_way -= uncounted;
        self.tally.requests.scheduled = self.under_way;
        self.warm_up = Some(warm_up);
        self.phase = Phase::Window;
        let missing = std::mem::take(&mut self.missing);
        self.never_sent(missing);
        self.connections.unavailable_ns = 0;
        self.unusable_since = at;
    }

    /// The window closes, over these requests that are under way.
    pub(crate) fn close(&mut self, at: u64, under_way: impl Iterator<Item = Request>) {
        if self.phase == Phase::WarmUp {
            // The run ended before its window: nothing of the warm-up is counted in it, nor what is
            // under way.
            self.open(at, 0);
            self.tally.requests.scheduled -= self.under_way;
        } else {
            for request in under_way.filter(|request| request.counted) {
                self.tally.requests.in_flight += 1;
                self.tally.unanswered.record_ns(at.saturating_sub(request.intended));
            }
        }
        self.note_unavailable(at);
        self.recorder.end_phase(at, self.phase);
        self.window = std::mem::take(&mut self.tally);
        self.phase = Phase::Drain;
        self.ended_at = at;
        self.unusable_at_end = self.unusable;
    }

    /// What was counted, at the end of the run.
    pub(crate) fn finish(mut self) -> Books {
        self.recorder.finish(self.phase);
        Books {
            warm_up: self.warm_up,
            window: self.window,
            connections: self.connections,
            sequences: self.recorder.sequences,
            ended_at: self.ended_at,
            last_begun: self.last_begun,
            unusable: self.unusable_at_end,
        }
    }

    /// A request is due, and a connection takes it up.
    pub(crate) fn begun(&mut self, now: u64) {
        self.under_way += 1;
        self.tally.requests.scheduled += 1;
        self.tally.sent += 1;
        self.last_begun = now;
    }

    /// Open loop: a request waited this long for a connection. `backoff` of it is due to
    /// connections that waited to be opened again.
    pub(crate) fn waited(&mut self, wait: u64, backoff: u64) {
        self.tally.pool_wait.record_ns(wait - backoff);
        if backoff > 0 {
            self.tally.backoff_wait.record_ns(backoff);
        }
    }

    /// A request went out, or will not, which could have gone out at `possible`.
    pub(crate) fn sent(&mut self, possible: u64, now: u64) {
        if self.has_schedule {
            self.tally.schedule_lag.record_ns(now.saturating_sub(possible));
        }
    }

    /// An open loop's request timed out before it was sent. A connection is free for it since
    /// `free`: if that was in time, the generator was late. `backoff` of the wait until then is due
    /// to connections that waited to be opened again.
    pub(crate) fn expired(&mut self, due: u64, free: u64, now: u64, backoff: u64) {
        self.note_end(now);
        self.never_begun(due, free, now, backoff);
        self.shown.failed += 1;
    }

    /// A request that timed out so was one of those of a connection's sequence.
    pub(crate) fn missed(&mut self, place: usize) {
        if let Some(sequence) = self.sequence_in_window(place) {
            sequence.failed_requests += 1;
        }
    }

    /// An open loop's request was due when the window closed, and was not sent; `free` and
    /// `backoff` as above.
    pub(crate) fn overdue(&mut self, due: u64, free: u64, end: u64, backoff: u64) {
        self.never_begun(due, free, end, backoff);
    }

    /// Counts a request that was due, and is not sent. Whoever finds it, and when: from its
    /// time-out on it waits no more.
    fn never_begun(&mut self, due: u64, free: u64, now: u64, backoff: u64) {
        let age = now.saturating_sub(due).min(self.timeout);
        let wait = free.saturating_sub(due).min(age);
        self.waited(wait, backoff.min(wait));
        if wait < age {
            self.sent(due.max(free), due + age);
        }
        self.tally.unanswered.record_ns(age);
        self.tally.requests.scheduled += 1;
        // It has timed out from the time-out on.
        if age == self.timeout {
            self.tally.requests.timed_out += 1;
            self.tally.errors.count(Cause::Timeout);
            self.recorder.lost(None);
        } else {
            self.tally.requests.unsent += 1;
        }
    }

    /// Requests of a counted run that are never sent. A count is of the window, so they are its own
    /// though it has yet to open.
    pub(crate) fn never_sent(&mut self, count: u64) {
        if self.phase == Phase::WarmUp {
            self.missing += count;
            return;
        }
        self.tally.requests.scheduled += count;
        self.tally.requests.unsent += count;
    }

    /// A request is answered: the last byte came at `came`, and it may have lain there since
    /// `reported`, though not since before the request was sent; `None` where the kernel itself
    /// took the time.
    pub(crate) fn answered(&mut self, request: Request, answer: Answer, came: u64, reported: Option<u64>) {
        let response = came.saturating_sub(request.intended);
        let failed = answer.status >= 400;
        let outcome = if failed { Outcome::Status } else { Outcome::Ok };
        if request.counted {
            self.under_way -= 1;
            self.note_end(came);
            let tally = &mut self.tally;
            tally.statuses.count(answer.status);
            if failed {
                // Its time is not among those of the answers asked for: errors may be quick.
                self.shown.failed += 1;
                tally.requests.failed += 1;
                tally.errors.count(Cause::Status);
            } else {
                self.shown.completed += 1;
                self.shown.in_window += u64::from(self.phase == Phase::Window);
                tally.requests.completed += 1;
                tally.payload_bytes += answer.payload;
                tally.response.record_ns(response);
                if self.tells_transmission {
                    tally.transmission.record_ns(came.saturating_sub(request.sent));
                } else if self.keeps_service {
                    tally.service.record_ns(came.saturating_sub(request.sent));
                }
                if let Some(reported) = reported {
                    tally.receive_lag.record_ns(came.saturating_sub(reported.max(request.sent)));
                }
            }
            self.recorder.ended(response, outcome);
        }
        let is_success = !self.each || request.last;
        if let Some(sequence) = self.sequence_in_window(request.place).filter(|_| request.counted) {
            if failed {
                sequence.failed_requests += 1;
            } else {
                sequence.completed += 1;
                sequence.exchange_ns += came.saturating_sub(request.sent);
                // Where requests are not counted by connection, one answered makes it a success.
                sequence.success = is_success;
            }
        }
        self.log(request, answer.payload, came, response, outcome);
    }

    /// A request under way is lost.
    pub(crate) fn request_lost(&mut self, request: Request, cause: Cause, now: u64) {
        // A generator that finds a time-out late has waited for the answer no longer than that.
        let longest = if cause == Cause::Timeout { self.timeout } else { u64::MAX };
        let age = now.saturating_sub(request.intended).min(longest);
        if request.counted {
            self.under_way -= 1;
            self.note_end(now);
            self.shown.failed += 1;
            if cause != Cause::Connect {
                // Connects are counted as they fail, with a request under way or without.
                self.tally.errors.count(cause);
            }
            if cause == Cause::Timeout {
                self.tally.requests.timed_out += 1;
                self.tally.unanswered.record_ns(age);
            } else {
                self.tally.requests.failed += 1;
            }
            self.recorder.lost(Some(cause));
        }
        if let Some(sequence) = self.sequence_in_window(request.place).filter(|_| request.counted) {
            sequence.failed_requests += 1;
        }
        self.log(request, 0, now, age, Outcome::of(cause));
    }

    /// What became of a connection so far, where that is wanted and the window is open: what ends
    /// before or after it is no part of it.
    fn sequence_in_window(&mut self, place: usize) -> Option<&mut Sequence> {
        if self.phase == Phase::Window { self.recorder.sequence(place) } else { None }
    }

    fn note_end(&mut self, at: u64) {
        if self.shares_count && self.phase == Phase::Window {
            self.untold += 1;
            self.last_end = self.last_end.max(at);
        }
    }

    /// A connection that was up is lost, with the request on it if there is one.
    pub(crate) fn connection_lost(&mut self, place: usize, request: Option<Request>, cause: Cause, now: u64) {
        match request {
            Some(request) => self.request_lost(request, cause, now),
            None => self.connections.count_idle_loss(cause),
        }
        self.broken_off(place);
    }

    /// A connection's sequence is broken off.
    pub(crate) fn broken_off(&mut self, place: usize) {
        let each = self.each;
        if let Some(sequence) = self.sequence_in_window(place) {
            sequence.failed_sequences += 1;
            if each {
                sequence.exchange_ns = 0;
            }
        }
    }

    /// A connection is usable, this long after its connect call.
    pub(crate) fn established(&mut self, place: usize, first: bool, establishment: u64) {
        self.connections.establishment.record_ns(establishment);
        if first {
            self.connections.established += 1;
        } else {
            self.connections.reopened += 1;
        }
        if let Some(sequence) = self.recorder.sequence(place) {
            sequence.connect_ns = establishment;
        }
    }

    /// A connect failed, with this error number.
    pub(crate) fn connect_failed(&mut self, place: usize, number: i32) {
        self.connections.count_failure(number);
        self.tally.errors.count(Cause::Connect);
        self.recorder.connect_failed();
        if let Some(sequence) = self.recorder.sequence(place) {
            sequence.failed_connects += 1;
        }
    }

    /// A connection was given up, or could not be kept.
    pub(crate) fn given_up(&mut self) {
        self.connections.failed += 1;
    }

    /// A connection that is wanted can no longer be used.
    pub(crate) fn unusable(&mut self, now: u64) {
        self.note_unavailable(now);
        self.unusable += 1;
    }

    /// It can be used.
    pub(crate) fn usable(&mut self, now: u64) {
        self.note_unavailable(now);
        self.unusable = self.unusable.saturating_sub(1);
    }

    fn note_unavailable(&mut self, now: u64) {
        if self.phase == Phase::Window {
            let passed = now.saturating_sub(self.unusable_since);
            self.connections.unavailable_ns += passed * self.unusable;
            self.unusable_since = now.max(self.unusable_since);
        }
    }

    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.tally.bytes_sent += bytes as u64;
    }

    pub(crate) fn read(&mut self, bytes: usize) {
        self.tally.bytes_received += bytes as u64;
    }

    fn log(&mut self, request: Request, bytes: u64, at: u64, response_ns: u64, outcome: Outcome) {
        let phase = if request.counted { self.phase } else { Phase::WarmUp };
        self.recorder.log(request.place, Row { at, bytes, response_ns, phase, outcome, ..Row::default() });
    }
}

#[cfg(test)]
mod tests;
