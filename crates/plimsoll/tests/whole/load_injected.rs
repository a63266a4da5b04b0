//! Errors of the kernel that no test can bring about at will, injected by strace(1) into the
//! generator: over plain TCP and over TLS. Each is survived, counted by its cause, or said.

use std::process::Command;

use crate::support::books::{BookKeeper, Script, Speaks};
use crate::support::peer::{Run, command, outcome};
use crate::support::server::may_trace;

/// The outcome of an injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing: the call is made again, or its result is not needed.
    Nothing,
    /// A connect that failed, and another in its place.
    FailedConnect,
    /// A request lost to this cause, and a connection in place of its own.
    LostRequest(&'static str),
    /// The end of the run, with these words.
    EndOfRun(&'static str),
}

/// A system call, errors of it, which of a thread's calls fails (strace(1)), and what comes of it.
type Injection = (&'static str, &'static [&'static str], &'static str, Outcome);

const LOST_BY_WRITE: Outcome = Outcome::LostRequest("write");
const LOST_BY_READ: Outcome = Outcome::LostRequest("read");

/// Opening a connection: by an event loop, and where each has a thread or a process of its own.
const OPENING: &[Injection] = &[
    ("socket", &["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"], "2", Outcome::FailedConnect),
    ("setsockopt", &["ENOBUFS"], "2", Outcome::FailedConnect),
];
const OPENING_ALONE: &[Injection] = &[
    ("socket", &["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"], "1", Outcome::FailedConnect),
    ("setsockopt", &["ENOBUFS"], "1", Outcome::FailedConnect),
    ("connect", &["ECONNREFUSED", "ETIMEDOUT", "EADDRNOTAVAIL", "ENETUNREACH"], "1", Outcome::FailedConnect),
];
const EPOLL: &[Injection] = &[
    ("connect", &["ECONNREFUSED", "ETIMEDOUT", "EADDRNOTAVAIL", "ENETUNREACH"], "2", Outcome::FailedConnect),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"], "2", Outcome::FailedConnect),
    ("epoll_pwait2", &["EINTR"], "2", Outcome::Nothing),
    ("epoll_pwait2", &["ENOSYS"], "2", Outcome::EndOfRun("an event loop failed: Function not implemented")),
    ("eventfd2", &["EMFILE"], "2", Outcome::EndOfRun("Too many open files")),
];
const URING: &[Injection] = &[
    ("io_uring_enter", &["EINTR", "EAGAIN", "EBUSY"], "2", Outcome::Nothing),
    ("io_uring_enter", &["EINTR", "EAGAIN", "EBUSY"], "12", Outcome::Nothing),
    ("io_uring_enter", &["ENOMEM"], "2", Outcome::EndOfRun("an event loop failed: Cannot allocate memory")),
    ("io_uring_register", &["ENOMEM"], "2", Outcome::EndOfRun("io_uring cannot be used here")),
];
const THREADS: &[Injection] =
    &[("clone3", &["EAGAIN"], "2", Outcome::EndOfRun("a thread for each connection cannot be started"))];
const FORK: &[Injection] = &[
    ("wait4", &["EINTR"], "2", Outcome::Nothing),
    ("clone", &["EAGAIN"], "2", Outcome::EndOfRun("only 1 of 3 processes could be started")),
    ("pipe2", &["EMFILE"], "1", Outcome::EndOfRun("only 0 of 3 processes could be started")),
    ("pipe2", &["EMFILE"], "3", Outcome::EndOfRun("only 1 of 3 processes could be started")),
    ("epoll_create1", &["EMFILE"], "1", Outcome::EndOfRun("the processes cannot be listened to: Too many open files")),
    ("epoll_pwait2", &["EINTR"], "2", Outcome::Nothing),
];

/// The bytes of a connection without a handshake. In an open loop the kernel notes when they come.
const SENT: &[Injection] = &[
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], "2", LOST_BY_WRITE),
    ("sendto", &["EINTR"], "2", Outcome::Nothing),
];
const READ: &[Injection] =
    &[("recvfrom", &["ECONNRESET", "ETIMEDOUT"], "2", LOST_BY_READ), ("recvfrom", &["EINTR"], "2", Outcome::Nothing)];
