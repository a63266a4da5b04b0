//! Errors of the kernel that no test can bring about at will, injected into the forwarder by
//! strace(1): it goes on, counts them, says them, and its books are right.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::Command;
use std::sync::mpsc;

use plimsoll_sys::unix;
use serde_json::Value;

use crate::support::forwarder::{
    Folder, Forwarder, accept, command, echo, exchange, get, injected, listener, text_of, until,
};
use crate::support::server::may_trace;

/// The table of a rule to an echo server, with so many connections at most, and its folder.
fn table_of(most: usize) -> (Folder, String) {
    let folder = Folder::new();
    let table = format!("[defaults]\nmax_connections = {most}\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let config = folder.write("forward.toml", &table);
    (folder, config)
}

#[test]
fn a_connection_that_a_full_table_cannot_take_keeps_its_place_until_another_takes_it() {
    if !may_trace() {
        return;
    }
    let (_folder, config) = table_of(4);
    // Of a worker's calls the first makes the end of its mailbox its own; the second asks whether
    // there is room for a descriptor.
    for error in ["EMFILE", "ENOMEM"] {
        let forwarder = injected("fcntl", error, 2, &["--config", &config, "--accept", "handoff", "--workers", "1"]);
        for _ in 0..6 {
            exchange(&mut forwarder.connect());
        }
        let summary = forwarder.stop();
        assert!(summary["errors"][error.to_lowercase()].as_u64() > Some(0), "{summary}");
    }
}

#[test]
fn a_listener_that_epoll_has_no_room_for_is_waited_for_a_moment_later() {
    if !may_trace() {
        return;
    }
    let (_folder, config) = table_of(1);
    // Of a worker's calls the first two are about its wake-up and its mailbox. The third is about
    // the listener, two more about each connection; past the limit the listener is taken out (6)
    // and put back (7).
    for (error, number, accept) in
        [("ENOSPC", 3, "single"), ("ENOMEM", 3, "handoff"), ("ENOSPC", 7, "single"), ("ENOMEM", 7, "single")]
    {
        let forwarder =
            injected("epoll_ctl", error, number, &["--config", &config, "--accept", accept, "--workers", "1"]);
        let mut first = forwarder.connect();
        exchange(&mut first);
        let mut second = forwarder.connect();
        until("waiting costs no CPU", || forwarder.is_quiet());
        drop(first);
        exchange(&mut second);
        drop(second);
        let summary = forwarder.stop();
        assert_eq!(summary["connections"], 2, "{accept}: {error} {number}: {summary}");
        assert!(summary["errors"][error.to_lowercase()].as_u64() > Some(0), "{accept}: {error} {number}: {summary}");
    }
}

#[test]
fn a_check_for_which_no_port_is_left_says_nothing_of_its_server() {
    if !may_trace() {
        return;
    }
    let (folder, server) = (Folder::new(), echo());
    let check = "check = { every = \"10ms\", fall = 1, rise = 1 }";
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward.\"127.0.0.1:0\"]\nto = \"{server}\"\n{check}\n");
    let config = folder.write("forward.toml", &table);
    let mut forwarder = injected("connect", "EADDRNOTAVAIL", "1+", &["--config", &config, "--workers", "1"]);
    let sentence = forwarder.sentence();
    assert!(sentence.contains(&format!("{server} is not checked: ")), "{sentence}");
    let metrics = get(forwarder.admin(), "/metrics");
    assert!(metrics.contains(&format!("server=\"{server}\"}} 1\n")), "{metrics}");
    forwarder.stop();
}

#[test]
fn too_many_descriptors_on_their_way_or_no_memory_are_waited_for_and_stop_nothing() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    // The coordinator sends a worker its listeners; where connections are handed over, the socket
    // that they come by, and then each of them.
    for (when, accept) in [("1", "single"), ("1..20", "single"), ("1", "handoff"), ("2..20", "handoff")] {
        for error in ["ETOOMANYREFS", "ENOBUFS"] {
            let forwarder = injected("sendmsg", error, when, &[&mapping, "--accept", accept, "--workers", "1"]);
            for _ in 0..3 {
                exchange(&mut forwarder.connect());
            }
            let summary = forwarder.stop();
            assert_eq!(summary["ends"], serde_json::json!({"client_closed": 3}), "{accept}, {when}: {summary}");
        }
    }
}

#[test]
fn an_acceptor_that_can_hand_nothing_over_waits_for_a_moment_each_time() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    // The coordinator sends the worker its socket, and then connections.
    let forwarder = injected("sendmsg", "ETOOMANYREFS", "3+", &[&mapping, "--accept", "handoff", "--workers", "1"]);
    exchange(&mut forwarder.connect());
    let _waits = forwarder.connect();
    until("waiting costs next to no CPU", || forwarder.is_quiet());
    forwarder.signal("TERM");
    forwarder.signal("TERM");
    let (status, summary, said) = forwarder.wait();
    assert_eq!((status.code(), &summary["connections"]), (Some(0), &Value::from(1)), "{said}");
}

