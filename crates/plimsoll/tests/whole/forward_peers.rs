//! Programs of other houses through the forwarder: no errors, and as many transactions as were
//! asked for. Where a program is absent its test says so and is skipped.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::support::forwarder::{Folder, Forwarder, listener, text_of, until};

/// A program by its name, in the places where Debian puts them.
fn find(name: &str) -> Option<PathBuf> {
    let folders =
        ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/17/bin"];
    let found = folders.iter().map(|folder| PathBuf::from(folder).join(name)).find(|path| path.exists());
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "skipped: {name} is not installed");
    }
    found
}

/// A peer's process, ended with the test.
struct Peer(Child);

impl Peer {
    fn start(command: &mut Command) -> Peer {
        Peer(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn free() -> SocketAddr {
    listener().1
}

fn listens(address: SocketAddr) {
    until("the peer listens", || std::net::TcpStream::connect(address).is_ok());
}

/// Waits for a peer without connecting to it: one that serves one client at a time would take that
/// for its client.
fn listens_unasked(address: SocketAddr) {
    let SocketAddr::V4(address) = address else { panic!("an IPv4 address") };
    // Address and port in hexadecimal, and the state LISTEN (proc_net_tcp in the kernel's
    // documentation).
    let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    until("the peer listens", || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("there is one");
        table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1] == local && fields[3] == "0A"
        })
    });
}

fn said(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{} {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// No connection ended in any way that a faultless exchange would not.
fn ends_well(forwarder: Forwarder) {
    let summary = forwarder.stop();
    let ends = summary["ends"].as_object().expect("counts");
    assert!(ends.keys().all(|end| end == "client_closed" || end == "server_closed"), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}));
}

#[test]
fn redis_answers_every_request() {
    let (Some(server), Some(benchmark)) = (find("redis-server"), find("redis-benchmark")) else { return };
    let (address, folder) = (free(), Folder::new());
    let _redis = Peer::start(Command::new(server).current_dir(text_of(&folder.path("."))).args([
        "--port",
        &address.port().to_string(),
        "--bind",
        &address.ip().to_string(),
        "--save",
        "",
    ]));
    listens(address);
    let forwarder = Forwarder::to(address, &[]);
    let port = forwarder.address().port().to_string();
    for pipelined in ["1", "16"] {
        let arguments =
            ["-p", &port, "-n", "20000", "-c", "50", "-P", pipelined, "-d", "255", "-t", "set,get,lpush", "--csv"];
        let text = said(&Command::new(&benchmark).args(arguments).output().expect("it runs"));
        assert_eq!(text.lines().filter(|line| line.starts_with('"')).count(), 4, "a header and three rows: {text}");
        assert!(!text.contains("Error"), "{text}");
    }
    ends_well(forwarder);
}

#[test]
fn nginx_answers_every_request() {
    let (Some(nginx), Some(h2load)) = (find("nginx"), find("h2load")) else { return };
    let (address, folder) = (free(), Folder::new());
    let path = text_of(&folder.path("."));
    folder.write("page", &"x".repeat(100_000));
    let config = folder.write(
        "nginx.conf",
        &format!(
            "daemon off; pid {path}/pid; error_log {path}/error.log; user root; events {{}} http {{ access_log off; \
             client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c; uwsgi_temp_path \
             {path}/d; scgi_temp_path {path}/e; server {{ listen {address}; root {path}; keepalive_requests 100000; \
             }} }}"
        ),
    );
    let _nginx = Peer::start(Command::new(nginx).args(["-c", &config]));
    listens(address);
    let forwarder = Forwarder::to(address, &[]);
    let url = format!("http://{}/page", forwarder.address());
    let text = said(&Command::new(h2load).args(["--h1", "-n", "5000", "-c", "20", &url]).output().expect("it runs"));
    assert!(text.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    ends_well(forwarder);
}

#[test]
fn iperf3_moves_bytes_both_ways() {
    let Some(iperf3) = find("iperf3") else { return };
    for direction in [&[][..], &["-R"]] {
        // A server for each: between two clients it is busy with the first, and then closes its
        // listener for a while.
        let address = free();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let _server = Peer::start(Command::new(&iperf3).args(["-s", "-1", "-B", &host, "-p", &port]));
        listens_unasked(address);
        let forwarder = Forwarder::to(address, &[]);
        let port = forwarder.address().port().to_string();
        let arguments = [&["-c", "127.0.0.1", "-p", &port, "-n", "500M", "-J"], direction].concat();
        let output = Command::new(&iperf3).args(&arguments).output().expect("it runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let (sent, received) = (&report["end"]["sum_sent"]["bytes"], &report["end"]["sum_received"]["bytes"]);
        assert!(sent.as_u64() >= Some(500 << 20) && received.as_u64() > Some(0), "{}", report["error"]);
        drop(forwarder);
    }
}

#[test]
fn postgresql_commits_every_transaction() {
    let (Some(initdb), Some(postgres), Some(pgbench)) = (find("initdb"), find("postgres"), find("pgbench")) else {
        return;
    };
    // PostgreSQL refuses to run as root.
    let as_user = |program: &PathBuf| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]).arg(program).env("HOME", "/tmp");
        command
    };
    if !as_user(&PathBuf::from("/bin/true")).status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no program can be run as the user postgres here");
        return;
    }
    let (address, folder) = (free(), Folder::new());
    let path = text_of(&folder.path("."));
    assert!(Command::new("chown").args(["postgres", &path]).status().expect("chown runs").success());
    let data = format!("{path}/data");
    let _ = said(
        &as_user(&initdb).args(["-D", &data, "-U", "postgres", "-A", "trust", "--no-sync"]).output().expect("it runs"),
    );
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let _postgres =
        Peer::start(as_user(&postgres).args(["-D", &data, "-p", &port, "-h", &host, "-k", &path, "-c", "fsync=off"]));
    listens(address);
    let forwarder = Forwarder::to(address, &[]);
    let port = forwarder.address().port().to_string();
    let through = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
    let run = |arguments: &[&str]| {
        Command::new(&pgbench).args(through).args(arguments).arg("postgres").output().expect("it runs")
    };
    until("PostgreSQL is ready", || run(&["-i", "-q"]).status.success());
    let text = said(&run(&["-c", "10", "-j", "2", "-t", "200"]));
    assert!(text.contains("number of transactions actually processed: 2000/2000"), "{text}");
    // A new connection for each transaction.
    let text = said(&run(&["-C", "-S", "-c", "5", "-t", "50"]));
    assert!(text.contains("number of transactions actually processed: 250/250"), "{text}");
    drop(forwarder);
}
