//! The generator's counts against a server's own books: every engine x protocol x pace x stop rule,
//! with every option beside each of them. Counts only: no assertion depends on the clock.

use std::collections::{HashMap, HashSet};
use std::process::Command;
use std::time::Duration;

use crate::support::books::{BODY, BookKeeper, Handled, MESSAGE, Script, Seen, Speaks};
use crate::support::network::{Scratch, ScratchFolder};
use crate::support::peer::{Run, command, outcome};

const CONNECTIONS: u64 = 4;
const COUNT: u64 = 40;
const EACH: u64 = 10;
const RATE: u64 = 200;

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];
const SPEAKS: [Speaks; 3] = [Speaks::Echo, Speaks::Http, Speaks::Https];
const PACES: [&str; 3] = ["", "--think 2ms", "-R 200 --arrivals fixed"];
const STOPS: [&str; 3] = ["-d 300ms", "-n 40", "--each 10"];
const OPTIONS: [&str; 11] = [
    "",
    "--reconnect",
    "--warm-up 50ms",
    "--connect-rate 100",
    "-t 3",
    "--barrier",
    "--max-lag 10ms",
    "--spin 100us",
    LOGGED,
    MERGED,
    OUTAGE,
];
/// A log whose instants are held against the server's.
const LOGGED: &str = "--request-log";
/// Two generators at once, of half the connections and load each, whose records are merged.
const MERGED: &str = "merge";
/// A server that ends connections in place of an answer for a while.
const OUTAGE: &str = "outage";

/// Requests that the outage leaves unanswered: enough for each connection to lose one or more.
const LOST: u64 = 7;
const ANSWERED_BEFORE: u64 = 14;

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
        LOGGED => cell.engine == "fork",
        "--max-lag 10ms" => cell.engine != "epoll" || !cell.pace.starts_with("-R"),
        "--spin 100us" => !matches!(cell.engine, "epoll" | "uring") || cell.pace.is_empty(),
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

/// The generator's command for a combination, without what is special about its option.
fn load(cell: Cell, keeper: &BookKeeper, connections: u64, more: &str) -> Command {
    let Cell { engine, speaks, pace, stop, .. } = cell;
    let (protocol, target) = match speaks {
        Speaks::Echo => ("echo", keeper.address.to_string()),
        Speaks::Http => ("http", format!("http://{}/", keeper.address)),
        Speaks::Https => ("http", format!("https://localhost:{}/", keeper.address.port())),
    };
    let mut load = command(protocol, &target, &format!("--engine {engine} -c {connections} {pace} {stop} {more}"));
    load.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/tls/authority.pem"));
    load
}

fn run_one(cell: Cell, keeper: &BookKeeper, more: &str) -> Run {
    outcome(&load(cell, keeper, CONNECTIONS, more).output().expect("the binary runs"))
}

/// Runs two generators, and merges their records. The server takes nothing before both are
/// connected; where their windows lie apart all the same, as on a busy machine, they are run again.
fn run_two(cell: Cell) -> (Run, BookKeeper) {
    let half = Cell {
        pace: if cell.pace.starts_with("-R") { "-R 100 --arrivals fixed" } else { cell.pace },
        stop: if cell.stop == "-n 40" { "-n 20" } else { cell.stop },
        ..cell
    };
    for _ in 0..100 {
        let keeper = BookKeeper::start(cell.speaks, Script { begins_with: CONNECTIONS, ..Script::default() });
        let begin = || load(half, &keeper, CONNECTIONS / 2, "").spawn().expect("the binary runs");
        let records = ScratchFolder::new();
        let parts = [(begin(), "a.json"), (begin(), "b.json")];
        let mut merge = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        merge.arg("merge");
        for (part, name) in parts {
            let part = outcome(&part.wait_with_output().expect("it ends"));
            assert_eq!(part.code, Some(0), "{cell:?}: {}", part.stderr);
            std::fs::write(records.0.join(name), part.summary().to_string()).expect("a file");
            merge.arg(records.0.join(name));
        }
        let merged = outcome(&merge.output().expect("the binary runs"));
        if !merged.stderr.contains("nobody measured") {
            return (merged, keeper);
        }
    }
    panic!("{cell:?}: the generators never ran at one time");
}

