//! `plimsoll load http https://...` against Python's own TLS.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::peer::{Run, command, outcome};

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Server {
        let file = |name: &str| format!("{}/tests/whole/tls/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new("python3");
        python.args([file("server.py"), file("server.pem"), file("server.key")]).stdout(Stdio::piped());
        let mut child = python.spawn().expect("python3");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut port).expect("its port");
        Server { child, port: port.trim().parse().expect("a port") }
    }

    fn fetch(&self, length: usize, arguments: &str, trusting: bool) -> Run {
        let mut load = command("http", &format!("https://localhost:{}/{length}", self.port), arguments);
        if trusting {
            load.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/tls/authority.pem"));
        }
        outcome(&load.output().expect("the binary runs"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_believed_server_is_loaded_over_tls() {
    let server = Server::start();
    for arguments in [
        "-n 60 -c 3",
        "-n 60 -c 3 --engine threads",
        "-n 60 -c 3 --engine uring",
        "--each 20 -c 3 --barrier",
        "-n 60 -c 3 -R 1k",
    ] {
        let run = server.fetch(100_000, arguments, true);
        assert_eq!(
            (run.count("requests.completed"), run.count("requests.failed")),
            (60, 0),
            "{arguments} {}",
            run.stderr
        );
        assert_eq!(run.count("connections.established"), 3);
        let bits = run.figure("goodput_bits_per_s") * run.figure("elapsed_s");
        assert!((bits - 60.0 * 800_000.0).abs() < 1.0, "the payload is the plain body: {bits}");
    }
    let run = server.fetch(10, "-n 12 -c 3 --reconnect", true);
    assert_eq!((run.count("requests.completed"), run.count("establishment_time_us.count")), (12, 12));
    assert!(run.figure("establishment_time_us.min") > 100.0, "a handshake is part of it");
}

#[test]
fn a_stranger_is_refused_unless_anyone_is_believed() {
    let server = Server::start();
    for engine in ["epoll", "uring", "threads"] {
        let refused = server.fetch(10, &format!("-n 4 -c 2 --engine {engine}"), false);
        assert_eq!((refused.code, refused.count("connections.failed")), (Some(1), 2));
        let warnings = refused.summary()["warnings"].to_string();
        assert!(warnings.contains("EPROTO") && warnings.contains("--insecure"), "{warnings}");
        let believed = server.fetch(10, &format!("-n 4 -c 2 --insecure --engine {engine}"), false);
        assert_eq!((believed.code, believed.count("requests.completed")), (Some(0), 4), "{}", believed.stderr);
    }
}

#[test]
fn a_server_without_tls_is_said_to_have_none() {
    let target =
        crate::support::peer::answer(|_| Some(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let load = command("http", &format!("https://{target}/"), "-n 4 -c 2 --insecure").output();
    let run = outcome(&load.expect("the binary runs"));
    assert_eq!((run.code, run.count("requests.unsent")), (Some(1), 4));
    assert!(run.summary()["warnings"].to_string().contains("speaks no TLS"));
}
