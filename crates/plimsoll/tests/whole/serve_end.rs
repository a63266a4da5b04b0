//! How a server ends while peers go on as if it did not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::support::server::{PATIENCE, Server, assert_echoes, for_every_model, until};

for_every_model!(a_drain_ends_although_a_peer_never_stops_to_send, a_drain_ends_with_its_time);

/// Sends, and reads what comes back, for as long as the server takes it; returns whether the server
/// has ended it.
fn flood(stream: &TcpStream, echoed: impl Fn()) -> bool {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let message = vec![7; 1 << 20];
            // The server's end would be waited for without end where it does not come.
            let mut sender = stream;
            while start.elapsed() < PATIENCE && sender.write_all(&message).is_ok() {}
            let _ = stream.shutdown(std::net::Shutdown::Write);
        });
        let (mut buffer, mut receiver) = (vec![0; 1 << 20], stream);
        loop {
            match receiver.read(&mut buffer) {
                Ok(1..) => echoed(),
                // An end, or a reset where more has arrived as the connection is closed.
                Ok(0) | Err(_) => return start.elapsed() < PATIENCE,
            }
        }
    })
}

fn a_drain_ends_although_a_peer_never_stops_to_send(model: &str) {
    // A server that is slower than its peers, so that there is always more to read.
    let server = Server::echo(model, &["--drain", "1h", "--work", "100us"]);
    let streams = [server.connect(), server.connect()];
    std::thread::scope(|scope| {
        let (echoes, echoed) = std::sync::mpsc::channel();
        let floods = streams.each_ref().map(|stream| {
            let echoes = echoes.clone();
            scope.spawn(move || {
                flood(stream, || {
                    let _ = echoes.send(());
                })
            })
        });
        (0..20).for_each(|_| echoed.recv().expect("it echoes"));
        server.terminate();
        for flood in floods {
            assert!(flood.join().expect("no panic"), "{model}: its connection ends only as its peer stops");
        }
        let (status, summary) = server.wait();
        assert_eq!(status.code(), Some(0), "{model}: {summary}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{model}");
    });
}

fn a_drain_ends_with_its_time(model: &str) {
    let server = Server::http(model, &["--synthetic", "--drain", "500ms"]);
    let mut stuck = server.connect();
    // More than the kernel holds, so that it can never be sent.
    stuck.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    stuck.read_exact(&mut [0]).expect("the answer begins");
    server.terminate();
    until("it is over", || server.is_over());
    let (status, summary) = server.wait();
    assert_eq!((status.code(), &summary["errors"]), (Some(0), &serde_json::json!({})), "{model}: {summary}");
    let read = stuck.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::ConnectionReset), "{model}: an end would mean that all was sent");
}

#[test]
fn a_server_that_forks_ends_although_its_parent_ignores_the_end_of_children() {
    // The kernel reaped its processes then, and it waited for them without end.
    let ignoring = ["sh", "-c", "trap '' CHLD; exec \"$0\" \"$@\""];
    let server = Server::under(&ignoring, "echo", "fork", &[]);
    let mut stream = server.connect();
    assert_echoes(&mut stream, b"hello");
    drop(stream);
    let summary = server.stop();
    assert_eq!(summary["connections"], 1, "{summary}");
}
