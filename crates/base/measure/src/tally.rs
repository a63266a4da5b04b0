//! What one event loop counts, and how several loops' counts become one.

use serde::{Deserialize, Serialize};

use crate::statuses::Statuses;
use crate::times::Times;

/// Why a request failed or a connection was lost. Its number is its place in [`Errors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection could not be established.
    Connect,
    /// Reading failed: the connection was reset, most often.
    Read,
    /// Writing failed.
    Write,
    /// No answer within the time-out.
    Timeout,
    /// The answer was not what it had to be.
    Mismatch,
    /// The server ended the connection.
    Closed,
    /// The answer had an error status.
    Status,
}

/// Errors by cause: the causes of failed requests, and connects that failed. A connection that ends
/// while no request is under way is no error: [`Connections::ended_idle`] counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Connects that failed.
    pub connect: u64,
    /// Reads that failed.
    pub read: u64,
    /// Writes that failed.
    pub write: u64,
    /// Requests without an answer in time.
    pub timeout: u64,
    /// Wrong answers.
    pub mismatch: u64,
    /// Connections that the server ended while a request was under way.
    pub closed: u64,
    /// Answers with an error status.
    pub status: u64,
}

impl Errors {
    /// Counts one more.
    pub fn count(&mut self, cause: Cause) {
        *self.place(cause) += 1;
    }

    fn place(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Connect => &mut self.connect,
            Cause::Read => &mut self.read,
            Cause::Write => &mut self.write,
            Cause::Timeout => &mut self.timeout,
            Cause::Mismatch => &mut self.mismatch,
            Cause::Closed => &mut self.closed,
            Cause::Status => &mut self.status,
        }
    }

    /// Those that a connection ended with, or did not come up for: all but answers with an error
    /// status.
    pub fn of_connections(&self) -> u64 {
        self.connect + self.read + self.write + self.timeout + self.mismatch + self.closed
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Errors) {
        self.connect += other.connect;
        self.read += other.read;
        self.write += other.write;
        self.timeout += other.timeout;
        self.mismatch += other.mismatch;
        self.closed += other.closed;
        self.status += other.status;
    }
}

/// What became of the requests. `scheduled` is counted as requests fall due, the others as they
/// end, so that their sum is a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Due: under way when the span began, or due within it.
    pub scheduled: u64,
    /// Answered, wholly and rightly.
    pub completed: u64,
    /// Begun and lost.
    pub failed: u64,
    /// Not answered within the time-out.
    pub timed_out: u64,
    /// Still under way when the span ended.
    pub in_flight: u64,
    /// Due and never sent.
    pub unsent: u64,
}

impl Requests {
    /// Whether every scheduled request is accounted for.
    pub fn balance(&self) -> bool {
        let ends = [self.completed, self.failed, self.timed_out, self.in_flight, self.unsent];
        ends.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) == Some(self.scheduled)
    }

    /// Those that failed, timed out or were never sent, of all that were due and are not still
    /// under way.
    pub fn failed_ratio(&self) -> f64 {
        let ended = self.scheduled - self.in_flight;
        let lost = self.failed + self.timed_out + self.unsent;
        if ended > 0 { lost as f64 / ended as f64 } else { 0.0 }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Requests) {
        self.scheduled += other.scheduled;
        self.completed += other.completed;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.in_flight += other.in_flight;
        self.unsent += other.unsent;
    }
}

/// Everything counted over one span of a run: the warm-up, or the window.
///
/// A request belongs to the span in which it *ends*. A request under way at a boundary is in flight
/// in the span before, and scheduled in the span after. So a rate counts what was completed within
/// the span, whenever it began, and long requests are neither favoured nor lost.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What became of the requests.
    pub requests: Requests,
    /// Of those, the ones begun within the span: they were sent, or a connection was opened for
    /// them.
    pub sent: u64,
    /// Errors by cause.
    pub errors: Errors,
    /// Payload bytes of completed requests that came back from the server.
    pub payload_bytes: u64,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
    /// Bytes read from sockets.
    pub bytes_received: u64,
    /// Intended start to last byte.
    pub response: Times,
    /// Actual send to last byte; kept apart only where the two can differ.
    pub service: Times,
    /// Open loop: intended start until a connection was free.
    pub pool_wait: Times,
    /// Open loop: the part of that wait that is due to connections which waited to be opened again.
    pub backoff_wait: Times,
    /// Actual send minus the later of intended start and connection free.
    pub schedule_lag: Times,
    /// Since an answer may have been there until the generator took its time: by how much a time
    /// may be too long for the generator's own work.
    pub receive_lag: Times,
    /// Request sent to last byte of the answer, where the protocol has requests and answers.
    pub transmission: Times,
    /// Ages of the requests that timed out or never got an answer in the span.
    pub unanswered: Times,
    /// Answers by their status code, where the protocol has one.
    pub statuses: Statuses,
}

