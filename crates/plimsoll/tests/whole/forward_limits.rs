//! What runs out, stalls or is slow here must slow nobody else.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_sys::net;

use crate::support::forwarder::{
    Folder, Forwarder, Noise, accept, answer, asks, connect, echo, exchange, get, listener, reset, until,
};
use crate::support::peer::read_once;

#[test]
fn past_max_connections_accepting_pauses_and_resumes_when_a_connection_ends() {
    let folder = Folder::new();
    let table = format!("[defaults]\nmax_connections = 3\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table), "--workers", "1"]);
    let mut streams: Vec<TcpStream> = (0..3).map(|_| forwarder.connect()).collect();
    streams.iter_mut().for_each(exchange);
    let waiting = forwarder.connect();
    until("waiting costs no CPU", || forwarder.is_quiet());
    drop(waiting);
    for _ in 0..3 {
        // Queued by the kernel, not refused.
        let mut waiting = forwarder.connect();
        waiting.write_all(b"hello").expect("there is room");
        waiting.set_read_timeout(Some(Duration::from_millis(60))).expect("a timeout can be set");
        assert!(read_once(&waiting, &mut [0]).is_err(), "it has to wait");
        waiting.set_read_timeout(Some(crate::support::forwarder::PATIENCE)).expect("a timeout can be set");
        drop(streams.remove(0));
        waiting.read_exact(&mut [0; 5]).expect("it is relayed");
        streams.push(waiting);
    }
    drop(streams);
    assert_eq!(forwarder.stop()["peak_connections"], 3);
}

#[test]
fn one_rules_idle_clients_leave_the_others_their_part_of_max_connections() {
    for accept in ["single", "exclusive", "handoff"] {
        let folder = Folder::new();
        let server = echo();
        let table = format!(
            "[defaults]\nmax_connections = 32\n[forward]\n\"127.0.0.1:0\" = \"{server}\"\n\"127.0.0.2:0\" = \
             \"{server}\"\n"
        );
        let config = folder.write("forward.toml", &table);
        let workers = if accept == "exclusive" { "2" } else { "1" };
        let mut forwarder = Forwarder::start(&["--config", &config, "--accept", accept, "--workers", workers]);
        let [greedy, modest] = forwarder.addresses()[..] else { panic!("two rules") };
        // An eighth of 32 is 4, and a rule's part of it 2.
        let mut held: Vec<TcpStream> = (0..30).map(|_| connect(greedy)).collect();
        held.iter_mut().for_each(exchange);
        let _waiting: Vec<TcpStream> = (0..5).map(|_| connect(greedy)).collect();
        let sentence = forwarder.sentence();
        assert!(sentence.contains("the rest of max_connections (32) is kept for other rules"), "{accept}: {sentence}");
        let mut others: Vec<TcpStream> = (0..2).map(|_| connect(modest)).collect();
        others.iter_mut().for_each(exchange);
        let _one_more = connect(modest);
        let sentence = forwarder.sentence();
        assert!(sentence.contains("max_connections (32) is reached"), "{accept}: {sentence}");
        until("waiting costs no CPU", || forwarder.is_quiet());
    }
}

#[test]
fn past_the_limit_each_listener_has_its_turn() {
    // With 24 places each of three rules has one kept for it, which the third does not use.
    for (most, held_each) in [(1, [1, 0]), (24, [22, 1])] {
        for accept in ["single", "handoff"] {
            let (folder, server) = (Folder::new(), echo());
            let rule = |number| format!("\"127.0.0.{number}:0\" = \"{server}\"\n");
            let rules = [1, 2, 3].map(rule).concat();
            let table = format!("[defaults]\nmax_connections = {most}\n[forward]\n{rules}");
            let config = folder.write("forward.toml", &table);
            let forwarder = Forwarder::start(&["--config", &config, "--accept", accept, "--workers", "1"]);
            let addresses = forwarder.addresses();
            let mut held: Vec<TcpStream> = Vec::new();
            for (address, count) in addresses.iter().zip(held_each) {
                held.extend((0..count).map(|_| connect(*address)));
                held.iter_mut().for_each(exchange);
            }
            // All of them queue in the kernel, most of them at the first address.
            let mut queued: Vec<(usize, TcpStream)> = [0, 0, 0, 0, 0, 0, 1]
                .map(|number| {
                    let mut stream = connect(addresses[number]);
                    stream.write_all(b"x").expect("the kernel takes it");
                    stream.set_nonblocking(true).expect("a socket takes it");
                    (number, stream)
                })
                .into();
            held.remove(0);
            let mut served = Vec::new();
            while served.len() < 3 {
                until("another is served", || queued.iter().any(|(_, stream)| stream.peek(&mut [0]).is_ok()));
                let next = queued.iter().position(|(_, stream)| stream.peek(&mut [0]).is_ok()).expect("just seen");
                served.push(queued.remove(next).0);
            }
            assert!(served.contains(&1), "{accept}, {most}: {served:?}");
        }
    }
}

#[test]
fn clients_that_wait_beyond_max_connections_are_served_when_a_reload_takes_their_listener() {
    for accept in ["single", "exclusive", "handoff"] {
        let folder = Folder::new();
        let (server, other) = (answer(b'a'), "127.0.0.3:0");
        let table = |listen: &str| format!("[defaults]\nmax_connections = 2\n[forward]\n\"{listen}\" = \"{server}\"\n");
        let config = folder.write("forward.toml", &table("127.0.0.1:0"));
        let workers = if accept == "exclusive" { "2" } else { "1" };
        let mut forwarder = Forwarder::start(&["--config", &config, "--accept", accept, "--workers", workers]);
        let mut held: Vec<TcpStream> = (0..2).map(|_| forwarder.connect()).collect();
        held.iter_mut().for_each(|stream| assert_eq!(asks(stream), b'a', "{accept}"));
        let mut waiting: Vec<TcpStream> = (0..5).map(|_| forwarder.connect()).collect();
        folder.replace("forward.toml", &table(other));
        forwarder.signal("HUP");
        until("the table is reloaded", || forwarder.sentence().contains("reloaded"));
        waiting.iter_mut().for_each(|stream| assert_eq!(asks(stream), b'a', "{accept}"));
        drop((held, waiting));
        forwarder.stop();
    }
}

#[test]
fn where_no_further_table_can_be_had_who_waits_is_served_when_others_leave() {
    // A table of 24 descriptors holds three connections, and the coordinator's own has room for a
    // few tables only.
    let mapping = format!("127.0.0.1:0={}", echo());
    for accept in ["single", "handoff", "exclusive"] {
        let workers = if accept == "exclusive" { "2" } else { "1" };
        let mut forwarder =
            Forwarder::start_with_limit(24, &[mapping.as_str(), "--accept", accept, "--workers", workers]);
        let mut streams: Vec<TcpStream> = (0..60).map(|_| forwarder.connect()).collect();
        for stream in &mut streams {
            stream.write_all(b"hello").expect("there is room");
            stream.set_nonblocking(true).expect("a socket takes it");
        }
        let sentence = forwarder.sentence();
        assert!(sentence.contains("no descriptor table can be added"), "{accept}: {sentence}");
        let mut served = 0;
        until("all were served", || {
            streams.retain_mut(|stream| {
                let answered = read_once(&mut *stream, &mut [0; 5]).is_ok_and(|length| length > 0);
                if answered {
                    served += 1;
                }
                !answered
            });
            streams.is_empty()
        });
        assert_eq!(served, 60, "{accept}");
        // The tables that were added have left descriptors to accept with.
        exchange(&mut forwarder.connect());
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 61}), "{accept}: {summary}");
    }
}

