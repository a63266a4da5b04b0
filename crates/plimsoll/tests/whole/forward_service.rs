//! The forwarder as a service: its admin address, its service manager, its user.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::forwarder::{Folder, Forwarder, PATIENCE, command, connect, echo, exchange, get, listener, until};

#[test]
fn a_reload_moves_the_admin_address_and_takes_it_away() {
    let folder = Folder::new();
    let [first, second] = [(); 2].map(|()| listener().1);
    let rules = format!("[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let table = |admin: SocketAddr| format!("[admin]\nlisten = \"{admin}\"\n{rules}");
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table(first))]);
    assert!(get(first, "/healthz").starts_with("HTTP/1.1 200"));
    folder.replace("forward.toml", &table(second));
    forwarder.signal("HUP");
    until("it is at the new address", || TcpStream::connect(second).is_ok());
    assert!(get(second, "/healthz").starts_with("HTTP/1.1 200"));
    until("the old one is closed", || TcpStream::connect(first).is_err());
    assert!(forwarder.sentence().contains("the table is reloaded"));
    // An address that is taken: the former one goes on, and so does the table.
    let taken = TcpListener::bind(first).expect("it is free again");
    folder.replace("forward.toml", &table(first));
    forwarder.signal("HUP");
    let sentence = forwarder.sentence();
    assert!(
        sentence.contains(&format!("cannot listen on {first}")) && sentence.contains("`[admin]` goes on"),
        "{sentence}"
    );
    assert!(get(second, "/healthz").starts_with("HTTP/1.1 200"));
    folder.replace("forward.toml", &rules);
    forwarder.signal("HUP");
    until("there is none any more", || TcpStream::connect(second).is_err());
    drop(taken);
    forwarder.stop();
}

#[test]
fn a_reload_narrows_and_widens_the_admin_address_at_its_port() {
    let folder = Folder::new();
    let rules = format!("[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    // On every address: of the ports that the kernel gives to nobody of its own accord.
    let first = 20_000 + u16::try_from(std::process::id() % 5_000).expect("few");
    let port = (first..32_000).find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok()).expect("one is free");
    let [every, narrow, other] = [[0, 0, 0, 0], [127, 0, 0, 1], [127, 0, 0, 2]].map(|ip| SocketAddr::from((ip, port)));
    let table = |admin: SocketAddr| format!("[admin]\nlisten = \"{admin}\"\n{rules}");
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table(every))]);
    assert!(get(other, "/healthz").starts_with("HTTP/1.1 200"));
    let mut reload = |admin: SocketAddr| {
        folder.replace("forward.toml", &table(admin));
        forwarder.signal("HUP");
        forwarder.sentence()
    };
    let sentence = reload(narrow);
    assert!(sentence.contains("the table is reloaded"), "{sentence}");
    assert!(get(narrow, "/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(TcpStream::connect(other).expect_err("it is closed").kind(), ErrorKind::ConnectionRefused);
    let sentence = reload(every);
    assert!(sentence.contains("the table is reloaded"), "{sentence}");
    assert!(get(other, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(reload(narrow).contains("the table is reloaded"));
    // Where another program keeps it from being opened, the former one is opened again.
    let taken = TcpListener::bind(other).expect("it is free again");
    let sentence = reload(every);
    assert!(sentence.contains(&format!("cannot listen on {every}")), "{sentence}");
    assert!(sentence.contains("`[admin]` goes on as it was"), "{sentence}");
    assert!(get(narrow, "/healthz").starts_with("HTTP/1.1 200"));
    drop(taken);
    forwarder.stop();
}

#[test]
fn a_page_from_elsewhere_reads_nothing_through_a_name_of_its_own() {
    let folder = Folder::new();
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let ask = |fields: &str| {
        let mut stream = connect(forwarder.admin());
        write!(stream, "GET /metrics HTTP/1.1\r\n{fields}\r\n\r\n").expect("there is room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let refused = ask("Host: elsewhere.example:9100\r\nAccept-Language: en");
    assert!(refused.starts_with("HTTP/1.1 421 ") && !refused.contains("plimsoll_forward_"), "{refused}");
    for fields in ["Host: 127.0.0.1:9100\r\nAccept-Language: en", "Host: forward.example\r\nUser-Agent: Prometheus"] {
        let answer = ask(fields);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("plimsoll_forward_"), "{answer}");
    }
    forwarder.stop();
}

#[test]
fn the_admin_address_shows_metrics_health_and_the_table() {
    let folder = Folder::new();
    let server = echo();
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward]\n\"127.0.0.1:0\" = \"{server}\"\n");
    let mut forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table), "--drain", "30s"]);
    let admin = forwarder.admin();
    let listen = forwarder.address();
    let mut held = forwarder.connect();
    exchange(&mut held);
    exchange(&mut forwarder.connect());
    let has = |line: &str| get(admin, "/metrics").lines().any(|found| found == line);
    for line in [
        format!("plimsoll_forward_connections_total{{listen=\"{listen}\"}} 2"),
        format!("plimsoll_forward_connections{{listen=\"{listen}\"}} 1"),
        format!("plimsoll_forward_bytes_total{{listen=\"{listen}\",direction=\"up\"}} 10"),
        format!("plimsoll_forward_bytes_total{{listen=\"{listen}\",direction=\"down\"}} 10"),
        format!("plimsoll_forward_ends_total{{listen=\"{listen}\",end=\"client_closed\"}} 1"),
        format!("plimsoll_forward_server_connections{{listen=\"{listen}\",server=\"{server}\"}} 1"),
        format!("plimsoll_forward_server_up{{listen=\"{listen}\",server=\"{server}\"}} 1"),
        "plimsoll_forward_reloads_total{outcome=\"done\"} 0".to_owned(),
    ] {
        until(&line, || has(&line));
    }
    for (path, status, text) in [
        ("/healthz", "200 OK", "ok"),
        ("/readyz", "200 OK", "ready"),
        ("/", "200 OK", &listen.to_string()),
        ("/nothing", "404 Not Found", "/metrics"),
    ] {
        let answer = get(admin, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")) && answer.contains(text), "{path}: {answer}");
    }
    // A table that replaces the first one goes on counting.
    forwarder.signal("HUP");
    until("the table is reloaded", || forwarder.sentence().contains("reloaded"));
    assert!(has(&format!("plimsoll_forward_connections_total{{listen=\"{listen}\"}} 2")));
    assert!(has("plimsoll_forward_reloads_total{outcome=\"done\"} 1"));
    forwarder.signal("TERM");
    until("it is not ready any more", || get(admin, "/readyz").starts_with("HTTP/1.1 503"));
    assert!(get(admin, "/healthz").starts_with("HTTP/1.1 200"));
    drop(held);
    let (status, summary, said) = forwarder.wait();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(summary["connections"], 2);
}

