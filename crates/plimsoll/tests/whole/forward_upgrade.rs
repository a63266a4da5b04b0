//! Listeners that outlive a process: a service manager's, and those that one forwarder takes over
//! from another.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_sys::{passing, unix};

use crate::support::forwarder::{
    Folder, Forwarder, command, connect, echo, exchange, get, listener, text_of, traced, until,
};
use crate::support::running::{Running, limited};
use crate::support::server::may_trace;

/// A command that is given its standard input as the one socket of a service manager.
fn activated(inner: &Command) -> Command {
    let mut outer = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec \"$0\" \"$@\" 3<&0 0</dev/null";
    outer.arg("-c").arg(script).arg(inner.get_program()).args(inner.get_args());
    outer
}

/// An address that nobody listens at, and nobody else takes.
fn free_address() -> SocketAddr {
    listener().1
}

#[test]
fn a_socket_of_the_service_manager_is_accepted_at_and_left_open() {
    for accept in ["exclusive", "handoff"] {
        let (own, address) = listener();
        let copy = OwnedFd::from(own.try_clone().expect("a descriptor is left"));
        let mapping = format!("{address}={}", echo());
        let started = command(&[&mapping, "--workers", "2", "--accept", accept]);
        let forwarder = Forwarder::of(Running::start_with_input(activated(&started), Stdio::from(copy)));
        assert_eq!(forwarder.address(), address);
        exchange(&mut forwarder.connect());
        let summary = forwarder.stop();
        assert_eq!(summary["ends"]["client_closed"], 1, "{summary}");
        // The service manager starts the service again for whoever connects from now on.
        let late = TcpStream::connect(address).expect("the socket listens");
        let (_, peer) = own.accept().expect("it is queued there");
        assert_eq!(peer, late.local_addr().expect("connected"));
    }
}

#[test]
fn a_socket_that_its_owner_has_shut_down_costs_no_cpu() {
    for accept in ["exclusive", "handoff"] {
        let (own, address) = listener();
        let copy = OwnedFd::from(own.try_clone().expect("a descriptor is left"));
        let mappings = [format!("{address}={}", echo()), format!("127.0.0.1:0={}", echo())];
        let started = command(&[&mappings[0], &mappings[1], "--workers", "2", "--accept", accept]);
        let forwarder = Forwarder::of(Running::start_with_input(activated(&started), Stdio::from(copy)));
        exchange(&mut forwarder.connect());
        plimsoll_sys::net::stop_listening(&own);
        exchange(&mut connect(forwarder.addresses()[1]));
        until("what is shut down costs no CPU", || forwarder.is_quiet());
        forwarder.stop();
    }
}

#[test]
fn an_end_that_waits_for_a_worker_while_a_listener_pauses_costs_no_cpu() {
    let (own, address) = listener();
    let copy = OwnedFd::from(own.try_clone().expect("a descriptor is left"));
    let mappings = [format!("{address}={}", echo()), format!("127.0.0.1:0={}", echo())];
    let arguments = ["--workers", "1", "--accept", "handoff", "--drain", "1h"];
    let started = command(&[&[mappings[0].as_str(), &mappings[1]][..], &arguments].concat());
    // A table of 24 descriptors holds three connections, and only a few tables can be had.
    let started = limited(&activated(&started), 24);
    let mut forwarder = Forwarder::of(Running::start_with_input(started, Stdio::from(copy)));
    // The listener pauses a moment at a time, as nobody can connect there.
    plimsoll_sys::net::stop_listening(&own);
    let mut held = vec![connect(forwarder.addresses()[1])];
    exchange(&mut held[0]);
    forwarder.signal("STOP");
    held.extend((0..400).map(|_| connect(forwarder.addresses()[1])));
    forwarder.signal("TERM");
    forwarder.signal("CONT");
    until("no further table can be had", || forwarder.sentence().contains("no descriptor table can be added"));
    until("waiting for a worker costs no CPU", || forwarder.is_quiet());
    drop(held);
    let (status, ..) = forwarder.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_socket_of_the_service_manager_that_a_reload_leaves_costs_no_cpu() {
    for accept in ["exclusive", "handoff"] {
        let ((own, address), folder, server) = (listener(), Folder::new(), echo());
        let copy = OwnedFd::from(own.try_clone().expect("a descriptor is left"));
        let rest = format!("\"127.0.0.1:0\" = \"{server}\"\n");
        let config = folder.write("forward.toml", &format!("[forward]\n\"{address}\" = \"{server}\"\n{rest}"));
        let started = command(&["--config", &config, "--workers", "2", "--accept", accept]);
        let mut forwarder = Forwarder::of(Running::start_with_input(activated(&started), Stdio::from(copy)));
        exchange(&mut forwarder.connect());
        folder.replace("forward.toml", &format!("[forward]\n{rest}"));
        forwarder.signal("HUP");
        let sentence = forwarder.sentence();
        assert!(sentence.contains("reloaded: 1 listeners, 0 new, 1 gone"), "{sentence}");
        own.set_nonblocking(true).expect("a socket takes it");
        // Workers take what is queued when they leave.
        until("it has left", || {
            let late = TcpStream::connect(address).and_then(|stream| stream.local_addr());
            own.accept().is_ok_and(|(_, peer)| late.is_ok_and(|late| late == peer))
        });
        let _queued = TcpStream::connect(address).expect("the service manager's socket listens");
        let stays = forwarder.addresses().into_iter().find(|each| *each != address).expect("the other rule's");
        exchange(&mut connect(stays));
        until("what it has left costs no CPU", || forwarder.is_quiet());
        forwarder.stop();
    }
}

#[test]
fn a_socket_of_the_service_manager_that_no_rule_names_is_refused() {
    let (own, address) = listener();
    let started = command(&[&format!("127.0.0.1:0={}", echo())]);
    let output = activated(&started).stdin(Stdio::from(OwnedFd::from(own))).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("a socket at {address}, and no rule listens there")), "{said}");
}