#[test]
fn a_server_is_not_down_because_this_machine_has_no_descriptor_to_ask_it_with() {
    let (listener, folder) = (TcpListener::bind("0.0.0.0:0").expect("a free port"), Folder::new());
    let port = listener.local_addr().expect("it is bound").port();
    // Far more than a table of 24 descriptors has room to ask at once.
    let servers: Vec<String> = (1..=60).map(|last| format!("127.0.0.{last}:{port}")).collect();
    let check = "check = { every = \"100ms\", timeout = \"30s\", fall = 1 }";
    let table = format!("[forward.\"127.0.0.1:0\"]\nto = {servers:?}\n{check}\n");
    let config = folder.write("forward.toml", &table);
    let forwarder = Forwarder::start_with_limit(24, &["--config", &config, "--workers", "1"]);
    listener.set_nonblocking(true).expect("a socket takes it");
    let mut asked: HashMap<IpAddr, usize> = HashMap::new();
    until("each is asked three times", || {
        while let Ok((stream, _)) = listener.accept() {
            *asked.entry(stream.local_addr().expect("connected").ip()).or_default() += 1;
        }
        asked.len() == servers.len() && asked.values().all(|times| *times >= 3)
    });
    forwarder.signal("TERM");
    let (status, _, said) = forwarder.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!said.contains("is down"), "{said}");
}

