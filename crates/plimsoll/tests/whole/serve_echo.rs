//! What every model must do, as any TCP client sees it. One suite runs them all.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::support::peer::load;
use crate::support::running::{Running, connect};
use crate::support::server::{Folder, Noise, Server, assert_echoes, command, for_every_model, text_of, until};
use plimsoll_sys::net;

/// open(2), on Linux.
const O_NONBLOCK: i32 = 0o4000;

for_every_model!(
    bytes_come_back_identical_whatever_their_number_and_pieces,
    five_hundred_connections_are_served_at_once,
    a_peer_that_half_closes_gets_all_its_bytes,
    a_peer_that_never_reads_cannot_make_memory_grow,
    rude_ends_leave_it_serving,
    sigterm_finishes_what_has_arrived,
    sigterm_leaves_a_peer_that_still_sends_all_that_was_sent_to_it,
    sigterm_ends_a_peer_that_goes_on_sending_without_a_reset,
    a_second_sigterm_ends_it_at_once,
    too_few_descriptors_neither_crash_nor_spin_it,
    every_closed_connection_has_a_row_in_the_log,
    a_connection_log_that_cannot_be_written_to_its_end_is_counted_and_named,
    each_client_that_has_finished_is_closed_and_its_row_has_its_requests_and_bytes,
    several_addresses_are_listened_on,
);

fn bytes_come_back_identical_whatever_their_number_and_pieces(model: &str) {
    let server = Server::echo(model, &[]);
    let mut sent = 0;
    for (seed, length) in (1..).zip([1, 2, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, 64 << 20]) {
        let stream = server.connect();
        let writer = stream.try_clone().expect("a stream can be cloned");
        let write = move || {
            let mut pieces = Noise::new(seed);
            let mut noise = Noise::new(length as u64);
            let (mut writer, mut left) = (writer, length);
            while left > 0 {
                // Mostly small pieces, now and then one larger than any buffer.
                let most = 1 << (pieces.word() % 19);
                let piece = left.min(1 + pieces.word() as usize % most).next_multiple_of(8).min(left);
                writer.write_all(&noise.bytes(piece)).expect("the server reads");
                left -= piece;
            }
        };
        let writing = std::thread::spawn(write);
        let (mut stream, mut noise, mut left) = (stream, Noise::new(length as u64), length);
        let mut answer = vec![0; 1 << 16];
        while left > 0 {
            let piece = left.min(answer.len());
            stream.read_exact(&mut answer[..piece]).expect("the server answers");
            assert!(answer[..piece] == noise.bytes(piece), "{} bytes before the end of {length}", left);
            left -= piece;
        }
        writing.join().expect("the writer does not panic");
        sent += length as u64;
    }
    let summary = server.stop();
    assert_eq!(summary["bytes_received"], sent);
    assert_eq!(summary["bytes_sent"], sent);
    assert_eq!(summary["errors"], serde_json::json!({}));
}

fn five_hundred_connections_are_served_at_once(model: &str) {
    let server = Server::echo(model, &[]);
    let mut streams: Vec<TcpStream> = (0..500).map(|_| server.connect()).collect();
    for (stream, number) in streams.iter_mut().zip(0_u64..) {
        stream.write_all(&number.to_ne_bytes()).expect("the server reads");
    }
    for (stream, number) in streams.iter_mut().zip(0_u64..) {
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(u64::from_ne_bytes(answer), number);
    }
    drop(streams);
    let summary = server.stop();
    assert_eq!(summary["peak_connections"], 500);
    assert_eq!(summary["connections"], 500);
}

fn a_peer_that_half_closes_gets_all_its_bytes(model: &str) {
    let server = Server::echo(model, &[]);
    // More than socket buffers hold, so that much is still to come when the end is sent.
    let message = Noise::new(3).bytes(8 << 20);
    let mut stream = server.connect();
    let mut writer = stream.try_clone().expect("a stream can be cloned");
    let sent = message.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).expect("the server reads");
        writer.shutdown(Shutdown::Write).expect("it is connected");
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers and closes");
    writing.join().expect("the writer does not panic");
    assert!(answer == message);
}

