//! Until when each model waits for a peer over HTTP, and for its own end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::server::{Server, for_every_model, until};
use crate::support::site::{Client, Site};
use plimsoll_sys::net;
use serde_json::json;

for_every_model!(and every strategy:
    who_takes_too_long_is_closed,
    what_came_in_time_to_a_server_that_stood_still_is_answered,
    a_peer_that_takes_nothing_is_reset_and_counted,
    a_reader_that_takes_a_little_now_and_then_is_served,
    a_peer_that_sends_and_takes_nothing_is_given_up,
    sigterm_finishes_the_answer_that_is_under_way,
    a_peer_that_still_sends_gets_its_last_answer_however_slowly_it_reads,
    sigterm_leaves_a_peer_that_still_sends_its_last_answer,
    a_second_sigterm_resets_the_answers_that_are_under_way,
);

fn who_takes_too_long_is_closed(model: &str) {
    let site = Site::new();
    site.write("index.html", b"here");
    let server = site.serve(model, &["--request-timeout", "700ms", "--keep-alive-timeout", "1h"]);
    let (mut silent, mut slow_head, mut slow_body) = (Client::new(&server), Client::new(&server), Client::new(&server));
    let start = Instant::now();
    slow_body.send("GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n");
    assert_eq!(slow_body.answer().status, 200);
    // Each says something now and then, which must not help it; the body so often that no wait of
    // the server's is in vain.
    let drips = [(&slow_head, 20_000), (&slow_body, 300)].map(|(client, pause_us)| {
        let mut dripping = client.writer.try_clone().expect("a stream can be cloned");
        std::thread::spawn(move || {
            while start.elapsed() < Duration::from_secs(20) && dripping.write_all(b"X").is_ok() {
                std::thread::sleep(Duration::from_micros(pause_us));
            }
            start.elapsed()
        })
    });
    assert_eq!(slow_head.answer().status, 408);
    assert!(slow_head.is_closed());
    assert!(silent.is_closed() && slow_body.is_closed());
    assert!(start.elapsed() >= Duration::from_millis(690), "{:?}", start.elapsed());
    drop(slow_head);
    for drip in drips {
        let ended = drip.join().expect("the dripping ends");
        assert!(ended < Duration::from_secs(20), "it is still read after {ended:?}");
    }
    assert_eq!(Client::new(&server).get("/", "").body, b"here");
}

fn what_came_in_time_to_a_server_that_stood_still_is_answered(model: &str) {
    // The time-out is longer than this machine takes for a request, however busy it is.
    for timeout in (1..8).map(|doubled| Duration::from_secs(1 << doubled)) {
        let text = format!("{}s", timeout.as_secs());
        let server = Server::http(model, &["--synthetic", "--keep-alive-timeout", &text]);
        let (mut client, start) = (Client::new(&server), Instant::now());
        assert_eq!(client.get("/bytes/1", "").status, 200);
        server.signal("STOP");
        client.send("GET /bytes/2 HTTP/1.1\r\nHost: test\r\n\r\n");
        let is_in_time = start.elapsed() < timeout;
        std::thread::sleep(timeout + Duration::from_millis(500));
        server.signal("CONT");
        if is_in_time {
            assert_eq!(client.answer().body.len(), 2);
            return;
        }
    }
    panic!("no request is answered within minutes");
}

fn a_peer_that_takes_nothing_is_reset_and_counted(model: &str) {
    const LENGTH: usize = 100_000_000;
    let site = Site::new();
    site.write("file", &vec![1; LENGTH]);
    let server = site.serve(model, &["--synthetic", "--send-timeout", "700ms"]);
    for target in ["/file", "/bytes/100000000"] {
        let mut client = Client::new(&server);
        let start = Instant::now();
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        until("the server has given it up", || !server.holds(&client.writer) && start.elapsed() > TAKES_NOTHING);
        let mut rest = Vec::new();
        let error = client.reader.read_to_end(&mut rest).expect_err("the answer does not end");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{target}");
        assert!(rest.len() < LENGTH, "{target}: {}", rest.len());
    }
    assert_eq!(Client::new(&server).get("/bytes/1", "").status, 200);
    let summary = server.stop();
    assert_eq!(summary["errors"], json!({ "send_timeout": 2 }), "{summary}");
}

/// The send time-out of the tests of it.
const TAKES_NOTHING: Duration = Duration::from_millis(700);

