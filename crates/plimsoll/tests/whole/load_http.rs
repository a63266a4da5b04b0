//! `plimsoll load http` against servers that answer in every way HTTP/1.x allows, and in some that
//! it does not.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::support::http::{EMPTY, answering, fetch, request};
use crate::support::peer::serve;

#[test]
fn every_way_to_end_a_body_is_understood() {
    for (pieces, close) in [
        (&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"][..], false),
        (&["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"], true),
        (&["HTTP/1.0 200 OK\r\n\r\nhello"], true),
        (&["HTTP/1.1 200 OK\r\n\r\nhel", "lo"], true),
        (&["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"], false),
        (&["HTTP/1.1 200 OK\r\nTransfer-Enc", "oding: chunked\r\n\r\n5\r", "\nhello\r\n0\r\n", "\r\n"], false),
        (&["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], false),
        (&["H", "TTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "h", "e", "llo"], false),
    ] {
        let run = fetch(answering(pieces, close), "-n 30 -c 3");
        let counts = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!(counts, [30, 0], "{pieces:?} {}", run.summary()["errors"]);
        assert_eq!(run.summary()["status_codes"]["2xx"], 30);
        assert_eq!(run.count("transmission_time_us.count"), 30);
        let bits = run.figure("goodput_bits_per_s") * run.figure("elapsed_s");
        assert!((bits - 30.0 * 40.0).abs() < 1e-3, "the payload is the body: {bits}");
    }
}

#[test]
fn an_error_status_fails_the_request_and_not_the_connection() {
    for (answer, class, code) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "4xx", "404"),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "5xx", "503"),
        ("HTTP/1.1 600 Unknown\r\nContent-Length: 0\r\n\r\n", "5xx", "600"),
    ] {
        let pieces: &'static [&'static str] = Box::leak(Box::new([answer]));
        let run = fetch(answering(pieces, false), "-n 20 -c 2");
        assert_eq!((run.code, run.count("requests.failed"), run.count("errors.status")), (Some(1), 20, 20));
        assert_eq!((&run.summary()["status_codes"][class], run.count("connections.reopened")), (&20.into(), 0));
        assert_eq!(run.summary()["statuses"], json!({ code: 20 }));
        assert!(run.warnings().contains(&"nothing_completed"));
    }
    let moved = fetch(answering(&["HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n"], false), "-n 20 -c 2");
    assert_eq!((moved.count("redirects"), moved.warnings().contains(&"redirects")), (20, true));
    assert_eq!((moved.count("requests.completed"), &moved.summary()["status_codes"]["3xx"]), (20, &20.into()));
}

#[test]
fn what_is_not_http_or_is_cut_short_fails() {
    let garbage = fetch(answering(&["220 mail.example ESMTP\r\n"], false), "--each 1 -c 4");
    assert_eq!((garbage.count("requests.failed"), garbage.count("errors.mismatch")), (4, 4));
    let short = fetch(answering(&["HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"], true), "--each 1 -c 4");
    assert_eq!((short.count("requests.failed"), short.count("errors.closed")), (4, 4));
    let slow = fetch(
        answering(&["HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"], false),
        "--each 1 -c 4 --timeout 100ms",
    );
    assert_eq!((slow.count("requests.timed_out"), slow.count("errors.timeout")), (4, 4));
}

#[test]
fn each_second_tells_the_causes_of_its_errors() {
    let file = std::env::temp_dir().join(format!("plimsoll-causes-{}", std::process::id()));
    for (cause, answer, close, timeout) in [
        ("status", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, "60s"),
        ("closed", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", true, "60s"),
        ("timeout", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", false, "100ms"),
    ] {
        let pieces: &'static [&'static str] = Box::leak(Box::new([answer]));
        let arguments = format!("--each 1 -c 4 --timeout {timeout} --timeseries {}", file.display());
        let run = fetch(answering(pieces, close), &arguments);
        let text = std::fs::read_to_string(&file).expect("the file was written");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let told: u64 = lines.iter().filter_map(|line| line["errors"][cause].as_u64()).sum();
        assert_eq!((told, run.count(&format!("errors.{cause}"))), (4, 4), "{cause}: {text}");
        let all = |line: &serde_json::Value| -> u64 {
            line["errors"].as_object().expect("by cause").values().filter_map(serde_json::Value::as_u64).sum()
        };
        for line in &lines {
            let lost = ["failed", "timed_out"].iter().filter_map(|name| line[name].as_u64()).sum::<u64>();
            assert_eq!(all(line), lost, "{line}");
        }
    }
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn an_error_status_is_a_failure_of_its_connection_under_every_engine() {
    for engine in ["epoll", "uring", "threads"] {
        let answer = &["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"];
        let run = fetch(answering(answer, false), &format!("--each 5 -c 2 --per-connection --engine {engine}"));
        let failed: Vec<u64> = run.lines.iter().filter_map(|line| line.get("failed_requests")?.as_u64()).collect();
        assert_eq!(failed, [5, 5], "{engine}");
    }
}

/// Gives its first connection up at once, as a server does that found it idle for too long; the
/// others are served.
fn impatient() -> SocketAddr {
    let first = AtomicBool::new(true);
    serve(move |mut stream| {
        if first.swap(false, Ordering::Relaxed) {
            let _ = stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        while request(&mut stream).is_some() {
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    })
}

#[test]
fn a_request_timeout_on_an_idle_connection_answers_no_request() {
    for engine in ["epoll", "uring", "threads"] {
        // With this seed the first request is due well after the connect.
        let run = fetch(impatient(), &format!("-n 1 -c 1 --think 2s --engine {engine}"));
        let counts = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!((counts, &run.summary()["statuses"]), ([1, 0], &json!({ "200": 1 })), "{engine}");
        let connections =
            ["ended_idle", "unrequested", "reopened"].map(|name| run.count(&format!("connections.{name}")));
        assert_eq!(connections, [1, 0, 1], "{engine}");
        assert_eq!((run.count("errors.mismatch"), run.count("errors.closed")), (0, 0), "{engine}");
    }
}

#[test]
fn what_comes_behind_an_answer_is_none_of_it_whether_it_is_read_with_it_or_after_it() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let timeout = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (behind, is_idle) in [(timeout, true), (answer, false)] {
        for pause in [Duration::ZERO, Duration::from_millis(1)] {
            let target = serve(move |mut stream| {
                let _ = stream.set_nodelay(true);
                if request(&mut stream).is_some() {
                    let together = [answer, if pause.is_zero() { behind } else { "" }].concat();
                    let _ = stream.write_all(together.as_bytes());
                    sleep(pause);
                    let _ = stream.write_all(if pause.is_zero() { b"" } else { behind.as_bytes() });
                }
            });
            for engine in ["epoll", "uring", "threads", "fork"] {
                // In the open loop epoll reads an answer when the next request is due.
                for pace in ["-n 12 --think 20ms", "-R 150 --arrivals fixed -d 300ms"] {
                    let run = fetch(target, &format!("-c 3 {pace} --engine {engine}"));
                    let told = format!("{engine} {pace} {pause:?}: {}", run.summary());
                    assert_eq!((run.count("errors.mismatch"), run.count("requests.timed_out")), (0, 0), "{told}");
                    assert!(run.count("requests.completed") >= 8, "{told}");
                    assert_eq!(run.count("connections.unrequested") == 0, is_idle, "{told}");
                    assert!(run.count("connections.ended_idle") > 0, "{told}");
                }
            }
        }
    }
}

#[test]
fn a_limit_on_a_status_is_missed_by_one_such_answer() {
    let target = answering(&["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"], false);
    for (limit, code) in
        [("statuses.404==0", 3), ("statuses.404>=20", 1), ("statuses.500==0", 1), ("status_codes.4xx<20", 3)]
    {
        let run = fetch(target, &format!("-n 20 -c 2 --limit {limit}"));
        assert_eq!(run.code, Some(code), "{limit} {}", run.summary()["limits"]);
    }
}