fn a_peer_that_never_reads_cannot_make_memory_grow(model: &str) {
    let server = Server::echo(model, &[]);
    assert_echoes(&mut server.connect(), b"warm");
    let resident = || server.processes().iter().map(|process| process.resident * 4096).sum::<u64>();
    let before = resident();
    let mut greedy = server.connect();
    greedy.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout can be set");
    let piece = vec![7; 1 << 20];
    let mut sent = 0_u64;
    // Until its socket has had no room for half a second. 256 MiB would be memory without bound.
    let stalled = loop {
        match greedy.write(&piece) {
            Ok(length) => sent += length as u64,
            Err(error) => break error,
        }
        assert!(sent < 256 << 20, "the server goes on taking bytes that nobody reads back");
    };
    assert_eq!(stalled.kind(), ErrorKind::WouldBlock, "{stalled}");
    server.assert_serves();
    // What the kernel holds is not the server's. Fork's child is a process more.
    assert!(resident() < before + (8 << 20), "from {before} to {} bytes", resident());
}

fn rude_ends_leave_it_serving(model: &str) {
    let server = Server::echo(model, &[]);
    for _ in 0..50 {
        let mut stream = server.connect();
        assert_echoes(&mut stream, b"hello");
        net::reset_on_close(&stream).expect("it is connected");
        drop(stream);

        let mut unread = server.connect();
        unread.write_all(&[1; 10_000]).expect("the server reads");
        drop(unread);
    }
    for _ in 0..1000 {
        drop(server.connect());
    }
    server.assert_serves();
    until("every connection but none is over", || {
        // Fork has a child a connection; the others free their descriptors.
        let processes = server.processes();
        server.queued() == 0
            && processes.len() == 1
            && processes[0].descriptors().iter().filter(|name| name.starts_with("socket:")).count() < 50
    });
    assert_eq!(server.stop()["connections"], 1101);
}

