//! Nothing vanishes: whatever a server does, and whichever engine and pace meet it, every request
//! that was due ends as one of five things, and each of its failures has its cause.
//! [`crate::support::peer::Run::summary`] holds every summary to the sum.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::peer::{Run, answer, command, delayed, echo, freeze, load_while, outcome, refusing, serve};
use crate::support::running::until;
use plimsoll_sys::net::reset_on_close;

/// What a server does, what it is asked for, and what the generator has to find.
struct Misfortune {
    name: &'static str,
    target: SocketAddr,
    url: bool,
    /// The causes that failures may have.
    causes: &'static [&'static str],
    /// Whether anything can be completed.
    completes: bool,
}

const MESSAGE: usize = 64;

/// An echo server that says `after` to a connection once it has answered so many requests.
fn echo_then(answers: usize, after: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut stream| {
        let mut message = [0; MESSAGE];
        for _ in 0..answers {
            if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                return;
            }
        }
        if stream.read_exact(&mut message).is_ok() {
            after(stream);
        }
    })
}

/// An HTTP server that answers every request with these pieces, and then goes on, or ends the
/// connection.
fn http(pieces: &'static [&'static str], ends: bool) -> SocketAddr {
    serve(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while matches!(stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            head.clear();
            for piece in pieces {
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
                if pieces.len() > 1 {
                    sleep(Duration::from_millis(1));
                }
            }
            if ends {
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut byte);
                return;
            }
        }
    })
}

