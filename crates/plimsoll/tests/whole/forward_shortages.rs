//! What this machine may refuse a forwarder at any time, as a rule by strace(1): sockets, ways to a
//! server, pipes, rings and descriptor tables. The forwarder goes on, counts it, and says it.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::support::forwarder::{
    Folder, Forwarder, Noise, accept, command, connect, echo, exchange, injected, listener, traced, until,
};
use crate::support::running::queued_at;
use crate::support::server::may_trace;

#[test]
fn a_message_that_a_worker_fails_to_take_is_taken_later() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    // The first message brings the listener, or the socket by which connections come; there each
    // of them is one more.
    for (number, accept) in [(1, "single"), (1, "handoff"), (3, "handoff")] {
        let forwarder = injected("recvmsg", "ENOMEM", number, &[&mapping, "--accept", accept, "--workers", "1"]);
        for _ in 0..6 {
            exchange(&mut forwarder.connect());
        }
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 6}), "{accept}, {number}: {summary}");
        assert_eq!(summary["errors"]["enomem"], 1, "{accept}, {number}: {summary}");
    }
}

/// A forwarder of one worker with few descriptors and some connections, whose table has room for
/// fewer listeners than a reload brings.
struct Crowded {
    forwarder: Forwarder,
    held: Vec<TcpStream>,
    new: Vec<SocketAddr>,
}

impl Crowded {
    const DESCRIPTORS: usize = 64;

    /// It begins with so many listeners and connections. `choose` says how many listeners are new,
    /// by how many descriptors the coordinator has left.
    fn new(listeners: usize, connections: usize, choose: impl FnOnce(usize) -> usize) -> Crowded {
        let (folder, server) = (Folder::new(), echo());
        // Ports that are free now; asked for by number, as the table must name them.
        let free = |count| -> Vec<SocketAddr> {
            let free: Vec<_> = (0..count).map(|_| listener()).collect();
            free.iter().map(|(_, address)| *address).collect()
        };
        let rules = |addresses: &[SocketAddr]| -> String {
            addresses.iter().map(|address| format!("\"{address}\" = \"{server}\"\n")).collect()
        };
        let first = format!("[forward]\n{}", rules(&free(listeners)));
        let config = folder.write("forward.toml", &first);
        let arguments = ["--config", &config, "--workers", "1"];
        let mut forwarder = Forwarder::start_with_limit(Crowded::DESCRIPTORS, &arguments);
        let mut held: Vec<TcpStream> = (0..connections).map(|_| forwarder.connect()).collect();
        held.iter_mut().for_each(exchange);
        let open = fs::read_dir(format!("/proc/{}/fd", forwarder.pid())).expect("it runs").count();
        let new = free(choose(Crowded::DESCRIPTORS - open));
        folder.write("forward.toml", &format!("{first}{}", rules(&new)));
        forwarder.signal("HUP");
        until("the table is reloaded", || forwarder.sentence().contains("the table is reloaded"));
        Crowded { forwarder, held, new }
    }
}

#[test]
fn listeners_that_a_table_has_no_room_for_are_another_tables() {
    // Some 15 descriptors of their table are left.
    let Crowded { forwarder, mut held, new } = Crowded::new(1, 20, |_| 24);
    let connections = held.len() + new.len();
    for address in &new {
        exchange(&mut connect(*address));
    }
    held.iter_mut().for_each(exchange);
    drop(held);
    let summary = forwarder.stop();
    assert_eq!(summary["connections"], connections, "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({"emfile": 1}), "{summary}");
}

#[test]
fn listeners_that_no_table_has_room_for_are_accepted_at_when_connections_have_ended() {
    // The second table has no room for all of its listeners twice.
    for (listeners, connections) in [(1, 20), (24, 9)] {
        // For another table the coordinator needs more descriptors than these.
        let Crowded { mut forwarder, held, new } = Crowded::new(listeners, connections, |left| left - 3);
        until("no table can be added", || forwarder.sentence().contains("no descriptor table can be added"));
        drop(held);
        for address in new.iter().chain([&forwarder.address()]) {
            exchange(&mut connect(*address));
        }
        assert_eq!(forwarder.stop()["connections"], connections + new.len() + 1);
    }
}

#[test]
fn a_connection_that_this_machine_cannot_lead_on_is_counted_and_said_and_the_next_one_is_led_on() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    let short = ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"].map(|error| ("socket", error, "limit"));
    let no_way = ["EADDRNOTAVAIL", "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EAGAIN"];
    let no_way = no_way.map(|error| ("connect", error, "connect_failed"));
    let others = [("connect", "ECONNREFUSED", "connect_refused"), ("connect", "ETIMEDOUT", "connect_timeout")];
    for (call, error, ending) in short.into_iter().chain(no_way).chain(others) {
        // The worker's fourth: the coordinator makes fewer.
        let mut forwarder = injected(call, error, 4, &[&mapping, "--accept", "single", "--workers", "1"]);
        let mut ends = Vec::new();
        for _ in 0..6 {
            let mut client = forwarder.connect();
            let answer = client.write_all(b"hello").and_then(|()| client.read_exact(&mut [0; 5]));
            ends.push(answer.map_err(|error| error.kind()));
        }
        let reset = Err(ErrorKind::ConnectionReset);
        assert_eq!(ends, [Ok(()), Ok(()), Ok(()), reset, Ok(()), Ok(())], "{call}: {error}");
        let sentence = forwarder.sentence();
        assert!(sentence.contains("cannot connect to"), "{call}: {error}: {sentence}");
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 5, ending: 1}), "{call}: {error}: {summary}");
        assert_eq!(summary["errors"], serde_json::json!({error.to_lowercase(): 1}), "{call}: {summary}");
    }
}

