//! The ledger in simulated time.

mod records;

use std::sync::mpsc::channel;
use std::time::Duration;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::tally::Errors;
use plimsoll_measure::times::Times;
use proptest::prelude::*;

use super::*;
use crate::config::tests::config;
use crate::config::{Pace, Phase as Start};
use crate::record::{Records, Second};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

fn closed() -> Config {
    config(Pace::Closed { think: Think::None, phase: Start::Spread })
}

fn open() -> Config {
    config(Pace::Open { rate: Rate::constant(100.0), spacing: Spacing::Fixed })
}

fn ledger(config: &Config) -> Ledger {
    let numbers = 0..config.connections as u32;
    Ledger::new(config, false, config.connections, Recorder::new(&config.records, 0, numbers))
}

fn request(intended: u64, sent: u64) -> Request {
    Request { place: 0, intended, sent, counted: true, last: false }
}

const ANSWER: Answer = Answer { payload: 64, status: 0 };

/// One request, begun at `sent` and answered at `came`.
fn carry(ledger: &mut Ledger, sent: u64, came: u64) {
    ledger.begun(sent);
    ledger.answered(request(sent, sent), ANSWER, came, Some(came));
}

#[test]
fn connects_that_fail_before_the_window_are_the_warm_ups_where_there_is_one() {
    for (warm_up, before, within) in [(Duration::ZERO, 0, 3), (Duration::from_secs(1), 2, 1)] {
        let mut ledger = ledger(&Config { warm_up, ..closed() });
        ledger.connect_failed(0, 111);
        ledger.connect_failed(1, 111);
        ledger.open(100, 0);
        ledger.connect_failed(0, 111);
        ledger.close(200, std::iter::empty());
        let books = ledger.finish();
        let counts = [books.warm_up.expect("a span before the window"), books.window].map(|span| span.errors.connect);
        assert_eq!(counts, [before, within], "{warm_up:?}");
    }
}

#[test]
fn a_request_belongs_to_the_span_in_which_it_ends() {
    let mut ledger = ledger(&closed());
    carry(&mut ledger, 10, 20);
    ledger.begun(30);
    ledger.open(100, 0);
    ledger.answered(request(30, 30), ANSWER, 130, Some(130));
    carry(&mut ledger, 140, 150);
    ledger.begun(160);
    ledger.close(200, [request(160, 160)].into_iter());
    ledger.answered(request(160, 160), ANSWER, 210, Some(210));
    let books = ledger.finish();
    let (warm_up, window) = (books.warm_up.expect("there was one").requests, books.window.requests);
    assert_eq!((warm_up.scheduled, warm_up.completed, warm_up.in_flight), (2, 1, 1));
    assert_eq!((window.scheduled, window.completed, window.in_flight), (3, 2, 1));
    assert!(warm_up.balance() && window.balance());
    assert_eq!((books.window.response.count(), books.ended_at, books.last_begun), (2, 200, 160));
}

#[test]
fn requests_beyond_a_count_that_are_under_way_as_the_window_opens_are_no_part_of_it() {
    let mut ledger = ledger(&closed());
    ledger.begun(10);
    ledger.begun(10);
    ledger.open(100, 1);
    ledger.answered(Request { counted: false, ..request(10, 10) }, ANSWER, 110, Some(110));
    ledger.answered(request(10, 10), ANSWER, 120, Some(120));
    ledger.close(200, std::iter::empty());
    let books = ledger.finish();
    assert_eq!(books.warm_up.expect("there was one").requests.in_flight, 2);
    let window = books.window.requests;
    assert_eq!((window.scheduled, window.completed), (1, 1));
    assert_eq!(books.window.response.count(), 1);
}