/// The flag, with a path in a folder.
fn upgrade_at(folder: &Folder) -> String {
    format!("--upgrade={}", text_of(&folder.path("upgrade")))
}

/// Asks the process there for its listeners, as one does that takes over: the connection, on which
/// it waits for an answer, and what it has sent.
fn ask_for_listeners(folder: &Folder) -> (OwnedFd, Vec<OwnedFd>) {
    let asks = unix::connect_for_messages(&folder.path("upgrade")).expect("it waits there");
    let (mut message, mut sockets) = ([0; passing::MOST], Vec::new());
    until("all sockets are sent", || {
        passing::receive(&asks, &mut message, &mut sockets).is_ok_and(|length| message[..length] == *b".")
    });
    (asks, sockets)
}

#[test]
fn without_a_path_the_same_command_takes_over_and_another_one_meets_nobody() {
    let folder = Folder::new();
    let address = free_address();
    let mapping = format!("{address}={}", echo());
    let start = |mapping: &str| {
        let mut started = command(&["--upgrade", mapping]);
        started.env_remove("RUNTIME_DIRECTORY").env("XDG_RUNTIME_DIR", folder.path(""));
        Forwarder::of(Running::start(started))
    };
    let mut old = start(&mapping);
    let other = start(&format!("{}={}", free_address(), echo()));
    let new = start(&mapping);
    let sentence = old.sentence();
    assert!(sentence.contains("has taken over, with 1 of the listeners"), "{sentence}");
    let (status, ..) = old.wait();
    assert_eq!(status.code(), Some(0));
    exchange(&mut connect(address));
    exchange(&mut other.connect());
    new.stop();
    other.stop();
}

#[test]
fn a_new_process_takes_over_without_a_refused_connection_and_the_old_one_lets_its_connections_end() {
    for accept in ["exclusive", "handoff", "reuseport"] {
        let (folder, address) = (Folder::new(), free_address());
        let (upgrade, unix) = (upgrade_at(&folder), text_of(&folder.path("listen")));
        let mappings = [format!("{address}={}", echo()), format!("unix:{unix}={}", echo())];
        let arguments = [mappings[0].as_str(), mappings[1].as_str(), "--workers", "2", "--accept", accept, &upgrade];
        let mut running = Forwarder::start(&arguments);
        let (ends, exchanged) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        exchange(&mut connect(address));
                        exchanged.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..3 {
                let before = exchanged.load(Ordering::Relaxed);
                until("connections are made", || exchanged.load(Ordering::Relaxed) > before + 10);
                let mut held = connect(address);
                exchange(&mut held);
                let new = Forwarder::start(&arguments);
                let mut old = std::mem::replace(&mut running, new);
                let sentence = old.sentence();
                assert!(sentence.contains("another process has taken over, with 2 of the listeners"), "{sentence}");
                // Its connections live on, and nobody waits for them.
                exchange(&mut held);
                drop(held);
                let (status, summary, said) = old.wait();
                assert_eq!(status.code(), Some(0), "{said}");
                assert!(summary["ends"]["drained"].is_null(), "{accept}: {summary}");
                UnixStream::connect(&unix).expect("the new process listens there");
            }
            ends.store(true, Ordering::Relaxed);
        });
        running.stop();
        assert!(!folder.path("upgrade").exists() && !folder.path("listen").exists(), "both names are taken away");
    }
}

