//! `plimsoll load --await-end`: a generator that keeps its connections up after its window, until
//! it is let go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::forwarder::listener;
use crate::support::network::Scratch;
use crate::support::peer::{Run, command, outcome, read_once, serve};

const CONNECTIONS: u64 = 20;

/// The connections of an echo server, and how many of them the generator has ended.
#[derive(Default)]
struct Accepted {
    streams: Mutex<Vec<TcpStream>>,
    ended: AtomicU64,
}

fn echo() -> (SocketAddr, Arc<Accepted>) {
    let accepted = Arc::new(Accepted::default());
    let seen = Arc::clone(&accepted);
    let address = serve(move |mut stream| {
        seen.streams.lock().expect("no panic").push(stream.try_clone().expect("a descriptor"));
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = read_once(&stream, &mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        seen.ended.fetch_add(1, Ordering::SeqCst);
    });
    (address, accepted)
}

/// A generator whose window has closed.
struct Held {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// What it said as its window closed.
    closed: Value,
    accepted: Arc<Accepted>,
}

impl Held {
    fn start(arguments: &str, given: &str) -> Held {
        let (target, accepted) = echo();
        let arguments = format!("-c {CONNECTIONS} -d 100ms --await-end {arguments}");
        let mut child =
            command("echo", &target.to_string(), &arguments).stdin(Stdio::piped()).spawn().expect("it runs");
        let mut input = child.stdin.take();
        input.as_mut().expect("it is piped").write_all(given.as_bytes()).expect("it is open");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        while !line.contains("\"window_closed\"") {
            line.clear();
            assert!(output.read_line(&mut line).expect("a line") > 0, "it ended before its window closed");
        }
        let closed = serde_json::from_str(&line).expect("an event");
        Held { child, input, output, closed, accepted }
    }

    /// Whether every connection stays up, for as long as it would take to close them many times.
    fn holds(&self) -> bool {
        std::thread::sleep(Duration::from_millis(300));
        self.accepted.ended.load(Ordering::SeqCst) == 0
    }

    /// The server says this on every connection, and ends it.
    fn end_connections(&self, says: &[u8]) {
        for mut stream in self.accepted.streams.lock().expect("no panic").drain(..) {
            let _ = stream.write_all(says);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn end(mut self) -> Run {
        let mut stdout = Vec::new();
        self.output.read_to_end(&mut stdout).expect("text");
        let ended = self.child.wait_with_output().expect("it ends");
        drop(self.input);
        outcome(&std::process::Output { stdout, ..ended })
    }
}

#[test]
fn connections_stay_up_after_the_window_until_a_line_lets_them_close() {
    for engine in ["epoll", "uring", "threads"] {
        for pace in ["", "-R 2k", "--think 10ms", "--think 10ms --lockstep", "--workers 2 -R 500"] {
            if engine == "threads" && pace.starts_with("--workers") {
                continue;
            }
            let mut held = Held::start(&format!("--engine {engine} {pace}"), "");
            assert!(held.holds(), "{engine} {pace}: connections were closed");
            held.input.as_mut().expect("it is open").write_all(b"\n").expect("it is read");
            let run = held.end();
            assert_eq!(run.code, Some(0), "{engine} {pace}: {}", run.stderr);
            assert!(run.figure("elapsed_s") < 0.101, "{engine} {pace}: the window is none the longer");
            assert_eq!(run.count("connections.established"), CONNECTIONS, "{engine} {pace}");
            let sent = ["completed", "failed", "timed_out"].map(|fate| run.count(&format!("requests.{fate}")));
            assert_eq!(sent[1..3], [0, 0], "{engine} {pace}");
            assert!(sent[0] > 0, "{engine} {pace}: {sent:?}");
        }
    }
}

#[test]
fn seconds_after_the_window_are_none_of_its_time_series() {
    let series = Scratch::new(".txt");
    let mut held = Held::start(&format!("-R 100 --timeseries {}", series.path()), "");
    // Until its lines are written: they wait for two seconds for what loops hand over late.
    std::thread::sleep(Duration::from_millis(4500));
    held.input = None;
    let run = held.end();
    let lines: Vec<Value> = series.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let window: Vec<&Value> = lines.iter().filter(|line| line["phase"] == "window").collect();
    let completed: u64 = window.iter().filter_map(|line| line["completed"].as_u64()).sum();
    assert_eq!(completed, run.count("requests.completed"), "{lines:?}");
    assert!(window.iter().all(|line| line["covers_s"].as_f64() > Some(0.0)), "{lines:?}");
}

#[test]
fn a_line_that_came_before_and_the_end_of_standard_input_let_them_close() {
    for (given, closes) in [("now\n", false), ("", true), ("without an end", true)] {
        let mut held = Held::start("", given);
        if closes {
            assert!(held.holds(), "connections were closed");
            held.input = None;
        }
        let run = held.end();
        assert_eq!(run.code, Some(0), "{given:?}: {}", run.stderr);
    }
}

#[test]
fn a_start_may_be_given_before() {
    let start = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() + 0.1;
    for (given, lets_go) in [(format!("{start:.6}\n"), "\n"), (format!("{start:.6}\n\n"), "")] {
        let mut held = Held::start("--barrier --await-start", &given);
        if !lets_go.is_empty() {
            assert!(held.holds(), "connections were closed");
            held.input.as_mut().expect("it is open").write_all(lets_go.as_bytes()).expect("it is read");
        }
        let run = held.end();
        assert_eq!(run.code, Some(0), "{given:?}: {}", run.stderr);
    }
}

#[test]
fn a_signal_lets_them_close() {
    for engine in ["epoll", "threads"] {
        let held = Held::start(&format!("--engine {engine}"), "");
        let pid = held.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let run = held.end();
        assert_eq!(run.told, Some(143), "{engine}: {}", run.stderr);
        assert!(run.count("requests.completed") > 0, "{engine}: what was measured is told");
        assert!(!run.warnings().contains(&"interrupted"), "{engine}: its window was whole");
    }
}

#[test]
fn for_a_program_that_never_says_so_they_close_after_the_time_that_was_told() {
    let held = Held::start("", "");
    let [closed, holds] = ["unix_s", "holds_s"].map(|name| held.closed[name].as_f64().expect("seconds"));
    let run = held.end();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    // The clock may be slewed meanwhile.
    assert!(ended - closed > holds - 0.1, "{} s after it closed", ended - closed);
    let help = command("echo", "127.0.0.1:7", "--help").output().expect("the binary runs").stdout;
    let help = String::from_utf8(help).expect("text").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("gives a line, or ends; for {holds} s at most.")), "{help}");
}

#[test]
fn what_a_server_does_with_connections_after_the_window_is_of_no_window() {
    for engine in ["epoll", "uring"] {
        for pace in ["", "-R 2k", "--think 10ms"] {
            for says in [&b""[..], b"unasked"] {
                let held = Held::start(&format!("--engine {engine} {pace}"), "");
                held.end_connections(says);
                // Nobody lets it close them: there are none.
                let run = held.end();
                assert_eq!(run.code, Some(0), "{engine} {pace}: {}", run.stderr);
                let lost = ["ended_idle", "unrequested", "reopened"].map(|name| format!("connections.{name}"));
                assert_eq!(lost.map(|name| run.count(&name)), [0, 0, 0], "{engine} {pace} {says:?}");
            }
        }
    }
}

#[test]
fn without_a_connection_it_waits_for_nobody() {
    let (closed, address) = listener();
    drop(closed);
    for engine in ["epoll", "threads"] {
        let arguments = format!("--engine {engine} --await-end -c 2 -d 10m --timeout 100ms");
        let mut child =
            command("echo", &address.to_string(), &arguments).stdin(Stdio::piped()).spawn().expect("it runs");
        let open = child.stdin.take();
        let run = outcome(&child.wait_with_output().expect("it ends"));
        drop(open);
        assert_eq!((run.code, run.count("connections.established")), (Some(1), 0), "{engine}: {}", run.stderr);
        let closed = run.lines.iter().find(|line| line["event"] == "window_closed").expect("it closed");
        assert!(closed.get("holds_s").is_none(), "{engine}: it kept up what there was not");
    }
}

#[test]
fn it_is_refused_where_no_connection_could_stay() {
    for (arguments, says) in [
        ("--await-end -n 5", "give a --duration"),
        ("--await-end --each 5", "give a --duration"),
        ("--await-end --reconnect", "cannot be used with"),
        ("--await-end --engine fork", "processes share nothing"),
    ] {
        let mut load = command("echo", "127.0.0.1:7", arguments);
        let output = load.stdin(Stdio::null()).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.contains("--await-end") && stderr.contains(says), "{arguments}: {stderr}");
    }
}