#[test]
fn where_no_pipe_can_be_had_bulk_is_copied_and_that_is_counted() {
    if !may_trace() {
        return;
    }
    for error in ["EMFILE", "ENFILE", "ENOMEM"] {
        let (listener, address) = listener();
        let mapping = format!("127.0.0.1:0={address}");
        let arguments = [&mapping, "--accept", "single", "--workers", "1"];
        // Whether a receiver is so quick that no pipe is wanted is a matter of chance.
        let missed = (0..20).any(|_| {
            let forwarder = injected("pipe2", error, "1+", &arguments);
            let mut client = forwarder.connect();
            let mut server = accept(&listener);
            let bytes = Noise::new(7).bytes(16 * 1024 * 1024);
            let received = std::thread::scope(|scope| {
                scope.spawn(|| {
                    client.write_all(&bytes).expect("it is relayed");
                    client.shutdown(Shutdown::Write).expect("connected");
                });
                let mut received = Vec::new();
                server.read_to_end(&mut received).expect("a clean end");
                received
            });
            assert!(received == bytes, "{error}: the bytes are others");
            drop((client, server));
            let summary = forwarder.stop();
            summary["pipes_missed"].as_u64() > Some(0)
        });
        assert!(missed, "{error}: in no run was a pipe wanted");
    }
}

/// Has several connections send at once, a few times over, and asserts that each message is
/// answered. The forwarder is stopped while they send, so that it finds all of them together.
fn exchange_together(forwarder: &Forwarder) {
    let mut clients: Vec<TcpStream> = (0..8).map(|_| forwarder.connect()).collect();
    for _ in 0..5 {
        clients.iter_mut().for_each(exchange);
        forwarder.signal("STOP");
        clients.iter_mut().for_each(|client| client.write_all(b"hello").expect("there is room"));
        forwarder.signal("CONT");
        for client in &mut clients {
            let mut answer = [0; 5];
            client.read_exact(&mut answer).expect("it is relayed");
            assert_eq!(&answer, b"hello");
        }
    }
}

#[test]
fn where_a_ring_cannot_be_had_or_fails_each_message_is_sent_by_a_call_of_its_own_and_that_is_said() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    let arguments = [&mapping, "--accept", "single", "--workers", "1"];
    for (call, error) in [
        ("io_uring_setup", "EPERM"),
        ("io_uring_setup", "ENOSYS"),
        ("io_uring_setup", "ENOMEM"),
        ("io_uring_enter", "EAGAIN"),
        ("io_uring_enter", "EBUSY"),
        ("io_uring_enter", "ENOMEM"),
    ] {
        let mut forwarder = injected(call, error, 1, &arguments);
        // The ring is for several messages at once.
        exchange_together(&forwarder);
        let sentence = forwarder.sentence();
        assert!(sentence.contains("io_uring cannot be had"), "{call}: {error}: {sentence}");
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 8}), "{call}: {error}: {summary}");
    }
    // A call that a signal interrupts is made again.
    let forwarder = injected("io_uring_enter", "EINTR", 1, &arguments);
    exchange_together(&forwarder);
    let summary = forwarder.stop();
    assert!(summary["sends_batched"].as_u64() > Some(0), "{summary}");
}

#[test]
fn where_no_table_can_be_had_a_forwarder_says_so_and_ends_and_never_that_it_is_ready() {
    if !may_trace() {
        return;
    }
    let folder = Folder::new();
    let (mapping, path) = (format!("127.0.0.1:0={}", echo()), folder.path("notify"));
    let manager = UnixDatagram::bind(&path).expect("the folder can be written to");
    manager.set_nonblocking(true).expect("a socket takes it");
    for accept in ["single", "handoff"] {
        let mut command = traced("unshare", "ENOMEM", 1, &[&mapping, "--accept", accept, "--workers", "1"]);
        let output = command.env("NOTIFY_SOCKET", &path).output().expect("strace is here");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("the forwarder stopped") && said.contains("memory"), "{accept}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{accept}");
        let told = manager.recv(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(told, Err(ErrorKind::WouldBlock), "{accept}");
    }
}

/// From now on no thread of the forwarder gets a table of its own, or no loop what it waits by,
/// until this strace ends.
fn refuse_tables(forwarder: &Forwarder, call: &str) -> (Child, BufReader<ChildStderr>) {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=ENOMEM"));
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &forwarder.pid().to_string(), "-o", "/dev/null", "-e", &trace, "-e", &inject])
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace is here");
    let mut said = BufReader::new(strace.stderr.take().expect("piped"));
    said.read_line(&mut String::new()).expect("it says that it has attached");
    // It would end with its pipe.
    (strace, said)
}

