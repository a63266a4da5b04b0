//! What a record says of what was counted.

use super::*;
use crate::tally::{Cause, Requests};

/// What was counted, each figure another number.
fn counted() -> (Tally, Tally, Connections) {
    let requests = Requests { scheduled: 31, completed: 16, failed: 1, timed_out: 2, in_flight: 8, unsent: 4 };
    let mut window = Tally { requests, sent: 27, payload_bytes: 400, ..Tally::default() };
    (window.bytes_sent, window.bytes_received) = (500, 600);
    window.errors.count(Cause::Read);
    [200, 302, 302, 404].iter().for_each(|status| window.statuses.count(*status));
    let mut warm_up = Tally::default();
    (warm_up.requests.scheduled, warm_up.requests.completed) = (3, 3);
    warm_up.errors.count(Cause::Connect);
    let mut connections = Connections { established: 5, failed: 6, reopened: 7, ..Connections::default() };
    (connections.ended_idle, connections.unrequested) = (8, 2);
    (window, warm_up, connections)
}

#[test]
fn a_record_says_what_was_counted_and_rates_are_of_its_seconds() {
    let (window, warm_up, connections) = counted();
    let record = Summary::of(&window, &warm_up, &connections, Duration::from_secs(2));
    assert_eq!((record.schema_version, record.valid, record.elapsed_s), (SCHEMA_VERSION, true, 2.0));
    assert_eq!((record.offered_rate, record.completed_rate, record.goodput_bits_per_s), (13.5, 8.0, 1600.0));
    assert_eq!((record.failed_ratio, record.available_ratio), (7.0 / 23.0, 1.0));
    assert_eq!((record.requests, record.errors), (window.requests, window.errors));
    assert_eq!((record.bytes_sent, record.bytes_received, record.redirects), (500, 600, 2));
    assert_eq!((record.statuses["404"], record.status_codes["3xx"]), (1, 2));
    assert_eq!((record.warm_up.requests, record.warm_up.errors), (warm_up.requests, warm_up.errors));
    assert_eq!(record.response_time_us.unanswered, Some(0));
    let ConnectionsSummary { established, failed, reopened, ended_idle, unrequested, .. } = record.connections;
    assert_eq!([established, failed, reopened, ended_idle, unrequested], [5, 6, 7, 8, 2]);
    let instant = Summary::of(&window, &warm_up, &connections, Duration::ZERO);
    assert_eq!((instant.offered_rate, instant.completed_rate, instant.goodput_bits_per_s), (0.0, 0.0, 0.0));
}

#[test]
fn a_service_time_is_what_was_told_of_it_or_the_transmission_or_the_response_time() {
    let service = |change: fn(&mut Tally)| {
        let mut window = Tally::default();
        window.response.record_ns(3000);
        change(&mut window);
        Summary::of(&window, &Tally::default(), &Connections::default(), Duration::ZERO).service_time_us.max
    };
    assert_eq!(service(|_| ()), 3.0);
    assert_eq!(service(|window| window.transmission.record_ns(2000)), 2.0);
    assert_eq!(
        service(|window| {
            window.transmission.record_ns(2000);
            window.service.record_ns(1000);
        }),
        1.0
    );
}

#[test]
fn connections_are_lost_that_were_given_up_or_never_up_or_whose_requests_failed() {
    // As with HTTP/1.0, whose connections end with each answer.
    let mut agreed = Summary::default();
    agreed.connections.reopened = 1;
    // From far away, or behind a long handshake, each takes as long.
    (agreed.establishment_time_us.min, agreed.establishment_time_us.max) = (1.2e6, 1.3e6);
    assert!(!agreed.has_lost_connections());
    agreed.establishment_time_us.min = 1e3;
    assert!(agreed.has_lost_connections());
    agreed.tls_handshakes = Some(Handshakes::default());
    assert!(!agreed.has_lost_connections());
    let lose: [fn(&mut Summary); 7] = [
        |record| record.establishment_time_us.max = 1e6,
        |record| record.connections.failed = 1,
        |record| record.connections.ended_idle = 1,
        |record| record.errors.timeout = 1,
        |record| record.warm_up.errors.closed = 1,
        |record| record.errors.connect = 1,
        |record| record.warm_up.errors.connect = 1,
    ];
    for change in lose {
        let mut record = Summary::default();
        change(&mut record);
        assert!(record.has_lost_connections(), "{record:?}");
    }
}
