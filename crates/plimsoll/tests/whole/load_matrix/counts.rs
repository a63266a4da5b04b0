//! The counts of a cell against the server's own books.

use super::cell::{ANSWERED_BEFORE, CONNECTIONS, LOST, Measured, connection_lines};
use super::table::{
    ARRIVALS_FIXED, BARRIER, CONNECT_RATE, COUNT, EACH, LASTS, OUTAGE, RECONNECT, RESTART, TLS_RESUME, WARM_UP,
};
use crate::support::books::{BODY, MESSAGE, Speaks, answer};

/// Requests of [`COUNT`], and of all connections together with [`EACH`].
const COUNTED: u64 = 40;
/// Requests that are due within [`LASTS`], and within [`WARM_UP`] at most.
const DUE: u64 = 60;
const DUE_BEFORE: u64 = 10;

pub(super) fn check(measured: &Measured) {
    check_causes(measured);
    check_connections(measured);
    check_requests(measured);
    check_number(measured);
    check_bytes(measured);
    check_handshakes(measured);
    check_connection_lines(measured);
    check_seconds(measured);
}

/// What became of a number of requests in the warm-up and in the window.
fn all(measured: &Measured, name: &str) -> u64 {
    let run = &measured.run;
    run.count(&format!("requests.{name}")) + run.count(&format!("warm_up.requests.{name}"))
}

fn window(measured: &Measured, name: &str) -> u64 {
    measured.run.count(&format!("requests.{name}"))
}

/// Only an outage fails requests, each of which has its cause.
fn check_causes(measured: &Measured) {
    let (run, told) = (&measured.run, measured.told());
    let failed = run.count("connections.failed") > 0 || window(measured, "completed") == 0;
    assert_eq!(run.code, Some(i32::from(failed)), "{told}");
    let nothing = ["errors.connect", "errors.timeout", "errors.mismatch", "errors.status"].map(|name| run.count(name));
    assert_eq!((all(measured, "timed_out"), nothing), (0, [0; 4]), "{told}");
    let errors = ["read", "write", "closed"].map(|cause| run.count(&format!("errors.{cause}")));
    assert_eq!(errors.iter().sum::<u64>(), window(measured, "failed"), "{told}");
    if !measured.cell.has(OUTAGE) {
        assert_eq!((all(measured, "failed"), run.count("connections.failed")), (0, 0), "{told}");
    }
}

fn check_connections(measured: &Measured) {
    let (run, seen, told) = (&measured.run, &measured.seen, measured.told());
    let count = |name: &str| run.count(&format!("connections.{name}"));
    let made = count("established") + count("reopened");
    assert_eq!((count("requested"), run.count("establishment_time_us.count")), (CONNECTIONS, made), "{told}");
    assert!((1..=CONNECTIONS).contains(&count("peak")), "{told}");
    if measured.cell.has(BARRIER) {
        assert_eq!(count("peak"), CONNECTIONS, "{told}");
    }
    // A connect under way as the run ended may have come about.
    let under_way = window(measured, "in_flight") + if measured.cell.has(OUTAGE) { CONNECTIONS } else { 0 };
    assert!((made..=made + under_way).contains(&seen.connections), "{told}");
    if measured.cell.has(RECONNECT) {
        assert!(seen.connections >= seen.requests, "{told}");
    }
}

/// What the server was asked and has answered; what was in flight as the window closed may have
/// reached it, or not.
fn check_requests(measured: &Measured) {
    let (run, seen, told) = (&measured.run, &measured.seen, measured.told());
    let (answered, failed, in_flight) =
        (all(measured, "completed"), all(measured, "failed"), window(measured, "in_flight"));
    assert!(in_flight <= CONNECTIONS, "{told}");
    assert!((answered..=answered + in_flight).contains(&seen.answers), "{told}");
    let lost = seen.requests - seen.answers;
    assert!((failed..=failed + in_flight).contains(&lost), "{told}");
    let requested = answered + failed;
    assert!((requested..=requested + in_flight).contains(&seen.requests), "{told}");
    if measured.is_whole() {
        assert_eq!((in_flight, seen.answers, seen.requests), (0, answered, requested), "{told}");
    }
    let unanswered = run.summary()["response_time_us"]["unanswered"].as_u64().unwrap_or_default();
    let completed = window(measured, "completed");
    assert_eq!(run.count("response_time_us.count"), completed + unanswered, "{told}");
    assert_eq!(run.count("service_time_us.count"), completed, "{told}");
    if measured.speaks() != Speaks::Echo {
        let statuses = run.summary()["statuses"]["200"].as_u64().unwrap_or_default();
        let classes = run.summary()["status_codes"]["2xx"].as_u64().unwrap_or_default();
        let timed = run.summary()["transmission_time_us"]["count"].as_u64().unwrap_or_default();
        assert_eq!([statuses, classes, timed], [completed; 3], "{told}");
    }
}