fn misfortunes() -> Vec<Misfortune> {
    let echo = |name, causes, completes, target| Misfortune { name, target, url: false, causes, completes };
    let fetch = |name, causes, completes, target| Misfortune { name, target, url: true, causes, completes };
    let reset = |stream: TcpStream| reset_on_close(&stream).expect("the socket is open");
    let mute = |mut stream: TcpStream| drop(stream.read_to_end(&mut Vec::new()));
    let half = |mut stream: TcpStream| {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let slow = &["HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", "ab", "cd", "ef"];
    vec![
        echo("an honest server", &[], true, crate::support::peer::echo()),
        echo("refused connects", &["connect"], false, refusing()),
        echo("resets", &["read", "write", "closed"], true, echo_then(3, reset)),
        echo("time-outs", &["timeout"], true, echo_then(3, mute)),
        echo("half-closes", &["closed", "read", "write"], true, echo_then(3, half)),
        echo("short echoes", &["timeout"], false, answer(|bytes| Some(bytes[..bytes.len() - 1].to_vec()))),
        echo("long echoes", &["mismatch"], false, answer(|bytes| Some([bytes, b"x"].concat()))),
        echo("wrong echoes", &["mismatch"], false, answer(|bytes| Some(vec![bytes[0] ^ 1; bytes.len()]))),
        fetch(
            "1xx before the answer",
            &[],
            true,
            http(&["HTTP/1.1 103 Early\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], false),
        ),
        fetch("slow bodies", &[], true, http(slow, false)),
        fetch(
            "connections that close after each answer",
            &[],
            true,
            http(&["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"], true),
        ),
        fetch("bodies cut short", &["closed"], false, http(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nno"], true)),
        fetch("error statuses", &["status"], false, http(&["HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"], false)),
    ]
}

fn meet(misfortune: &Misfortune, engine: &str, pace: &str) -> Run {
    let target = misfortune.target.to_string();
    let timeout = if misfortune.causes.contains(&"timeout") { "300ms" } else { "30s" };
    let arguments = format!("--engine {engine} -c 4 --timeout {timeout} {pace}");
    let (protocol, target) = if misfortune.url { ("http", format!("http://{target}/")) } else { ("echo", target) };
    outcome(&command(protocol, &target, &arguments).output().expect("the binary runs"))
}

fn check(misfortune: &Misfortune, engine: &str, pace: &str) {
    let run = meet(misfortune, engine, pace);
    let told = format!("{}, {engine}, {pace}: {}", misfortune.name, run.summary());
    assert!(matches!(run.code, Some(0 | 1)), "{told}");
    let [scheduled, completed, failed, timed_out, in_flight, unsent] =
        ["scheduled", "completed", "failed", "timed_out", "in_flight", "unsent"]
            .map(|name| run.count(&format!("requests.{name}")));
    for cause in ["connect", "read", "write", "mismatch", "closed", "status", "timeout"] {
        let count = run.count(&format!("errors.{cause}"));
        // A connection may be closed while nothing is under way on it; where answers may take 300
        // ms only, so may connects.
        let possible = cause == "closed" || cause == "connect" && misfortune.causes.contains(&"timeout");
        assert!(count == 0 || misfortune.causes.contains(&cause) || possible, "{cause}: {told}");
    }
    if misfortune.causes.is_empty() {
        assert_eq!((failed, timed_out), (0, 0), "{told}");
    }
    if !misfortune.completes {
        assert_eq!(completed, 0, "{told}");
    }
    // In a window of a set time a slow machine may not come so far.
    if !pace.contains("-d") {
        assert_eq!(completed > 0, misfortune.completes, "{told}");
        let lost = failed + timed_out + run.count("connections.failed");
        assert_eq!(lost > 0, !misfortune.causes.is_empty(), "{told}");
    }
    let answered = run.count("response_time_us.count") - run.count("response_time_us.unanswered");
    assert_eq!(answered, completed, "{told}");
    assert!(run.count("response_time_us.unanswered") <= timed_out + in_flight + unsent, "{told}");
    if let Some(count) = pace.strip_prefix("-n ") {
        assert_eq!(scheduled.to_string(), count, "{told}");
    } else if pace.contains("--each") {
        assert_eq!(scheduled, 4 * 8, "{told}");
    }
}

fn nothing_vanishes(engine: &str) {
    for misfortune in misfortunes() {
        // Where nothing is ever answered, the rests between a connection's attempts grow.
        let count = if misfortune.completes { "-n 40" } else { "-n 8" };
        // Side by side: they wait for most of their time.
        std::thread::scope(|scope| {
            for pace in ["-d 400ms", count, "--each 8", "-d 400ms -R 200"] {
                let misfortune = &misfortune;
                scope.spawn(move || check(misfortune, engine, pace));
            }
        });
    }
}

#[test]
fn nothing_vanishes_from_epoll() {
    nothing_vanishes("epoll");
}

#[test]
fn nothing_vanishes_from_uring() {
    nothing_vanishes("uring");
}

#[test]
fn nothing_vanishes_from_threads() {
    nothing_vanishes("threads");
}

#[test]
fn nothing_vanishes_from_fork() {
    nothing_vanishes("fork");
}

#[test]
fn every_engine_does_what_is_asked() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        for (arguments, requests) in [
            ("-n 501 -c 10 -s 100", 501),
            ("--each 7 -c 20", 140),
            ("-n 6 -c 2 -s 3MiB", 6),
            ("-n 60 -c 4 --reconnect", 60),
            ("-n 100 -c 4 -R 2k", 100),
            ("--each 5 -c 4 -R 1k --arrivals fixed", 20),
            ("--each 3 -c 4 --think exp:2ms", 12),
            ("--each 2 -c 9 --connect-rate 200", 18),
        ] {
            let target = echo().to_string();
            let run = command("echo", &target, &format!("--engine {engine} {arguments}")).output();
            let run = outcome(&run.expect("the binary runs"));
            assert_eq!(run.code, Some(0), "{engine} {arguments}: {:?} {}", run.lines, run.stderr);
            assert_eq!(run.count("requests.completed"), requests, "{engine} {arguments}");
            assert_eq!(run.summary()["generator"]["engine"], engine);
            assert_eq!(run.count("pool_wait_us.count") > 0, arguments.contains("-R"), "{engine} {arguments}");
        }
    }
}

#[test]
fn answers_that_came_while_the_generator_was_stopped_are_no_time_outs() {
    // More connections than events that a loop handles at once.
    for (engine, connections) in [("epoll -t 1", 300), ("uring -t 1", 300), ("threads", 30)] {
        // Each has a request under way, which is answered while the generator is stopped for longer
        // than its time-out.
        let target = delayed(|_| Duration::from_secs(1));
        let arguments = format!("--engine {engine} -c {connections} -d 6s --timeout 2s");
        let run = load_while(target, &arguments, |child| {
            // All are sent by then, and the generator waits.
            sleep(Duration::from_millis(300));
            freeze(child.id(), Duration::from_secs(3));
        });
        let time_outs = ["requests.timed_out", "errors.timeout"].map(|name| run.count(name));
        assert_eq!(time_outs, [0, 0], "{engine}: {}", run.summary());
        assert!(run.figure("response_time_us.max") >= 2_900_000.0, "{engine}: {}", run.summary());
        // poll(2), unlike the waits of event loops, goes on after a stop as if there had been none.
        let is_told = run.figure("receive_lag_us.max") >= 2_000_000.0;
        assert!(is_told || engine == "threads", "{engine}: {}", run.summary());
    }
}

#[test]
fn polling_is_told_apart_from_the_rest_of_the_generators_cpu() {
    for (engine, pace) in [("epoll", "-R 2k"), ("uring", "-R 2k"), ("epoll", "--think 2ms"), ("uring", "--think 2ms")] {
        // It polls for half of the time or more, as far as it has a CPU.
        let arguments = format!("--engine {engine} {pace} --spin 1ms -c 4 -t 1 -d 500ms");
        let run = outcome(&command("echo", &echo().to_string(), &arguments).output().expect("the binary runs"));
        // The loop takes both times itself, at the window's ends.
        let figure = |name| run.figure(&format!("generator.{name}"));
        let (polling, all) = (figure("polling_cpu_cores"), figure("busiest_thread_cpu_cores"));
        assert!(0.0 < polling && polling <= all, "{arguments}: {polling} of {all}");
    }
}

#[test]
fn uring_takes_further_tables_where_descriptors_run_out() {
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll"), "load", "echo"]);
    let target = echo().to_string();
    limited.args([&target, "--engine", "uring", "-c", "300", "--each", "2", "--barrier", "-t", "2"]);
    let run = outcome(&limited.args(["--json", "--quiet"]).output().expect("a shell"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("requests.completed"), run.count("connections.peak")), (600, 300));
    assert!(run.count("generator.tables") >= 4);
}

/// An echo server that answers on all connections that are there, and then resets them together.
fn resetting() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        loop {
            let Ok((first, _)) = listener.accept() else { continue };
            listener.set_nonblocking(true).expect("a listener");
            let mut streams: Vec<TcpStream> =
                std::iter::once(first).chain(listener.incoming().map_while(Result::ok)).collect();
            listener.set_nonblocking(false).expect("a listener");
            let mut message = [0; MESSAGE];
            for stream in &mut streams {
                if stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {
                    let _ = reset_on_close(stream);
                }
            }
        }
    });
    address
}