const READ_STAMPED: &[Injection] =
    &[("recvmsg", &["ECONNRESET", "ETIMEDOUT"], "2", LOST_BY_READ), ("recvmsg", &["EINTR"], "2", Outcome::Nothing)];

/// The bytes of TLS over an event loop, behind a barrier: the handshakes of three connections come
/// before any request, and make nine calls at most that send and some fifteen that read.
const TLS: &[Injection] = &[
    ("sendto", &["EPIPE", "ECONNRESET"], "2", Outcome::FailedConnect),
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], "20", LOST_BY_WRITE),
    ("sendto", &["EINTR"], "2", Outcome::Nothing),
    ("sendto", &["EINTR"], "20", Outcome::Nothing),
    ("recvfrom", &["ECONNRESET"], "1", Outcome::FailedConnect),
    ("recvfrom", &["ECONNRESET", "ETIMEDOUT"], "60", LOST_BY_READ),
    ("recvfrom", &["EINTR"], "1", Outcome::Nothing),
    ("recvfrom", &["EINTR"], "60", Outcome::Nothing),
];
/// The same of a connection alone: its handshake sends two or three times, and reads a few times.
const TLS_ALONE: &[Injection] = &[
    ("sendto", &["EPIPE", "ECONNRESET"], "1", Outcome::FailedConnect),
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], "6", LOST_BY_WRITE),
    ("sendto", &["EINTR"], "6", Outcome::Nothing),
    ("recvfrom", &["ECONNRESET"], "1", Outcome::FailedConnect),
    ("recvfrom", &["ECONNRESET", "ETIMEDOUT"], "12", LOST_BY_READ),
    ("recvfrom", &["EINTR"], "12", Outcome::Nothing),
];

/// Enough for a connection that has a thread of its own to make a dozen and more.
const REQUESTS: u64 = 90;

/// Runs the requests over three connections, where the calls of `when` (strace(1)) fail in each
/// thread or process.
fn run(speaks: Speaks, engine: &str, call: &str, error: &str, when: &str) -> Run {
    let address = BookKeeper::start(speaks, Script::default()).address;
    let (protocol, target) = match speaks {
        Speaks::Echo => ("echo", address.to_string()),
        Speaks::Http => ("http", format!("http://{address}/")),
        Speaks::Https => ("http", format!("https://127.0.0.1:{}/", address.port())),
    };
    let load = command(protocol, &target, &format!("-n {REQUESTS} -c 3 {engine}"));
    let mut strace = Command::new("strace");
    strace.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/whole/tls/authority.pem"));
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:error={error}:when={when}")]);
    outcome(&strace.arg(load.get_program()).args(load.get_args()).output().expect("strace runs"))
}

fn check(speaks: Speaks, engine: &str, injections: &[&[Injection]]) {
    if !may_trace() {
        return;
    }
    for (call, errors, when, expected) in injections.concat() {
        for error in errors {
            let run = run(speaks, engine, call, error, when);
            let told = format!("{engine}: {call} {when} {error}: {:?} {}", run.lines.last(), run.stderr);
            if let Outcome::EndOfRun(words) = expected {
                assert!(matches!(run.code, Some(1 | 5)) && run.stderr.contains(words), "{told}");
                continue;
            }
            let causes = ["connect", "read", "write", "timeout", "mismatch", "closed", "status"];
            // Connections may be opened in the warm-up.
            let spans = ["errors", "warm_up.errors"];
            let count = |cause: &str| spans.map(|span| run.count(&format!("{span}.{cause}"))).iter().sum::<u64>();
            let counted: Vec<&str> = causes.into_iter().filter(|cause| count(cause) > 0).collect();
            let (completed, failed) = (run.count("requests.completed"), run.count("requests.failed"));
            // Where each connection has a thread or a process of its own, each may meet the error.
            let (lost, causes) = match expected {
                Outcome::LostRequest(cause) => (1..=3, vec![cause]),
                Outcome::FailedConnect => (0..=0, vec!["connect"]),
                _ => (0..=0, vec![]),
            };
            assert_eq!((run.code, completed + failed), (Some(0), REQUESTS), "{told}");
            assert!(lost.contains(&failed), "{told}");
            assert_eq!(counted, causes, "{told}");
            // The others may have made all requests before a lost connection was opened again.
            assert!(run.count("connections.reopened") <= failed, "{told}");
            assert_eq!(run.count("connections.established"), 3, "{told}");
        }
    }
}