#[test]
fn a_wait_for_which_the_kernel_has_no_memory_is_made_again() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    for accept in ["single", "handoff"] {
        let mut forwarder = injected("ppoll", "ENOMEM", "1..5", &[&mapping, "--accept", accept, "--workers", "1"]);
        let sentence = forwarder.sentence();
        assert!(sentence.contains("Cannot allocate memory"), "{sentence}");
        exchange(&mut forwarder.connect());
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 1}), "{accept}: {summary}");
    }
}

#[test]
fn a_process_that_asks_to_take_over_where_no_descriptor_is_left_costs_no_cpu() {
    if !may_trace() {
        return;
    }
    let (folder, mapping) = (Folder::new(), format!("127.0.0.1:0={}", echo()));
    let place = folder.path("upgrade");
    let upgrade = format!("--upgrade={}", text_of(&place));
    let mut forwarder = injected("accept4", "EMFILE", "1+", &[&mapping, &upgrade, "--workers", "1"]);
    let asks = unix::connect_for_messages(&place).expect("it waits there");
    let sentence = forwarder.sentence();
    assert!(sentence.contains("asked to take over, and this one goes on"), "{sentence}");
    until("who asks costs no CPU", || forwarder.is_quiet());
    drop(asks);
    forwarder.stop();
}

/// What a forwarder made of the one connection for which a call failed with this error: the books
/// name the error, and nothing ended otherwise.
fn assert_failed(summary: &Value, log: &str, error: &str) {
    let name = error.to_lowercase();
    assert_eq!(summary["errors"][&name], 1, "{summary}");
    assert_eq!(summary["ends"]["limit"], 1, "{summary}");
    let rows = fs::read_to_string(log).expect("there is a log");
    assert!(rows.trim_end().ends_with(&format!(",limit,{name}")), "{rows}");
}

/// Sends much through a forwarder whose call of that number fails; returns whether it was made, and
/// if so asserts that nobody takes what is left of the stream for all of it. The stream pauses now
/// and then, so that the forwarder has to wait for more; and it goes on until the call is made, as
/// no read is sure to be full.
fn is_reset_after_a_part(call: &str, error: &str, number: usize) -> bool {
    const ROUNDS: usize = 64;
    const ROUND: usize = 16 * 1024 * 1024;
    let ((listener, address), folder) = (listener(), Folder::new());
    let log = text_of(&folder.path("connections.csv"));
    let mapping = format!("127.0.0.1:0={address}");
    let forwarder = injected(call, error, number, &[&mapping, "--log", &log, "--accept", "single", "--workers", "1"]);
    let mut client = forwarder.connect();
    let mut server = accept(&listener);
    let (sent, received, end) = std::thread::scope(|scope| {
        let (pause, is_over) = mpsc::channel::<()>();
        let sends = scope.spawn(move || {
            for _ in 0..ROUNDS {
                client.write_all(&vec![7; ROUND])?;
                let _ = is_over.recv();
            }
            client.shutdown(Shutdown::Write)
        });
        let (mut received, mut bytes) = (0, Vec::new());
        let end = loop {
            bytes.clear();
            let end = (&mut server).take(ROUND as u64).read_to_end(&mut bytes);
            received += bytes.len();
            if bytes.len() < ROUND {
                break end;
            }
            let _ = pause.send(());
        };
        drop(pause);
        (sends.join().expect("no panic"), received, end)
    });
    if received == ROUNDS * ROUND && sent.is_ok() {
        return false;
    }
    let what = format!("{call} {number} fails with {error} after {received} bytes");
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{what}");
    assert!(sent.is_err(), "{what}");
    assert_failed(&forwarder.stop(), &log, error);
    true
}

#[test]
fn bytes_that_this_machine_fails_to_read_end_a_connection_by_a_reset_and_never_by_a_clean_end() {
    if !may_trace() {
        return;
    }
    for (call, error, number) in [("splice", "ENOMEM", 1), ("splice", "EIO", 1), ("recvfrom", "ENOMEM", 3)] {
        assert!(is_reset_after_a_part(call, error, number), "{call} {number} is made");
    }
}

/// What a rule says of its clients: they are proxies.
const PROXIED: &str = "accept_proxy = { from = [\"127.0.0.1\"] }";

/// A forwarder of one rule with these settings, whose call of that number fails; its log, and the
/// folder that holds it.
fn injected_rule(
    call: &str,
    error: &str,
    number: usize,
    to: SocketAddr,
    settings: &str,
) -> (Forwarder, String, Folder) {
    let folder = Folder::new();
    let log = text_of(&folder.path("connections.csv"));
    let config = folder.write("forward.toml", &format!("[forward.\"127.0.0.1:0\"]\nto = \"{to}\"\n{settings}\n"));
    let arguments = ["--config", &config, "--log", &log, "--accept", "single", "--workers", "1"];
    (injected(call, error, number, &arguments), log, folder)
}