/// A run has as many requests as it was asked for.
fn check_number(measured: &Measured) {
    let (run, cell, told) = (&measured.run, &measured.cell, measured.told());
    let [scheduled, completed, failed, unsent] =
        ["scheduled", "completed", "failed", "unsent"].map(|name| window(measured, name));
    let gave_up = run.count("connections.failed");
    if cell.has(LASTS) && measured.is_open() {
        let chance = if cell.has(ARRIVALS_FIXED) {
            // Each process of `fork`, and each of two generators, rounds its part; of a ramp each
            // generator does.
            CONNECTIONS
        } else {
            // Six standard deviations.
            46
        };
        // What was due before the window opened may be sent within it. Processes that are opened
        // one after another warm up until the last is up.
        let warms_up = cell.has(WARM_UP) || cell.has(CONNECT_RATE);
        let before = if warms_up { DUE_BEFORE + chance } else { 0 };
        assert!((DUE - chance..=DUE + chance + before).contains(&scheduled), "{told}");
    }
    let ends_by_number = cell.has(COUNT) || cell.has(EACH);
    match (ends_by_number, cell.has(OUTAGE)) {
        (false, _) => {}
        (true, false) => assert_eq!((completed, unsent), (COUNTED, 0), "{told}"),
        (true, true) if cell.has(COUNT) => {
            let all_lost = all(measured, "failed");
            assert_eq!((completed + failed, all_lost, unsent, gave_up), (COUNTED, LOST, 0, 0), "{told}");
        }
        (true, true) if cell.has(RESTART) => {
            assert_eq!((all(measured, "failed"), unsent, gave_up), (LOST, 0, 0), "{told}");
            assert!(completed >= COUNTED, "{told}");
        }
        // A connection that is lost before its last request is given up, and what it had left is
        // never sent.
        (true, true) => {
            assert_eq!((all(measured, "completed"), scheduled), (ANSWERED_BEFORE, COUNTED), "{told}");
            assert_eq!(gave_up, all(measured, "failed"), "{told}");
        }
    }
}

/// Bytes of the TCP connections.
fn check_bytes(measured: &Measured) {
    let (run, seen, told) = (&measured.run, &measured.seen, measured.told());
    let (sent, received) = (run.count("bytes_sent"), run.count("bytes_received"));
    let secure = measured.speaks() == Speaks::Https;
    // Connections that are up before the window opens have shaken hands before it, and those of an
    // outage may have been about to as it closed.
    let opens_first = measured.cell.has(BARRIER) || measured.is_open();
    let may_differ = secure && (measured.cell.has(OUTAGE) || opens_first && !measured.cell.has(RECONNECT));
    if measured.is_whole() && !may_differ {
        assert_eq!((sent, received), (seen.bytes_received, seen.bytes_sent), "{told}");
    }
    let size = if measured.speaks() == Speaks::Echo { MESSAGE } else { answer().len() as u64 };
    let [completed, in_flight] = ["completed", "in_flight"].map(|name| window(measured, name));
    // An answer may have been read before the window opened and counted after, and one in flight as
    // it closed may have been read.
    let before = run.count("warm_up.requests.scheduled").min(CONNECTIONS);
    let least = size * completed.saturating_sub(before);
    if secure {
        assert!(received >= least, "{told}");
    } else {
        assert!((least..=size * (completed + in_flight + before)).contains(&received), "{told}");
        assert!(seen.bytes_received == size * seen.requests || measured.speaks() == Speaks::Http, "{told}");
    }
    let payload = if measured.speaks() == Speaks::Echo { MESSAGE } else { BODY.len() as u64 };
    let bits = run.figure("goodput_bits_per_s") * run.figure("elapsed_s");
    assert!((bits - (8 * payload * completed) as f64).abs() < 1e-3, "{bits} bits: {told}");
}

fn check_handshakes(measured: &Measured) {
    let (run, seen, told) = (&measured.run, &measured.seen, measured.told());
    if measured.speaks() != Speaks::Https {
        assert!(run.summary()["tls_handshakes"].is_null(), "{told}");
        return;
    }
    let [full, resumed] = ["full", "resumed"].map(|kind| run.count(&format!("tls_handshakes.{kind}")));
    let made = run.count("establishment_time_us.count");
    // A handshake may have come to its end as the window closed, for a connection that is not used.
    assert!((made..=made + window(measured, "in_flight")).contains(&(full + resumed)), "{told}");
    assert!(measured.cell.has(TLS_RESUME) || resumed == 0, "{told}");
    if measured.is_whole() && !measured.cell.has(OUTAGE) {
        assert_eq!([full, resumed], seen.handshakes, "{told}");
        // A connection has a ticket for the next before its first answer has come.
        let resumes = measured.cell.has(TLS_RESUME) && measured.cell.has(RECONNECT);
        assert!(!resumes || resumed > 0, "{told}");
    }
}

fn check_connection_lines(measured: &Measured) {
    let Some(lines) = connection_lines(measured) else { return };
    let told = measured.told();
    let sum = |name: &str| lines.iter().map(|line| line[name].as_u64().expect("a count")).sum::<u64>();
    assert_eq!(lines.len() as u64, CONNECTIONS, "{told}");
    let in_window = ["completed", "failed"].map(|name| window(measured, name));
    assert_eq!([sum("completed"), sum("failed_requests")], in_window, "{told}");
    assert_eq!(sum("failed_connects"), 0, "{told}");
    let successful = lines.iter().filter(|line| line["success"] == true).count() as u64;
    if measured.cell.has(EACH) {
        assert_eq!(successful, CONNECTIONS - measured.run.count("connections.failed"), "{told}");
    }
}

/// The seconds of a time series add up to the run.
fn check_seconds(measured: &Measured) {
    if measured.series.is_empty() {
        return;
    }
    let lines = measured.series.iter().flat_map(|series| series.lines());
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for (phase, path) in [("window", "requests"), ("warm_up", "warm_up.requests")] {
        for name in ["completed", "failed", "timed_out"] {
            let own = lines.iter().filter(|line| line["phase"] == phase);
            let sum: u64 = own.filter_map(|line| line[name].as_u64()).sum();
            let told = measured.run.count(&format!("{path}.{name}"));
            assert_eq!(sum, told, "{name} in the {phase}: {}", measured.told());
        }
    }
}