/// Runs a combination, and holds its summary against the server's books.
fn check(cell: Cell) {
    let script = match cell.option {
        OUTAGE => Script { outage: ANSWERED_BEFORE + 1..=ANSWERED_BEFORE + LOST, ..Script::default() },
        _ => Script::default(),
    };
    let keeper = BookKeeper::start(cell.speaks, script);
    let log = Scratch::new(".csv");
    let (run, keeper) = match cell.option {
        MERGED => run_two(cell),
        OUTAGE => (run_one(cell, &keeper, ""), keeper),
        LOGGED => (run_one(cell, &keeper, &format!("{LOGGED} {}", log.path())), keeper),
        option => (run_one(cell, &keeper, option), keeper),
    };
    if refused(cell) {
        assert_eq!(run.code, Some(2), "{cell:?}");
        return;
    }
    let seen = check_counts(cell, &run, &keeper);
    check_rates(cell, &run);
    if cell.option == LOGGED {
        let text = std::fs::read_to_string(&log.0).expect("the log was written");
        check_log(cell, &text, &seen.handled, run.count("requests.completed"));
    }
}

/// Holds the counts against the server's books.
fn check_counts(cell: Cell, run: &Run, keeper: &BookKeeper) -> Seen {
    let outage = cell.option == OUTAGE;
    let told = format!("{cell:?}: {} {}", run.stderr, run.summary());
    let of = |name: &str| run.count(&format!("requests.{name}"));
    let gave_up = run.count("connections.failed") > 0;
    assert_eq!(run.code, Some(i32::from(gave_up)), "{told}");
    assert_eq!((of("timed_out"), run.count("errors.connect")), (0, 0), "{told}");
    assert!(outage || !gave_up && of("failed") == 0, "{told}");
    let errors = ["read", "write", "closed"].map(|cause| run.count(&format!("errors.{cause}")));
    assert_eq!(errors.iter().sum::<u64>(), of("failed"), "{told}");
    let established = run.count("connections.established") + run.count("connections.reopened");
    let seen = keeper.read(established);
    // A connect under way as the run ended may have come about.
    let under_way = of("in_flight") + if outage { CONNECTIONS } else { 0 };
    assert!((established..=established + under_way).contains(&seen.connections), "{seen:?}: {told}");
    // What was in flight as the window closed may have reached the server, or not.
    let warm_up = run.count("warm_up.requests.completed");
    let answered = warm_up + of("completed");
    let in_flight = of("in_flight") + run.count("warm_up.requests.in_flight");
    assert!((answered..=answered + in_flight).contains(&seen.answers), "{seen:?}: {told}");
    let lost = seen.requests - seen.answers;
    assert!((of("failed")..=of("failed") + in_flight).contains(&lost), "{seen:?}: {told}");
    match cell.stop {
        "-n 40" if outage => assert_eq!((of("completed"), of("failed")), (COUNT - LOST, LOST), "{told}"),
        // A connection that is lost before its last request is given up, and what it had left is
        // never sent.
        "--each 10" if outage => {
            assert_eq!((of("completed"), of("scheduled")), (ANSWERED_BEFORE, EACH * CONNECTIONS), "{told}");
            assert_eq!(run.count("connections.failed"), of("failed"), "{told}");
        }
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
        assert_eq!((seen.requests, seen.answers), (of("completed") + of("failed"), of("completed")), "{told}");
        if cell.speaks != Speaks::Https {
            assert_eq!(seen.bytes, run.count("bytes_sent"), "{told}");
        }
        if cell.speaks == Speaks::Echo {
            let received = MESSAGE * seen.answers;
            assert_eq!((seen.bytes, run.count("bytes_received")), (MESSAGE * seen.requests, received), "{told}");
        }
    }
    if cell.option == "--reconnect" {
        assert!(seen.connections >= seen.requests, "{told}");
    }
    seen
}

