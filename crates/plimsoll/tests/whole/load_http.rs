//! `plimsoll load http` against servers that answer in every way HTTP/1.x allows, and in some that
//! it does not.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::support::peer::{Run, command, outcome, serve};

/// Reads one request without a body: its head.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Answers every request with the same bytes, in the given pieces; closes after an answer where
/// told to.
fn answering(pieces: &'static [&'static str], close: bool) -> SocketAddr {
    serve(move |mut stream| {
        stream.set_nodelay(true).expect("the socket is open");
        while request(&mut stream).is_some() {
            for piece in pieces {
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
                if pieces.len() > 1 {
                    // So that the pieces arrive apart: what matters is that they may, not that they
                    // do.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if close {
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut [0]);
                return;
            }
        }
    })
}

fn fetch(target: SocketAddr, arguments: &str) -> Run {
    outcome(&command("http", &format!("http://{target}/x"), arguments).output().expect("the binary runs"))
}

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
    let twice = fetch(answering(&["HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\n"], false), "--each 1 -c 4");
    assert_eq!(twice.count("errors.mismatch"), 4);
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

/// A server that keeps the heads of the requests it gets.
fn listening(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&heads);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            log.lock().expect("no test thread panics").push(head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (target, heads)
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn requests_say_what_the_flags_say() {
    let (target, heads) = listening(EMPTY);
    let run = fetch(target, "-n 1 -c 1");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    fetch(target, "-n 1 -c 1 --http 1.0 -m DELETE -H Accept:text/html");
    fetch(target, "-n 1 -c 1 -m HEAD -H host:other --reconnect");
    fetch(target, "-n 1 -c 1 -m POST");
    let agent = concat!("User-Agent: plimsoll/", env!("CARGO_PKG_VERSION"));
    let want = [
        format!("GET /x HTTP/1.1\r\nHost: {target}\r\n{agent}\r\nAccept: */*\r\n\r\n"),
        format!("DELETE /x HTTP/1.0\r\nHost: {target}\r\n{agent}\r\nAccept: text/html\r\n\r\n"),
        format!("HEAD /x HTTP/1.1\r\n{agent}\r\nAccept: */*\r\nConnection: close\r\nhost: other\r\n\r\n"),
        format!("POST /x HTTP/1.1\r\nHost: {target}\r\n{agent}\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n"),
    ];
    assert_eq!(*heads.lock().expect("no test thread panics"), want);
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

#[test]
fn a_name_is_loaded_where_its_server_listens() {
    let (target, heads) = listening(EMPTY);
    let url = format!("http://localhost:{}/x", target.port());
    // Where localhost is ::1 first, nothing listens there, and that is said.
    let run = outcome(&command("http", &url, "-n 10 -c 4").output().expect("the binary runs"));
    assert_eq!((run.count("requests.completed"), &run.summary()["targets"]), (10, &json!([target.to_string()])));
    let run = outcome(&command("http", &url, "-n 10 -c 4 -4").output().expect("the binary runs"));
    assert_eq!((run.count("requests.completed"), run.stderr.as_str()), (10, ""));
    assert!(heads.lock().expect("no test thread panics").iter().all(|head| head.contains("Host: localhost:")));
}

#[test]
fn a_connection_goes_elsewhere_where_it_is_told_to() {
    let (target, heads) = listening(EMPTY);
    let arguments = format!("-n 6 -c 2 --connect-to shop.example:80:{target}");
    let run = outcome(&command("http", "http://shop.example/x", &arguments).output().expect("the binary runs"));
    assert_eq!(run.count("requests.completed"), 6, "{}", run.stderr);
    assert!(heads.lock().expect("no test thread panics").iter().all(|head| head.contains("Host: shop.example\r\n")));
}

/// Answers /x with a redirect to /y/, and that with one to ./z; everything else with an empty body.
fn redirecting() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&paths);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let answer = match path.as_str() {
                "/x" => "HTTP/1.1 302 Found\r\nLocation: /y/\r\nContent-Length: 0\r\n\r\n",
                "/y/" => "HTTP/1.1 308 Permanent\r\nLocation: ./z\r\nContent-Length: 0\r\n\r\n",
                "/round" => "HTTP/1.1 302 Found\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n",
                _ => EMPTY,
            };
            log.lock().expect("no test thread panics").push(path);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (target, paths)
}