#[test]
fn a_signal_to_the_old_process_leaves_the_listeners_to_one_that_is_taking_over() {
    for (accept, answer) in [("exclusive", true), ("exclusive", false), ("handoff", true), ("handoff", false)] {
        let (folder, address) = (Folder::new(), free_address());
        let mapping = format!("{address}={}", echo());
        let mut old = Forwarder::start(&[&mapping, "--workers", "2", "--accept", accept, &upgrade_at(&folder)]);
        let (asks, mut sockets) = ask_for_listeners(&folder);
        old.signal("STOP");
        if answer {
            passing::send(&asks, b".\x01", &[]).expect("there is room");
        }
        old.signal("TERM");
        old.signal("CONT");
        let said = if answer { "with 1 of the listeners" } else { "they are left to it" };
        let sentence = old.sentence();
        assert!(sentence.contains(said), "{accept}: {sentence}");
        let (status, ..) = old.wait();
        assert_eq!(status.code(), Some(0));
        let taken = TcpListener::from(sockets.pop().expect("a listener"));
        taken.set_nonblocking(false).expect("a socket takes it");
        let late = TcpStream::connect(address).expect("it listens still");
        let (_, peer) = taken.accept().expect("it is queued there");
        assert_eq!(peer, late.local_addr().expect("connected"));
    }
}