#[test]
fn a_table_that_cannot_be_added_pauses_accepting_and_stops_nothing() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    let calls = ["unshare", "epoll_create1"];
    for (accept, call) in ["single", "handoff"].into_iter().flat_map(|accept| calls.map(|call| (accept, call))) {
        let mut forwarder = Forwarder::start_with_limit(64, &[&mapping, "--accept", accept, "--workers", "1"]);
        exchange(&mut forwarder.connect());
        let (mut strace, _said) = refuse_tables(&forwarder, call);
        let streams: Vec<TcpStream> = (0..60).map(|_| forwarder.connect()).collect();
        let sentence = forwarder.sentence();
        assert!(sentence.contains("no descriptor table can be added"), "{accept}, {call}: {sentence}");
        until("nobody tries again and again", || forwarder.is_quiet());
        for mut stream in streams {
            // Each makes room for one that waits.
            exchange(&mut stream);
        }
        strace.kill().expect("it runs");
        strace.wait().expect("a status");
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 61}), "{accept}: {summary}");
    }
}

#[test]
fn accepting_goes_on_once_a_table_can_be_added_though_no_connection_ends() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    for accept in ["single", "handoff"] {
        let mut forwarder = Forwarder::start_with_limit(64, &[&mapping, "--accept", accept, "--workers", "1"]);
        let (mut strace, _said) = refuse_tables(&forwarder, "unshare");
        let mut held: Vec<TcpStream> = (0..21).map(|_| forwarder.connect()).collect();
        held.iter_mut().for_each(exchange);
        let mut waiting: Vec<TcpStream> = (0..9).map(|_| forwarder.connect()).collect();
        let sentence = forwarder.sentence();
        assert!(sentence.contains("no descriptor table can be added"), "{accept}: {sentence}");
        strace.kill().expect("it runs");
        strace.wait().expect("a status");
        waiting.iter_mut().for_each(exchange);
        held.iter_mut().for_each(exchange);
        drop((held, waiting));
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 30}), "{accept}: {summary}");
    }
}

#[test]
fn clients_that_wait_for_a_full_table_are_served_when_a_reload_takes_their_listener() {
    if !may_trace() {
        return;
    }
    for accept in ["single", "handoff"] {
        let (folder, server) = (Folder::new(), echo());
        let table = |listen: &str| format!("[forward]\n\"{listen}\" = \"{server}\"\n");
        let config = folder.write("forward.toml", &table("127.0.0.1:0"));
        let arguments = ["--config", &config, "--accept", accept, "--workers", "1"];
        let mut forwarder = Forwarder::start_with_limit(64, &arguments);
        let (mut strace, _said) = refuse_tables(&forwarder, "unshare");
        // A table of 64 descriptors holds 21 connections, and a few descriptors are to spare.
        let mut held: Vec<TcpStream> = (0..21).map(|_| forwarder.connect()).collect();
        held.iter_mut().for_each(exchange);
        let mut waiting: Vec<TcpStream> = (0..2).map(|_| forwarder.connect()).collect();
        let sentence = forwarder.sentence();
        assert!(sentence.contains("no descriptor table can be added"), "{accept}: {sentence}");
        if accept == "single" {
            until("both are queued", || queued_at(forwarder.address()) == 2);
        }
        until("it is full", || forwarder.is_quiet());
        folder.replace("forward.toml", &table("127.0.0.3:0"));
        forwarder.signal("HUP");
        until("the table is reloaded", || forwarder.sentence().contains("reloaded"));
        if accept == "handoff" {
            // The acceptor has taken them, and they wait for room.
            held.clear();
        }
        waiting.iter_mut().for_each(exchange);
        strace.kill().expect("it runs");
        strace.wait().expect("a status");
        drop((held, waiting));
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 23}), "{accept}: {summary}");
    }
}

#[test]
fn descriptors_that_the_coordinator_leaves_open_are_counted() {
    if !may_trace() {
        return;
    }
    let mapping = format!("127.0.0.1:0={}", echo());
    let mappings = [mapping.as_str(); 10];
    for (accept, least) in [("exclusive", 10), ("handoff", 10), ("reuseport", 20)] {
        let inner = command(&[&mappings[..], &["--accept", accept, "--workers", "2"]].concat());
        let mut outer = Command::new("strace");
        // It follows the first thread alone, which is the coordinator: that closes nothing, and
        // its listeners are left.
        outer.args(["-D", "-qq", "-o", "/dev/null", "-e", "trace=close", "-e", "inject=close:retval=0:when=1+"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        let forwarder = Forwarder::spawn(outer);
        exchange(&mut forwarder.connect());
        let summary = forwarder.stop_leaking();
        let counted = summary["leaked"]["descriptors"].as_u64().expect("a count");
        assert!(counted >= least, "{accept}: {summary}");
    }
}
