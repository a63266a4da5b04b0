//! What the forwarder does for each connection, and what it writes down of it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, Noise, accept, connect, listener, reset, text_of, until};
use crate::support::peer::read_once;

/// The rows of a connection log, by column.
fn rows(path: &std::path::Path, count: usize) -> Vec<Vec<String>> {
    let read = || fs::read_to_string(path).unwrap_or_default();
    until(&format!("there are {count} rows in the log"), || read().lines().count() > count);
    let text = read();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("opened,closed,listen,client,server,reads_up,reads_down,bytes_up,bytes_down,duration_us,end,error")
    );
    lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// A forwarder with a table of one rule and these settings, its log, and the connections that come
/// through.
struct Setting {
    forwarder: Forwarder,
    listener: TcpListener,
    server: SocketAddr,
    folder: Folder,
}

impl Setting {
    fn new(settings: &str) -> Setting {
        let (listener, server) = listener();
        let folder = Folder::new();
        let table = format!("[forward.\"127.0.0.1:0\"]\nto = \"{server}\"\n{settings}\n");
        let config = folder.write("forward.toml", &table);
        let log = text_of(&folder.path("log.csv"));
        let forwarder = Forwarder::start(&["--config", &config, "--log", &log]);
        Setting { forwarder, listener, server, folder }
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        (self.forwarder.connect(), accept(&self.listener))
    }

    fn last_row(&self, count: usize) -> Vec<String> {
        rows(&self.folder.path("log.csv"), count).pop().expect("as many rows as were waited for")
    }

    fn last_end(&self, count: usize) -> String {
        self.last_row(count).swap_remove(10)
    }
}

fn read_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    let error = stream.read_to_end(&mut read).expect_err("a reset, not an end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    read
}

#[test]
fn a_connection_is_relayed_both_ways_and_has_a_row_in_the_log() {
    let setting = Setting::new("");
    let (mut client, mut server) = setting.pair();
    let (client_address, listen) = (client.local_addr().expect("connected"), setting.forwarder.address());
    client.write_all(b"question").expect("there is room");
    let mut buffer = [0; 8];
    server.read_exact(&mut buffer).expect("it is passed on");
    assert_eq!(&buffer, b"question");
    client.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(server.read_to_end(&mut Vec::new()).expect("the end is passed on"), 0);
    server.write_all(b"a late answer").expect("the other half is open");
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the end is passed on");
    assert_eq!(answer, "a late answer");
    let row = setting.last_row(1);
    let want = [
        listen.to_string(),
        client_address.to_string(),
        setting.server.to_string(),
        "1".to_owned(),
        "1".to_owned(),
        "8".to_owned(),
        "13".to_owned(),
    ];
    assert_eq!(row[2..9], want);
    assert_eq!(row[10], "client_closed");
    assert!(row[0] < row[1] && row[0].ends_with('Z') && row[0].len() == 27, "{row:?}");
    let summary = setting.forwarder.stop();
    assert_eq!(summary["connections"], 1);
    assert_eq!(summary["peak_connections"], 1);
    assert_eq!(summary["bytes_up"], 8);
    assert_eq!(summary["bytes_down"], 13);
    assert_eq!(summary["ends"], serde_json::json!({"client_closed": 1}));
    assert_eq!(summary["log_rows_dropped"], 0);
}

#[test]
fn much_goes_through_unchanged_both_ways_at_once_by_pipes() {
    const LENGTH: usize = 48 << 20;
    let setting = Setting::new("");
    let (client, server) = setting.pair();
    let send = |stream: &TcpStream, seed: u64| {
        let mut stream = stream.try_clone().expect("a stream can be cloned");
        std::thread::spawn(move || {
            stream.write_all(&Noise::new(seed).bytes(LENGTH)).expect("it is relayed");
            stream.shutdown(Shutdown::Write).expect("connected");
        })
    };
    let receive = |mut stream: &TcpStream, seed: u64| {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("it is relayed");
        assert!(received == Noise::new(seed).bytes(LENGTH));
    };
    let sending = [send(&client, 1), send(&server, 2)];
    std::thread::scope(|scope| {
        scope.spawn(|| receive(&server, 1));
        scope.spawn(|| receive(&client, 2));
    });
    sending.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    let row = setting.last_row(1);
    assert_eq!(row[7..9], [LENGTH.to_string(), LENGTH.to_string()]);
    // 64 KiB a read would be 768: fewer show that pipes were used.
    assert!(row[5].parse::<u64>().expect("a count") < 700, "{row:?}");
}

