//! What every model must do over HTTP under every accept strategy, as any client sees it. One suite
//! runs them all; what does not depend on the model is tested at the service.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::server::{Noise, Server, for_every_model, text_of, until};
use crate::support::site::{Client, Site};
use plimsoll_sys::net;
use serde_json::json;

for_every_model!(and every strategy:
    files_of_every_size_arrive_whole,
    pipelined_requests_are_answered_in_order,
    a_connection_goes_on_after_each_answer_and_ends_when_it_should,
    bytes_behind_a_last_request_that_fills_a_buffer_lose_no_answer,
    bytes_that_come_while_a_last_answer_is_sent_lose_none_of_it,
    bytes_that_come_while_answers_are_made_reset_nothing,
    ranges_and_conditions_are_kept_to,
    nothing_outside_of_the_root_is_found,
    a_request_may_come_byte_by_byte,
    an_urgent_byte_within_a_request_stops_nothing,
    each_refusal_has_its_status,
    a_shrinking_file_ends_the_connection_before_its_promise,
    what_was_sent_of_a_shrinking_file_is_counted,
    malformed_requests_leave_it_serving,
    synthetic_bodies_are_as_long_as_asked_for,
    burning_costs_the_cpu_time_that_was_asked_for,
    a_file_under_the_root_may_be_costly,
    descriptors_come_back,
    a_client_that_ends_and_then_resets_is_counted_as_a_reset,
);

fn files_of_every_size_arrive_whole(model: &str) {
    let site = Site::new();
    let sizes = [0, 1, 8191, 8192, 8193, 65_536, 75_672, 1 << 20, (24 << 20) + 7];
    for size in sizes {
        site.write(&format!("{size}.bin"), &Noise::new(size as u64).bytes(size));
    }
    let server = site.serve(model, &[]);
    let mut client = Client::new(&server);
    for size in sizes {
        let answer = client.get(&format!("/{size}.bin"), "");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-type"), Some("application/octet-stream"));
        assert!(answer.body == Noise::new(size as u64).bytes(size), "{size}");
    }
    client.send("HEAD /1048576.bin HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.head().expect("an answer").field("content-length"), Some("1048576"));
    assert_eq!(client.get("/1.bin", "").body.len(), 1);
    drop(client);
    let summary = server.stop();
    assert_eq!((&summary["requests"], &summary["connections"]), (&json!(sizes.len() + 2), &json!(1)), "{summary}");
    assert_eq!(summary["errors"], json!({}));
}

fn pipelined_requests_are_answered_in_order(model: &str) {
    let site = Site::new();
    for number in 0..5 {
        site.write(&format!("{number}"), &Noise::new(number).bytes(7 << (number * 4)));
    }
    let server = site.serve(model, &[]);
    let client = Client::new(&server);
    let (mut writer, mut reading) = (client.writer.try_clone().expect("a stream can be cloned"), client);
    let mut noise = Noise::new(7);
    let order: Vec<u64> = (0..2000).map(|_| noise.word() % 5).collect();
    let requests: String = order
        .iter()
        .map(|number| if *number == 4 { "GET /absent".into() } else { format!("GET /{number}") })
        .map(|request: String| request + " HTTP/1.1\r\nHost: test\r\n\r\n")
        .collect();
    let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()).expect("the server reads"));
    for number in order {
        let answer = reading.answer();
        match number {
            4 => assert_eq!(answer.status, 404),
            _ => assert!(answer.body == Noise::new(number).bytes(7 << (number * 4)), "{number}"),
        }
    }
    writing.join().expect("the writer does not panic");
}