#[test]
fn a_signal_to_the_old_process_leaves_the_admin_address_to_one_that_is_taking_over() {
    let (folder, address, admin) = (Folder::new(), free_address(), free_address());
    let table = format!("[admin]\nlisten = \"{admin}\"\n[forward]\n\"{address}\" = \"{}\"\n", echo());
    let mut old = Forwarder::start(&["--config", &folder.write("forward.toml", &table), &upgrade_at(&folder)]);
    let mut held = connect(address);
    exchange(&mut held);
    let (_asks, mut sockets) = ask_for_listeners(&folder);
    let taken = TcpListener::from(sockets.swap_remove(0));
    assert_eq!(taken.local_addr().expect("it is bound"), admin);
    old.signal("TERM");
    let sentence = old.sentence();
    assert!(sentence.contains("they are left to it"), "{sentence}");
    // Its thread may take a moment to end.
    let mut in_a_row = 0;
    until("whoever connects there is left to the process that takes over", || {
        let _late = TcpStream::connect(admin).expect("it listens still");
        std::thread::sleep(Duration::from_millis(10));
        in_a_row = if taken.accept().is_ok() { in_a_row + 1 } else { 0 };
        in_a_row == 20
    });
    exchange(&mut held);
    drop(held);
    let (status, ..) = old.wait();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn while_a_process_that_was_told_to_end_drains_another_one_starts_at_the_same_place() {
    for accept in ["exclusive", "handoff"] {
        let (folder, address) = (Folder::new(), free_address());
        let mapping = format!("{address}={}", echo());
        let arguments = [&mapping, "--workers", "2", "--accept", accept, &upgrade_at(&folder)];
        let old = Forwarder::start(&arguments);
        let mut held = connect(address);
        exchange(&mut held);
        old.signal("TERM");
        until("it drains", || TcpStream::connect(address).is_err());
        let new = Forwarder::start(&arguments);
        exchange(&mut connect(address));
        exchange(&mut held);
        drop(held);
        let (status, ..) = old.wait();
        assert_eq!(status.code(), Some(0));
        assert!(folder.path("upgrade").exists(), "the new process waits there");
        new.stop();
    }
}

#[test]
fn the_admin_address_of_a_process_that_drains_is_its_own_until_another_one_starts_in_its_place() {
    for accept in ["exclusive", "handoff"] {
        let (folder, address, admin) = (Folder::new(), free_address(), free_address());
        let table = format!("[admin]\nlisten = \"{admin}\"\n[forward]\n\"{address}\" = \"{}\"\n", echo());
        let config = folder.write("forward.toml", &table);
        let arguments = ["--config", &config, "--workers", "2", "--accept", accept, &upgrade_at(&folder)];
        let mut old = Forwarder::start(&arguments);
        let mut held = connect(address);
        exchange(&mut held);
        old.signal("TERM");
        until("it drains", || TcpStream::connect(address).is_err());
        assert!(get(admin, "/readyz").starts_with("HTTP/1.1 503"), "{accept}");
        let new = Forwarder::start(&arguments);
        let sentence = old.sentence();
        assert!(sentence.contains("another process has started in place of this one"), "{accept}: {sentence}");
        // Its thread may take a moment to end.
        until("the new one answers there", || get(admin, "/readyz").starts_with("HTTP/1.1 200"));
        exchange(&mut connect(address));
        exchange(&mut held);
        drop(held);
        let (status, ..) = old.wait();
        assert_eq!(status.code(), Some(0));
        assert!(folder.path("upgrade").exists(), "the new process waits there");
        new.stop();
    }
}

#[test]
fn a_process_that_drains_ends_although_another_one_asks_for_its_admin_address_and_says_no_more() {
    let (folder, address, admin) = (Folder::new(), free_address(), free_address());
    let table = format!("[admin]\nlisten = \"{admin}\"\n[forward]\n\"{address}\" = \"{}\"\n", echo());
    let config = folder.write("forward.toml", &table);
    let old = Forwarder::start(&["--config", &config, &upgrade_at(&folder)]);
    let mut held = connect(address);
    exchange(&mut held);
    old.signal("TERM");
    until("it drains", || TcpStream::connect(address).is_err());
    let (_asks, sockets) = ask_for_listeners(&folder);
    assert_eq!(sockets.len(), 1);
    until("who asks costs no CPU", || old.is_quiet());
    drop(held);
    let (status, ..) = old.wait();
    assert_eq!(status.code(), Some(0));
    assert!(!folder.path("upgrade").exists());
    TcpStream::connect(admin).expect("the socket that was sent listens");
}

#[test]
fn tables_that_wait_for_a_process_that_asks_and_says_no_more_cost_no_cpu() {
    let (folder, address) = (Folder::new(), free_address());
    let config = folder.write("forward.toml", &format!("[forward]\n\"{address}\" = \"{}\"\n", echo()));
    let mut forwarder = Forwarder::start(&["--config", &config, &upgrade_at(&folder)]);
    let (asks, sockets) = ask_for_listeners(&folder);
    // The first table waits with the coordinator, the second one with the thread that has read it.
    for _ in 0..2 {
        forwarder.signal("HUP");
        until("a table that waits costs no CPU", || forwarder.is_quiet());
    }
    drop((asks, sockets));
    let sentence = forwarder.sentence();
    assert!(sentence.contains("has gone without taking them"), "{sentence}");
    for _ in 0..2 {
        let sentence = forwarder.sentence();
        assert!(sentence.contains("the table is reloaded"), "{sentence}");
    }
    forwarder.stop();
}

#[test]
fn what_cannot_take_over_changes_nothing_and_what_is_not_taken_over_is_closed() {
    let folder = Folder::new();
    let upgrade = upgrade_at(&folder);
    let [first, second] = [(); 2].map(|()| free_address());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mapping = |listen: SocketAddr| format!("{listen}={}", echo());
    let mut old = Forwarder::start(&[&mapping(first), &mapping(second), &upgrade]);
    let other = mapping(taken.local_addr().expect("it is bound"));
    let output = command(&[&mapping(first), &other, &upgrade]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let sentence = old.sentence();
    assert!(sentence.contains("asked to take over, and this one goes on"), "{sentence}");
    exchange(&mut connect(first));
    // A table with one of its two.
    let new = Forwarder::start(&[&mapping(first), &upgrade]);
    let sentence = old.sentence();
    assert!(sentence.contains("has taken over, with 1 of the listeners"), "{sentence}");
    let (status, ..) = old.wait();
    assert_eq!(status.code(), Some(0));
    exchange(&mut connect(first));
    assert!(TcpStream::connect(second).is_err(), "nobody listens there any more");
    new.stop();
}

#[test]
fn a_process_whose_event_loops_cannot_be_started_takes_nothing_over() {
    if !may_trace() {
        return;
    }
    let folder = Folder::new();
    let (upgrade, path) = (upgrade_at(&folder), folder.path("notify"));
    let mapping = format!("{}={}", free_address(), echo());
    let arguments = [mapping.as_str(), &upgrade, "--workers", "1"];
    let mut old = Forwarder::start(&arguments);
    let manager = UnixDatagram::bind(&path).expect("the folder can be written to");
    manager.set_nonblocking(true).expect("a socket takes it");
    let output = traced("unshare", "ENOMEM", 1, &arguments).env("NOTIFY_SOCKET", &path).output();
    let output = output.expect("strace is here");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    // With its `MAINPID=` a service manager would take the service for ended.
    let told = manager.recv(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(told, Err(ErrorKind::WouldBlock));
    let sentence = old.sentence();
    assert!(sentence.contains("asked to take over, and this one goes on"), "{sentence}");
    exchange(&mut old.connect());
    old.stop();
}

#[test]
fn fewer_workers_than_sockets_are_refused_as_the_clients_of_one_would_wait_for_ever() {
    let folder = Folder::new();
    let upgrade = upgrade_at(&folder);
    let mapping = format!("{}={}", free_address(), echo());
    let old = Forwarder::start(&[&mapping, "--workers", "3", "--accept", "reuseport", &upgrade]);
    let output = command(&[&mapping, "--workers", "2", &upgrade]).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("3 sockets were handed over") && said.contains("--workers 3"), "{said}");
    old.stop();
}
