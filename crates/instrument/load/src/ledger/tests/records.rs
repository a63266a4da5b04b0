//! What the ledger writes to the records of a run: rows a request, and parts of seconds.

use super::*;

#[test]
fn rows_say_the_phase_and_how_a_request_ended_and_leave_each_second() {
    let (rows, received) = channel();
    let records = Records { requests: Some(rows), ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    carry(&mut ledger, 10, 20);
    ledger.open(100, 0);
    ledger.begun(110);
    ledger.connection_lost(0, Some(request(110, 110)), Cause::Timeout, 310);
    ledger.begun(320);
    ledger.answered(request(320, 320), Answer { payload: 5, status: 404 }, 330, Some(330));
    assert_eq!(ledger.next_record(), Some(SECOND));
    ledger.record(SECOND - 1);
    assert!(received.try_recv().is_err());
    ledger.record(SECOND);
    let told: Vec<_> = received.try_recv().expect("a second is over").into_iter().collect();
    let told: Vec<_> =
        told.iter().map(|row| (row.at, row.phase, row.outcome, row.request, row.bytes, row.response_ns)).collect();
    let expected = [
        (20, Phase::WarmUp, Outcome::Ok, 1, 64, 10),
        (310, Phase::Window, Outcome::Timeout, 2, 0, 200),
        (330, Phase::Window, Outcome::Status, 3, 5, 10),
    ];
    assert_eq!(told, expected);
}

#[test]
fn records_are_by_the_wall_clock_as_it_was_when_requests_could_begin() {
    let (rows, requests) = channel();
    let (seconds, parts) = channel();
    let records = Records { requests: Some(rows), seconds: Some(seconds), ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    ledger.record(SECOND);
    ledger.follow_clock(60 * SECOND);
    carry(&mut ledger, SECOND + 10, SECOND + 20);
    ledger.record(2 * SECOND);
    let at: Vec<_> = requests.try_recv().expect("a second is over").into_iter().map(|row| row.at).collect();
    assert_eq!(at, [61 * SECOND + 20]);
    let told: Vec<_> = parts.try_iter().map(|second| (second.began, second.from, second.to)).collect();
    assert_eq!(told, [(0, 0, SECOND), (61 * SECOND, 61 * SECOND, 62 * SECOND)]);
}

#[test]
fn a_second_is_split_where_a_phase_ends() {
    let (seconds, received) = channel();
    let records = Records { seconds: Some(seconds), ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    carry(&mut ledger, 10, 20);
    ledger.open(SECOND / 2, 0);
    carry(&mut ledger, SECOND / 2, SECOND - 1);
    ledger.record(SECOND);
    carry(&mut ledger, SECOND, SECOND + 1);
    ledger.close(SECOND + 2, std::iter::empty());
    ledger.finish();
    let told: Vec<Second> = received.iter().collect();
    let counts: Vec<_> = told.iter().map(|second| (second.number, second.phase, second.completed)).collect();
    assert_eq!(counts, [(0, Phase::WarmUp, 1), (0, Phase::Window, 1), (1, Phase::Window, 1)]);
    let covered: Vec<_> = told.iter().map(|second| (second.from, second.to)).collect();
    assert_eq!(covered, [(0, SECOND / 2), (SECOND / 2, SECOND), (SECOND, SECOND + 2)]);
}

#[test]
fn a_second_that_was_over_before_the_window_opened_has_no_part_in_it() {
    let (seconds, received) = channel();
    let records = Records { seconds: Some(seconds), ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    carry(&mut ledger, 10, 20);
    // One wake-up for the end of the second and for the window.
    ledger.open(SECOND + 2, 0);
    ledger.record(SECOND + 3);
    carry(&mut ledger, SECOND + 4, SECOND + 5);
    ledger.close(SECOND + 6, std::iter::empty());
    ledger.finish();
    let told: Vec<_> = received.iter().map(|second| (second.number, second.phase, second.completed)).collect();
    assert_eq!(told, [(0, Phase::WarmUp, 1), (1, Phase::WarmUp, 0), (1, Phase::Window, 1)]);
}

#[test]
fn each_second_has_the_errors_of_the_summary() {
    let (seconds, received) = channel();
    let records = Records { seconds: Some(seconds), ..Records::default() };
    let mut ledger = ledger(&Config { records, timeout: Duration::from_secs(1), ..open() });
    ledger.open(0, 0);
    // One connect fails without a request that waits for it, and one with.
    ledger.connect_failed(0, 111);
    ledger.begun(10);
    ledger.connect_failed(0, 111);
    ledger.request_lost(request(10, 10), Cause::Connect, 20);
    ledger.record(SECOND);
    for cause in [Cause::Read, Cause::Timeout] {
        ledger.begun(SECOND);
        ledger.request_lost(request(SECOND, SECOND), cause, SECOND + 1);
    }
    ledger.begun(SECOND);
    ledger.answered(request(SECOND, SECOND), Answer { payload: 5, status: 503 }, SECOND + 1, None);
    ledger.expired(0, SECOND + 2, SECOND + 2, 0);
    ledger.overdue(SECOND, 2 * SECOND, 2 * SECOND, 0);
    ledger.overdue(SECOND + 1, 2 * SECOND, 2 * SECOND, 0);
    ledger.close(2 * SECOND, std::iter::empty());
    let window = ledger.finish().window;
    let told: Vec<_> = received.iter().filter(|second| second.phase == Phase::Window).collect();
    let counts: Vec<_> = told.iter().map(|second| (second.failed, second.timed_out, second.errors.connect)).collect();
    assert_eq!(counts, [(1, 0, 2), (2, 3, 0)]);
    let mut errors = Errors::default();
    told.iter().for_each(|second| errors.add(&second.errors));
    assert_eq!(errors, window.errors);
    assert_eq!((window.requests.failed, window.requests.timed_out), (3, 3));
}
