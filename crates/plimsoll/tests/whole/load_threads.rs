//! `plimsoll load --engine threads`: a thread for each connection counts as the event loops do.

use std::io::{Read, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::peer::{Run, answer, command, echo, load, outcome, refusing, serve};
use plimsoll_sys::net::reset_on_close;

fn threads(target: std::net::SocketAddr, arguments: &str) -> Run {
    load(target, &format!("--engine threads {arguments}"))
}

#[test]
fn counts_are_exact() {
    let run = threads(echo(), "-n 501 -c 10 -s 100");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 501), "{}", run.stderr);
    assert_eq!((run.count("bytes_sent"), run.count("bytes_received")), (50_100, 50_100));
    assert_eq!(run.summary()["generator"]["engine"], "threads");
    let run = threads(echo(), "--each 7 -c 20 --barrier --think 5ms --lockstep");
    assert_eq!((run.count("requests.completed"), run.count("establishment_time_us.count")), (140, 20));
    assert!(run.figure("elapsed_s") >= 0.03, "six pauses");
}

#[test]
fn a_window_has_its_length_and_a_warm_up_before_it() {
    let run = threads(echo(), "-d 1500ms --warm-up 1s -c 4");
    assert!((1.4999..1.5001).contains(&run.figure("elapsed_s")));
    assert!(run.count("warm_up.requests.completed") > 0 && run.count("requests.completed") > 0);
}

#[test]
fn failures_are_told_apart() {
    let wrong = threads(answer(|bytes| Some(vec![0; bytes.len()])), "--each 5 -c 3");
    assert_eq!((wrong.count("errors.mismatch"), wrong.count("requests.unsent")), (3, 12));
    let closing = threads(answer(|_| None), "--each 5 -c 3");
    assert_eq!((closing.code, closing.count("errors.closed"), closing.count("requests.failed")), (Some(1), 3, 3));
    let resetting = serve(|mut stream| {
        let _ = stream.read(&mut [0; 8]);
        reset_on_close(&stream).expect("the socket is open");
    });
    let reset = threads(resetting, "--each 5 -c 3");
    assert_eq!((reset.count("requests.failed"), reset.count("requests.unsent")), (3, 12));
    let silent = || serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let late = threads(silent(), "--each 2 -c 3 --timeout 100ms");
    assert_eq!((late.count("requests.timed_out"), late.count("requests.unsent")), (3, 3));
    let pending = threads(silent(), "-d 1s -c 3");
    assert_eq!((pending.count("requests.in_flight"), pending.count("response_time_us.unanswered")), (3, 3));
}

#[test]
fn the_times_of_a_connection_with_few_requests_take_little_memory() {
    // Histograms of 100 ms take 144 KiB each, and a thread keeps two or more.
    let slow = answer(|bytes| {
        thread::sleep(Duration::from_millis(100));
        Some(bytes.to_vec())
    });
    let run = threads(slow, "-n 800 -c 400 --barrier");
    assert_eq!(run.count("requests.completed"), 800, "{}", run.stderr);
    assert!(run.figure("response_time_us.min") >= 100_000.0);
    let each = run.count("generator.memory_bytes") / 400;
    assert!(each < 100_000, "{each} bytes a connection");
}

#[test]
fn nobody_listening_is_said() {
    let gone = refusing();
    for arguments in ["-c 3 -d 30s", "-c 3 -n 10", "-c 3 --each 5 --barrier"] {
        let run = threads(gone, arguments);
        assert_eq!((run.code, run.count("connections.failed")), (Some(1), 3), "{arguments}");
        assert!(run.summary()["warnings"].to_string().contains("ECONNREFUSED"));
    }
}

#[test]
fn a_large_message_does_not_lock_both_sides() {
    let run = threads(echo(), "-n 6 -c 2 -s 8MiB");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 6));
}

#[test]
fn a_connection_for_each_request_is_timed_from_its_connect() {
    let target = serve(|mut stream| {
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
    });
    let url = format!("http://{target}/");
    let load = command("http", &url, "--engine threads --http 1.0 --reconnect -n 40 -c 4").output();
    let run = outcome(&load.expect("the binary runs"));
    assert_eq!((run.count("requests.completed"), run.count("establishment_time_us.count")), (40, 40));
    assert!(run.figure("response_time_us.mean") > run.figure("transmission_time_us.mean"));
}

#[test]
fn the_report_tcpbenchmark_is_run_in_its_own_form() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let target = echo().to_string();
    load.args(["load", "echo", &target, "--engine", "threads", "--payload", "text", "--restart-sequence"]);
    load.args(["-c", "3", "--each", "2", "-s", "5", "--countdown", "1", "--csv=tcpbenchmark"]);
    let begun = std::time::Instant::now();
    let output = load.output().expect("the binary runs");
    let elapsed = begun.elapsed().as_secs_f64();
    let text = String::from_utf8(output.stdout).expect("text");
    for line in ["3 thread with 2 echoback.", "start count down: 1", "Thread Start!!", "Thread(2): true"] {
        assert!(text.lines().any(|each| each == line), "{line} in {text}");
    }
    let row: Vec<&str> = text.lines().rev().nth(1).expect("a row").split(',').collect();
    assert_eq!(row[..5], ["3", "3", "0", "0", "0"]);
    let benchmark_time: f64 = row[13].parse().expect("seconds");
    assert!(elapsed > 0.99 + benchmark_time, "the countdown is not in it: {benchmark_time} of {elapsed}");
}

#[test]
fn what_threads_cannot_do_is_refused() {
    let run = command("echo", "127.0.0.1:7", "--engine threads -t 2").output().expect("it runs");
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("each connection has a thread of its own"));
    let many = command("echo", "127.0.0.1:7", "--engine threads -c 10M").output().expect("it runs");
    assert_eq!(many.status.code(), Some(5), "what this machine cannot run, as of the other engines");
    assert!(String::from_utf8_lossy(&many.stderr).contains("use the epoll engine"));
}