#[test]
fn an_end_is_passed_on_while_the_other_side_sends_without_pause() {
    let setting = Setting::new("");
    let (mut client, server) = setting.pair();
    let noise = Noise::new(8).bytes(1 << 20);
    let heard = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = read_once(&server, &mut [0]);
            heard.store(true, Ordering::Release);
            assert_eq!(outcome.expect("the end is passed on"), 0);
        });
        scope.spawn(|| {
            while !heard.load(Ordering::Acquire) {
                (&server).write_all(&noise).expect("it is relayed");
            }
            server.shutdown(Shutdown::Write).expect("connected");
        });
        let mut buffer = vec![0; 1 << 20];
        client.read_exact(&mut buffer).expect("it is relayed");
        client.read_exact(&mut buffer).expect("it is relayed");
        client.shutdown(Shutdown::Write).expect("connected");
        while read_once(&client, &mut buffer).expect("it is relayed") > 0 {}
    });
    assert_eq!(setting.last_end(1), "client_closed");
}

#[test]
fn a_reset_arrives_as_a_reset_after_the_bytes_before_it() {
    let setting = Setting::new("");
    let message = Noise::new(5).bytes(400_000);
    let (mut client, mut server) = setting.pair();
    client.write_all(&message).expect("there is room");
    until("the forwarder has acknowledged all", || plimsoll_sys::net::unacknowledged(&client).expect("a socket") == 0);
    reset(client);
    assert!(read_reset(&mut server) == message);
    assert_eq!(setting.last_end(1), "client_reset");
    let (mut client, mut server) = setting.pair();
    server.write_all(b"going").expect("there is room");
    reset(server);
    assert!(b"going".starts_with(&read_reset(&mut client)));
    assert_eq!(setting.last_end(2), "server_reset");
}

#[test]
fn a_refused_connection_is_a_reset_for_the_client_and_the_next_one_is_tried_anew() {
    let setting = Setting::new("");
    let Setting { forwarder, listener, server, folder } = setting;
    drop(listener);
    read_reset(&mut forwarder.connect());
    let row = rows(&folder.path("log.csv"), 1).remove(0);
    assert_eq!(row[10], "connect_refused");
    let listener = TcpListener::bind(server).expect("the port was ours");
    let mut client = forwarder.connect();
    client.write_all(b"x").expect("there is room");
    let mut server = accept(&listener);
    server.read_exact(&mut [0]).expect("it is relayed");
}

#[test]
fn silence_ends_a_connection_by_a_reset_and_the_log_says_which_time_ran_out() {
    let setting = Setting::new("idle_timeout = \"100ms\"");
    let begun = Instant::now();
    let (mut client, mut server) = setting.pair();
    read_reset(&mut client);
    read_reset(&mut server);
    assert!(begun.elapsed() >= Duration::from_millis(90));
    assert_eq!(setting.last_end(1), "idle");
    let setting = Setting::new("half_close = \"100ms\"");
    let (mut client, mut server) = setting.pair();
    client.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(server.read_to_end(&mut Vec::new()).expect("the end is passed on"), 0);
    read_reset(&mut client);
    assert_eq!(setting.last_end(1), "half_close");
}

#[test]
fn a_destination_that_does_not_answer_delays_nobody_else() {
    let (deaf, silent) = listener();
    // Its queue is filled: further connects go unanswered (the kernel drops their SYN).
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&silent, Duration::from_secs(1)) {
        queued.push(stream);
        assert!(queued.len() < 10_000, "the queue has no end");
    }
    let (alive, serving) = listener();
    let folder = Folder::new();
    let table = format!(
        "[defaults]\nconnect_timeout = \"1s\"\n[forward]\n\"127.0.0.1:0\" = \"{serving}\"\n\"127.0.0.2:0\" = \
         \"{silent}\"\n"
    );
    let log = folder.path("log.csv");
    let forwarder = Forwarder::start(&[
        "--config",
        &folder.write("forward.toml", &table),
        "--log",
        &text_of(&log),
        "--workers",
        "1",
    ]);
    let mut waiting: Vec<TcpStream> = (0..200).map(|_| connect(forwarder.addresses()[1])).collect();
    let mut client = forwarder.connect();
    client.write_all(b"x").expect("there is room");
    accept(&alive).read_exact(&mut [0]).expect("it is relayed");
    waiting.iter_mut().for_each(|stream| drop(read_reset(stream)));
    let ends = rows(&log, 200);
    assert!(ends.iter().filter(|row| row[10] == "connect_timeout").count() >= 200);
    drop((deaf, queued));
}