fn a_connection_goes_on_after_each_answer_and_ends_when_it_should(model: &str) {
    let site = Site::new();
    site.write("index.html", b"here");
    let server = site.serve(model, &["--keep-alive-timeout", "700ms"]);
    let mut client = Client::new(&server);
    for _ in 0..2 {
        assert_eq!(client.get("/", "").body, b"here");
    }
    // From before the last request: this thread may hear of its answer late.
    let idle = Instant::now();
    assert_eq!(client.get("/", "").body, b"here");
    assert!(client.is_closed(), "nothing is said to an idle connection at its end");
    assert!(idle.elapsed() >= Duration::from_millis(690), "{:?}", idle.elapsed());

    let mut client = Client::new(&server);
    assert_eq!(client.get("/", "Connection: close\r\n").field("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = Client::new(&server);
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().body, b"here");
    assert!(client.is_closed());
    let mut client = Client::new(&server);
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.answer().field("connection"), Some("keep-alive"));
    assert_eq!(client.get("/", "").status, 200);

    let old = site.serve(model, &["--http", "1.0"]);
    let mut client = Client::new(&old);
    assert_eq!(client.get("/", "").body, b"here");
    assert!(client.is_closed());
}

/// A close on bytes that were not read is a reset (RFC 1122, section 4.2.2.13), and drops what the
/// peer has not been sent yet.
fn bytes_behind_a_last_request_that_fills_a_buffer_lose_no_answer(model: &str) {
    const BEFORE: &str = "GET /bytes/1 HTTP/1.1\r\nHost: test\r\n\r\n";
    const LENGTH: usize = 1_000_000;
    let site = Site::new();
    site.write("file", &vec![1; LENGTH]);
    let server = site.serve(model, &["--synthetic"]);
    // The buffers of the ring, of the threads and processes, and of the loops.
    for size in [4 << 10, 16 << 10, 64 << 10] {
        for target in ["/file", "/bytes/1000000"] {
            let last = format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX: \r\n\r\n");
            let before = (size - last.len()) / BEFORE.len();
            let padding = "x".repeat(size - last.len() - before * BEFORE.len());
            let last = last.replace("X: ", &format!("X: {padding}"));
            let requests = BEFORE.repeat(before) + &last;
            assert_eq!(requests.len(), size);
            // All of it has arrived when the server looks.
            server.signal("STOP");
            let mut client = Client::new(&server);
            client.send(&(requests + "\r\n"));
            server.signal("CONT");
            std::thread::sleep(Duration::from_millis(200));
            for number in 0..before {
                assert_eq!(client.answer().body.len(), 1, "{size} {target}: answer {number} of {before}");
            }
            assert_eq!(client.answer().body.len(), LENGTH, "{size} {target}");
            assert_eq!(client.reader.read_to_end(&mut Vec::new()).ok(), Some(0), "{size} {target}: a reset");
        }
    }
    let summary = server.stop();
    assert_eq!(summary["errors"], json!({}), "{summary}");
}

fn bytes_that_come_while_a_last_answer_is_sent_lose_none_of_it(model: &str) {
    const LENGTH: usize = 60_000_000;
    let site = Site::new();
    site.write("file", &vec![1; LENGTH]);
    let server = site.serve(model, &["--synthetic"]);
    for (target, is_urgent) in
        [("/file", false), ("/bytes/60000000", false), ("/file", true), ("/bytes/60000000", true)]
    {
        let mut client = Client::new(&server);
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
        let head = client.head().expect("an answer");
        assert_eq!(head.status, 200);
        if is_urgent {
            net::write_urgent(&client.writer, b'x').expect("there is room");
        } else {
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        }
        let (mut read, mut again, mut bytes) = (0, is_urgent, vec![0; 1 << 20]);
        while read < LENGTH {
            let last = LENGTH - read <= 8 << 20;
            // And once the server has sent all that it has to.
            if LENGTH - read <= 3 << 20 && !std::mem::replace(&mut again, true) {
                std::thread::sleep(Duration::from_millis(200));
                client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            }
            std::thread::sleep(Duration::from_millis(if last { 20 } else { 0 }));
            let length = match client.reader.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome.unwrap_or_else(|error| panic!("{target} after {read}: {error}")),
            };
            assert!(length > 0, "{target}: the end after {read}");
            read += length;
        }
        assert_eq!(client.reader.read_to_end(&mut bytes).ok(), Some(0), "{target}: a reset");
    }
    server.stop();
}