impl Tally {
    /// Adds what another loop counted over the same span.
    pub fn add(&mut self, other: &Tally) {
        self.requests.add(&other.requests);
        self.sent += other.sent;
        self.errors.add(&other.errors);
        self.payload_bytes += other.payload_bytes;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.response.add(&other.response);
        self.service.add(&other.service);
        self.pool_wait.add(&other.pool_wait);
        self.backoff_wait.add(&other.backoff_wait);
        self.schedule_lag.add(&other.schedule_lag);
        self.receive_lag.add(&other.receive_lag);
        self.transmission.add(&other.transmission);
        self.unanswered.add(&other.unanswered);
        self.statuses.add(&other.statuses);
    }

    /// Response times with those of unanswered requests at the age they had reached, and how many
    /// those are.
    ///
    /// An age says only that the answer took at least that long. An age below the median of the
    /// answered requests says that the request was young, not that it was fast, and would draw the
    /// percentiles down. So only ages from the median up enter.
    pub fn response_with_unanswered(&self) -> (Times, u64) {
        with_unanswered(&self.response, &self.unanswered)
    }
}

/// The rule of [`Tally::response_with_unanswered`]. It holds for all answers together, so records
/// are merged before it is applied.
pub(crate) fn with_unanswered(answered: &Times, unanswered: &Times) -> (Times, u64) {
    let mut all = answered.clone();
    let added = all.add_from(unanswered, answered.quantile_ns(0.5));
    (all, added)
}

/// What became of the connections, over the whole run.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// Those of the connections asked for that were up at least once.
    pub established: u64,
    /// Those that could not be established, or were lost and not replaced.
    pub failed: u64,
    /// Connections opened again: in place of lost ones, and of those that ended with their answer
    /// as agreed.
    pub reopened: u64,
    /// Connections that ended while no request was under way on them.
    pub ended_idle: u64,
    /// Of those, the connections on which the server sent bytes that answer no request.
    pub unrequested: u64,
    /// Connection time in the window, in nanoseconds, during which a connection was wanted and
    /// could not be used.
    pub unavailable_ns: u64,
    /// Causes of failed connects: the error's number (errno(3)) and how often it came.
    pub causes: Vec<(i32, u64)>,
    /// Connect call until usable.
    pub establishment: Times,
}

impl Connections {
    /// Counts a failed connect by its error's number.
    pub fn count_failure(&mut self, number: i32) {
        self.add_cause(number, 1);
    }

    /// Counts a connection that was lost while no request was under way on it.
    pub fn count_idle_loss(&mut self, cause: Cause) {
        self.ended_idle += 1;
        self.unrequested += u64::from(cause == Cause::Mismatch);
    }

    /// Adds what another loop counted.
    pub fn add(&mut self, other: &Connections) {
        self.established += other.established;
        self.failed += other.failed;
        self.reopened += other.reopened;
        self.ended_idle += other.ended_idle;
        self.unavailable_ns += other.unavailable_ns;
        self.unrequested += other.unrequested;
        for (number, count) in &other.causes {
            self.add_cause(*number, *count);
        }
        self.establishment.add(&other.establishment);
    }

    /// The commonest cause of failure.
    pub fn main_cause(&self) -> Option<i32> {
        self.causes.iter().max_by_key(|(_, count)| *count).map(|(number, _)| *number)
    }

