//! The window, the rates and the times of a cell against the instants of the server's own books.
//!
//! Nothing here depends on how fast the machine is. The generator must have begun before a request
//! arrived at the server, and ended after the server answered; a connection's next request arrives
//! after its answer has been counted. So the books bound each figure from both sides.

use std::collections::HashMap;
use std::time::Duration;

use super::cell::{CONNECTIONS, Measured};
use super::table::{ARRIVALS_FIXED, LASTS, OUTAGE, RATE, RECONNECT, TWO_GENERATORS};
use crate::support::books::Handled;

/// Two readings of the wall clock in one second differ by less than this from what passed between
/// them: adjtime(3) slews by at most 500 us a second.
const CLOCK_ERROR_S: f64 = 1e-3;
/// [`LASTS`].
const LENGTH_S: f64 = 0.3;
/// The rate of [`RATE`], and of a ramp on average.
const REQUESTS_A_SECOND: f64 = 200.0;
/// A histogram's bucket ends at most so far above a value in it.
const BUCKET: f64 = 1.002;

pub(super) fn check(measured: &Measured) {
    check_window(measured);
    check_rates(measured);
    check_service_times(measured);
    check_response_times(measured);
    check_log(measured);
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn ends_of_window(measured: &Measured) -> [f64; 2] {
    ["window.opened_unix_s", "window.closed_unix_s"].map(|name| measured.run.figure(name))
}

/// The window lies within the run, and around what the server did for it.
fn check_window(measured: &Measured) {
    let (run, handled, told) = (&measured.run, &measured.seen.handled, measured.told());
    let [opened, closed] = ends_of_window(measured);
    let elapsed = run.figure("elapsed_s");
    assert!((closed - opened - elapsed).abs() < CLOCK_ERROR_S, "{told}");
    assert!(elapsed > 0.0 && elapsed <= seconds(measured.took), "{told}");
    let (began, ended) = (seconds(measured.began) - CLOCK_ERROR_S, seconds(measured.ended) + CLOCK_ERROR_S);
    assert!(began <= opened && closed <= ended, "{told}");
    if measured.cell.has(LASTS) {
        let longest = if measured.has_several_windows() { f64::MAX } else { LENGTH_S + 1e-6 };
        assert!((LENGTH_S - 1e-6..=longest).contains(&elapsed), "{told}");
    }
    if measured.is_whole() {
        for Handled { arrived, answered, .. } in handled {
            assert!(opened <= seconds(*arrived) + CLOCK_ERROR_S, "opened {opened}, {arrived:?}: {told}");
            assert!(seconds(*answered) <= closed + CLOCK_ERROR_S, "closed {closed}, {answered:?}: {told}");
        }
    }
}

/// Each rate is that of a count over the window, and the count that of the requests which the
/// server met in it: but for one a connection, that may have been under way at either end.
fn check_rates(measured: &Measured) {
    let (run, handled, told) = (&measured.run, &measured.seen.handled, measured.told());
    let elapsed = run.figure("elapsed_s");
    let [completed, failed, in_flight] =
        ["completed", "failed", "in_flight"].map(|name| run.count(&format!("requests.{name}")));
    assert!((run.figure("completed_rate") * elapsed - completed as f64).abs() < 1e-4, "{told}");
    let sent = run.figure("offered_rate") * elapsed;
    assert!((sent - sent.round()).abs() < 1e-4, "{sent} requests sent: {told}");
    let sent = sent.round() as u64;
    let [opened, closed] = ends_of_window(measured);
    let count = |of: &dyn Fn(&Handled) -> bool| handled.iter().filter(|each| of(each)).count() as u64;
    let answered_within = |each: &Handled| {
        let at = seconds(each.answered);
        (opened - CLOCK_ERROR_S..=closed + CLOCK_ERROR_S).contains(&at)
    };
    assert!(completed <= count(&answered_within) + CONNECTIONS, "{told}");
    if measured.is_whole() {
        assert_eq!(sent, completed + failed, "{told}");
    }
    // In an outage requests arrive that are not answered.
    let lost = measured.seen.requests - measured.seen.answers;
    let arrived_after_opening = count(&|each| seconds(each.arrived) > opened - CLOCK_ERROR_S);
    assert!(sent <= arrived_after_opening + lost + in_flight, "{sent} sent: {told}");
    let surely_within = |each: &Handled| {
        let at = seconds(each.arrived);
        opened + CLOCK_ERROR_S < at && at < closed - CLOCK_ERROR_S
    };
    // Where a generator's window is open, that of another may not be yet.
    let before = if measured.has_several_windows() { run.count("warm_up.requests.scheduled") } else { 0 };
    assert!(count(&surely_within) <= sent + before + CONNECTIONS, "{sent} sent: {told}");
    if !measured.has_several_windows() {
        let before = run.count("warm_up.requests.completed");
        assert!(before <= count(&|each| seconds(each.answered) <= opened + CLOCK_ERROR_S), "{told}");
    }
    if measured.is_open() {
        assert!((run.figure("intended_rate") - REQUESTS_A_SECOND).abs() < 1e-3 * REQUESTS_A_SECOND, "{told}");
    }
}

/// Times of requests that the books bound, shortest first.
struct Bounds {
    /// The server's own time for each request.
    least_us: Vec<f64>,
    /// From the answer before on its connection until the next request.
    most_us: Vec<f64>,
}

fn bounds(measured: &Measured) -> Bounds {
    let mut by_connection: HashMap<u64, Vec<&Handled>> = HashMap::new();
    for each in &measured.seen.handled {
        by_connection.entry(each.connection).or_default().push(each);
    }
    let most = by_connection.into_values().flat_map(|own| {
        let before = std::iter::once(measured.began).chain(own.iter().map(|each| each.answered));
        let next = own.iter().skip(1).map(|each| each.arrived).chain([measured.ended]);
        before
            .zip(next)
            .map(|(before, next)| (seconds(next) - seconds(before) + CLOCK_ERROR_S) * 1e6)
            .collect::<Vec<_>>()
    });
    let least = measured.seen.handled.iter().map(|each| seconds(each.own) * 1e6);
    Bounds { least_us: ordered(least), most_us: ordered(most) }
}

/// The figures of a set of times, and which part of the set is no longer.
const FIGURES: [(&str, f64); 8] = [
    ("min", 0.0),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99_9", 0.999),
    ("p99_99", 0.9999),
    ("max", 1.0),
];

/// From its send to its answer a request takes at least what the server took for it, and at most
/// from the answer before it on its connection until the next request.
fn check_service_times(measured: &Measured) {
    let (run, told) = (&measured.run, measured.told());
    let count = run.count("service_time_us.count") as usize;
    if count == 0 {
        return;
    }
    let Bounds { least_us, most_us } = bounds(measured);
    for (name, quantile) in FIGURES {
        let time = run.figure(&format!("service_time_us.{name}"));
        let place = (quantile * count as f64).ceil().max(1.0) as usize;
        // Whichever of the requests are counted: so many are no longer, and so many no shorter.
        let least = least_us[place - 1];
        assert!(least <= time, "{name} is {time}, and the server's own {least}: {told}");
        let most = most_us[most_us.len() - 1 - (count - place)] * BUCKET;
        assert!(time <= most, "{name} is {time}, and the next request came after {most}: {told}");
    }
    let mean = run.figure("service_time_us.mean");
    let shortest = least_us[..count].iter().sum::<f64>() / count as f64;
    let longest = most_us[most_us.len() - count..].iter().sum::<f64>() / count as f64;
    assert!((shortest..=longest).contains(&mean), "mean {mean} of {shortest} to {longest}: {told}");
}

/// A response time is the service time and what came before the send, which has figures of its own.
fn check_response_times(measured: &Measured) {
    let (run, cell, told) = (&measured.run, &measured.cell, measured.told());
    let times = |name: &str, figure: &str| run.summary()[name][figure].as_f64().unwrap_or_default();
    let took_us = seconds(measured.took) * 1e6;
    for name in ["response_time_us", "schedule_lag_us", "pool_wait_us", "backoff_wait_us", "establishment_time_us"] {
        assert!(times(name, "max") <= took_us, "{name}: {told}");
    }
    assert!(times("receive_lag_us", "max") <= times("service_time_us", "max"), "{told}");
    let counts = ["response_time_us", "service_time_us"].map(|name| times(name, "count") as u64);
    if counts[0] == counts[1] && !cell.has(RECONNECT) {
        for (name, _) in FIGURES {
            let [response, service] = ["response_time_us", "service_time_us"].map(|times_of| times(times_of, name));
            assert!(service <= response * BUCKET, "{name}: {told}");
        }
    }
    // Where all were answered, and sent on connections that were up.
    if measured.is_whole() && !cell.has(OUTAGE) && !cell.has(RECONNECT) {
        let sum = |name: &str| times(name, "mean") * times(name, "count");
        let waits = ["pool_wait_us", "backoff_wait_us", "schedule_lag_us"].map(sum).iter().sum::<f64>();
        let (response, whole) = (sum("response_time_us"), sum("service_time_us") + waits);
        let error = 1.0 + 1e-9 * whole;
        assert!((whole - error..=whole + error).contains(&response), "{response} of {whole}: {told}");
    }
}

/// A row of the request log.
struct Row {
    connection: u64,
    /// When it was to begin.
    begun: f64,
    ended: f64,
    phase: String,
    answered: bool,
}

fn rows(log: &str, generator: u64) -> Vec<Row> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, connection, response_us] = [0, 1, 4].map(|at: usize| cells[at].parse::<f64>().expect("a number"));
        let (begun, connection) = (time - response_us / 1e6, connection as u64 + 1000 * generator);
        Row { connection, begun, ended: time, phase: cells[5].to_owned(), answered: cells[6] == "ok" }
    };
    log.lines().skip(1).map(row).collect()
}