fn sigterm_finishes_what_has_arrived(model: &str) {
    let server = Server::echo(model, &["--drain", "60s"]);
    let mut idle = server.connect();
    assert_echoes(&mut idle, b"idle from now on");
    let mut busy = server.connect();
    let message = Noise::new(5).bytes(64 << 10);
    busy.write_all(&message).expect("the server reads");
    let mut first = [0];
    busy.read_exact(&mut first).expect("the server has begun to answer");
    server.terminate();
    let mut rest = Vec::new();
    busy.read_to_end(&mut rest).expect("the server answers all and closes");
    assert!(first[0] == message[0] && rest == message[1..]);
    assert_eq!(idle.read_to_end(&mut Vec::new()).expect("an idle connection is closed cleanly"), 0);
    let address = server.address();
    let (status, summary) = server.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(summary["bytes_sent"], summary["bytes_received"]);
    assert_eq!(summary["errors"], serde_json::json!({}));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

fn sigterm_leaves_a_peer_that_still_sends_all_that_was_sent_to_it(model: &str) {
    let server = Server::echo(model, &["--drain", "60s"]);
    let [mut stream, mut late] = [server.connect(), server.connect()];
    // At a connection that is still queued, SIGTERM would be a reset.
    assert_echoes(&mut stream, b"here");
    assert_echoes(&mut late, b"here");
    // Until all buffers are full, both ways: the peer's kernel sends the rest when there is room.
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    while stream.write(&[7; 1 << 16]).is_ok() {}
    // What comes back fits the server's kernel, and is more than the peer's takes unread.
    late.write_all(&[8; 1 << 18]).expect("the server reads");
    server.terminate();
    until("the server has ended its half", || server.has_ended(&late));
    late.write_all(b"more").expect("there is room");
    let mut answer = Vec::new();
    for stream in [&mut late, &mut stream] {
        stream.read_to_end(&mut answer).expect("all that was sent comes, and then the end");
    }
    let (status, summary) = server.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(summary["bytes_sent"], 2 * b"here".len() + answer.len());
    assert_eq!(summary["errors"], serde_json::json!({}));
}

fn sigterm_ends_a_peer_that_goes_on_sending_without_a_reset(model: &str) {
    const PEERS: usize = 8;
    for _ in 0..4 {
        // What arrives while it ends is answered up to a bound, for which a busy machine takes
        // longer than the usual time to drain; then all that are left are reset.
        let server = Server::echo(model, &["--drain", "1h"]);
        let streams: Vec<TcpStream> = (0..PEERS).map(|_| server.connect()).collect();
        let all_are_at_it = Barrier::new(PEERS + 1);
        let ends: Vec<io::Result<usize>> = std::thread::scope(|scope| {
            let peers = streams.iter().map(|stream| {
                let mut stream = stream;
                assert_echoes(&mut stream.try_clone().expect("a copy"), b"here");
                // With pauses, so that the server finds all read and all taken between two of them.
                scope.spawn(move || {
                    while stream.write_all(&[7; 1000]).is_ok() {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                });
                let all_are_at_it = &all_are_at_it;
                scope.spawn(move || {
                    let mut first = [0; 1000];
                    let begun = stream.read_exact(&mut first);
                    all_are_at_it.wait();
                    begun?;
                    stream.read_to_end(&mut Vec::new()).map(|rest| b"here".len() + first.len() + rest)
                })
            });
            let peers: Vec<_> = peers.collect();
            all_are_at_it.wait();
            server.terminate();
            peers.into_iter().map(|peer| peer.join().expect("no panic")).collect()
        });
        let received: usize = ends.into_iter().map(|end| end.expect("an end, and no reset")).sum();
        let (status, summary) = server.wait();
        assert_eq!(status.code(), Some(0));
        assert_eq!(summary["bytes_sent"], received);
        assert_eq!(summary["errors"], serde_json::json!({}));
    }
}

fn a_second_sigterm_ends_it_at_once(model: &str) {
    let server = Server::echo(model, &["--drain", "1h"]);
    // Its answer can never be sent, so draining would take the hour.
    let mut stuck = server.connect();
    stuck.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    while stuck.write(&[0; 1 << 16]).is_ok() {}
    let address = server.address();
    server.terminate();
    until("it stops listening", || TcpStream::connect(address).is_err());
    server.terminate();
    let (status, summary) = server.wait();
    assert_eq!(status.code(), Some(0));
    // The connection's bytes until then count, and ending it here is no error.
    assert!(summary["bytes_received"].as_u64().is_some_and(|bytes| bytes >= 1 << 16), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}));
}

