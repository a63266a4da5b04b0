//! The generator's counts against a server's own books: every engine x protocol x pace x stop rule,
//! with every option beside each of them. Counts only: no assertion depends on the clock.

use std::collections::HashSet;

use crate::support::books::{BODY, BookKeeper, MESSAGE, Speaks};
use crate::support::peer::{Run, command, outcome};

const CONNECTIONS: u64 = 4;
const COUNT: u64 = 40;
const EACH: u64 = 10;
const RATE: u64 = 200;

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];
const SPEAKS: [Speaks; 3] = [Speaks::Echo, Speaks::Http, Speaks::Https];
const PACES: [&str; 3] = ["", "--think 2ms", "-R 200 --arrivals fixed"];
const STOPS: [&str; 3] = ["-d 300ms", "-n 40", "--each 10"];
const OPTIONS: [&str; 7] =
    ["", "--reconnect", "--warm-up 50ms", "--connect-rate 100", "-t 3", "--barrier", "--max-lag 10ms"];

/// One combination.
#[derive(Clone, Copy, Debug)]
struct Cell {
    engine: &'static str,
    speaks: Speaks,
    pace: &'static str,
    stop: &'static str,
    option: &'static str,
}

/// Why a combination is refused, if it is: what a user reads in the book's table.
fn refused(cell: Cell) -> bool {
    match cell.option {
        "--barrier" => cell.engine == "fork",
        "-t 3" => matches!(cell.engine, "fork" | "threads"),
        "--max-lag 10ms" => cell.engine != "epoll" || !cell.pace.starts_with("-R"),
        _ => false,
    }
}

/// Every engine x protocol x pace x stop rule, with two of the options each, so that every option
/// meets every value of the others.
fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for (a, engine) in ENGINES.into_iter().enumerate() {
        for (b, speaks) in SPEAKS.into_iter().enumerate() {
            for (c, pace) in PACES.into_iter().enumerate() {
                for (d, stop) in STOPS.into_iter().enumerate() {
                    let turn = a + 2 * b + c + 3 * d;
                    let options = [turn % OPTIONS.len(), (turn + 3 + c) % OPTIONS.len()];
                    all.extend(options.map(|option| Cell { engine, speaks, pace, stop, option: OPTIONS[option] }));
                }
            }
        }
    }
    all
}

#[test]
fn the_cells_hold_every_pair_of_values() {
    let mut pairs = HashSet::new();
    for cell in cells() {
        let speaks = format!("{:?}", cell.speaks);
        let values = [cell.engine, &speaks, cell.pace, cell.stop, cell.option];
        for (a, one) in values.iter().enumerate() {
            for (b, other) in values.iter().enumerate().filter(|(b, _)| *b > a) {
                pairs.insert((a, (*one).to_owned(), b, (*other).to_owned()));
            }
        }
    }
    let sizes = [ENGINES.len(), SPEAKS.len(), PACES.len(), STOPS.len(), OPTIONS.len()];
    let wanted: usize = (0..5).flat_map(|a| (a + 1..5).map(move |b| sizes[a] * sizes[b])).sum();
    assert_eq!(pairs.len(), wanted);
}

fn run(cell: Cell, keeper: &BookKeeper) -> Run {
    let Cell { engine, speaks, pace, stop, option } = cell;
    let (protocol, target) = match speaks {
        Speaks::Echo => ("echo", keeper.address.to_string()),
        Speaks::Http => ("http", format!("http://{}/", keeper.address)),
        Speaks::Https => ("http", format!("https://localhost:{}/", keeper.address.port())),
    };
    let arguments = format!("--engine {engine} -c {CONNECTIONS} {pace} {stop} {option}");
    let mut load = command(protocol, &target, &arguments);
    load.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/tls/authority.pem"));
    outcome(&load.output().expect("the binary runs"))
}