fn a_reader_that_takes_a_little_now_and_then_is_served(model: &str) {
    let server = Server::http(model, &["--synthetic", "--send-timeout", "3s"]);
    let mut client = Client::new(&server);
    // Small, so that its window opens for what little is read. It may send unread bytes meanwhile,
    // which are no progress.
    net::set_receive_buffer(&client.writer, 4096).expect("a buffer can be set");
    client.send("GET /bytes/100000000 HTTP/1.1\r\nHost: test\r\n\r\n");
    let (start, mut taken) = (Instant::now(), [0; 2048]);
    // Far less in all than the server's kernel has to send before it reports room.
    while start.elapsed() < Duration::from_secs(8) {
        client.writer.read_exact(&mut taken).expect("it is still served");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(server.holds(&client.writer));
    drop(client);
    server.stop();
}

fn a_peer_that_sends_and_takes_nothing_is_given_up(model: &str) {
    let server = Server::http(model, &["--synthetic", "--send-timeout", "700ms"]);
    let client = Client::new(&server);
    let mut writer = client.writer.try_clone().expect("a stream can be cloned");
    writer.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    until("the server has given it up", || {
        let _ = writer.write_all(b"G");
        !server.holds(&client.writer)
    });
}

fn sigterm_finishes_the_answer_that_is_under_way(model: &str) {
    let server = Server::http(model, &["--synthetic", "--drain", "60s"]);
    let mut idle = Client::new(&server);
    assert_eq!(idle.get("/bytes/1", "").status, 200);
    let mut busy = Client::new(&server);
    busy.send("GET /bytes/50000000 HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = busy.head().expect("an answer");
    server.terminate();
    assert!(idle.is_closed());
    let mut rest = Vec::new();
    busy.reader.read_to_end(&mut rest).expect("all of it comes");
    assert_eq!(head.field("content-length"), Some("50000000"));
    assert_eq!(rest.len(), 50_000_000);
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
}

/// Asks for a last answer that a socket's buffer holds, and sends more behind the request: the
/// server ends its half and discards what comes.
fn ask_for_the_last(server: &Server) -> Client {
    let mut client = Client::new(server);
    client.send("GET /bytes/1000000 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\nmore");
    assert_eq!(client.head().expect("an answer").field("content-length"), Some("1000000"));
    until("the server has ended its half", || server.has_ended(&client.writer));
    client
}

fn a_peer_that_still_sends_gets_its_last_answer_however_slowly_it_reads(model: &str) {
    let server = Server::http(model, &["--synthetic"]);
    let mut client = ask_for_the_last(&server);
    let start = Instant::now();
    // Longer than a server waits whose answer has arrived.
    while start.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(20));
        client.send("more");
    }
    let mut answer = Vec::new();
    client.reader.read_to_end(&mut answer).expect("all of it comes");
    assert_eq!(answer.len(), 1_000_000);
    assert_eq!(server.stop()["errors"], json!({}));
}

fn sigterm_leaves_a_peer_that_still_sends_its_last_answer(model: &str) {
    let server = Server::http(model, &["--synthetic", "--drain", "60s"]);
    let mut client = ask_for_the_last(&server);
    let address = server.address();
    server.terminate();
    until("it stops listening", || TcpStream::connect(address).is_err());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        std::thread::sleep(Duration::from_millis(10));
        client.send("more");
    }
    let mut answer = Vec::new();
    client.reader.read_to_end(&mut answer).expect("all of it comes");
    assert_eq!(answer.len(), 1_000_000);
    let (status, summary) = server.wait();
    assert_eq!((status.code(), &summary["errors"]), (Some(0), &json!({})));
}

fn a_second_sigterm_resets_the_answers_that_are_under_way(model: &str) {
    let site = Site::new();
    site.write("file", &vec![1; 50_000_000]);
    let server = site.serve(model, &["--synthetic", "--drain", "1h"]);
    let mut clients = ["/file", "/bytes/50000000"].map(|target| {
        let mut client = Client::new(&server);
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert_eq!(client.head().expect("an answer").field("content-length"), Some("50000000"));
        client
    });
    let address = server.address();
    server.terminate();
    until("it stops listening", || TcpStream::connect(address).is_err());
    server.terminate();
    let (status, summary) = server.wait();
    assert_eq!((status.code(), &summary["errors"]), (Some(0), &json!({})));
    for client in &mut clients {
        let end = client.reader.read_to_end(&mut Vec::new());
        let error = end.expect_err("an end of the stream would say that all was sent");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
