//! The settings that make a reference server other than the plainest, and what other people's clients find.
#![allow(clippy::print_stderr, reason = "a skipped test says why, and a timed one what it saw")]

mod server;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use server::{Server, assert_echoes, for_every_model};

for_every_model!(
    each_message_gets_its_postfix,
    an_idle_connection_is_closed,
    work_is_burnt_for_each_reply,
    foreign_clients_agree
);

fn each_message_gets_its_postfix(model: &str) {
    let check = |arguments: &[&str], sent: &[u8], expected: &[u8]| {
        let server = Server::echo(model, &[&["--postfix", ":OK"], arguments].concat());
        let mut stream = server.connect();
        for piece in sent.chunks(7) {
            stream.write_all(piece).expect("the server reads");
        }
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(answer, expected, "{}", answer.escape_ascii());
    };
    check(&["--message-size", "5"], b"HELLOWORLDagain", b"HELLO:OKWORLD:OKagain:OK");
    check(&["--message-end", "\\r\\n"], b"HELLO\r\nto all\r\n\r\n", b"HELLO\r\n:OKto all\r\n:OK\r\n:OK");
    let many = b"x\n".repeat(20_000);
    check(&["--message-end", "\\n"], &many, &b"x\n:OK".repeat(20_000));
}

fn an_idle_connection_is_closed(model: &str) {
    let server = Server::echo(model, &["--idle-timeout", "300ms"]);
    let mut stream = server.connect();
    let start = Instant::now();
    // Each byte begins the time anew.
    while start.elapsed() < Duration::from_millis(600) {
        assert_echoes(&mut stream, b"awake");
        std::thread::sleep(Duration::from_millis(50));
    }
    let idle = Instant::now();
    assert_eq!(stream.read(&mut [0]).expect("it is closed cleanly"), 0);
    assert!(idle.elapsed() > Duration::from_millis(200), "{:?}", idle.elapsed());
    assert_eq!(server.stop()["errors"], serde_json::json!({}));
}

fn work_is_burnt_for_each_reply(model: &str) {
    let server = Server::echo(model, &["--work", "10ms"]);
    let mut stream = server.connect();
    assert_echoes(&mut stream, b"warm");
    let ticks = || server.processes().iter().map(|process| process.ticks).sum::<u64>();
    let before = ticks();
    (0..20).for_each(|_| assert_echoes(&mut stream, b"dear"));
    // A clock tick is 10 ms.
    assert!((18..60).contains(&(ticks() - before)), "{} ticks for 200 ms", ticks() - before);
}

/// A client of somebody else's, its arguments, and how many requests with 200 it says it has made.
type Foreign = (&'static str, &'static [&'static str], fn(&str) -> Option<u64>);

fn number_after(text: &str, label: &str) -> Option<u64> {
    let rest = &text[text.find(label)? + label.len()..];
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

const PYTHON: &str = "import http.client, sys\n\
    c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1].split(':')[2].split('/')[0]))\n\
    n = 0\n\
    for _ in range(200):\n    c.request('GET', '/file.txt'); r = c.getresponse(); n += r.status == 200 and len(r.read()) == 75672\n\
    print('ok', n)";

const FOREIGN: [Foreign; 5] = [
    ("curl", &["-sS", "-o", "/dev/null", "-w", "ok %{num_connects} %{http_code} 1"], |text| {
        text.contains("ok 1 200").then_some(200)
    }),
    ("h2load", &["--h1", "-n", "200", "-c", "8"], |text| number_after(text, "status codes:")),
    ("ab", &["-k", "-n", "200", "-c", "8"], |text| {
        (number_after(text, "Failed requests:")? == 0).then(|| number_after(text, "Complete requests:"))?
    }),
    ("wrk", &["-t", "1", "-c", "8", "-d", "1"], |text| {
        let failed = text.contains("Non-2xx") || text.contains("Socket errors");
        let made: u64 = text.split(" requests in").next()?.rsplit(char::is_whitespace).next()?.parse().ok()?;
        (!failed).then_some(made.min(200))
    }),
    ("python3", &["-c", PYTHON], |text| number_after(text, "ok")),
];

fn foreign_clients_agree(model: &str) {
    let root = std::env::temp_dir().join(format!("plimsoll-foreign-{model}-{}", std::process::id()));
    fs::create_dir_all(&root).expect("a folder can be made");
    fs::write(root.join("file.txt"), vec![b'x'; 75_672]).expect("a file can be written");
    let server = Server::http(model, &["--root", root.to_str().expect("text")]);
    let url = format!("http://{}/file.txt", server.address());
    for (program, arguments, read) in FOREIGN {
        let Ok(output) = Command::new(program).args(arguments).arg(&url).output() else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(read(&text), Some(200), "{program}: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::remove_dir_all(root).expect("it is ours");
    // h2load and wrk may leave in the middle of an answer; nothing else may go wrong.
    let summary = server.stop();
    let errors = summary["errors"].as_object().expect("causes").keys();
    assert!(errors.clone().all(|cause| matches!(cause.as_str(), "econnreset" | "epipe")), "{summary}");
}

#[test]
fn a_postfix_without_a_message_is_refused_with_the_way_out() {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "echo", "--postfix", ":OK"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("add --message-size 64 or --message-end"));
}

/// A connection with hundreds of requests under way at any time, each of which costs the server a millisecond.
fn flood(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    let (mut writer, mut reader) = (stream.try_clone().expect("cloned"), stream.try_clone().expect("cloned"));
    std::thread::spawn(move || {
        let requests = "GET /burn/1ms/100 HTTP/1.1\r\nHost: test\r\n\r\n".repeat(500);
        while writer.write_all(requests.as_bytes()).is_ok() {}
    });
    std::thread::spawn(move || {
        let mut waste = vec![0; 1 << 18];
        while reader.read(&mut waste).is_ok_and(|length| length > 0) {}
    });
    stream
}

/// The times of 400 answers on four connections, the shortest first.
fn times(server: &Server) -> Vec<Duration> {
    let mut streams: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    let mut times = Vec::new();
    let mut answer = vec![0; 1 << 16];
    for round in 0..400 {
        let stream = &mut streams[round % 4];
        let start = Instant::now();
        stream.write_all(b"GET /bytes/100 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
        let _ = stream.read(&mut answer).expect("the server answers");
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times
}

#[test]
fn one_who_floods_has_one_turn_in_each_round_and_one_who_stalls_none() {
    for model in ["select", "poll", "epoll", "epoll-et", "uring"] {
        let server = Server::http(model, &["--synthetic", "--workers", "1"]);
        let mut stalled = server.connect();
        stalled.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
        let quiet = times(&server);
        let flooding = flood(server.address());
        let loud = times(&server);
        eprintln!(
            "{model}: p50 {:?} and p99 {:?}, beside a flood {:?} and {:?}",
            quiet[200], quiet[395], loud[200], loud[395]
        );
        // Of the five hundred milliseconds that the flood has under way, two at most come first. The median, as the test shares its CPUs with whatever
        // else runs; its own threads may cost it a time slice.
        assert!(loud[200] < 2 * quiet[395] + Duration::from_millis(12), "{model}: {:?}", loud[200]);
        let _ = flooding.shutdown(std::net::Shutdown::Both);
    }
}
