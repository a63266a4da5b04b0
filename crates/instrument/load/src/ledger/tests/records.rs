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

#[test]
fn seconds_in_which_the_generator_had_no_cpu_are_parts_without_a_request() {
    let (seconds, received) = channel();
    let records = Records { seconds: Some(seconds), ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    ledger.open(SECOND / 2, 0);
    carry(&mut ledger, SECOND / 2, SECOND - 1);
    // It has a CPU again in the fourth second, and once more only after the window.
    ledger.record(3 * SECOND + 1);
    carry(&mut ledger, 3 * SECOND + 1, 3 * SECOND + 2);
    ledger.close(5 * SECOND + SECOND / 2, std::iter::empty());
    ledger.finish();
    let told: Vec<_> = received.iter().filter(|second| second.phase == Phase::Window).collect();
    let counts: Vec<_> = told.iter().map(|second| (second.number, second.began, second.completed)).collect();
    let expected = [(0, 1), (1, 0), (2, 0), (3, 1), (4, 0), (5, 0)];
    assert_eq!(counts, expected.map(|(number, completed)| (number, number * SECOND, completed)));
    let ends: Vec<_> = told.iter().map(|second| (second.from, second.to)).collect();
    assert_eq!((ends[0].0, ends[5].1), (SECOND / 2, 5 * SECOND + SECOND / 2));
    assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ends:?}");
}

#[test]
fn a_connections_requests_are_of_the_window_and_its_rows_are_numbered_over_the_run() {
    let duration = StopCondition::Time(Duration::from_secs(1));
    for (stop_condition, exchange_ns) in [(duration, 8), (StopCondition::Requests(9), 8), (StopCondition::Each(9), 3)] {
        let (rows, received) = channel();
        let records = Records { requests: Some(rows), connections: true, ..Records::default() };
        let mut ledger = ledger(&Config { stop_condition, records, ..open() });
        // Four requests end on the connection, and one has timed out before it was free.
        let all_that_ends = |ledger: &mut Ledger, at: u64| {
            carry(ledger, at, at + 5);
            ledger.begun(at + 6);
            ledger.answered(request(at + 6, at + 6), Answer { payload: 0, status: 500 }, at + 7, None);
            ledger.begun(at + 8);
            ledger.connection_lost(0, Some(request(at + 8, at + 8)), Cause::Read, at + 9);
            ledger.missed(0);
            carry(ledger, at + 10, at + 13);
        };
        ledger.connect_failed(0, 111);
        all_that_ends(&mut ledger, 0);
        ledger.begun(90);
        ledger.open(100, 1);
        ledger.answered(Request { counted: false, ..request(90, 90) }, ANSWER, 105, None);
        all_that_ends(&mut ledger, 110);
        ledger.close(200, std::iter::empty());
        all_that_ends(&mut ledger, 210);
        let books = ledger.finish();
        let sequence = books.sequences[0];
        assert_eq!((sequence.completed, books.window.requests.completed), (2, 2), "{stop_condition:?}");
        assert_eq!((sequence.failed_requests, sequence.failed_sequences), (3, 1), "{stop_condition:?}");
        assert_eq!((sequence.exchange_ns, sequence.failed_connects), (exchange_ns, 1), "{stop_condition:?}");
        let numbers: Vec<_> = received.iter().flatten().map(|row| row.request).collect();
        assert_eq!(numbers, (1..=13).collect::<Vec<_>>(), "{stop_condition:?}");
    }
}

#[test]
fn a_connection_without_an_answer_in_the_window_has_not_done_what_it_had_to() {
    let records = Records { connections: true, ..Records::default() };
    let mut ledger = ledger(&Config { records, ..closed() });
    carry(&mut ledger, 10, 20);
    ledger.open(100, 0);
    ledger.close(200, std::iter::empty());
    ledger.begun(150);
    ledger.answered(request(150, 150), ANSWER, 210, None);
    let sequence = ledger.finish().sequences[0];
    assert_eq!((sequence.success, sequence.completed), (false, 0));
}