#[test]
fn a_killed_destination_and_a_killed_client_have_the_right_row() {
    // A destination that has read everything when it is killed ends its stream; a client that has
    // not resets.
    let folder = Folder::new();
    let log = folder.path("log.csv");
    let mut server = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let mut server = server
        .args(["serve", "echo", "--listen", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().expect("piped")), &mut line)
        .expect("a ready line");
    let ready: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let address = ready["addresses"][0].as_str().expect("an address").parse().expect("an address");
    let forwarder = Forwarder::to(address, &["--log", &text_of(&log)]);
    let mut client = forwarder.connect();
    client.write_all(b"x").expect("there is room");
    client.read_exact(&mut [0]).expect("it is echoed");
    server.kill().expect("it runs");
    server.wait().expect("a status");
    assert_eq!(client.read_to_end(&mut Vec::new()).expect("the end is passed on"), 0);
    drop(client);
    assert_eq!(rows(&log, 1)[0][10], "server_closed");

    let setting = Setting::new("");
    let port = setting.forwarder.address().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo ready; exec sleep 600");
    let mut killed = Command::new("bash").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("bash runs");
    let mut server = accept(&setting.listener);
    server.write_all(b"it will not read this").expect("there is room");
    let mut ready = [0; 6];
    killed.stdout.take().expect("piped").read_exact(&mut ready).expect("it is connected");
    until("the client's socket has the bytes", || plimsoll_sys::net::unacknowledged(&server).expect("a socket") == 0);
    until("the bytes are relayed", || fs::read_to_string("/proc/net/tcp").is_ok_and(|text| has_unread(&text, port)));
    killed.kill().expect("it runs");
    killed.wait().expect("a status");
    read_reset(&mut server);
    assert_eq!(setting.last_end(1), "client_reset");
}

/// Whether a connection to this remote port has bytes that its owner has not read (proc_net_tcp in
/// the kernel's documentation).
fn has_unread(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01" && !fields[4].ends_with(":00000000")
    })
}

#[test]
fn sigterm_lets_connections_end_and_takes_no_new_ones() {
    let setting = Setting::new("");
    let (mut client, mut server) = setting.pair();
    let Setting { forwarder, listener, folder: _folder, .. } = setting;
    let address = forwarder.address();
    // What connects before the listener is closed is refused at once.
    drop(listener);
    forwarder.signal("TERM");
    until("it refuses connections", || TcpStream::connect(address).is_err());
    client.write_all(b"still").expect("it lives");
    server.read_exact(&mut [0; 5]).expect("it is relayed");
    drop((client, server));
    let (status, summary, _) = forwarder.wait();
    assert_eq!(status.code(), Some(0));
    assert!(summary["ends"]["drained"].is_null(), "{summary}");
}

#[test]
fn the_drain_and_a_second_sigterm_cut_what_is_left() {
    for (drain, signals) in [("50ms", 1), ("1h", 2)] {
        let (listener, server) = listener();
        let forwarder = Forwarder::to(server, &["--drain", drain]);
        let (mut client, address) = (forwarder.connect(), forwarder.address());
        let _server = accept(&listener);
        drop(listener);
        forwarder.signal("TERM");
        if signals == 2 {
            until("it refuses connections", || TcpStream::connect(address).is_err());
            forwarder.signal("TERM");
        }
        let (status, summary, _) = forwarder.wait();
        assert_eq!(status.code(), Some(0));
        // And who asked whether it still listens, where the answer had not come yet.
        assert!(summary["ends"]["drained"].as_u64() >= Some(1), "{summary}");
        read_reset(&mut client);
    }
}

#[test]
fn a_peer_that_never_reads_cannot_make_memory_grow() {
    let setting = Setting::new("");
    let (mut client, _server) = setting.pair();
    let (_, before) = setting.forwarder.cost();
    client.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout can be set");
    let piece = vec![7; 1 << 20];
    let mut sent = 0_u64;
    while let Ok(length) = client.write(&piece) {
        sent += length as u64;
        assert!(sent < 256 << 20, "the forwarder goes on taking bytes that nobody reads");
    }
    let (_, after) = setting.forwarder.cost();
    assert!(after < before + (4 << 20), "from {before} to {after} bytes");
    until("a blocked connection costs no CPU", || setting.forwarder.is_quiet());
}