fn bytes_that_come_while_answers_are_made_reset_nothing(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let requests = "GET /bytes/10 HTTP/1.1\r\nHost: test\r\n\r\n".repeat(50);
    for first in [requests.as_str(), "GET /burn/20ms/10 HTTP/1.1\r\nHost: test\r\n\r\n"] {
        for _ in 0..20 {
            let mut client = Client::new(&server);
            client.send(&format!("{first}GET /bytes/10 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
            // Some come before the close, and these must be read.
            std::thread::sleep(Duration::from_micros(200));
            let _ = client.writer.write_all(b"\r\n");
            let mut answers = Vec::new();
            let end = client.reader.read_to_end(&mut answers).map_err(|error| error.kind());
            let count = answers.windows(12).filter(|bytes| bytes == b"HTTP/1.1 200").count();
            assert_eq!(count, 1 + first.matches("GET").count(), "{end:?}");
        }
    }
    assert_eq!(server.stop()["leaked"]["slots"], 0);
}

fn ranges_and_conditions_are_kept_to(model: &str) {
    let site = Site::new();
    let bytes = Noise::new(1).bytes(300_000);
    site.write("file", &bytes);
    let server = site.serve(model, &[]);
    let mut client = Client::new(&server);
    let whole = client.get("/file", "");
    let tag = whole.field("etag").expect("a tag").to_owned();
    let date = whole.field("last-modified").expect("a date").to_owned();
    for (range, part) in
        [("0-0", 0..1), ("299999-", 299_999..300_000), ("-200000", 100_000..300_000), ("5-250000", 5..250_001)]
    {
        let answer = client.get("/file", &format!("Range: bytes={range}\r\n"));
        assert_eq!(answer.status, 206);
        assert!(answer.body == bytes[part], "{range}");
    }
    assert_eq!(client.get("/file", "Range: bytes=300000-\r\n").status, 416);
    assert_eq!(client.get("/file", &format!("If-None-Match: {tag}\r\n")).status, 304);
    assert_eq!(client.get("/file", &format!("If-Modified-Since: {date}\r\n")).status, 304);
    site.write("file", b"another");
    assert_eq!(client.get("/file", &format!("If-None-Match: {tag}\r\n")).body, b"another");
}

fn nothing_outside_of_the_root_is_found(model: &str) {
    let site = Site::new();
    site.write("inner/index.html", b"inside");
    fs::write(site.0.join("secret"), "secret").expect("a file can be written");
    let link =
        |to: &str, from: &str| std::os::unix::fs::symlink(to, site.root().join(from)).expect("a link can be made");
    link("../secret", "out");
    link("/etc", "etc");
    link("inner", "within");
    link(&text_of(&site.root().join("inner")), "back");
    let server = site.serve(model, &[]);
    let mut client = Client::new(&server);
    for target in [
        "/out",
        "/etc/passwd",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/inner/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/secret%00",
        "/back/index.html",
    ] {
        let answer = client.get(target, "");
        assert!(matches!(answer.status, 400 | 404), "{target}: {}", answer.status);
    }
    assert_eq!(client.get("/within/", "").body, b"inside");
    assert_eq!(client.get("/inner", "").field("location"), Some("/inner/"));
    assert_eq!(client.get("/%69nner/index%2Ehtml", "").body, b"inside");
}

fn a_request_may_come_byte_by_byte(model: &str) {
    let site = Site::new();
    site.write("index.html", b"here");
    let server = site.serve(model, &[]);
    let mut client = Client::new(&server);
    for byte in
        "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabcGET /no HTTP/1.1\r\nHost: test\r\n\r\n".chars()
    {
        client.send(&byte.to_string());
    }
    assert_eq!(client.answer().body, b"here");
    assert_eq!(client.answer().status, 404);
}

fn an_urgent_byte_within_a_request_stops_nothing(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let mut client = Client::new(&server);
    assert_eq!(client.get("/bytes/1", "").body.len(), 1);
    // It finds all of this at once: a read stops before the urgent byte, which is no part of the
    // stream.
    server.signal("STOP");
    client.send("GET /bytes/2 HT");
    net::write_urgent(&client.writer, b'!').expect("there is room");
    client.send("TP/1.1\r\nHost: test\r\n\r\n");
    server.signal("CONT");
    assert_eq!(client.answer().body.len(), 2);
}

fn each_refusal_has_its_status(model: &str) {
    let site = Site::new();
    site.write("file", b"here");
    let server = site.serve(model, &[]);
    let long = "x".repeat(9000);
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    for (request, status) in [
        ("GET /file\x00 HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(), 400),
        ("GET /file HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /none HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(), 404),
        ("DELETE /file HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(), 405),
        ("GET /file HTTP/1.1\r\nHost: test\r\nContent-Length: 9999999\r\n\r\n".to_owned(), 413),
        (format!("GET /{long} HTTP/1.1\r\nHost: test\r\n\r\n"), 414),
        ("GET /file HTTP/1.1\r\nHost: test\r\nRange: bytes=9-\r\n\r\n".to_owned(), 416),
        (format!("GET /file HTTP/1.1\r\nHost: test\r\n{many}\r\n"), 431),
        (format!("GET /file HTTP/1.1\r\nHost: test\r\nX: {long}{long}\r\n\r\n"), 431),
        ("BREW /file HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(), 501),
        ("GET /file HTTP/3.0\r\nHost: test\r\n\r\n".to_owned(), 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
    ] {
        let mut client = Client::new(&server);
        // It may be refused before all of it is out.
        let _ = client.writer.write_all(request.as_bytes());
        assert_eq!(client.answer().status, status, "{}", &request[..request.len().min(60)]);
    }
}

fn a_shrinking_file_ends_the_connection_before_its_promise(model: &str) {
    let site = Site::new();
    let size = 64 << 20;
    site.write("file", &vec![1; size]);
    let server = site.serve(model, &[]);
    let mut client = Client::new(&server);
    client.send("GET /file HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.head().expect("an answer").field("content-length"), Some("67108864"));
    fs::OpenOptions::new()
        .write(true)
        .open(site.root().join("file"))
        .expect("it is there")
        .set_len(1000)
        .expect("it shrinks");
    let mut rest = Vec::new();
    let _ = client.reader.read_to_end(&mut rest);
    assert!(rest.len() < size, "{}", rest.len());
    assert_eq!(Client::new(&server).get("/file", "").body.len(), 1000);
}

fn what_was_sent_of_a_shrinking_file_is_counted(model: &str) {
    let site = Site::new();
    site.write("file", &vec![1; 16 << 20]);
    let server = site.serve(model, &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
    stream.read_exact(&mut [0]).expect("the answer begins");
    // The kernel's buffers hold less than this (net.ipv4.tcp_wmem and tcp_rmem).
    let file = fs::OpenOptions::new().write(true).open(site.root().join("file")).expect("it is there");
    file.set_len(12 << 20).expect("it shrinks");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an end, and no reset");
    let summary = server.stop();
    assert_eq!(summary["bytes_sent"], json!(1 + rest.len()), "{summary}");
    assert_eq!(summary["errors"], json!({"file_shrank": 1}));
}

fn malformed_requests_leave_it_serving(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let corpus = corpus();
    assert!(corpus.len() > 20, "the corpus is there");
    // How connections find their worker makes no difference to a request: the models have ten
    // thousand each, the strategies fewer.
    let rounds = if model.contains('/') { 500 } else { 10_000 };
    let mut noise = Noise::new(rounds);
    for round in 0..rounds as usize {
        let mut request = corpus[round % corpus.len()].clone();
        for _ in 0..round / corpus.len() {
            let place = noise.word() as usize % request.len().max(1);
            if let Some(byte) = request.get_mut(place) {
                *byte = noise.word() as u8;
            }
        }
        let mut stream = server.connect();
        // It may be refused and closed before all of it is out.
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", request.escape_ascii());
    }
    assert_eq!(Client::new(&server).get("/bytes/1", "").status, 200);
    server.stop();
}

/// What the fuzzer has found worth keeping.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subject/serve/fuzz/corpus/http");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("the corpus is checked in").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).expect("readable")).collect()
}

fn synthetic_bodies_are_as_long_as_asked_for(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let mut client = Client::new(&server);
    for size in [0, 1, 4096, 4097, 75_672, 10 << 20] {
        let body = client.get(&format!("/bytes/{size}"), "").body;
        assert_eq!(body.len(), size);
        let line = b"Plimsoll: bytes from nowhere, to be counted, not to be believed\n";
        assert!(body.iter().zip(line.iter().cycle()).all(|(byte, expected)| byte == expected));
    }
    assert_eq!(client.get("/bytes/4KiB", "Range: bytes=1-4\r\n").body, b"lims");
    assert_eq!(client.get("/index.html", "").status, 404);
}

fn burning_costs_the_cpu_time_that_was_asked_for(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let mut client = Client::new(&server);
    assert_eq!(client.get("/bytes/1", "").status, 200);
    // Fork's child and all threads count; a clock tick is 10 ms.
    let ticks = || server.processes().iter().map(|process| process.ticks).sum::<u64>();
    let before = ticks();
    for _ in 0..10 {
        assert_eq!(client.get("/burn/20ms/5", "").body.len(), 5);
    }
    assert!((19..60).contains(&(ticks() - before)), "{} ticks for 200 ms", ticks() - before);
    assert_eq!(client.get("/burn/2h/5", "").status, 400);
}

fn a_file_under_the_root_may_be_costly(model: &str) {
    let site = Site::new();
    site.write("costly file", b"costly");
    site.write("cheap", b"cheap");
    let server = site.serve(model, &["--work-path", "/costly file=20ms"]);
    let mut client = Client::new(&server);
    assert_eq!(client.get("/cheap", "").body, b"cheap");
    let ticks = || server.processes().iter().map(|process| process.ticks).sum::<u64>();
    let before = ticks();
    for _ in 0..10 {
        assert_eq!(client.get("/costly%20file", "").body, b"costly");
    }
    // A clock tick is 10 ms.
    assert!((19..60).contains(&(ticks() - before)), "{} ticks for 200 ms", ticks() - before);
}

fn descriptors_come_back(model: &str) {
    let site = Site::new();
    site.write("file", &Noise::new(1).bytes(100_000));
    let server = site.serve(model, &[]);
    // `make soak` asks for ten thousand.
    let asked = std::env::var("PLIMSOLL_DESCRIPTOR_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = asked.unwrap_or(if model == "fork" { 100 } else { 500 });
    let come_and_go = || {
        for round in 0..rounds {
            let mut client = Client::new(&server);
            client.send("GET /file HTTP/1.1\r\nHost: test\r\n\r\n");
            // Every other one goes away in the middle of the answer.
            match round % 2 {
                0 => assert_eq!(client.answer().body.len(), 100_000),
                _ => drop(client.head()),
            }
        }
    };
    let open = || server.processes().iter().map(|process| process.descriptors().len()).sum::<usize>();
    // A worker may begin, and open what it waits with, after another has served. What connections
    // leave behind is a hundred at least, and comes again.
    let within = |most: usize| {
        until("as many descriptors are open as before", || server.processes().len() == 1 && open() <= most);
        open()
    };
    assert_eq!(Client::new(&server).get("/file", "").status, 200);
    let first = within(usize::MAX);
    come_and_go();
    let then = within(first + 50);
    come_and_go();
    within(then);
    let summary = server.stop();
    assert_eq!(summary["connections"], 2 * rounds + 1);
}

fn a_client_that_ends_and_then_resets_is_counted_as_a_reset(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let mut client = server.connect();
    client.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    client.peek(&mut [0]).expect("the answer begins");
    // From here on the kernel calls a reset EPIPE (tcp_reset in its tcp_input.c).
    client.shutdown(Shutdown::Write).expect("connected");
    until("the end has arrived", || !server.holds(&client));
    // What was not read makes the close a reset.
    drop(client);
    until("it is reset", || server.unclosed() == 0);
    let summary = server.stop();
    assert_eq!(summary["errors"], json!({"econnreset": 1}), "{summary}");
}
