//! Connects that are refused or never answered: every engine counts them alike, and none outlives
//! its run.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::peer::{Run, command, delayed, echo, load, outcome, refusing};

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];

/// A listener that answers no connect: its backlog is full, and so the kernel drops what asks for
/// more (listen(2)).
struct Full {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Full {
    fn new() -> Full {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
        let waiting: Vec<TcpStream> = std::iter::from_fn(connect).take(100_000).collect();
        Full { address, _listener: listener, _waiting: waiting }
    }
}

fn requests(run: &Run) -> [u64; 5] {
    ["completed", "failed", "timed_out", "in_flight", "unsent"].map(|name| run.count(&format!("requests.{name}")))
}

/// Connects that failed, causes of lost requests, and connections given up.
fn failures(run: &Run) -> [u64; 3] {
    ["errors.connect", "errors.timeout", "connections.failed"].map(|name| run.count(name))
}

#[test]
fn a_request_whose_connect_nobody_answers_times_out() {
    let full = Full::new();
    for engine in ENGINES {
        let run = load(full.address, &format!("--engine {engine} -n 2 -c 2 --reconnect --timeout 100ms"));
        assert_eq!((run.code, requests(&run)), (Some(1), [0, 0, 2, 0, 0]), "{engine}: {}", run.summary());
        assert_eq!(failures(&run), [2, 2, 0], "{engine}: {}", run.summary());
    }
}

#[test]
fn connections_that_nobody_answers_are_given_up_after_three_attempts() {
    let full = Full::new();
    for engine in ENGINES {
        let run = load(full.address, &format!("--engine {engine} -n 4 -c 2 --timeout 100ms"));
        assert_eq!((run.code, requests(&run)), (Some(1), [0, 0, 0, 0, 4]), "{engine}: {}", run.summary());
        assert_eq!(failures(&run), [6, 0, 2], "{engine}: {}", run.summary());
        assert!(run.summary()["warnings"].to_string().contains("ETIMEDOUT"), "{engine}: {}", run.summary());
    }
}

#[test]
fn a_connection_that_is_given_up_is_unavailable_to_the_end_of_the_window() {
    std::thread::scope(|scope| {
        for engine in ["epoll -t 1", "epoll -t 2", "uring -t 2", "threads", "fork"] {
            for end in ["-n 4", "--each 4", "-d 500ms --connect-rate 1"] {
                scope.spawn(move || {
                    // It is given up before the other is up, or long before that has its answers.
                    let slow = delayed(|_| Duration::from_millis(500));
                    // Nobody else can listen there either, as this port is taken.
                    let gone = SocketAddr::from(([127, 9, 9, 9], slow.port()));
                    let run = load(gone, &format!("{slow} -c 2 {end} --engine {engine}"));
                    let told = format!("{engine} {end}: {}", run.summary());
                    assert_eq!(
                        (run.count("connections.established"), run.count("connections.failed")),
                        (1, 1),
                        "{told}"
                    );
                    assert!(run.figure("available_ratio") < 0.501, "{told}");
                    assert!(run.warnings().contains(&"connections_unavailable"), "{told}");
                });
            }
        }
    });
}

#[test]
fn connects_that_fail_in_a_warm_up_are_told_apart_from_others() {
    let (echo, gone) = (echo(), refusing());
    for engine in ENGINES {
        for (warm_up, before, within) in [("", 0, 3), ("--warm-up 100ms", 3, 0)] {
            // One connection is given up before the window opens: at its third attempt.
            let run = load(echo, &format!("{gone} --engine {engine} -c 2 -d 200ms {warm_up}"));
            assert_eq!(failures(&run), [within, 0, 1], "{engine} {warm_up}: {}", run.summary());
            assert_eq!(run.count("warm_up.errors.connect"), before, "{engine} {warm_up}: {}", run.summary());
            assert!(run.summary()["warnings"].to_string().contains("ECONNREFUSED"), "{engine}: {}", run.summary());
        }
    }
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let targets = [echo, gone].map(|target| target.to_string());
    load.args(["load", "echo", "-c", "2", "-d", "200ms", "--warm-up", "100ms"]);
    let output = load.args(targets).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(", 3 connects failed in the warm-up\n") && !text.contains("\nerrors "), "{text}");
}

#[test]
fn a_connection_of_each_tries_again_for_its_next_request() {
    let full = Full::new();
    for engine in ENGINES {
        // The third attempt that fails is the last.
        let run = load(refusing(), &format!("--engine {engine} --each 5 -c 2 --reconnect"));
        assert_eq!((run.code, requests(&run)), (Some(1), [0, 6, 0, 0, 4]), "{engine}: {}", run.summary());
        assert_eq!(failures(&run), [6, 0, 2], "{engine}: {}", run.summary());
        let run = load(full.address, &format!("--engine {engine} --each 5 -c 2 --reconnect --timeout 100ms"));
        assert_eq!((run.code, requests(&run)), (Some(1), [0, 0, 6, 0, 4]), "{engine}: {}", run.summary());
        assert_eq!(failures(&run), [6, 6, 2], "{engine}: {}", run.summary());
    }
}

/// What a run yielded that ends by itself.
fn ending(mut child: Child) -> Option<Run> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("it can be waited for").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it runs");
            let _ = child.wait();
            return None;
        }
        sleep(Duration::from_millis(10));
    }
    Some(outcome(&child.wait_with_output().expect("it has ended")))
}

#[test]
fn a_connect_that_nobody_answers_does_not_outlive_the_window() {
    let full = Full::new();
    for engine in ENGINES {
        let arguments = format!("--engine {engine} -d 200ms -c 2 --reconnect --timeout 1h");
        let child = command("echo", &full.address.to_string(), &arguments).spawn().expect("the binary runs");
        let run = ending(child).unwrap_or_else(|| panic!("{engine}: it did not end"));
        assert_eq!(requests(&run), [0, 0, 0, 2, 0], "{engine}: {}", run.summary());
        assert_eq!((failures(&run), run.count("elapsed_s")), ([0, 0, 0], 0), "{engine}: {}", run.summary());
    }
}