fn too_few_descriptors_neither_crash_nor_spin_it(model: &str) {
    let server = Server::echo_with_limit(model, 64, &["--workers", "1"].repeat(usize::from(has_workers(model))));
    let mut streams: Vec<TcpStream> = (0..150).map(|_| server.connect()).collect();
    // Those that are served answer; the others wait at the listener.
    assert_echoes(&mut streams[0], b"the first is served");
    let ticks = || server.processes().iter().map(|process| process.ticks).sum::<u64>();
    // A second in which it does next to nothing: those before it may still be those in which it
    // took what it could.
    let idles = || {
        let (before, since) = (ticks(), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        // A clock tick is 10 ms (USER_HZ is 100 on Linux).
        (ticks() - before) as f64 * 0.01 / since.elapsed().as_secs_f64() < 0.05
    };
    assert!((0..20).any(|_| idles()), "it uses a CPU while nothing happens");
    for stream in &mut streams {
        // Each is closed as soon as it has been served, which makes room for the next.
        assert_echoes(stream, b"and now me");
        stream.shutdown(Shutdown::Both).expect("it is connected");
    }
    server.assert_serves();
    drop(streams);
    assert_eq!(server.stop()["connections"], 151);
}

fn every_closed_connection_has_a_row_in_the_log(model: &str) {
    let log = std::env::temp_dir().join(format!("plimsoll-connections-{model}-{}.csv", std::process::id()));
    let server = Server::echo(model, &["--connection-log", log.to_str().expect("text")]);
    let mut expected = Vec::new();
    for length in [1, 100, 5000] {
        let mut stream = server.connect();
        let port = stream.local_addr().expect("it is connected").port();
        stream.write_all(&vec![9; length]).expect("the server reads");
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).expect("the server answers");
        expected.push((port, length));
    }
    server.stop();
    let text = std::fs::read_to_string(&log).expect("the log is there");
    std::fs::remove_file(&log).expect("it is ours");
    let mut rows = text.lines();
    assert_eq!(rows.next(), Some("client_address,client_port,requests,bytes"));
    let mut seen: Vec<(u16, usize)> = rows
        .map(|row| {
            let fields: Vec<&str> = row.split(',').collect();
            assert_eq!((fields.len(), fields[0]), (4, "127.0.0.1"), "{row}");
            assert!(fields[2].parse::<u64>().expect("a number") >= 1, "{row}");
            (fields[1].parse().expect("a port"), fields[3].parse().expect("a number"))
        })
        .collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

fn a_connection_log_that_cannot_be_written_to_its_end_is_counted_and_named(model: &str) {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    // Without waiting for a writer (fifo(7)).
    let reader = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&fifo).expect("it is there");
    let server = Running::start(command("echo", model, &["--connection-log", &fifo]));
    drop(reader);
    assert_echoes(&mut server.connect(), b"a row");
    server.signal("TERM");
    let (_, summary, said) = server.wait();
    assert!(summary["errors"]["connection_log"].as_u64() > Some(0), "{summary}");
    let sentence = format!("the connection log {fifo} is incomplete: Broken pipe (os error 32); keep its reader open");
    assert!(said.contains(&sentence), "{said}");
}

fn each_client_that_has_finished_is_closed_and_its_row_has_its_requests_and_bytes(model: &str) {
    const CLIENTS: u64 = 5;
    let folder = Folder::new();
    let log = folder.path("connections.csv");
    let server = Server::echo(model, &["--connection-log", &text_of(&log)]);
    let run = load(server.address(), &format!("-c {CLIENTS} --each 20 -s 50 --payload text"));
    assert_eq!((run.count("requests.completed"), run.count("requests.failed")), (20 * CLIENTS, 0));
    until("every connection is closed", || server.unclosed() == 0);
    let summary = server.stop();
    assert_eq!((&summary["connections"], &summary["requests"]), (&CLIENTS.into(), &(20 * CLIENTS).into()));
    let text = std::fs::read_to_string(&log).expect("the log is there");
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(rows.len() as u64, CLIENTS, "{text}");
    for row in rows {
        assert_eq!(row.split(',').skip(2).collect::<Vec<_>>(), ["20", "1000"], "requests and bytes: {text}");
    }
}

fn several_addresses_are_listened_on(model: &str) {
    let server = Server::echo(model, &["--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--listen", "localhost:0"]);
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 3);
    assert!(addresses[1].is_ipv6());
    for &address in &addresses {
        assert_ne!(address.port(), 0);
        assert_echoes(&mut connect(address), b"here?");
    }
    // One of them may be busy while nobody asks at the others: more connections than any loop keeps
    // accepts waiting.
    for address in addresses {
        let mut streams: Vec<TcpStream> = (0..100).map(|_| connect(address)).collect();
        for stream in &mut streams {
            assert_echoes(stream, b"still here?");
        }
    }
}

fn has_workers(model: &str) -> bool {
    !matches!(model, "threads" | "fork")
}

#[test]
fn foreign_clients_are_served() {
    let server = Server::echo("epoll", &[]);
    let script = "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\ns.sendall(b'x' * \
                  100000)\ns.shutdown(socket.SHUT_WR)\nn = 0\nwhile d := s.recv(65536):\n    n += len(d)\nprint(n)";
    let output = std::process::Command::new("python3")
        .args(["-c", script, &server.address().port().to_string()])
        .output()
        .expect("python3 is here: the laboratory needs it");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000", "{output:?}");
}
