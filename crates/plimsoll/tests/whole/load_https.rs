//! `plimsoll load http https://...` against Python's own TLS.

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::peer::{Run, command, outcome};

/// A certificate, key or script of these tests.
fn file(name: &str) -> String {
    format!("{}/tests/whole/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Server {
        Server::start_with(&[])
    }

    /// One that asks for a client certificate of the same authority.
    fn asking() -> Server {
        Server::start_with(&[file("authority.pem")])
    }

    fn start_with(arguments: &[String]) -> Server {
        let mut python = Command::new("python3");
        python.args([file("server.py"), file("server.pem"), file("server.key")]).args(arguments);
        python.stdout(Stdio::piped());
        let mut child = python.spawn().expect("python3");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut port).expect("its port");
        Server { child, port: port.trim().parse().expect("a port") }
    }

    fn fetch(&self, path: impl Display, arguments: &str, trusting: bool) -> Run {
        let mut load = command("http", &format!("https://127.0.0.1:{}/{path}", self.port), arguments);
        if trusting {
            load.env("SSL_CERT_FILE", file("authority.pem"));
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
        for words in ["EPROTO", "no trusted authority signed", "UnknownIssuer", "--insecure"] {
            assert!(warnings.contains(words), "no `{words}` in {warnings}");
        }
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
    assert!(run.summary()["warnings"].to_string().contains("does not speak TLS there"));
}

#[test]
fn a_body_that_a_tls_connection_cuts_short_is_no_body() {
    let server = Server::start();
    for engine in ["epoll", "uring", "threads"] {
        let whole = server.fetch("end/100", &format!("--each 1 -c 4 --engine {engine}"), true);
        assert_eq!((whole.count("requests.completed"), whole.count("requests.failed")), (4, 0), "{engine}");
        let cut = server.fetch("cut/100", &format!("--each 1 -c 4 --engine {engine}"), true);
        assert_eq!((cut.count("requests.completed"), cut.count("errors.closed")), (0, 4), "{engine}");
    }
}

#[test]
fn a_server_that_says_close_notify_on_an_idle_connection_has_answered_nothing_wrongly() {
    let server = Server::start();
    for engine in ["epoll", "uring", "threads"] {
        let run = server.fetch("idle/100", &format!("-n 6 -c 2 --think 50ms --engine {engine}"), true);
        let counts = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!(counts, [6, 0], "{engine} {}", run.summary()["errors"]);
        assert_eq!((run.count("errors.mismatch"), run.count("connections.unrequested")), (0, 0), "{engine}");
    }
}

#[test]
fn what_comes_behind_an_answer_and_is_no_tls_makes_the_answer_none_the_worse() {
    let server = Server::start();
    for engine in ["epoll", "uring", "threads"] {
        let run = server.fetch("bad/100", &format!("-n 6 -c 2 --think 20ms --engine {engine}"), true);
        let counts = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!(counts, [6, 0], "{engine} {}", run.summary());
        assert_eq!(run.count("errors.mismatch"), 0, "{engine} {}", run.summary());
        assert!(run.count("connections.unrequested") > 0, "{engine} {}", run.summary());
    }
}

#[test]
fn every_handshake_is_a_full_one() {
    let server = Server::start();
    for engine in ["epoll", "uring", "threads", "fork"] {
        let run = server.fetch(10, &format!("-n 8 -c 2 --reconnect --engine {engine}"), true);
        let counts = ["full", "resumed"].map(|kind| run.count(&format!("tls_handshakes.{kind}")));
        assert_eq!(counts, [8, 0], "{engine} {}", run.stderr);
    }
}

#[test]
fn a_session_is_resumed_where_that_is_asked_for() {
    let server = Server::start();
    // One after the other, so that each finds the ticket of the one before.
    let run = server.fetch(10, "-n 8 -c 1 --reconnect --tls-resume", true);
    let counts = ["full", "resumed"].map(|kind| run.count(&format!("tls_handshakes.{kind}")));
    assert_eq!((counts[0] + counts[1], counts[1] > 0), (8, true), "{counts:?}");
}

#[test]
fn an_authority_and_a_client_certificate_can_be_named() {
    let server = Server::asking();
    let (authority, certificate, key) = (file("authority.pem"), file("server.pem"), file("server.key"));
    let run = server.fetch(10, &format!("-n 4 -c 2 --cacert {authority} --cert {certificate} --key {key}"), false);
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 4), "{}", run.stderr);
    let other = command("http", "https://127.0.0.1/", &format!("-k --cert {authority} --key {key}")).output();
    let other = other.expect("the binary runs");
    assert_eq!((other.status.code(), other.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&other.stderr).contains("the key it was made for"), "{other:?}");
}

#[test]
fn a_certificate_for_another_name_is_said_with_both_names() {
    let server = Server::start();
    let authority = file("authority.pem");
    let arguments = format!("-n 2 -c 1 --cacert {authority} --connect-to shop.example:443:127.0.0.1:{}", server.port);
    let run = outcome(&command("http", "https://shop.example/10", &arguments).output().expect("the binary runs"));
    let warnings = run.summary()["warnings"].to_string();
    assert!(run.code == Some(1) && warnings.contains("not for shop.example, but for localhost"), "{warnings}");
}

#[test]
fn a_server_that_wants_a_client_certificate_is_said_to() {
    let server = Server::asking();
    for engine in ["epoll", "uring", "threads"] {
        let refused = server.fetch(10, &format!("-n 4 -c 2 --engine {engine}"), true);
        assert_eq!((refused.code, refused.count("requests.completed")), (Some(1), 0), "{engine}");
        let warnings = refused.summary()["warnings"].to_string();
        assert!(warnings.contains("CertificateRequired") && warnings.contains("--cert FILE"), "{warnings}");
    }
}
