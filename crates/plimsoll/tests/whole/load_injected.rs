//! Errors of the kernel that no test can bring about at will, injected by strace(1) into the
//! generator: each is survived, counted by its cause, or said.

use std::process::Command;

use crate::support::peer::{Run, command, echo, outcome};
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

type Injection = (&'static str, &'static [&'static str], Outcome);

const CONNECT: &[Injection] = &[
    ("socket", &["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"], Outcome::FailedConnect),
    ("setsockopt", &["ENOBUFS"], Outcome::FailedConnect),
];
const CALL: &[Injection] = &[
    ("connect", &["ECONNREFUSED", "ETIMEDOUT", "EADDRNOTAVAIL", "ENETUNREACH"], Outcome::FailedConnect),
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], Outcome::LostRequest("write")),
    ("sendto", &["EINTR"], Outcome::Nothing),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"], Outcome::FailedConnect),
    ("epoll_pwait2", &["EINTR"], Outcome::Nothing),
    ("epoll_pwait2", &["ENOSYS"], Outcome::EndOfRun("an event loop failed: Function not implemented")),
    ("eventfd2", &["EMFILE"], Outcome::EndOfRun("Too many open files")),
];
const CLOSED: &[Injection] = &[
    ("recvfrom", &["ECONNRESET", "ETIMEDOUT"], Outcome::LostRequest("read")),
    ("recvfrom", &["EINTR"], Outcome::Nothing),
];
const OPEN: &[Injection] = &[
    ("recvmsg", &["ECONNRESET", "ETIMEDOUT"], Outcome::LostRequest("read")),
    ("recvmsg", &["EINTR"], Outcome::Nothing),
];
const URING: &[Injection] = &[
    ("io_uring_enter", &["EINTR", "EAGAIN", "EBUSY"], Outcome::Nothing),
    ("io_uring_enter", &["ENOMEM"], Outcome::EndOfRun("an event loop failed: Cannot allocate memory")),
    ("io_uring_register", &["ENOMEM"], Outcome::EndOfRun("io_uring cannot be used here")),
];
const THREADS: &[Injection] = &[
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], Outcome::LostRequest("write")),
    ("sendto", &["EINTR"], Outcome::Nothing),
    ("clone3", &["EAGAIN"], Outcome::EndOfRun("a thread for each connection cannot be started")),
];
const FORK: &[Injection] = &[
    ("sendto", &["EPIPE", "ECONNRESET", "ENOBUFS"], Outcome::LostRequest("write")),
    ("wait4", &["EINTR"], Outcome::Nothing),
    ("clone", &["EAGAIN"], Outcome::EndOfRun("only 1 of 3 processes could be started")),
    ("pipe2", &["EMFILE"], Outcome::EndOfRun("only 1 of 3 processes could be started")),
];

/// Runs 30 requests over three connections, where the calls of `when` (strace(1)) fail in each
/// thread or process.
fn run(engine: &str, call: &str, error: &str, when: &str) -> Run {
    let load = command("echo", &echo().to_string(), &format!("-n 30 -c 3 {engine}"));
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:error={error}:when={when}")]);
    outcome(&strace.arg(load.get_program()).args(load.get_args()).output().expect("strace runs"))
}

fn check(engine: &str, injections: &[&[Injection]]) {
    if !may_trace() {
        return;
    }
    for (call, errors, expected) in injections.concat() {
        for error in errors {
            let run = run(engine, call, error, "2");
            let told = format!("{engine}: {call} {error}: {:?} {}", run.lines.last(), run.stderr);
            if let Outcome::EndOfRun(words) = expected {
                assert!(matches!(run.code, Some(1 | 5)) && run.stderr.contains(words), "{told}");
                continue;
            }
            let causes = ["connect", "read", "write", "timeout", "mismatch", "closed", "status"];
            let count = |cause: &str| run.count(&format!("errors.{cause}"));
            let counted: Vec<&str> = causes.into_iter().filter(|cause| count(cause) > 0).collect();
            let (completed, failed) = (run.count("requests.completed"), run.count("requests.failed"));
            // Where each connection has a thread or a process of its own, each may meet the error.
            let (lost, causes) = match expected {
                Outcome::LostRequest(cause) => (1..=3, vec![cause]),
                Outcome::FailedConnect => (0..=0, vec!["connect"]),
                _ => (0..=0, vec![]),
            };
            assert_eq!((run.code, completed + failed), (Some(0), 30), "{told}");
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
    check("--engine epoll -t 1", &[CONNECT, CALL, CLOSED]);
}

#[test]
fn epoll_survives_counts_or_says_each_error_at_a_rate() {
    check("--engine epoll -R 500", &[&CONNECT[..1], CALL, OPEN]);
}

#[test]
fn uring_survives_counts_or_says_each_error() {
    check("--engine uring -t 1", &[CONNECT, URING]);
}

#[test]
fn threads_survive_count_or_say_each_error() {
    check("--engine threads", &[CLOSED, THREADS]);
}

#[test]
fn processes_survive_count_or_say_each_error() {
    check("--engine fork", &[CLOSED, FORK]);
}

#[test]
fn a_kernel_that_notes_no_times_leaves_them_to_the_generator() {
    if !may_trace() {
        return;
    }
    // Each socket's first option is TCP_NODELAY, its second SO_TIMESTAMPING.
    let run = run("--engine epoll -R 500", "setsockopt", "ENOPROTOOPT", "2+2");
    assert_eq!((run.count("requests.completed"), run.count("errors.connect")), (30, 0), "{}", run.summary());
    assert_eq!(run.count("receive_lag_us.count"), 30);
}