#[test]
fn a_redirect_is_an_answer_unless_it_is_to_be_followed() {
    let (target, paths) = redirecting();
    let counted = fetch(target, "-n 6 -c 2");
    assert_eq!((counted.count("redirects"), &counted.summary()["statuses"]), (6, &json!({ "302": 6 })));
    paths.lock().expect("no test thread panics").clear();
    let followed = fetch(target, "-n 6 -c 2 --follow");
    assert_eq!((followed.count("redirects"), &followed.summary()["statuses"]), (0, &json!({ "200": 6 })));
    assert_eq!(*paths.lock().expect("no test thread panics"), [["/x", "/y/"].as_slice(), &["/y/z"; 7]].concat());
    for (url, arguments, says) in [("/round", "", "more than 10 redirects"), ("/x", "--data a", "leads to a GET")] {
        let mut load = command("http", &format!("http://{target}{url}"), &format!("--follow {arguments}"));
        let output = load.output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(says)), (Some(2), true), "{stderr}");
    }
}

#[test]
fn a_body_is_sent_with_its_length() {
    let bodies: Arc<Mutex<Vec<u8>>> = Arc::default();
    let log = Arc::clone(&bodies);
    let target = serve(move |mut stream| {
        while let Some(head) = request(&mut stream) {
            assert!(head.starts_with("POST /x HTTP/1.1\r\n") && head.contains("\r\nContent-Length: 300000\r\n"));
            let mut body = vec![0; 300_000];
            stream.read_exact(&mut body).expect("the body comes");
            log.lock().expect("no test thread panics").extend(body);
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("plimsoll-body-{}", std::process::id()));
    std::fs::write(&file, vec![7; 300_000]).expect("a file");
    let run = fetch(target, &format!("-n 4 -c 2 -b {}", file.display()));
    std::fs::remove_file(file).expect("it is there");
    assert_eq!(run.count("requests.completed"), 4);
    let bodies = bodies.lock().expect("no test thread panics");
    assert!(bodies.len() == 4 * 300_000 && bodies.iter().all(|byte| *byte == 7));
}

#[test]
fn a_body_is_sent_in_chunks_where_the_header_says_so() {
    let target = serve(|mut stream| {
        while let Some(head) = request(&mut stream) {
            assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("Content-Length"), "{head}");
            let mut body = vec![0; 6 + 16_384 + 2 + 5 + 3616 + 2 + 5];
            stream.read_exact(&mut body).expect("the body comes");
            assert!(body.starts_with(b"4000\r\n\x07") && body.ends_with(b"\x07\r\n0\r\n\r\n"));
            assert_eq!(&body[6 + 16_384..][..7], b"\r\ne20\r\n");
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("plimsoll-chunks-{}", std::process::id()));
    std::fs::write(&file, vec![7; 20_000]).expect("a file");
    let run = fetch(target, &format!("-n 4 -c 2 -H Transfer-Encoding:chunked -b {}", file.display()));
    std::fs::remove_file(file).expect("it is there");
    assert_eq!((run.count("requests.completed"), run.count("requests.failed")), (4, 0), "{}", run.summary());
}

#[test]
fn several_urls_are_fetched_in_turn() {
    let (target, heads) = listening(EMPTY);
    let run = fetch(target, &format!("http://{target}/y http://{target}/z -n 30 -c 1"));
    assert_eq!(run.count("requests.completed"), 30);
    let heads = heads.lock().expect("no test thread panics");
    for path in ["/x", "/y", "/z"] {
        assert_eq!(heads.iter().filter(|head| head.starts_with(&format!("GET {path} "))).count(), 10);
    }
}

#[test]
fn each_server_gets_the_requests_for_it() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        let servers = [listening(EMPTY), listening(EMPTY)];
        let run = fetch(servers[0].0, &format!("http://{}/y --each 3 -c 4 --engine {engine}", servers[1].0));
        assert_eq!(run.count("requests.completed"), 12, "{engine} {}", run.stderr);
        for ((server, heads), path) in servers.iter().zip(["/x", "/y"]) {
            let heads = heads.lock().expect("no test thread panics");
            assert_eq!(heads.len(), 6, "{engine}: connections are dealt over the servers in turn");
            for head in heads.iter() {
                assert!(
                    head.starts_with(&format!("GET {path} ")) && head.contains(&format!("Host: {server}\r\n")),
                    "{engine}: {head}"
                );
            }
        }
    }
}

#[test]
fn each_server_gets_all_of_its_urls_however_few_requests_a_connection_sends() {
    let paths = |heads: &Mutex<Vec<String>>| {
        let mut paths: Vec<String> = heads.lock().expect("no test thread panics").clone();
        paths.iter_mut().for_each(|head| head.truncate("GET /x".len()));
        paths.sort();
        paths
    };
    for engine in ["epoll -t 1", "epoll -t 2", "epoll -t 4", "uring -t 4", "threads", "fork"] {
        let servers = [listening(EMPTY), listening(EMPTY)];
        let [one, other] = [servers[0].0, servers[1].0];
        let urls = format!("http://{one}/y http://{other}/x http://{other}/y");
        let run = fetch(one, &format!("{urls} --each 1 -c 4 --engine {engine}"));
        assert_eq!(run.count("requests.completed"), 4, "{engine} {}", run.stderr);
        for (_, heads) in servers {
            assert_eq!(paths(&heads), ["GET /x", "GET /y"], "{engine}: two connections go to each server");
        }
        let (server, heads) = listening(EMPTY);
        let urls = format!("http://{server}/y http://{server}/z http://{server}/u");
        let run = fetch(server, &format!("{urls} --each 1 -c 4 --engine {engine}"));
        assert_eq!(run.count("requests.completed"), 4, "{engine} {}", run.stderr);
        assert_eq!(paths(&heads), ["GET /u", "GET /x", "GET /y", "GET /z"], "{engine}");
    }
}

#[test]
fn reconnecting_opens_a_connection_for_each_request() {
    for arguments in ["-n 40 -c 4 --reconnect", "--each 10 -c 4 --reconnect", "-n 40 -c 4 --reconnect -R 2k"] {
        let run = fetch(answering(&[EMPTY], false), arguments);
        assert_eq!(run.count("requests.completed"), 40, "{arguments} {}", run.summary()["errors"]);
        assert_eq!(run.count("establishment_time_us.count"), 40, "{arguments}");
        assert_eq!((run.count("connections.established"), run.count("connections.failed")), (4, 0));
        assert!(run.figure("response_time_us.mean") > run.figure("transmission_time_us.mean"));
    }
}

#[test]
fn nobody_listening_fails_every_request_of_a_reconnecting_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let target = listener.local_addr().expect("it is bound");
    drop(listener);
    for arguments in ["-d 30s -c 3 --reconnect", "-n 50 -c 3 --reconnect"] {
        let run = fetch(target, arguments);
        assert_eq!((run.code, run.count("connections.failed")), (Some(1), 3), "{arguments}");
        // The window opens at once, and the first attempts may come before it.
        let failed = run.count("requests.failed") + run.count("warm_up.requests.failed");
        assert_eq!(failed, 9, "three attempts each");
        assert!(run.summary()["warnings"].to_string().contains("ECONNREFUSED"));
    }
}