#[test]
fn each_direction_waits_for_its_own_bandwidth_and_not_for_that_of_the_other() {
    let (server, address) = listener();
    let folder = Folder::new();
    let table = format!("[forward.\"127.0.0.1:0\"]\nto = \"{address}\"\nlimit = {{ bandwidth = \"4KB/s\" }}\n");
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table), "--workers", "1"]);
    let mut client = forwarder.connect();
    let mut served = accept(&server);
    // One read of it is paid for by 16 seconds.
    client.write_all(&[0; 64 * 1024]).expect("there is room for it");
    served.read_exact(&mut [0; 1024]).expect("it comes");
    served.write_all(&[1; 4000]).expect("connected");
    client.read_exact(&mut [0; 4000]).expect("it comes");
    let begun = Instant::now();
    served.write_all(&[2; 512]).expect("connected");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("the socket is open");
    client.read_exact(&mut [0; 512]).expect("it comes a second later");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn a_client_that_resets_what_was_sent_to_it_after_its_server_has_is_let_go_at_once() {
    let (server, address) = listener();
    let folder = Folder::new();
    let table = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[forward.\"127.0.0.1:0\"]\nto = \"{address}\"\nhalf_close = \"1h\"\n"
    );
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let tells = |line: &str| get(forwarder.admin(), "/metrics").lines().any(|found| found == line);
    let listen = format!("listen=\"{}\"", forwarder.address());
    let open = |count: usize| tells(&format!("plimsoll_forward_connections{{{listen}}} {count}"));
    let mut client = forwarder.connect();
    let mut served = accept(&server);
    client.write_all(&[0]).expect("connected");
    served.read_exact(&mut [0]).expect("it is relayed");
    // More than the client's socket takes unread, and less than the forwarder's has room for.
    served.write_all(&[1; 600_000]).expect("there is room for it");
    until("all of it is on its way to the client", || {
        tells(&format!("plimsoll_forward_bytes_total{{{listen},direction=\"down\"}} 600000"))
    });
    reset(served);
    // The server's is seen first; else nothing would wait for what the client is yet to take.
    std::thread::sleep(Duration::from_millis(300));
    assert!(open(1), "what was sent to the client is waited for");
    reset(client);
    until("it is let go", || open(0));
}

#[test]
fn a_connection_that_ends_when_both_of_its_timers_fire_gives_each_back_once() {
    let (server, address) = listener();
    let folder = Folder::new();
    // The bandwidth is used up for 0.66 s by one read; the time to connect has a timer until 0.8 s.
    let table = format!(
        "[forward.\"127.0.0.1:0\"]\nto = \"{address}\"\nconnect_timeout = \"800ms\"\nlimit = {{ bandwidth = \
         \"100KB/s\" }}\n"
    );
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table), "--workers", "1"]);
    let mut client = forwarder.connect();
    let mut served = accept(&server);
    served.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    client.write_all(&[0; 64 * 1024]).expect("it is read");
    client.shutdown(Shutdown::Write).expect("connected");
    served.read_exact(&mut [0; 64 * 1024]).expect("one read of the forwarder's");
    // It finds both due when it goes on; where this test is too slow for that, it finds one after
    // the other.
    forwarder.signal("STOP");
    std::thread::sleep(Duration::from_secs(1));
    forwarder.signal("CONT");
    assert_eq!(served.read(&mut [0]).expect("the end"), 0);
    let summary = forwarder.stop();
    assert_eq!(summary["ends"], serde_json::json!({"server_closed": 1}), "{summary}");
}

#[test]
fn ten_thousand_half_open_connections_keep_nobody_from_being_served() {
    const HALF_OPEN: usize = 10_000;
    // Nobody accepts them behind the forwarder: they stand in the kernel's queues, which hold some
    // 4000 each (net.core.somaxconn).
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let queues = [(); 3].map(|()| net::listen(any, net::Sharing::Alone).expect("a free port"));
    let queued_at = |queue| net::local_address(queue).expect("it is bound");
    let mut mappings: Vec<String> = queues.iter().map(|queue| format!("127.0.0.1:0={}", queued_at(queue))).collect();
    mappings.push(format!("127.0.0.1:0={}", echo()));
    let arguments: Vec<&str> = mappings.iter().map(String::as_str).chain(["--workers", "1"]).collect();
    let forwarder = Forwarder::start(&arguments);
    let addresses = forwarder.addresses();
    let room = plimsoll_sys::descriptor::limit().saturating_sub(1000);
    let held: Vec<TcpStream> = (0..HALF_OPEN.min(room))
        .map(|number| {
            let client = connect(addresses[number % queues.len()]);
            client.shutdown(Shutdown::Write).expect("connected");
            client
        })
        .collect();
    exchange(&mut connect(addresses[queues.len()]));
    until("half-open connections cost no CPU", || forwarder.is_quiet());
    drop(held);
}

