//! The generator under Valgrind: no invalid access, nothing lost, with servers that end, break and
//! mistake connections.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::peer::{outcome, serve};
use plimsoll_sys::net::reset_on_close;

/// Of four connections one is honest, one ends, one breaks and one is wrong, each after some
/// requests.
fn moody() -> std::net::SocketAddr {
    let accepted = AtomicUsize::new(0);
    serve(move |mut stream| {
        let mood = accepted.fetch_add(1, Ordering::SeqCst) % 4;
        let mut message = [0; 64];
        for request in 0.. {
            if stream.read_exact(&mut message).is_err() {
                return;
            }
            match (mood, request) {
                (1, 5) => return,
                (2, 5) => {
                    let _ = reset_on_close(&stream);
                    return;
                }
                (3, 5) => message[0] ^= 1,
                _ => {}
            }
            if stream.write_all(&message).is_err() {
                return;
            }
        }
    })
}

/// An HTTP server that ends every body in one of four ways, in pieces that arrive apart, and now
/// and then answers with what is no HTTP or with a body cut short.
fn moody_http() -> std::net::SocketAddr {
    const ANSWERS: [&[&str]; 4] = [
        &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        &[
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Enc",
            "oding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ],
        &["HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"],
        &["HTTP/1.0 200 OK\r\n\r\nhello"],
    ];
    let requests = AtomicUsize::new(0);
    serve(move |mut stream| {
        let mut head = [0; 4096];
        while matches!(stream.read(&mut head), Ok(1..)) {
            let number = requests.fetch_add(1, Ordering::SeqCst);
            let pieces = match number % 50 {
                17 => &["220 mail.example ESMTP\r\n"][..],
                34 => &["HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"],
                _ => ANSWERS[number % ANSWERS.len()],
            };
            if pieces.iter().any(|piece| stream.write_all(piece.as_bytes()).is_err()) {
                return;
            }
            if number % 50 == 34 || pieces[0].starts_with("HTTP/1.0") {
                return;
            }
        }
    })
}

fn is_here() -> bool {
    let here = Command::new("valgrind").arg("--version").output().is_ok();
    if !here {
        let _ = writeln!(std::io::stderr(), "skipped: valgrind is not installed (`apt-get install valgrind`)");
    }
    here
}

/// Runs `plimsoll load` under Valgrind, which must find nothing; at least so many requests are
/// completed.
fn assert_clean(target: &[&str], arguments: &str, completed: u64) {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    valgrind.args([env!("CARGO_BIN_EXE_plimsoll"), "load"]).args(target).args(["--json", "--quiet"]);
    let run = outcome(&valgrind.args(arguments.split_whitespace()).output().expect("valgrind runs"));
    assert_ne!(run.code, Some(99), "{arguments}: {}", run.stderr);
    assert!(run.count("requests.completed") >= completed, "{arguments}: {}", run.summary());
}

#[test]
fn the_generator_is_clean_under_valgrind() {
    if !is_here() {
        return;
    }
    for arguments in [
        "-c 40 -t 2",
        "-c 40 -t 2 -R 500",
        "-c 20 --engine threads",
        "-c 20 --engine threads -R 500",
        "-c 20 --reconnect",
        // One loop: Valgrind 3.19 does not know that io_uring_enter blocks, and lets no other
        // thread run meanwhile.
        "-c 40 -t 1 --engine uring",
        "-c 20 -t 1 --engine uring --reconnect",
    ] {
        let all = format!("-n 1000 --request-log /dev/null --per-connection {arguments}");
        assert_clean(&["echo", &moody().to_string()], &all, 500);
    }
}

/// Not HTTPS: Valgrind 3.19 takes what ring's assembly decrypts for uninitialised.
#[test]
fn the_generator_of_http_is_clean_under_valgrind() {
    if !is_here() {
        return;
    }
    for arguments in ["-c 10 -t 2", "-c 10 --engine threads", "-c 10 -t 1 --engine uring"] {
        assert_clean(&["http", &format!("http://{}/", moody_http())], &format!("-n 400 {arguments}"), 100);
    }
}