#[test]
fn a_silent_client_of_the_admin_address_keeps_no_other_waiting() {
    let folder = Folder::new();
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let admin = forwarder.admin();
    // One that was served before another is served would be closed by then. On a busy machine its
    // time may be over meanwhile.
    until("another is served while one is silent", || {
        let silent = connect(admin);
        assert!(get(admin, "/healthz").starts_with("HTTP/1.1 200"));
        silent.set_nonblocking(true).expect("a socket takes it");
        silent.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    forwarder.stop();
}

#[test]
fn the_first_of_many_clients_of_the_admin_address_is_answered_although_others_wait() {
    let folder = Folder::new();
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let admin = forwarder.admin();
    // On a busy machine its time may be over before it asks.
    until("the first is answered", || {
        let mut first = connect(admin);
        let others: Vec<TcpStream> = (0..20).map(|_| connect(admin)).collect();
        let mut before = None;
        // As many are accepted as there are places. The kernel's list of connections would tell it
        // too, but takes seconds beside a test of a hundred thousand.
        until("no more are accepted", || {
            let open = descriptors_of_threads(forwarder.pid());
            std::thread::sleep(Duration::from_millis(20));
            before.replace(open) == Some(open)
        });
        let mut answer = String::new();
        let asked = first.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").and_then(|()| first.read_to_string(&mut answer));
        drop(others);
        asked.is_ok() && answer.ends_with("ok\n")
    });
    forwarder.stop();
}

/// Open descriptors of a process, counted in the table of each thread: some have tables of their
/// own.
fn descriptors_of_threads(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").filter_map(Result::ok);
    threads.filter_map(|thread| Some(fs::read_dir(thread.path().join("fd")).ok()?.count())).sum()
}

#[test]
fn clients_of_the_admin_address_take_no_descriptor_that_connections_need() {
    let folder = Folder::new();
    let table = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    // All of it is started once the admin address answers.
    assert!(get(forwarder.admin(), "/healthz").starts_with("HTTP/1.1 200"));
    let open = || fs::read_dir(format!("/proc/{}/fd", forwarder.pid())).expect("it runs").count();
    let before = open();
    let mut clients: Vec<TcpStream> = (0..8).map(|_| connect(forwarder.admin())).collect();
    for client in &mut clients {
        client.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("there is room");
        client.read_exact(&mut [0]).expect("it is answered");
    }
    assert_eq!(open(), before);
    drop(clients);
    forwarder.stop();
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = Folder::new();
    let path = folder.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("the folder can be written to");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut start = command(&[&format!("127.0.0.1:0={}", echo())]);
    start.env("NOTIFY_SOCKET", &path);
    let forwarder = Forwarder::spawn(start);
    let told = || {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).expect("it is told");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    forwarder.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(forwarder.wait().0.code(), Some(0));
}

#[test]
fn every_thread_goes_on_as_the_user_that_is_named() {
    let output = command(&["127.0.0.1:0=127.0.0.1:9", "--user", "no-such-user"]).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("there is no such user"), "{said}");
    let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("Uid:\t0\t"));
    if !is_root {
        let _ = writeln!(std::io::stderr(), "skipped: only root can become another user");
        return;
    }
    let forwarder = Forwarder::to(echo(), &["--user", "nobody"]);
    exchange(&mut forwarder.connect());
    let tasks = fs::read_dir(format!("/proc/{}/task", forwarder.pid())).expect("it runs").flatten();
    for task in tasks {
        let status = fs::read_to_string(task.path().join("status")).expect("a thread has a status");
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
    }
    forwarder.stop();
}