#[test]
fn epoll_survives_counts_or_says_each_error() {
    for speaks in [Speaks::Echo, Speaks::Http] {
        check(speaks, "--engine epoll -t 1", &[OPENING, EPOLL, SENT, READ]);
    }
    check(Speaks::Https, "--engine epoll -t 1 --barrier", &[OPENING, &EPOLL[..3], TLS]);
}

#[test]
fn epoll_survives_counts_or_says_each_error_at_a_rate() {
    for speaks in [Speaks::Echo, Speaks::Http] {
        check(speaks, "--engine epoll -R 500", &[&OPENING[..1], EPOLL, SENT, READ_STAMPED]);
    }
}

#[test]
fn uring_survives_counts_or_says_each_error() {
    for speaks in [Speaks::Echo, Speaks::Http, Speaks::Https] {
        check(speaks, "--engine uring -t 1", &[OPENING, URING]);
    }
}

#[test]
fn threads_survive_count_or_say_each_error() {
    for speaks in [Speaks::Echo, Speaks::Http] {
        check(speaks, "--engine threads", &[OPENING_ALONE, SENT, READ, THREADS]);
    }
    check(Speaks::Https, "--engine threads", &[OPENING_ALONE, TLS_ALONE]);
}

#[test]
fn processes_survive_count_or_say_each_error() {
    for speaks in [Speaks::Echo, Speaks::Http] {
        check(speaks, "--engine fork", &[OPENING_ALONE, SENT, READ, FORK]);
    }
    check(Speaks::Https, "--engine fork", &[OPENING_ALONE, TLS_ALONE]);
}

#[test]
fn an_error_that_lasts_is_named_with_what_may_be_done_about_it() {
    if !may_trace() {
        return;
    }
    let all = [("socket", "EMFILE"), ("socket", "ENOBUFS"), ("connect", "EADDRNOTAVAIL"), ("connect", "ENETUNREACH")];
    for engine in ["epoll", "uring", "threads", "fork"] {
        // What a ring connects, no system call does.
        for (call, error) in all.into_iter().filter(|(call, _)| engine != "uring" || *call == "socket") {
            let run = run(Speaks::Echo, &format!("--engine {engine}"), call, error, "1+");
            let told = format!("{engine}: {call} {error}: {}", run.summary());
            let counts = ["connections.failed", "errors.connect", "requests.unsent"].map(|name| run.count(name));
            assert_eq!((run.code, counts), (Some(1), [3, 9, REQUESTS]), "{told}");
            let warnings = run.summary()["warnings"].as_array().expect("a list");
            let missing = warnings.iter().find(|warning| warning["code"] == "connections_missing").expect("it is said");
            assert!(missing["message"].as_str().is_some_and(|message| message.contains(error)), "{told}");
        }
    }
}

#[test]
fn a_kernel_that_notes_no_times_leaves_them_to_the_generator() {
    if !may_trace() {
        return;
    }
    // Each socket's first option is TCP_NODELAY, its second SO_TIMESTAMPING.
    let run = run(Speaks::Echo, "--engine epoll -R 500", "setsockopt", "ENOPROTOOPT", "2+2");
    assert_eq!((run.count("requests.completed"), run.count("errors.connect")), (REQUESTS, 0), "{}", run.summary());
    assert_eq!(run.count("receive_lag_us.count"), REQUESTS);
}
