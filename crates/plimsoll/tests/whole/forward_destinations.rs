//! Where a rule of the forwarder's table leads: which of its destinations gets a connection, and
//! what happens while none can be reached.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, accept, answer, asks, listener, reset, until};
use crate::support::peer::read_once;
use crate::support::ruled::{Ruled, connect_from, is_cut_off};

/// A listener that no connection gets through to: its queue is full, and the kernel drops what else
/// is sent to it.
struct Silent {
    listener: TcpListener,
    queued: Vec<TcpStream>,
    address: SocketAddr,
}

fn silent() -> Silent {
    let (listener, address) = listener();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        queued.push(stream);
        assert!(queued.len() < 10_000, "the queue has no end");
    }
    Silent { listener, queued, address }
}

impl Silent {
    /// Takes what is queued, and the first connection that gets through after it: the kernel of its
    /// client tries again after 1, 3 and 7 s.
    fn accept_another(&self) -> TcpStream {
        let known: Vec<SocketAddr> =
            self.queued.iter().map(|stream| stream.local_addr().expect("it is connected")).collect();
        loop {
            let (stream, peer) = self.listener.accept().expect("a connection");
            if !known.contains(&peer) {
                return stream;
            }
        }
    }
}

#[test]
fn another_destination_is_tried_where_one_refuses() {
    let (dead, refusing) = listener();
    drop(dead);
    let (alive, serving) = listener();
    let folder = Folder::new();
    let table = format!("[forward]\n\"127.0.0.1:0\" = [\"{refusing}\", \"{serving}\"]\n");
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    for _ in 0..4 {
        let mut client = forwarder.connect();
        client.write_all(b"x").expect("there is room");
        accept(&alive).read_exact(&mut [0]).expect("it is relayed");
    }
}

#[test]
fn a_silent_destination_takes_its_share_of_the_time_and_the_next_one_serves() {
    let (silent, alive) = (silent(), answer(b'a'));
    for balance in ["first", "round-robin"] {
        // Half of it is the silent one's share. Where this machine comes to its end only after the
        // other half, nothing is left for the next.
        let settings = format!("balance = \"{balance}\"\nconnect_timeout = \"10s\"");
        let ruled = Ruled::new(&[silent.address, alive], &settings);
        for _ in 0..4 {
            assert_eq!(asks(&mut ruled.connect()), b'a', "{balance}");
        }
        assert_eq!(ruled.forwarder.stop()["ends"], serde_json::json!({"client_closed": 4}), "{balance}");
    }
}

#[test]
fn a_client_that_is_gone_before_there_is_a_server_is_let_go_at_once() {
    let silent = silent();
    let ruled = Ruled::new(&[silent.address], "connect_timeout = \"10m\"");
    let client = ruled.connect();
    until("it is being connected", || ruled.forwarder.open_connections() > 0);
    reset(client);
    assert_eq!(ruled.ends(1)[0].0, "client_reset");
}

#[test]
fn a_server_that_answers_in_time_a_forwarder_that_stands_still_is_relayed_to() {
    // The time-out is longer than this machine takes to let the connection through, however busy it
    // is.
    for timeout in (2..8).map(|doubled| Duration::from_secs(1 << doubled)) {
        let silent = silent();
        let ruled = Ruled::new(&[silent.address], &format!("connect_timeout = \"{}s\"", timeout.as_secs()));
        let (start, mut client) = (Instant::now(), ruled.connect());
        until("it is being connected", || ruled.forwarder.open_connections() > 0);
        ruled.forwarder.signal("STOP");
        let mut server = silent.accept_another();
        let is_in_time = start.elapsed() < timeout;
        std::thread::sleep(timeout);
        ruled.forwarder.signal("CONT");
        if is_in_time {
            client.write_all(b"x").expect("it is connected");
            server.read_exact(&mut [0]).expect("it is relayed");
            return;
        }
    }
    panic!("no connection gets through within minutes");
}

#[test]
fn the_idle_time_out_holds_while_connecting_too() {
    let silent = silent();
    let ruled = Ruled::new(&[silent.address], "connect_timeout = \"10m\"\nidle_timeout = \"200ms\"");
    assert!(is_cut_off(ruled.connect()));
    assert_eq!(ruled.ends(1)[0].0, "idle");
}