/// Holds the log's instants against the server's: a request arrives after it was begun, its answer
/// ends after the write of it began, and before the next request of its connection arrives. Which
/// connection is whose is not known, but then the same holds of both lists in order.
fn check_log(measured: &Measured) {
    let (run, cell, told) = (&measured.run, &measured.cell, measured.told());
    if measured.logs.is_empty() {
        return;
    }
    let logs = measured.logs.iter().zip(0..).map(|(log, generator)| rows(log, generator));
    let logs: Vec<Vec<Row>> = logs.collect();
    if cell.has(ARRIVALS_FIXED) && cell.has(RATE) {
        logs.iter().for_each(|log| check_distances(measured, log));
    }
    let rows: Vec<&Row> = logs.iter().flatten().collect();
    let count = |phase: &str, answered: bool| {
        rows.iter().filter(|row| row.phase == phase && row.answered == answered).count() as u64
    };
    for (phase, path) in [("window", "requests"), ("warm_up", "warm_up.requests")] {
        let counted = ["completed", "failed"].map(|name| run.count(&format!("{path}.{name}")));
        assert_eq!([count(phase, true), count(phase, false)], counted, "{phase}: {told}");
    }
    let answered: Vec<&&Row> = rows.iter().filter(|row| row.answered).collect();
    let handled = &measured.seen.handled;
    assert!(answered.len() <= handled.len(), "{told}");
    let unlogged = handled.len() - answered.len();
    let (begun, ended) = (ordered(answered.iter().map(|row| row.begun)), ordered(answered.iter().map(|row| row.ended)));
    let arrivals = ordered(handled.iter().map(|each| seconds(each.arrived)));
    let answers = ordered(handled.iter().map(|each| seconds(each.answered)));
    // Whichever requests are not in the log, the ones that are came no later than the last.
    for (begun, arrived) in begun.iter().zip(&arrivals[unlogged..]) {
        assert!(*begun < arrived + CLOCK_ERROR_S, "begun at {begun}, arrived at {arrived}: {told}");
    }
    for (ended, answered) in ended.iter().zip(&answers) {
        assert!(*ended > answered - CLOCK_ERROR_S, "ended at {ended}, answered at {answered}: {told}");
    }
    if unlogged == 0 && !cell.has(RECONNECT) && !cell.has(OUTAGE) {
        let ended = without_last(answered.iter().map(|row| (row.connection, row.ended)));
        // Without the first of each: the last, as time runs backwards.
        let next = without_last(handled.iter().map(|each| (each.connection, -seconds(each.arrived))));
        for (ended, next) in ended.iter().zip(ordered(next.iter().map(|time| -time))) {
            assert!(*ended < next + CLOCK_ERROR_S, "ended at {ended}, the next arrived at {next}: {told}");
        }
    }
}