#[test]
fn pipes_beyond_what_the_user_may_have_are_smaller_and_counted() {
    // Without privilege 64 MiB of pipes are allowed: 64 of 1 MiB each (pipe(7),
    // pipe-user-pages-soft).
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
    let mut held: Vec<(TcpStream, TcpStream)> = (0..100)
        .map(|_| {
            let client = forwarder.connect();
            client.set_nonblocking(true).expect("a socket takes it");
            (client, accept(&listener))
        })
        .collect();
    // The servers do not read, so bytes stay in pipes. More than a few are held, and then nothing
    // more fits anywhere for a while: by then all have asked for one.
    let (piece, mut quiet) = (vec![7; 1 << 20], 0);
    until("everything is full", || {
        let before = forwarder.cost().0;
        let mut written = false;
        held.iter_mut().for_each(|(client, _)| {
            while client.write(&piece).is_ok() {
                written = true
            }
        });
        std::thread::sleep(Duration::from_millis(10));
        quiet = if written || forwarder.cost().0 > before { 0 } else { quiet + 1 };
        quiet > 20 && pipe_ends(forwarder.pid()) > 2 * 8
    });
    until("every connection still relays", || {
        let mut buffer = vec![0; 1 << 16];
        held.iter_mut().all(|(_, server)| read_once(server, &mut buffer).is_ok_and(|length| length > 0))
    });
    drop(held);
    let summary = forwarder.stop();
    assert!(summary["pipes_shrunk"].as_u64().expect("a count") > 0, "{summary}");
}

#[test]
fn connections_that_turn_from_bulk_to_small_messages_and_back_never_run_out_of_pipes() {
    const CONNECTIONS: usize = 60;
    // At this limit a worker has 32 pipes.
    let mapping = format!("127.0.0.1:0={}", echo());
    let forwarder = Forwarder::start_with_limit(1024, &[&mapping, "--workers", "1"]);
    let bulk = Noise::new(3).bytes(4 * 1024 * 1024);
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        let mut client = forwarder.connect();
        for _ in 0..2 {
            let mut writer = client.try_clone().expect("a descriptor is left");
            let mut read = vec![0; bulk.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| writer.write_all(&bulk).expect("it is read"));
                client.read_exact(&mut read).expect("an echo");
            });
            assert!(read == bulk, "connection {number}");
            (0..8).for_each(|_| exchange(&mut client));
        }
        held.push(client);
    }
    drop(held);
    assert_eq!(forwarder.stop()["pipes_missed"], 0);
}

/// A forwarder of one worker to which io_uring is not to be had, or None where this machine lets no
/// program filter its system calls.
fn without_io_uring(mapping: &str) -> Option<Forwarder> {
    let python = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/without_io_uring.py"));
        command.arg(env!("CARGO_BIN_EXE_plimsoll")).args(arguments);
        command
    };
    if python(&["--version"]).output().expect("python3").status.code() == Some(77) {
        let _ = writeln!(std::io::stderr(), "skipped: this machine lets no program filter its system calls");
        return None;
    }
    Some(Forwarder::spawn(python(&["forward", "--json", mapping, "--workers", "1"])))
}

#[test]
fn messages_that_came_together_go_out_with_one_call_or_it_is_said_that_they_cannot() {
    let mapping = format!("127.0.0.1:0={}", echo());
    let with = Some(Forwarder::start(&[&mapping, "--workers", "1"]));
    for (forwarder, has_ring) in [(with, true), (without_io_uring(&mapping), false)] {
        let Some(mut forwarder) = forwarder else { continue };
        if !has_ring {
            let sentence = forwarder.sentence();
            assert!(sentence.contains("io_uring cannot be had (Function not implemented"), "{sentence}");
            assert!(sentence.contains("kernel.io_uring_disabled"), "{sentence}");
        }
        let mut streams: Vec<TcpStream> = (0..8).map(|_| forwarder.connect()).collect();
        streams.iter_mut().for_each(exchange);
        for _ in 0..5 {
            forwarder.signal("STOP");
            until("every thread stands still", || is_stopped(forwarder.pid()));
            streams.iter_mut().for_each(|stream| stream.write_all(b"hello").expect("there is room"));
            forwarder.signal("CONT");
            for stream in &mut streams {
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).expect("an echo");
                assert_eq!(&answer, b"hello");
            }
        }
        drop(streams);
        let summary = forwarder.stop();
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 8}), "{summary}");
        assert_eq!(summary["sends_batched"].as_u64().expect("a count") > 0, has_ring, "{summary}");
    }
}

/// Whether every thread of a process is stopped (proc_pid_stat(5): the state follows the name).
fn is_stopped(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()).all(|stat| stat.contains(") T "))
}

/// Ends of pipes in all descriptor tables of a process.
fn pipe_ends(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let tables = tasks.filter_map(|task| fs::read_dir(task.path().join("fd")).ok());
    let links = tables.flatten().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count()
}