/// Holds one combination's summary against the server's books.
fn check(cell: Cell) {
    let keeper = BookKeeper::start(cell.speaks);
    let run = run(cell, &keeper);
    if refused(cell) {
        assert_eq!(run.code, Some(2), "{cell:?}");
        return;
    }
    assert_eq!(run.code, Some(0), "{cell:?}: {} {}", run.stderr, run.summary());
    let of = |name: &str| run.count(&format!("requests.{name}"));
    let told = format!("{cell:?}: {}", run.summary());
    assert_eq!((of("failed"), of("timed_out"), run.count("errors.connect")), (0, 0, 0), "{told}");
    let established = run.count("connections.established") + run.count("connections.reopened");
    let (connections, requests, bytes) = keeper.read(established);
    // A connect under way as the window closed may have come about.
    assert!((established..=established + of("in_flight")).contains(&connections), "{connections}: {told}");
    // What was in flight as the window closed may have reached the server, or not.
    let warm_up = run.count("warm_up.requests.completed");
    let answered = warm_up + of("completed");
    let most = answered + of("in_flight") + run.count("warm_up.requests.in_flight");
    assert!((answered..=most).contains(&requests), "{requests} requests at the server; {told}");
    match cell.stop {
        "-n 40" => assert_eq!((of("completed"), of("unsent")), (COUNT, 0), "{told}"),
        "--each 10" => assert_eq!((of("completed"), of("unsent")), (EACH * CONNECTIONS, 0), "{told}"),
        _ if cell.pace.starts_with("-R") && cell.option != "--warm-up 50ms" => {
            let due = RATE * 3 / 10;
            // Each process of `fork` has a window of its own, which may begin a moment after its
            // requests.
            let slack = if cell.engine == "fork" { CONNECTIONS } else { 0 };
            assert!(of("scheduled").abs_diff(due) <= slack, "{told}");
        }
        _ => {}
    }
    let whole = cell.stop != "-d 300ms" && warm_up + run.count("warm_up.requests.scheduled") == 0;
    if whole {
        assert_eq!(requests, of("completed"), "{told}");
        if cell.speaks != Speaks::Https {
            assert_eq!(bytes, run.count("bytes_sent"), "{told}");
        }
        if cell.speaks == Speaks::Echo {
            assert_eq!((bytes, run.count("bytes_received")), (MESSAGE * requests, bytes), "{told}");
        }
    }
    let payload = if cell.speaks == Speaks::Echo { MESSAGE } else { BODY.len() as u64 };
    let seconds = run.figure("elapsed_s");
    let exactly = |rate: f64, count: u64| (rate * seconds - count as f64).abs() < 1e-6 * (count as f64 + 1.0);
    assert!(exactly(run.figure("completed_rate"), of("completed")), "{told}");
    assert!(exactly(run.figure("goodput_bits_per_s"), 8 * payload * of("completed")), "{told}");
    let window = run.figure("window.closed_unix_s") - run.figure("window.opened_unix_s");
    assert!((window - seconds).abs() < 1e-3, "{told}");
    let unanswered = run.summary()["response_time_us"]["unanswered"].as_u64().unwrap_or_default();
    assert_eq!(run.count("response_time_us.count"), of("completed") + unanswered, "{told}");
    if cell.speaks != Speaks::Echo {
        assert_eq!(run.summary()["statuses"]["200"].as_u64(), Some(of("completed")), "{told}");
    }
    if cell.option == "--reconnect" {
        assert!(connections >= requests, "{told}");
    }
    assert!((0.0..=1.0).contains(&run.figure("available_ratio")), "{told}");
}

fn check_engine(engine: &str) {
    for cell in cells().into_iter().filter(|cell| cell.engine == engine) {
        check(cell);
    }
}

#[test]
fn epoll_counts_what_the_server_counts() {
    check_engine("epoll");
}

#[test]
fn uring_counts_what_the_server_counts() {
    check_engine("uring");
}

#[test]
fn threads_count_what_the_server_counts() {
    check_engine("threads");
}

#[test]
fn processes_count_what_the_server_counts() {
    check_engine("fork");
}