/// Requests at fixed distances are to begin at instants of that distance, and where nothing was
/// lost each of these instants has a request: a rate that is too low shows.
fn check_distances(measured: &Measured, log: &[Row]) {
    let generators = if measured.cell.has(TWO_GENERATORS) { 2.0 } else { 1.0 };
    let distance = generators / REQUESTS_A_SECOND;
    let begun = ordered(log.iter().map(|row| row.begun));
    for pair in begun.windows(2) {
        let distances = (pair[1] - pair[0]) / distance;
        // The log has microseconds.
        let whole = (distances - distances.round()).abs() * distance < 3e-6 && distances.round() >= 1.0;
        let each_one = !measured.is_whole() || measured.cell.has(OUTAGE) || distances.round() as u64 == 1;
        assert!(whole && each_one, "{distances} distances apart: {}", measured.told());
    }
}

fn ordered(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

/// All times but the last of each connection, in order.
fn without_last(times: impl Iterator<Item = (u64, f64)>) -> Vec<f64> {
    let mut by_connection: HashMap<u64, Vec<f64>> = HashMap::new();
    for (connection, time) in times {
        by_connection.entry(connection).or_default().push(time);
    }
    ordered(by_connection.into_values().flat_map(|times| {
        let times = ordered(times.into_iter());
        let kept = times.len() - 1;
        times.into_iter().take(kept)
    }))
}