#[test]
fn a_wrong_url_or_header_is_refused_with_the_way_to_write_one() {
    for (url, arguments, says) in [
        ("127.0.0.1:80", "", "does not begin with http://"),
        ("ftp://h/", "", "only http and https"),
        ("http://127.0.0.1/", "https://127.0.0.1/", "in two runs"),
        ("http://", "", "names no host"),
        ("http://u@h/", "", "do not belong"),
        ("http://nohost.invalid/", "", "write ADDR:PORT"),
        ("http://127.0.0.1/", "-H Accept", "has no colon"),
        ("http://127.0.0.1/", "-m G,T", "such as GET"),
        ("http://127.0.0.1/", "--http 2", "1.0, 1.1"),
        ("http://::1:8000/", "", "http://[::1]:8000/"),
        ("http://127.0.0.1/", "-6", "leave -4 or -6 out"),
        ("http://127.0.0.1/", "http://127.0.0.2/ -c 1", "give a connection to each"),
        ("http://127.0.0.1/", "--insecure", "write https://"),
        ("http://127.0.0.1/", "--key /dev/null", "--cert"),
        ("https://127.0.0.1/", "--cacert /dev/null", "holds no certificate"),
        ("https://127.0.0.1/", "--cert /no/such/file", "name a PEM file"),
        ("http://127.0.0.1/", "--connect-to h:80", "shop.example"),
        ("http://127.0.0.1/", "--data x -b /dev/null", "cannot be used with"),
        ("http://127.0.0.1/", "--limit pool_wait.p99<1s", "needs an open loop"),
        ("http://127.0.0.1/", "--limit schedule_lag.p99<1s", "needs a schedule"),
    ] {
        let output = command("http", url, arguments).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url} {arguments}: {stderr}");
        assert!(stderr.contains(says), "{url} {arguments}: {stderr}");
    }
}
