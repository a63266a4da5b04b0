//! Every model under Valgrind's memcheck: 200 slots are churned, files are served and requests
//! broken off, and nothing is lost or misread.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::server::{Folder, PATIENCE, Server, text_of};
use serde_json::Value;

/// Connections at once.
const SLOTS: usize = 200;
/// How often each slot is used anew, or how many connections want files: `make soak` asks for as
/// many times that. Models differ by a hundred in what a connection costs under Valgrind.
fn rounds(usual: usize) -> usize {
    usual
        * std::env::var("PLIMSOLL_VALGRIND_TIMES")
            .map_or(1, |text| text.parse().expect("PLIMSOLL_VALGRIND_TIMES is a number"))
}

fn valgrind_is_here() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed (`apt-get install valgrind`)");
    }
    found
}

/// A server under memcheck, which writes what it finds in each of its processes.
struct Checked {
    server: Server,
    folder: Folder,
}

impl Checked {
    fn start(protocol: &str, model: &str, arguments: &[&str]) -> Checked {
        let folder = Folder::new();
        let log_argument = format!("--log-file={}", text_of(&folder.path("found.%p")));
        // One worker: Valgrind 3.19 does not know that io_uring_enter blocks, and lets no other
        // thread run meanwhile.
        let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
        // Possibly lost is what only an inner pointer is left to, as std and hashbrown keep them;
        // lost is what nothing is left to.
        let valgrind = [
            "valgrind",
            "--quiet",
            "--leak-check=full",
            "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect",
            "--error-exitcode=99",
            &log_argument,
        ];
        Checked { server: Server::under(&valgrind, protocol, model, &[workers, arguments].concat()), folder }
    }

    /// Ends the server, asserts that nothing was lost or misread in any process, and returns the
    /// summary.
    fn stop(self, model: &str) -> Value {
        self.server.terminate();
        let address = self.server.address();
        if model == "uring" {
            // Each connection makes io_uring_enter return, until the thread that has the signal
            // gets to run and closes the listener. On a busy machine its queue may be full before.
            let deadline = Instant::now() + PATIENCE;
            let refused = || {
                let asked = TcpStream::connect_timeout(&address, Duration::from_secs(1));
                asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            };
            while !refused() {
                assert!(Instant::now() < deadline, "the signal was not seen");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let (status, summary) = self.server.wait();
        let entries = fs::read_dir(self.folder.path("")).expect("it is ours").filter_map(Result::ok);
        let found: String = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect();
        assert_eq!(status.code(), Some(0), "{found}");
        assert!(!found.contains("=="), "{found}");
        summary
    }
}

/// Serves `rounds` times 200 connections, each with one request.
fn churn(model: &str, rounds: usize) {
    let checked = Checked::start("echo", model, &[]);
    for _ in 0..rounds {
        let mut streams: Vec<TcpStream> = (0..SLOTS).map(|_| checked.server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(&[7; 100]).expect("the server reads");
        }
        for stream in &mut streams {
            let mut answer = [0; 100];
            stream.read_exact(&mut answer).expect("the server answers");
            assert_eq!(answer, [7; 100]);
        }
    }
    let summary = checked.stop(model);
    assert_eq!(summary["requests"], (rounds * SLOTS) as u64, "{summary}");
}

/// Requests that end in every way there is, and how each answer begins.
const REQUESTS: [(&str, &str); 8] = [
    ("GET /small HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
    ("GET /large HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
    ("GET /large HTTP/1.1\r\nHost: test\r\nRange: bytes=5-70000\r\nConnection: close\r\n\r\n", "HTTP/1.1 206"),
    ("GET /bytes/100000 HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
    ("GET /none HTTP/1.0\r\n\r\n", "HTTP/1.1 404"),
    ("what is this?\r\n\r\n", "HTTP/1.1 400"),
    ("GET /small HTTP/1.1\r\nHost: test\r\n\r\nGET /large HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
    // It goes away in the middle of a request.
    ("GET /sm", ""),
];

/// Serves files to `connections` connections, each with a request of another kind than the last, of
/// which every third is not read to its end.
fn serve_files(model: &str, connections: usize) {
    let site = Folder::new();
    site.write("small", "small");
    site.write("large", &"large".repeat(200_000));
    let checked = Checked::start("http", model, &["--synthetic", "--root", &text_of(&site.path(""))]);
    for number in 0..connections {
        let (request, start) = REQUESTS[number % REQUESTS.len()];
        let mut stream = checked.server.connect();
        stream.write_all(request.as_bytes()).expect("the server reads");
        if number % 3 == 2 {
            continue;
        }
        stream.shutdown(Shutdown::Write).expect("it is connected");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server answers");
        assert!(answer.starts_with(start.as_bytes()), "{request}: {}", answer[..answer.len().min(80)].escape_ascii());
    }
    checked.stop(model);
}

macro_rules! churned {
    ($($model:literal $test:ident $rounds:literal $files:ident $connections:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            if valgrind_is_here() {
                churn($model, rounds($rounds));
            }
        }

        #[test]
        fn $files() {
            if valgrind_is_here() {
                serve_files($model, rounds($connections));
            }
        })*
    };
}

// The models with a slab of connections are churned 10,000 times; a thread or process a connection
// is slow under Valgrind.
churned!(
    "threads" threads_loses_nothing 5 threads_loses_nothing_over_http 100,
    "fork" fork_loses_nothing 1 fork_loses_nothing_over_http 30,
    "select" select_loses_nothing 50 select_loses_nothing_over_http 200,
    "poll" poll_loses_nothing 50 poll_loses_nothing_over_http 200,
    "epoll" epoll_loses_nothing 50 epoll_loses_nothing_over_http 200,
    "epoll-et" epoll_et_loses_nothing 50 epoll_et_loses_nothing_over_http 200,
    "uring" uring_loses_nothing 50 uring_loses_nothing_over_http 200,
);
