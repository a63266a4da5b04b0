//! Every model under Valgrind's memcheck: 200 slots are churned, and nothing is lost or misread.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod server;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use server::{PATIENCE, Server};

/// Connections at once.
const SLOTS: usize = 200;
/// How often each slot is used anew. `make soak` asks for more.
fn rounds(usual: usize) -> usize {
    std::env::var("PLIMSOLL_VALGRIND_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn valgrind_is_here() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed (`apt-get install valgrind`)");
    }
    found
}

fn log_file(model: &str) -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-valgrind-{model}-{}.%p.txt", std::process::id()))
}

/// Serves `rounds` times 200 connections under Valgrind, each with one request, and asserts that memcheck finds nothing in any process.
fn churn(model: &str, rounds: usize) {
    let log = log_file(model);
    let log_argument = format!("--log-file={}", log.display());
    // One worker: Valgrind 3.19 does not know that io_uring_enter blocks, and lets no other thread run meanwhile.
    let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
    // Possibly lost is what only an inner pointer is left to, as std and hashbrown keep them; lost is what nothing is left to.
    let valgrind = [
        "valgrind",
        "--quiet",
        "--leak-check=full",
        "--show-leak-kinds=definite,indirect",
        "--errors-for-leak-kinds=definite,indirect",
        "--error-exitcode=99",
    ];
    let server = Server::under(&[&valgrind[..], &[&log_argument]].concat(), "echo", model, workers);
    for _ in 0..rounds {
        let mut streams: Vec<TcpStream> = (0..SLOTS).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(&[7; 100]).expect("the server reads");
        }
        for stream in &mut streams {
            let mut answer = [0; 100];
            stream.read_exact(&mut answer).expect("the server answers");
            assert_eq!(answer, [7; 100]);
        }
    }
    server.terminate();
    let address = server.address();
    if model == "uring" {
        // Each connection makes io_uring_enter return, until the thread that has the signal gets to run.
        let deadline = std::time::Instant::now() + PATIENCE;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
            assert!(std::time::Instant::now() < deadline, "the signal was not seen");
        }
    }
    let (status, summary) = server.wait();
    let found = remove_logs(model);
    assert_eq!(status.code(), Some(0), "{found}");
    assert_eq!(summary["requests"], (rounds * SLOTS) as u64, "{summary}");
    assert!(!found.contains("=="), "{found}");
}

/// What memcheck wrote, for all processes of a model.
fn remove_logs(model: &str) -> String {
    let prefix = format!("plimsoll-valgrind-{model}-{}.", std::process::id());
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("a folder").filter_map(Result::ok);
    let mut all = String::new();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
        all += &std::fs::read_to_string(entry.path()).unwrap_or_default();
        std::fs::remove_file(entry.path()).expect("it is ours");
    }
    all
}

macro_rules! churned {
    ($($test:ident $model:literal $rounds:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            if valgrind_is_here() {
                churn($model, rounds($rounds));
            }
        })*
    };
}

// The models with a slab of connections are churned 10,000 times; a thread or process a connection is dear under Valgrind.
churned!(
    threads_loses_nothing "threads" 5,
    fork_loses_nothing "fork" 1,
    select_loses_nothing "select" 50,
    poll_loses_nothing "poll" 50,
    epoll_loses_nothing "epoll" 50,
    epoll_et_loses_nothing "epoll-et" 50,
    uring_loses_nothing "uring" 50,
);