#[test]
fn a_failure_to_connect_has_its_reason_in_the_log_and_is_said_once() {
    let (dead, refusing) = listener();
    drop(dead);
    let mut ruled = Ruled::new(&[refusing], "");
    for _ in 0..3 {
        assert!(is_cut_off(ruled.connect()));
    }
    assert_eq!(ruled.ends(3), vec![("connect_refused".to_owned(), "econnrefused".to_owned()); 3]);
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("cannot connect to {refusing}: Connection refused")), "{sentence}");
    let (_, _, said) = {
        ruled.forwarder.signal("TERM");
        ruled.forwarder.wait()
    };
    assert!(!said.contains("cannot connect"), "it was said already: {said}");
}

#[test]
fn the_destination_with_the_fewest_connections_is_next() {
    let ruled = Ruled::new(&[answer(b'a'), answer(b'b')], "balance = \"least-connections\"");
    let mut first = ruled.connect();
    let busy = asks(&mut first);
    // All of these end before the next begins, but the first lives: its server has one more.
    for _ in 0..4 {
        let mut next = ruled.connect();
        assert_ne!(asks(&mut next), busy);
        drop(next);
        until("it is closed", || ruled.forwarder.open_connections() <= 1);
    }
}

#[test]
fn a_client_address_keeps_its_destination() {
    let ruled = Ruled::new(&[answer(b'a'), answer(b'b'), answer(b'c')], "balance = \"source-hash\"");
    let at = |source: [u8; 4]| asks(&mut connect_from(source, ruled.forwarder.address()));
    let firsts: Vec<u8> = (1..=30).map(|last| at([127, 0, 9, last])).collect();
    let seconds: Vec<u8> = (1..=30).map(|last| at([127, 0, 9, last])).collect();
    assert_eq!(firsts, seconds);
    assert!([b'a', b'b', b'c'].iter().all(|server| firsts.contains(server)), "{firsts:?}");
}

#[test]
fn a_destination_is_checked_from_the_address_that_connections_come_from() {
    let (server, address) = listener();
    let _ruled = Ruled::new(&[address], "source = \"127.0.0.9\"\ncheck = { every = \"1h\" }");
    let peer = accept(&server).peer_addr().expect("it is connected");
    assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 9]));
}

#[test]
fn a_destination_whose_checks_fail_gets_no_connection_until_they_succeed() {
    let (dead, moving) = listener();
    drop(dead);
    let alive = answer(b'a');
    let check = "check = { every = \"50ms\", timeout = \"5s\", fall = 2, rise = 2 }\nbalance = \"first\"";
    let mut ruled = Ruled::new(&[moving, alive], check);
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("{moving} is down: 2 checks failed")), "{sentence}");
    assert_eq!(asks(&mut ruled.connect()), b'a');
    let back = TcpListener::bind(moving).expect("the port was ours");
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains(&format!("{moving} is up again")), "{sentence}");
    let mut client = ruled.connect();
    client.write_all(b"x").expect("there is room");
    // Checks are connections without a byte.
    let mut byte = [0];
    while read_once(accept(&back), &mut byte).expect("a check ends, and the client sends") == 0 {}
    assert_eq!(&byte, b"x");
    let summary = ruled.forwarder.stop();
    assert_eq!(summary["errors"], serde_json::json!({}), "nobody was led to the dead one");
}

#[test]
fn a_table_that_is_refused_forgets_of_no_destination_that_its_checks_fail() {
    let (dead, gone) = listener();
    drop(dead);
    let (_other, taken) = listener();
    let check = "check = { every = \"50ms\", timeout = \"5s\", fall = 1 }\nbalance = \"first\"";
    let mut ruled = Ruled::new(&[gone, answer(b'a')], check);
    assert!(ruled.forwarder.sentence().contains("is down"));
    let table = fs::read_to_string(ruled.folder.path("forward.toml")).expect("it was written");
    let unchecked = table.replace(check, "balance = \"first\"");
    ruled.folder.replace("forward.toml", &format!("{unchecked}[forward]\n\"{taken}\" = \"{gone}\"\n"));
    ruled.forwarder.signal("HUP");
    let sentence = ruled.forwarder.sentence();
    assert!(sentence.contains("the table is refused"), "{sentence}");
    assert_eq!(asks(&mut ruled.connect()), b'a');
    let summary = ruled.forwarder.stop();
    assert_eq!(summary["errors"], serde_json::json!({}), "nobody was led to the dead one");
}
