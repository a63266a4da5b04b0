//! The generator's counts against a server's own books: every engine x protocol x pace x stop rule,
//! with every option beside each of them. Counts only: no assertion depends on the clock.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::support::books::{BODY, BookKeeper, MESSAGE, Speaks, answer_once};
use crate::support::peer::{Run, command, echo, load, outcome, serve};

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

#[test]
fn a_count_reaches_as_many_connections_at_once_as_it_can_employ() {
    for engine in ENGINES {
        for more in ["", "-t 4"] {
            if !more.is_empty() && matches!(engine, "threads" | "fork") {
                continue;
            }
            // Nobody is answered before eight requests are there; held up for ever, the run would
            // time out.
            let barrier = Arc::new(Barrier::new(8));
            let target = serve(move |mut stream| {
                let mut message = [0; 64];
                while stream.read_exact(&mut message).is_ok() {
                    barrier.wait();
                    if stream.write_all(&message).is_err() {
                        return;
                    }
                }
            });
            let run = load(target, &format!("-n 8 -c 8 --timeout 20s --engine {engine} {more}"));
            assert_eq!(run.count("requests.completed"), 8, "{engine} {more}: {}", run.summary());
        }
    }
}

#[test]
fn a_count_is_of_the_window_and_not_of_its_warm_up() {
    for engine in ["epoll", "uring", "threads"] {
        for (arguments, count) in
            [("-n 20 -c 4", 20), ("-n 2 -c 4", 2), ("--each 5 -c 4", 20), ("-n 20 -c 4 -R 400", 20)]
        {
            let run = load(
                echo(),
                &format!("{arguments} --think 1ms --warm-up 100ms --engine {engine}")
                    .replace(if arguments.contains("-R") { "--think 1ms" } else { "no such argument" }, ""),
            );
            assert_eq!(run.count("requests.completed"), count, "{engine} {arguments}: {}", run.summary());
            assert!(run.count("warm_up.requests.completed") > 0, "{engine} {arguments}");
            assert!(run.figure("elapsed_s") > 0.0 && run.figure("completed_rate") > 0.0);
        }
    }
}

#[test]
fn nobody_thinks_before_a_request_that_is_never_sent() {
    // With an hour between two requests a run ends only if no connection thinks after its last one.
    for engine in ENGINES {
        let run = load(echo(), &format!("-n 8 -c 8 --think 1h --lockstep --engine {engine}"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 8), "{engine}");
    }
}

#[test]
fn a_server_that_ends_each_connection_is_asked_again_at_once() {
    for engine in ["epoll", "uring", "threads"] {
        let run = load(serve(answer_once), &format!("-n 200 -c 2 --engine {engine}"));
        let (completed, failed) = (run.count("requests.completed"), run.count("requests.failed"));
        assert_eq!(completed + failed, 200, "{engine}: {}", run.summary());
        // Each of the waits of before, of 50 to 100 ms for every answer, would add up to 5 s and
        // more.
        assert!(run.figure("elapsed_s") < 4.0, "{engine}: {}", run.summary());
        let errors = ["read", "write", "closed"].map(|cause| run.count(&format!("errors.{cause}")));
        assert_eq!(errors.iter().sum::<u64>(), failed, "the errors are the causes of what failed");
    }
}

#[test]
fn an_outage_is_shown_in_the_available_ratio_and_misses_a_limit_on_it() {
    for engine in ["epoll", "uring", "threads"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let target = listener.local_addr().expect("it is bound");
        // Two connections are served for ten answers each, and then nobody listens.
        thread::spawn(move || {
            let streams: Vec<_> = listener.incoming().flatten().take(2).collect();
            drop(listener);
            for mut stream in streams {
                thread::spawn(move || {
                    let mut message = [0; 64];
                    for _ in 0..10 {
                        if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                            return;
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
        });
        let limits = "--limit failed_ratio<60% --limit available_ratio>99%";
        let run = load(target, &format!("-d 1s -c 2 --engine {engine} {limits}"));
        let available = run.figure("available_ratio");
        // Some 50 ms of a second, and no more than half of it however slow the machine is.
        assert!(available < 0.75, "{engine}: {available}");
        assert!(run.warnings().contains(&"connections_unavailable"), "{engine}: {:?}", run.warnings());
        let met: Vec<bool> =
            run.summary()["limits"].as_array().into_iter().flatten().map(|l| l["met"] == true).collect();
        assert_eq!(met, [true, false], "{engine}: {}", run.summary());
    }
}