#[test]
fn requests_of_a_count_are_told_as_they_end_in_the_window() {
    let count = |stop_condition| Config { stop_condition, timeout: Duration::from_nanos(100), ..open() };
    let mut ledger = ledger(&count(StopCondition::Requests(9)));
    carry(&mut ledger, 10, 20);
    ledger.begun(30);
    ledger.begun(30);
    ledger.open(100, 1);
    assert_eq!(ledger.take_ended(), None, "the warm-up's is no part of the count");
    ledger.answered(Request { counted: false, ..request(30, 30) }, ANSWER, 110, Some(110));
    assert_eq!(ledger.take_ended(), None, "nor is one that exceeds it");
    ledger.answered(request(30, 30), ANSWER, 120, Some(120));
    ledger.begun(130);
    ledger.connection_lost(0, Some(request(130, 130)), Cause::Closed, 150);
    assert_eq!(ledger.take_ended(), Some((2, 150)));
    ledger.expired(140, 240, 240, 0);
    assert_eq!((ledger.take_ended(), ledger.take_ended()), (Some((1, 240)), None));
    for other in [StopCondition::Each(9), StopCondition::Time(Duration::from_secs(1))] {
        let mut ledger = self::ledger(&count(other));
        ledger.open(0, 0);
        carry(&mut ledger, 10, 20);
        assert_eq!(ledger.take_ended(), None, "{other:?}");
    }
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_an_empty_window() {
    let mut ledger = ledger(&closed());
    carry(&mut ledger, 10, 20);
    ledger.close(30, std::iter::empty());
    let books = ledger.finish();
    assert_eq!(books.warm_up.expect("there was one").requests.completed, 1);
    assert_eq!(books.window.requests, plimsoll_measure::tally::Requests::default());
}

#[test]
fn every_lost_request_has_its_cause_and_an_idle_connection_that_ends_has_none() {
    let mut ledger = ledger(&closed());
    ledger.open(0, 0);
    for cause in [Cause::Read, Cause::Write, Cause::Closed, Cause::Mismatch, Cause::Timeout] {
        ledger.begun(10);
        ledger.connection_lost(0, Some(request(10, 10)), cause, 20);
    }
    ledger.connection_lost(0, None, Cause::Closed, 30);
    ledger.connection_lost(0, None, Cause::Read, 30);
    ledger.close(100, std::iter::empty());
    let books = ledger.finish();
    let (errors, requests) = (books.window.errors, books.window.requests);
    assert_eq!((requests.failed, requests.timed_out), (4, 1));
    assert_eq!([errors.read, errors.write, errors.closed, errors.mismatch, errors.timeout], [1; 5]);
    assert_eq!(books.connections.ended_idle, 2);
    assert!(requests.balance());
}

#[test]
fn the_waits_between_intended_start_and_send_are_never_mixed() {
    let mut ledger = ledger(&open());
    ledger.open(0, 0);
    // Due at 10 ms; a connection is free at 40 ms, of which back-off took 20; sent at 45 ms;
    // answered at 50 ms.
    ledger.waited(30 * MILLISECOND, 20 * MILLISECOND);
    ledger.begun(45 * MILLISECOND);
    ledger.sent(40 * MILLISECOND, 45 * MILLISECOND);
    ledger.answered(request(10 * MILLISECOND, 45 * MILLISECOND), ANSWER, 50 * MILLISECOND, Some(49 * MILLISECOND));
    ledger.close(SECOND, std::iter::empty());
    let window = ledger.finish().window;
    let sets = [&window.pool_wait, &window.backoff_wait, &window.schedule_lag, &window.service, &window.receive_lag];
    assert_eq!(sets.map(|times| times.summary().max), [10_000.0, 20_000.0, 5_000.0, 5_000.0, 1_000.0]);
    assert_eq!(window.response.summary().max, 40_000.0);
}

#[test]
fn an_open_loops_unsent_requests_time_out_by_their_age() {
    let mut ledger = ledger(&Config { timeout: Duration::from_secs(1), ..open() });
    ledger.open(0, 0);
    ledger.expired(0, 2 * SECOND, 2 * SECOND, SECOND);
    ledger.overdue(SECOND, 2 * SECOND, 2 * SECOND, SECOND / 4);
    ledger.overdue(SECOND + 1, 2 * SECOND, 2 * SECOND, 0);
    // The generator was late for it by half a second.
    ledger.overdue(3 * SECOND / 2, 3 * SECOND / 2, 2 * SECOND, 0);
    ledger.close(2 * SECOND, std::iter::empty());
    let window = ledger.finish().window;
    assert_eq!((window.requests.timed_out, window.requests.unsent, window.errors.timeout), (2, 2, 2));
    assert!(window.requests.balance());
    assert_eq!((window.unanswered.count(), window.schedule_lag.count()), (4, 1));
    assert_eq!(window.schedule_lag.summary().max, 500_000.0);
    let sum_us = |times: &Times| times.summary().mean * times.count() as f64;
    let waits = [&window.pool_wait, &window.backoff_wait].map(sum_us);
    assert_eq!(waits.map(f64::round), [1_750_000.0, 1_250_000.0]);
}

#[test]
fn unavailable_time_is_that_of_wanted_connections_within_the_window() {
    let mut ledger = ledger(&Config { connections: 2, ..closed() });
    ledger.usable(50);
    ledger.open(100, 0);
    ledger.usable(130);
    ledger.unusable(150);
    ledger.usable(160);
    ledger.unusable(190);
    ledger.close(200, std::iter::empty());
    ledger.unusable(300);
    let books = ledger.finish();
    assert_eq!((books.connections.unavailable_ns, books.unusable), (30 + 10 + 10, 1));
}

#[test]
fn a_request_that_times_out_was_late_until_then_whenever_it_is_found() {
    let mut ledger = ledger(&Config { timeout: Duration::from_secs(1), ..open() });
    ledger.open(0, 0);
    // A connection was free before it fell due; and a quarter of its time after.
    ledger.expired(2 * SECOND, SECOND, 9 * SECOND, 0);
    ledger.expired(2 * SECOND, 9 * SECOND / 4, 9 * SECOND, 0);
    ledger.close(9 * SECOND, std::iter::empty());
    let lag = ledger.finish().window.schedule_lag.summary();
    assert_eq!([lag.max, 2.0 * lag.mean].map(f64::round), [1_000_000.0, 1_750_000.0]);
}

#[test]
fn a_request_that_times_out_has_the_age_of_its_time_out_whenever_it_is_found() {
    let (rows, log) = channel();
    let records = Records { requests: Some(rows), ..Records::default() };
    let mut ledger = ledger(&Config { timeout: Duration::from_secs(1), records, ..closed() });
    ledger.open(0, 0);
    ledger.begun(SECOND);
    ledger.request_lost(request(SECOND, SECOND), Cause::Timeout, 9 * SECOND);
    ledger.close(9 * SECOND, std::iter::empty());
    assert_eq!(ledger.finish().window.unanswered.summary().max, 1_000_000.0);
    let logged: Vec<_> = log.iter().flatten().map(|row| (row.at, row.response_ns)).collect();
    assert_eq!(logged, [(9 * SECOND, SECOND)]);
}

#[test]
fn a_sequence_is_a_success_once_its_last_request_is_answered() {
    let records = Records { connections: true, ..Records::default() };
    let mut ledger = ledger(&Config { stop_condition: StopCondition::Each(2), records, ..closed() });
    ledger.open(0, 0);
    ledger.established(0, true, 7);
    for last in [false, true] {
        ledger.begun(10);
        ledger.answered(Request { last, ..request(10, 12) }, ANSWER, 20, Some(20));
    }
    ledger.begun(30);
    ledger.connection_lost(1, Some(Request { place: 1, ..request(30, 30) }), Cause::Read, 40);
    ledger.expired(10, 45, 45, 0);
    ledger.missed(2);
    ledger.close(50, std::iter::empty());
    let sequences = ledger.finish().sequences;
    let (whole, broken, late) = (sequences[0], sequences[1], sequences[2]);
    assert_eq!((late.success, late.failed_requests, late.failed_sequences), (false, 1, 0));
    assert_eq!((whole.success, whole.completed, whole.connect_ns, whole.exchange_ns), (true, 2, 7, 16));
    assert_eq!((broken.success, broken.failed_requests, broken.failed_sequences), (false, 1, 1));
}

#[test]
fn what_was_exchanged_before_the_window_is_none_of_a_sequence() {
    let records = Records { connections: true, ..Records::default() };
    let mut ledger = ledger(&Config { stop_condition: StopCondition::Each(2), records, ..closed() });
    carry(&mut ledger, 10, 90);
    ledger.begun(95);
    ledger.open(100, 0);
    ledger.answered(request(95, 95), ANSWER, 105, None);
    ledger.begun(110);
    ledger.answered(Request { last: true, ..request(110, 110) }, ANSWER, 117, None);
    ledger.close(120, std::iter::empty());
    let sequence = ledger.finish().sequences[0];
    assert_eq!((sequence.success, sequence.completed, sequence.exchange_ns), (true, 2, 17));
}

#[test]
fn connections_bytes_and_what_is_never_sent_are_counted_as_they_are_told() {
    let mut ledger = ledger(&open());
    ledger.open(0, 0);
    ledger.established(0, true, 5 * MILLISECOND);
    ledger.established(0, false, 7 * MILLISECOND);
    ledger.established(1, false, 7 * MILLISECOND);
    ledger.connect_failed(0, 111);
    ledger.connect_failed(0, 111);
    ledger.given_up();
    ledger.wrote(10);
    ledger.wrote(5);
    ledger.read(7);
    ledger.read(8);
    ledger.begun(20 * MILLISECOND);
    ledger.close(100 * MILLISECOND, [request(20 * MILLISECOND, 20 * MILLISECOND)].into_iter());
    let Books { connections, window, .. } = ledger.finish();
    assert_eq!((connections.established, connections.reopened, connections.failed), (1, 2, 1));
    assert_eq!((connections.establishment.count(), connections.main_cause()), (3, Some(111)));
    assert_eq!((window.errors.connect, window.bytes_sent, window.bytes_received, window.sent), (2, 15, 15, 1));
    assert_eq!(window.unanswered.summary().max, 80_000.0, "in flight, at its age");
}

#[test]
fn what_a_count_asks_for_and_is_never_sent_is_the_windows_though_it_was_known_before() {
    for opened in [true, false] {
        let mut ledger = ledger(&Config { stop_condition: StopCondition::Each(8), ..closed() });
        carry(&mut ledger, 10, 20);
        ledger.never_sent(8);
        if opened {
            ledger.open(100, 0);
        }
        ledger.close(200, std::iter::empty());
        let books = ledger.finish();
        let (warm_up, window) = (books.warm_up.expect("there was one").requests, books.window.requests);
        assert_eq!((warm_up.scheduled, warm_up.unsent), (1, 0));
        assert_eq!((window.scheduled, window.unsent), (8, 8));
        assert!(warm_up.balance() && window.balance());
    }
}

#[test]
fn a_request_that_was_due_before_the_end_and_is_sent_after_it_is_in_flight_with_its_lag() {
    let mut ledger = ledger(&open());
    ledger.open(0, 0);
    let (due, end, sent) = (99 * MILLISECOND, 100 * MILLISECOND, 104 * MILLISECOND);
    ledger.waited(0, 0);
    ledger.begun(sent);
    ledger.sent(due, sent);
    ledger.close(end, [request(due, sent)].into_iter());
    let window = ledger.finish().window;
    assert_eq!((window.requests.in_flight, window.requests.unsent, window.sent), (1, 0, 1));
    assert!(window.requests.balance());
    let max = [&window.schedule_lag, &window.unanswered].map(|times| times.summary().max);
    assert_eq!(max, [5_000.0, 1_000.0], "late by what it was, and as old as the window let it become");
}

#[test]
fn progress_is_of_the_whole_run_and_of_a_count_it_is_of_the_window() {
    let mut ledger = ledger(&open());
    carry(&mut ledger, 10, 20);
    assert_eq!(ledger.shown(), Shown { completed: 1, failed: 0, in_window: 0 });
    ledger.open(100, 0);
    carry(&mut ledger, 110, 120);
    ledger.begun(130);
    ledger.answered(request(130, 130), Answer { payload: 0, status: 500 }, 140, None);
    ledger.begun(150);
    ledger.connection_lost(0, Some(request(150, 150)), Cause::Read, 160);
    ledger.expired(0, 170, 170, 0);
    assert_eq!(ledger.shown(), Shown { completed: 2, failed: 3, in_window: 1 });
    ledger.close(200, std::iter::empty());
    carry(&mut ledger, 210, 220);
    assert_eq!(ledger.shown(), Shown { completed: 3, failed: 3, in_window: 1 }, "as the window closes it is no less");
}

#[test]
fn an_answer_fails_from_status_400_on() {
    let mut ledger = ledger(&closed());
    ledger.open(0, 0);
    for status in [0, 200, 399, 400, 599] {
        ledger.begun(10);
        ledger.answered(request(10, 10), Answer { payload: 1, status }, 20, None);
    }
    ledger.close(100, std::iter::empty());
    let window = ledger.finish().window;
    assert_eq!((window.requests.completed, window.requests.failed, window.errors.status), (3, 2, 2));
    assert_eq!((window.response.count(), window.payload_bytes), (3, 3), "errors are in neither");
}

#[test]
fn each_set_of_times_holds_only_what_the_run_can_tell_apart() {
    let reconnect = crate::config::Opening { reconnect: true, ..closed().opening };
    for (config, transmits, [lag, service, transmission]) in [
        (closed(), false, [0, 0, 0]),
        (Config { opening: reconnect, ..closed() }, false, [0, 1, 0]),
        (open(), false, [1, 1, 0]),
        (open(), true, [1, 0, 1]),
    ] {
        let recorder = Recorder::new(&config.records, 0, 0..1);
        let mut ledger = Ledger::new(&config, transmits, 1, recorder);
        ledger.open(0, 0);
        ledger.waited(5, 0);
        ledger.begun(10);
        ledger.sent(10, 12);
        // The kernel took the time, so that nothing was late in taking it.
        ledger.answered(request(10, 12), ANSWER, 20, None);
        ledger.close(100, std::iter::empty());
        let window = ledger.finish().window;
        let sets = [&window.schedule_lag, &window.service, &window.transmission];
        assert_eq!(sets.map(plimsoll_measure::times::Times::count), [lag, service, transmission]);
        let waits = [&window.pool_wait, &window.backoff_wait, &window.receive_lag];
        assert_eq!(waits.map(plimsoll_measure::times::Times::count), [1, 0, 0]);
    }
}

#[test]
fn no_answer_waits_for_longer_than_its_request_is_on_its_way() {
    for (reported, longest) in [(18, 2), (12, 8), (3, 8)] {
        let mut ledger = ledger(&closed());
        ledger.open(0, 0);
        ledger.begun(10);
        ledger.answered(request(10, 12), ANSWER, 20, Some(reported));
        ledger.close(100, std::iter::empty());
        assert_eq!(ledger.finish().window.receive_lag.quantile_ns(1.0), longest);
    }
}

#[test]
fn a_sequence_is_none_before_its_last_answer_and_counts_its_failures() {
    let records = Records { connections: true, ..Records::default() };
    for (stop_condition, success) in [(StopCondition::Each(3), false), (StopCondition::Requests(3), true)] {
        let mut ledger = ledger(&Config { stop_condition, records: records.clone(), ..closed() });
        ledger.open(0, 0);
        ledger.begun(10);
        ledger.answered(request(10, 10), ANSWER, 20, None);
        for _ in 0..2 {
            ledger.begun(30);
            ledger.answered(request(30, 30), Answer { payload: 0, status: 404 }, 40, None);
        }
        ledger.connect_failed(0, 111);
        ledger.close(50, std::iter::empty());
        let sequence = ledger.finish().sequences[0];
        assert_eq!((sequence.success, sequence.failed_requests, sequence.failed_connects), (success, 2, 1));
    }
}

proptest! {
    /// Whatever happens, and wherever the window lies in it, each span accounts for every request.
    #[test]
    fn every_request_is_accounted_for_in_every_span(
        steps in prop::collection::vec(0_u8..8, 0..200),
        opens in 0_usize..100,
        closes in 100_usize..200,
    ) {
        let mut ledger = ledger(&open());
        let mut under_way = Vec::new();
        for (step, number) in steps.into_iter().zip(0_usize..) {
            let now = number as u64 * 1000;
            if number == opens {
                ledger.open(now, 0);
            }
            if number == closes {
                ledger.close(now, under_way.clone().into_iter());
            }
            match (step, under_way.is_empty()) {
                (0..4, _) => {
                    ledger.begun(now);
                    under_way.push(request(now, now));
                }
                (4, _) if ledger.phase() != Phase::Drain => ledger.expired(now, now, now, 0),
                (_, true) => {}
                (5, _) => ledger.answered(under_way.remove(0), ANSWER, now, None),
                (6, _) => ledger.answered(under_way.remove(0), Answer { payload: 0, status: 500 }, now, None),
                _ => ledger.connection_lost(0, Some(under_way.remove(0)), Cause::Read, now),
            }
        }
        if ledger.phase() != Phase::Drain {
            ledger.close(1 << 40, under_way.into_iter());
        }
        let books = ledger.finish();
        prop_assert!(books.window.requests.balance(), "{:?}", books.window.requests);
        let errors = books.window.errors;
        prop_assert_eq!(books.window.requests.failed, errors.read + errors.status);
        prop_assert!(books.warm_up.is_some_and(|warm_up| warm_up.requests.balance()));
    }
}
