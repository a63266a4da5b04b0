//! `plimsoll load --await-start`: a generator that holds its connections until it is given the
//! instant at which requests begin.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::forwarder::listener;
use crate::support::peer::{Run, answer, command, echo, outcome};

/// A generator that has said that its connections are up.
struct Held {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    all_up: Value,
}

impl Held {
    fn start(target: SocketAddr, arguments: &str) -> Held {
        let mut load = command("echo", &target.to_string(), &format!("--barrier --await-start {arguments}"));
        let mut child = load.stdin(Stdio::piped()).spawn().expect("the binary runs");
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let all_up = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no event: {line:?}"));
        Held { child, input, output, all_up }
    }

    fn give(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(line.as_bytes()).expect("it is read");
    }

    /// What it says from here on, and how it ends.
    fn run(self) -> Run {
        let Held { child, input, mut output, .. } = self;
        let mut stdout = Vec::new();
        output.read_to_end(&mut stdout).expect("text");
        drop(input);
        let ended = child.wait_with_output().expect("it ends");
        outcome(&std::process::Output { stdout, ..ended })
    }
}

fn unix_s(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

#[test]
fn a_line_gives_the_instant_at_which_requests_begin() {
    for (engine, pace) in [("epoll", ""), ("epoll", "-R 2k"), ("threads", ""), ("threads", "-R 2k")] {
        let first = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&first);
        let target = answer(move |bytes| {
            seen.lock().expect("no test thread panics").get_or_insert_with(SystemTime::now);
            Some(bytes.to_vec())
        });
        let arguments = format!("--engine {engine} {pace} -c 20 -n 200 --warm-up 100ms");
        let mut held = Held::start(target, &arguments);
        assert_eq!(held.all_up["event"], "all_up");
        assert_eq!(held.all_up["connections"], 20);
        assert!(held.all_up["unix_s"].as_f64().is_some_and(|at| at <= unix_s(SystemTime::now())));
        let start = unix_s(SystemTime::now()) + 0.5;
        held.give(&format!("{start:.6}\n"));
        let run = held.run();
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 200), "{engine} {pace}: {}", run.stderr);
        let first = first.lock().expect("no test thread panics").expect("a request");
        // Both are read off one clock, which the run reads once: it may be set a little meanwhile.
        let passed = unix_s(first) - start;
        assert!(passed > -0.01, "{engine} {pace}: the first request came at {passed} s");
        let opened = run.figure("window.opened_unix_s") - start;
        assert!(opened > 0.0999, "{engine} {pace}: the window opened after {opened} s");
    }
}

#[test]
fn a_start_that_has_passed_means_now_and_is_told() {
    let mut held = Held::start(echo(), "-n 50 -c 2");
    held.give(&format!("{:.6}\n", unix_s(SystemTime::now()) - 3600.0));
    let run = held.run();
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 50), "{}", run.stderr);
    assert!(run.warnings().contains(&"late_start"), "{:?}", run.warnings());
}

#[test]
fn without_a_start_to_come_it_ends_with_the_reason() {
    for engine in ["epoll", "threads"] {
        for (given, says) in [("", "standard input ended"), ("176", "standard input ended"), ("soon\n", "'soon' is no")]
        {
            let mut held = Held::start(echo(), &format!("--engine {engine} -c 3 -d 10m"));
            held.give(given);
            held.input = None;
            let run = held.run();
            assert_eq!(run.told, Some(1), "{engine} {given:?}");
            assert!(run.stderr.contains("--await-start") && run.stderr.contains(says), "{}", run.stderr);
            assert!(run.stderr.contains("write a line"), "{}", run.stderr);
            assert_eq!((run.stderr.lines().count(), run.lines.len()), (1, 0), "{}", run.stderr);
        }
    }
}

#[test]
fn a_signal_ends_it_while_it_waits() {
    for engine in ["epoll", "threads"] {
        let held = Held::start(echo(), &format!("--engine {engine} -c 3 -d 10m"));
        let pid = held.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let run = held.run();
        assert_eq!((run.told, run.count("requests.completed")), (Some(143), 0), "{engine}: {}", run.stderr);
    }
}

#[test]
fn without_a_connection_it_waits_for_nobody() {
    let (closed, address) = listener();
    drop(closed);
    let mut load = command("echo", &address.to_string(), "--barrier --await-start --each 1 -c 2 --timeout 100ms");
    let mut child = load.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let open = child.stdin.take();
    let run = outcome(&child.wait_with_output().expect("it ends"));
    drop(open);
    assert_eq!((run.code, run.count("connections.established")), (Some(1), 0), "{}", run.stderr);
    assert!(run.lines.iter().all(|line| line["event"] != "all_up"), "{:?}", run.lines);
}

#[test]
fn it_is_refused_where_no_requests_wait_for_all_connections() {
    for (arguments, says) in [
        ("--await-start", "--barrier"),
        ("--await-start --reconnect", "--barrier"),
        ("--await-start --barrier --reconnect", "cannot be used with"),
        ("--await-start --barrier --engine fork", "processes share nothing"),
    ] {
        let mut load = command("echo", "127.0.0.1:7", arguments);
        let output = load.stdin(Stdio::null()).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.contains(says), "{arguments}: {stderr}");
    }
}