#[test]
fn connections_that_are_lost_at_once_wait_for_places_in_the_rings_table() {
    // The table has as many places as there may be descriptors, so few more than connections.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll"), "load", "echo"]);
    limited.args([&resetting().to_string(), "--engine", "uring", "-c", "60", "-t", "1", "-n", "20000"]);
    let run = outcome(&limited.args(["--json", "--quiet"]).output().expect("a shell"));
    let told = run.summary();
    assert_eq!((run.count("errors.connect"), run.count("connections.failed")), (0, 0), "{told}");
    assert!(run.count("connections.reopened") > 1000, "{told}");
}

#[test]
fn answers_that_are_there_together_are_all_taken_though_nothing_follows_them() {
    // One more than is taken between two waits.
    const ANSWERS: usize = 400;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let target = listener.local_addr().expect("it is bound");
    for engine in ["epoll", "uring"] {
        let load = format!("--engine {engine} -t 1 -c {ANSWERS} --each 1 --timeout 40s -s {MESSAGE}");
        let mut load = command("echo", &target.to_string(), &load).spawn().expect("the binary runs");
        let mut streams: Vec<TcpStream> = listener.incoming().flatten().take(ANSWERS).collect();
        let mut messages = vec![[0; MESSAGE]; ANSWERS];
        for (stream, message) in streams.iter_mut().zip(&mut messages) {
            stream.read_exact(message).expect("a request");
        }
        let kill = |signal: &str| {
            let status = std::process::Command::new("kill").args(["-s", signal, &load.id().to_string()]).status();
            assert!(status.expect("kill runs").success());
        };
        kill("STOP");
        for (stream, message) in streams.iter_mut().zip(&messages) {
            stream.write_all(message).expect("the generator is there");
        }
        kill("CONT");
        let _ = load.stdin.take();
        let run = outcome(&load.wait_with_output().expect("it ends"));
        assert_eq!(run.count("requests.completed"), ANSWERS as u64, "{engine}: {}", run.summary());
        assert!(run.figure("response_time_us.max") < 35e6, "{engine}: {}", run.summary());
    }
}

#[test]
fn timers_that_fire_together_with_the_windows_end_are_each_dealt_with_once() {
    // Half of the connections wait for an answer, and half wait before they are opened again. The
    // first time-out closed the window, which took back timers that had fired as well.
    for engine in ["epoll", "uring"] {
        let accepted = AtomicUsize::new(0);
        let half = serve(move |mut stream| {
            if accepted.fetch_add(1, Ordering::Relaxed) < 16 {
                drop(stream.read_to_end(&mut Vec::new()));
            }
        });
        let load = format!("--engine {engine} -t 1 -c 32 -d 1s --timeout 600ms");
        let run = load_while(half, &load, |load| {
            sleep(Duration::from_millis(300));
            freeze(load.id(), Duration::from_millis(1200));
        });
        assert_eq!(run.count("requests.completed"), 0, "{}", run.summary());
    }
}

/// The lists of CPUs that processes, and all of their threads, may run on (proc_pid_status(5)).
fn allowed_cpus(process: u32) -> Vec<String> {
    let folder = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(folder).expect("it runs").flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let list =
        |text: String| text.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().into()));
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    texts.filter_map(list).chain(children.flat_map(allowed_cpus)).collect()
}

#[test]
fn event_loops_threads_and_processes_are_kept_on_the_cpus_that_are_named() {
    let own = &allowed_cpus(std::process::id())[0];
    let ranges = own.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let cpus: Vec<usize> = ranges.flat_map(|(first, last)| number(first)..=number(last)).take(2).collect();
    let names: HashSet<String> = cpus.iter().map(ToString::to_string).collect();
    let list = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    for engine in ["epoll -t 2", "uring -t 2", "threads", "fork"] {
        let run = load_while(echo(), &format!("--engine {engine} -c 2 -d 1h --cpus {list}"), |load| {
            // The first window may open before another process of `fork` has had its turn.
            until(&format!("{engine} is kept on each of {list} alone"), || {
                let kept = allowed_cpus(load.id()).into_iter().filter(|list| !list.contains(['-', ',']));
                kept.collect::<HashSet<_>>() == names
            });
            let status = std::process::Command::new("kill").args(["-s", "INT", &load.id().to_string()]).status();
            assert!(status.expect("kill runs").success());
        });
        assert_eq!(run.code, Some(130), "{engine}: {}", run.stderr);
    }
}
