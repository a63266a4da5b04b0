//! The generator under Valgrind: no invalid access, nothing lost, with servers that end, break and mistake connections.

mod peer;

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use peer::{outcome, serve};
use plimsoll_sys::net::reset_on_close;

/// Of four connections one is honest, one ends, one breaks and one is wrong, each after some requests.
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

#[test]
fn the_generator_is_clean_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: valgrind is not installed (`apt-get install valgrind`)");
        return;
    }
    for arguments in [
        "-c 40 -t 2",
        "-c 40 -t 2 -R 500",
        "-c 20 --engine threads",
        "-c 20 --engine threads -R 500",
        "-c 20 --reconnect",
        // One loop: Valgrind 3.19 does not know that io_uring_enter blocks, and lets no other thread run meanwhile.
        "-c 40 -t 1 --engine uring",
        "-c 20 -t 1 --engine uring --reconnect",
    ] {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        valgrind.args([env!("CARGO_BIN_EXE_plimsoll"), "load", "echo", &moody().to_string(), "--json", "--quiet"]);
        valgrind.args(["-n", "1000", "--request-log", "/dev/null", "--per-connection"]);
        let run = outcome(&valgrind.args(arguments.split_whitespace()).output().expect("valgrind runs"));
        assert_ne!(run.code, Some(99), "{arguments}: {}", run.stderr);
        assert!(run.count("requests.completed") > 500, "{arguments}: {}", run.summary()["requests"]);
    }
}