/// Nothing is cut off for being slow.
const PATIENT: &str = "send_timeout = \"1h\"\nidle_timeout = \"1h\"\nhalf_close = \"1h\"";

#[test]
fn a_peer_that_is_reset_while_the_other_one_does_not_read_costs_no_cpu() {
    let setting = Setting::new(PATIENT);
    let (mut client, _server) = setting.pair();
    client.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout can be set");
    let piece = vec![7; 1 << 20];
    while client.write(&piece).is_ok() {}
    reset(client);
    std::thread::sleep(Duration::from_millis(300));
    until("a peer that has gone costs no CPU", || setting.forwarder.is_quiet());
    setting.forwarder.stop();
}

#[test]
fn a_peer_that_has_ended_both_ways_while_the_other_one_reads_slowly_costs_no_cpu() {
    let setting = Setting::new(PATIENT);
    let (mut client, mut server) = setting.pair();
    client.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(server.read(&mut [0]).expect("the end is passed on"), 0);
    server.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout can be set");
    let (piece, mut sent) = (vec![7; 1 << 20], 0);
    while let Ok(length) = server.write(&piece) {
        sent += length;
    }
    drop(server);
    // At some of these moments its end is at the forwarder, behind bytes that the client has no
    // room for.
    let mut piece = vec![0; 1 << 19];
    while sent > 0 {
        let length = sent.min(piece.len());
        client.read_exact(&mut piece[..length]).expect("all of it arrives");
        sent -= length;
        std::thread::sleep(Duration::from_millis(50));
        until("a peer that has ended costs no CPU", || setting.forwarder.is_quiet());
    }
    assert_eq!(client.read(&mut piece).expect("the end is passed on"), 0);
    setting.forwarder.stop();
}

#[test]
fn the_reset_of_a_peer_that_has_ended_its_half_ends_its_connection_while_the_other_one_pauses() {
    let setting = Setting::new(PATIENT);
    let (mut client, mut server) = setting.pair();
    client.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(server.read(&mut [0]).expect("the end is passed on"), 0);
    let bulk = vec![7; 8 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| server.write_all(&bulk).expect("it is read"));
        client.read_exact(&mut vec![0; (8 << 20) - 1000]).expect("it arrives");
    });
    std::thread::sleep(Duration::from_millis(300));
    reset(client);
    // A row is written once it is over. How it ended is by its first half, which was closed.
    assert_eq!(setting.last_end(1), "client_closed");
    setting.forwarder.stop();
}

#[test]
fn urgent_data_arrives_in_its_place_in_the_stream_with_all_that_follows_it() {
    let setting = Setting::new("idle_timeout = \"50s\"");
    for bulk in [0, 8 * 1024 * 1024] {
        let (mut client, mut server) = setting.pair();
        for ends in [false, true] {
            let mut noise = Noise::new(7);
            let mut sent = noise.bytes(bulk);
            let before = sent.clone();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    client.write_all(&before).expect("it is read");
                    client.write_all(b"abc").expect("there is room");
                    plimsoll_sys::net::write_urgent(&client, b'!').expect("there is room");
                    client.write_all(b"def").expect("there is room");
                    if ends {
                        client.shutdown(Shutdown::Write).expect("connected");
                    }
                });
                sent.extend_from_slice(b"abc!def");
                let mut read = vec![0; sent.len()];
                server.read_exact(&mut read).expect("all of it arrives");
                assert!(read == sent, "after {bulk} bytes, at the end: {ends}");
            });
        }
        assert_eq!(server.read_to_end(&mut Vec::new()).expect("the end is passed on"), 0);
    }
    setting.forwarder.stop();
}

#[test]
fn urgent_data_costs_no_cpu_once_it_has_passed_nor_while_it_waits() {
    for settings in ["", "limit = { bandwidth = \"10MB/s\" }"] {
        let setting = Setting::new(settings);
        let (mut client, mut server) = setting.pair();
        client.write_all(b"abc").expect("there is room");
        plimsoll_sys::net::write_urgent(&client, b'!').expect("there is room");
        server.read_exact(&mut [0; 4]).expect("all of it arrives");
        until("what has passed costs no CPU", || setting.forwarder.is_quiet());
        client.set_nonblocking(true).expect("a socket takes it");
        while client.write(&[7; 1 << 16]).is_ok() {
            let _ = plimsoll_sys::net::write_urgent(&client, b'!');
        }
        until("what nobody reads costs no CPU", || setting.forwarder.is_quiet());
    }
}
