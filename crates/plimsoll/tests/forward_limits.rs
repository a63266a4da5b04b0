//! What runs out, stalls or is slow here must slow nobody else.

mod forwarder;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use forwarder::{Folder, Forwarder, accept, connect, listener, text_of, until};

/// An echo server that ends each stream when its peer does.
fn echo() -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let echo = move || {
                let (mut stream, mut buffer) = (stream, [0; 4096]);
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().stack_size(64 * 1024).spawn(echo).expect("a thread");
        }
    });
    address
}

fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"hello").expect("it is relayed");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("it is answered");
    assert_eq!(&answer, b"hello");
}

#[test]
fn more_connections_than_a_table_holds_are_relayed_by_more_tables() {
    let forwarder = Forwarder::start_with_limit(100, &[&format!("127.0.0.1:0={}", echo()), "--workers", "2"]);
    let mut streams: Vec<TcpStream> = (0..300).map(|_| forwarder.connect()).collect();
    streams.iter_mut().for_each(exchange);
    drop(streams);
    let summary = forwarder.stop();
    assert_eq!(summary["peak_connections"], 300);
    assert_eq!(summary["ends"], serde_json::json!({"client_closed": 300}));
    assert_eq!(summary["errors"], serde_json::json!({}));
}

#[test]
fn past_max_connections_accepting_pauses_and_resumes_within_a_fifth_of_a_second() {
    let folder = Folder::new();
    let table = format!("[defaults]\nmax_connections = 3\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table), "--workers", "1"]);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| forwarder.connect()).collect();
    streams.iter_mut().for_each(exchange);
    // Queued by the kernel, not refused.
    let mut waiting = forwarder.connect();
    waiting.write_all(b"hello").expect("there is room");
    waiting.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout can be set");
    assert!(waiting.read(&mut [0]).is_err(), "it has to wait");
    let (ticks, _) = forwarder.cost();
    waiting.set_read_timeout(Some(forwarder::PATIENCE)).expect("a timeout can be set");
    drop(streams.pop());
    let begun = Instant::now();
    waiting.read_exact(&mut [0; 5]).expect("it is relayed");
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert!(ticks < 20, "waiting spins: {ticks} ticks of CPU");
    drop((streams, waiting));
    assert_eq!(forwarder.stop()["peak_connections"], 3);
}

#[test]
fn a_log_that_nobody_reads_stalls_nobody_and_its_drops_are_counted() {
    let folder = Folder::new();
    let fifo = text_of(&folder.path("log.fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    // Somebody has it open, and does not read.
    let _reader = fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
    let forwarder = Forwarder::to(echo(), &["--log", &fifo]);
    const CONNECTIONS: u64 = 22_000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..CONNECTIONS / 4 {
                    exchange(&mut forwarder.connect());
                }
            });
        }
    });
    forwarder.signal("TERM");
    let (status, summary, said) = forwarder.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(summary["connections"], CONNECTIONS);
    let dropped = summary["log_rows_dropped"].as_u64().expect("a count");
    // The queue holds 16,384 rows, and the fifo 64 KiB, some 450.
    assert!(dropped > 1000 && dropped < 8000, "{dropped} rows");
    assert!(said.contains("log rows are dropped"), "{said}");
}

#[test]
fn a_full_disk_loses_log_rows_and_nothing_else() {
    // The header could not be written: that is met at the start.
    let output =
        forwarder::command(&["127.0.0.1:0=127.0.0.1:9", "--log", "/dev/full"]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot open the log /dev/full"));
    // Later, rows are lost, counted and said. In JSON there is no header.
    let folder = Folder::new();
    let table =
        format!("[log]\nconnections = \"/dev/full\"\nformat = \"json\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    exchange(&mut forwarder.connect());
    assert!(forwarder.sentence().contains("free space on the disk"));
    exchange(&mut forwarder.connect());
    assert_eq!(forwarder.stop()["log_rows_dropped"], 2);
}

#[test]
fn ten_thousand_half_open_connections_slow_nobody() {
    const HALF_OPEN: usize = 9000;
    let (listener, server) = listener();
    let forwarder =
        Forwarder::start(&[&format!("127.0.0.1:0={server}"), &format!("127.0.0.2:0={}", echo()), "--workers", "1"]);
    let mut held = Vec::with_capacity(HALF_OPEN);
    for _ in 0..HALF_OPEN {
        let client = forwarder.connect();
        client.shutdown(Shutdown::Write).expect("connected");
        held.push((client, accept(&listener)));
        if held.len() * 2 > plimsoll_sys::descriptor::limit() - 1000 {
            break;
        }
    }
    let address = forwarder.addresses()[1];
    let begun = Instant::now();
    for _ in 0..200 {
        exchange(&mut connect(address));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let (ticks, _) = forwarder.cost();
    std::thread::sleep(Duration::from_millis(500));
    assert!(forwarder.cost().0 <= ticks + 3, "half-open connections cost CPU");
}

#[test]
fn pipes_beyond_what_the_user_may_have_are_smaller_and_counted() {
    // Without privilege 64 MiB of pipes are allowed: 64 of 1 MiB each (pipe(7), pipe-user-pages-soft).
    let (listener, server) = listener();
    let mapping = format!("127.0.0.1:0={server}");
    let unprivileged = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", env!("CARGO_BIN_EXE_plimsoll")]);
        command.args(arguments);
        command
    };
    if !unprivileged(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: setpriv cannot run the binary as another user here");
        return;
    }
    let forwarder = Forwarder::spawn(unprivileged(&["forward", "--json", &mapping, "--workers", "1"]));
    let mut held: Vec<(TcpStream, TcpStream)> = Vec::new();
    for _ in 0..100 {
        let client = forwarder.connect();
        let server = accept(&listener);
        // Until nothing more fits, with the server not reading: bytes stay in the pipe.
        client.set_write_timeout(Some(Duration::from_millis(30))).expect("a timeout can be set");
        let piece = vec![7; 1 << 20];
        while (&client).write(&piece).is_ok() {}
        held.push((client, server));
    }
    until("every connection still relays", || {
        let mut buffer = vec![0; 1 << 16];
        held.iter_mut().all(|(_, server)| server.read(&mut buffer).is_ok_and(|length| length > 0))
    });
    drop(held);
    let summary = forwarder.stop();
    assert!(summary["pipes_shrunk"].as_u64().expect("a count") > 0, "{summary}");
}