/// Rates and times follow from the counts and the window.
fn check_rates(cell: Cell, run: &Run) {
    let told = format!("{cell:?}: {}", run.summary());
    let completed = run.count("requests.completed");
    let payload = if cell.speaks == Speaks::Echo { MESSAGE } else { BODY.len() as u64 };
    let seconds = run.figure("elapsed_s");
    let exactly = |rate: f64, count: u64| (rate * seconds - count as f64).abs() < 1e-6 * (count as f64 + 1.0);
    assert!(exactly(run.figure("completed_rate"), completed), "{told}");
    assert!(exactly(run.figure("goodput_bits_per_s"), 8 * payload * completed), "{told}");
    let window = run.figure("window.closed_unix_s") - run.figure("window.opened_unix_s");
    assert!((window - seconds).abs() < 1e-3, "{told}");
    let unanswered = run.summary()["response_time_us"]["unanswered"].as_u64().unwrap_or_default();
    assert_eq!(run.count("response_time_us.count"), completed + unanswered, "{told}");
    if cell.speaks != Speaks::Echo {
        assert_eq!(run.summary()["statuses"]["200"].as_u64(), Some(completed), "{told}");
    }
    assert!((0.0..=1.0).contains(&run.figure("available_ratio")), "{told}");
}

/// Two readings of the wall clock in one second differ by less than this from what passed between
/// them: adjtime(3) slews by at most 500 us a second. The log has microseconds.
const CLOCK_ERROR_S: f64 = 1e-3;

/// Holds the log's instants against the server's: a request is read after it was begun, its answer
/// ends after the write of it began, and before the next request of its connection is read. Which
/// connection is whose is not known, but then the same holds of both lists in order.
fn check_log(cell: Cell, text: &str, handled: &[Handled], completed: u64) {
    let mut rows: Vec<(u64, f64, f64)> = Vec::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.last(), Some(&"ok"), "{cell:?}: {line}");
        let [time, connection, response_us] = [0, 1, 4].map(|at: usize| cells[at].parse::<f64>().expect("a number"));
        rows.push((connection as u64, time - response_us / 1e6, time));
    }
    assert!(rows.len() as u64 >= completed && rows.len() <= handled.len(), "{cell:?}: {text}");
    let unlogged = handled.len() - rows.len();
    let seconds = |time: fn(&Handled) -> Duration| ordered(handled.iter().map(|each| time(each).as_secs_f64()));
    let (read, answered) = (seconds(|each| each.read), seconds(|each| each.answered));
    let (begun, ended) = (ordered(rows.iter().map(|row| row.1)), ordered(rows.iter().map(|row| row.2)));
    // Whichever requests are not in the log, the ones that are were handled no later than the last.
    for (begun, read) in begun.iter().zip(&read[unlogged..]) {
        assert!(*begun < read + CLOCK_ERROR_S, "{cell:?}: begun at {begun}, read at {read}");
    }
    for (ended, answered) in ended.iter().zip(&answered) {
        assert!(*ended > answered - CLOCK_ERROR_S, "{cell:?}: ended at {ended}, answered at {answered}");
    }
    if unlogged == 0 {
        let ended = without_last(rows.iter().map(|row| (row.0, row.2)));
        // Without the first of each: the last, as time runs backwards.
        let read = without_last(handled.iter().map(|each| (each.connection, -each.read.as_secs_f64())));
        for (ended, read) in ended.iter().zip(ordered(read.iter().map(|time| -time))) {
            assert!(*ended < read + CLOCK_ERROR_S, "{cell:?}: ended at {ended}, the next was read at {read}");
        }
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