    fn add_cause(&mut self, number: i32, count: u64) {
        match self.causes.iter_mut().find(|(known, _)| *known == number) {
            Some((_, total)) => *total += count,
            None => self.causes.push((number, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::TimesSummary;
    use proptest::prelude::*;

    #[test]
    fn ages_below_the_median_do_not_draw_the_percentiles_down() {
        let mut tally = Tally::default();
        for _ in 0..10 {
            tally.response.record_ns(1_000);
            tally.unanswered.record_ns(10);
        }
        tally.unanswered.record_ns(1_000_000_000);
        tally.unanswered.record_ns(1_000_000_000);
        let (all, unanswered) = tally.response_with_unanswered();
        assert_eq!((all.count(), unanswered, all.quantile_ns(0.5)), (12, 2, 1_000));
        let TimesSummary { mean, stdev, max, .. } = all.summary();
        assert_eq!(max, 1e6);
        // Ten of a microsecond and two of a second.
        assert!((mean - 2_000_010.0 / 12.0).abs() < 1e-6 && (stdev - 389_249.083).abs() < 1e-3, "{mean} {stdev}");
    }

    #[test]
    fn with_no_answer_at_all_every_age_counts() {
        let mut tally = Tally::default();
        tally.unanswered.record_ns(5_000_000);
        assert_eq!(tally.response_with_unanswered().1, 1);
    }

    #[test]
    fn each_cause_has_its_own_count() {
        let causes =
            [Cause::Connect, Cause::Read, Cause::Write, Cause::Timeout, Cause::Mismatch, Cause::Closed, Cause::Status];
        let mut errors = Errors::default();
        for (cause, times) in causes.into_iter().zip(1..) {
            (0..times).for_each(|_| errors.count(cause));
        }
        let all = |errors: Errors| {
            let Errors { connect, read, write, timeout, mismatch, closed, status } = errors;
            [connect, read, write, timeout, mismatch, closed, status]
        };
        assert_eq!(all(errors), [1, 2, 3, 4, 5, 6, 7]);
        let other = errors;
        errors.add(&other);
        errors.add(&other);
        assert_eq!(all(errors), [3, 6, 9, 12, 15, 18, 21]);
    }

    #[test]
    fn the_failed_are_a_share_of_those_that_have_ended() {
        let requests = Requests { scheduled: 31, completed: 16, failed: 1, timed_out: 2, in_flight: 8, unsent: 4 };
        assert!(requests.balance());
        assert_eq!(requests.failed_ratio(), 7.0 / 23.0);
        assert_eq!(Requests::default().failed_ratio(), 0.0);
        assert_eq!(Requests { scheduled: 1, in_flight: 1, ..Requests::default() }.failed_ratio(), 0.0);
    }

    #[test]
    fn what_two_loops_counted_is_added() {
        let mut one = Tally { sent: 1, payload_bytes: 2, bytes_sent: 4, bytes_received: 8, ..Tally::default() };
        one.errors.count(Cause::Read);
        let times = |tally: &mut Tally, longer: u64| {
            let Tally { response, service, pool_wait, backoff_wait, schedule_lag, receive_lag, .. } = tally;
            let all = [response, service, pool_wait, backoff_wait, schedule_lag, receive_lag];
            all.into_iter()
                .chain([&mut tally.transmission, &mut tally.unanswered])
                .zip(longer..)
                .for_each(|(times, microseconds)| times.record(std::time::Duration::from_micros(microseconds)));
        };
        let mut other = one.clone();
        times(&mut one, 10);
        times(&mut other, 20);
        other.statuses.count(404);
        one.add(&other);
        let sums = [one.sent, one.payload_bytes, one.bytes_sent, one.bytes_received, one.errors.read];
        assert_eq!(sums, [2, 4, 8, 16, 2]);
        let Tally { response, service, pool_wait, backoff_wait, schedule_lag, receive_lag, .. } = &one;
        let all = [response, service, pool_wait, backoff_wait, schedule_lag, receive_lag];
        for (times, place) in all.into_iter().chain([&one.transmission, &one.unanswered]).zip(0_u32..) {
            let summary = times.summary();
            let (min, max) = (f64::from(10 + place), f64::from(20 + place));
            assert_eq!((summary.count, summary.min, summary.max), (2, min, max));
        }
        assert_eq!(one.statuses.by_code()["404"], 1);
    }

    #[test]
    fn what_became_of_connections_is_added_and_the_commonest_cause_known() {
        let mut one =
            Connections { established: 1, failed: 3, reopened: 4, unavailable_ns: 8, ..Connections::default() };
        assert_eq!(one.main_cause(), None);
        for cause in [Cause::Closed, Cause::Mismatch, Cause::Closed] {
            one.count_idle_loss(cause);
        }
        for number in [111, 110, 110] {
            one.count_failure(number);
        }
        one.establishment.record_ns(1);
        let mut both = one.clone();
        both.add(&one);
        let Connections { established, failed, reopened, ended_idle, unrequested, unavailable_ns, .. } = both;
        let counts = [established, failed, reopened, ended_idle, unrequested, unavailable_ns];
        assert_eq!(counts, [2, 6, 8, 6, 2, 16]);
        assert_eq!((both.causes.clone(), both.main_cause()), (vec![(111, 2), (110, 4)], Some(110)));
        assert_eq!(both.establishment.count(), 2);
    }

    fn requests() -> impl Strategy<Value = Requests> {
        prop::array::uniform5(0_u64..1 << 40).prop_map(|[completed, failed, timed_out, in_flight, unsent]| Requests {
            scheduled: completed + failed + timed_out + in_flight + unsent,
            completed,
            failed,
            timed_out,
            in_flight,
            unsent,
        })
    }

    proptest! {
        #[test]
        fn what_balances_apart_balances_together(parts in prop::collection::vec(requests(), 0..20)) {
            let mut whole = Requests::default();
            for part in &parts {
                whole.add(part);
            }
            prop_assert!(whole.balance());
            prop_assert_eq!(whole.scheduled, parts.iter().map(|part| part.scheduled).sum::<u64>());
        }

        #[test]
        fn causes_add_up_in_any_order(
            numbers in prop::collection::vec(0_i32..5, 0..100),
            cut in any::<prop::sample::Index>(),
        ) {
            let (left, right) = numbers.split_at(cut.index(numbers.len() + 1));
            let count = |numbers: &[i32]| {
                let mut connections = Connections::default();
                numbers.iter().for_each(|number| connections.count_failure(*number));
                connections
            };
            let mut merged = count(right);
            merged.add(&count(left));
            let mut causes = merged.causes.clone();
            causes.sort_unstable();
            let mut want = count(&numbers).causes;
            want.sort_unstable();
            prop_assert_eq!(causes, want);
        }
    }
}