/// Has a forwarder with this setting of its rule relay so many small messages, of which its send of
/// that number fails, and asserts that both sides are told by a reset, at once.
fn assert_refused_write_resets(error: &str, number: usize, messages: usize, setting: &str) {
    let (listener, address) = listener();
    let settings = format!("half_close = \"1h\"\n{setting}");
    let (forwarder, log, _folder) = injected_rule("sendto", error, number, address, &settings);
    let mut client = forwarder.connect();
    let mut server = accept(&listener);
    if messages > 0 {
        client.write_all(b"hello").expect("it is taken");
    }
    if messages > 1 {
        server.read_exact(&mut [0; 5]).expect("the first is relayed");
        server.write_all(b"hello").expect("it is taken");
    }
    let mut read = [0; 100];
    for (side, stream) in [("the client", &mut client), ("the server", &mut server)] {
        let end = stream.read(&mut read).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "{side}, where send {number} fails with {error}");
    }
    assert_failed(&forwarder.stop(), &log, error);
}

#[test]
fn a_write_that_this_machine_refuses_ends_the_connection_at_once_by_a_reset_to_both_sides() {
    if !may_trace() {
        return;
    }
    for error in ["ENOBUFS", "EPIPE"] {
        for (number, messages, setting) in [(1, 1, ""), (2, 2, ""), (1, 0, "send_proxy = \"v1\"")] {
            assert_refused_write_resets(error, number, messages, setting);
        }
        // Reads into the pipe and writes from it take turns.
        assert!(is_reset_after_a_part("splice", error, 2), "the second splice is made");
    }
}

#[test]
fn a_header_of_a_proxy_that_this_machine_fails_to_read_is_no_reset_of_the_client() {
    if !may_trace() {
        return;
    }
    // The header is looked for first, and then taken.
    for number in [1, 2] {
        let (_listener, address) = listener();
        let (forwarder, log, _folder) = injected_rule("recvfrom", "ENOMEM", number, address, PROXIED);
        let mut client = forwarder.connect();
        let end = client.write_all(b"PROXY UNKNOWN\r\n").and_then(|()| client.read(&mut [0]));
        assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "read {number}");
        assert_failed(&forwarder.stop(), &log, "ENOMEM");
    }
}

#[test]
fn the_end_of_a_clients_stream_that_this_machine_fails_to_look_into_is_no_reset_of_the_client() {
    if !may_trace() {
        return;
    }
    let (_listener, address) = listener();
    // The first look finds no header.
    let (forwarder, log, _folder) = injected_rule("recvfrom", "ENOMEM", 2, address, PROXIED);
    let mut client = forwarder.connect();
    until("it has looked for the header", || forwarder.is_quiet());
    client.shutdown(Shutdown::Write).expect("connected");
    let end = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    assert_failed(&forwarder.stop(), &log, "ENOMEM");
}

#[test]
fn a_connection_that_epoll_has_no_room_for_is_counted_with_the_error() {
    if !may_trace() {
        return;
    }
    // Of the worker's calls three are about its wake-up, its mailbox and the listener, and two
    // about the connection. The sixth is made once its bytes go through a pipe, which they need not
    // do where the receiver is quick.
    let made = (0..20).any(|_| is_reset_after_a_part("epoll_ctl", "ENOMEM", 6));
    assert!(made, "in no run did the bytes go through a pipe");
    // The connection's first, before it leads anywhere.
    let (folder, (_listener, address)) = (Folder::new(), listener());
    let log = text_of(&folder.path("connections.csv"));
    let mapping = format!("127.0.0.1:0={address}");
    let arguments = [&mapping, "--log", &log, "--accept", "single", "--workers", "1"];
    let forwarder = injected("epoll_ctl", "ENOSPC", 4, &arguments);
    let end = forwarder.connect().read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    assert_failed(&forwarder.stop(), &log, "ENOSPC");
}

#[test]
fn a_worker_that_cannot_go_on_leaves_every_row_of_the_logs_and_a_reset() {
    if !may_trace() {
        return;
    }
    let (folder, mapping) = (Folder::new(), format!("127.0.0.1:0={}", echo()));
    let [log, transfers] = ["connections.csv", "transfers.csv"].map(|name| text_of(&folder.path(name)));
    let arguments = [&mapping, "--log", &log, "--transfer-log", &transfers, "--accept", "single", "--workers", "1"];
    // Whichever of the calls it waits by.
    let inner = command(&arguments);
    let mut outer = Command::new("strace");
    outer.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=?epoll_wait,epoll_pwait,?epoll_pwait2"]);
    outer.args(["-e", "inject=?epoll_wait,epoll_pwait,?epoll_pwait2:error=EBADF:when=40"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let forwarder = Forwarder::spawn(outer);
    let mut client = forwarder.connect();
    let mut exchanged = 0;
    let end = loop {
        let mut answer = [0; 5];
        match client.write_all(b"hello").and_then(|()| client.read_exact(&mut answer)) {
            Ok(()) => exchanged += 1,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset, "after {exchanged}");
    let (status, said) = forwarder.wait_failed();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the forwarder stopped"), "{said}");
    let rows = fs::read_to_string(&log).expect("there is a log");
    assert!(rows.trim_end().ends_with(",drained,"), "{rows}");
    let rows = fs::read_to_string(&transfers).expect("there is a log");
    assert!(rows.lines().count() > 2 * exchanged && exchanged > 0, "{exchanged}: {rows}");
}
