//! Errors of the kernel that no test can bring about at will, injected by strace(1): each ends one
//! connection at most, is counted, and leaves nothing behind.

use std::io::{self, ErrorKind, Read, Write};
use std::process::Command;

use crate::support::server::{Folder, Server, assert_echoes, command, for_every_model, may_trace, until};

for_every_model!(
    an_injected_error_ends_one_connection_at_most,
    an_injected_error_spoils_one_file_at_most,
    a_write_that_this_machine_refuses_is_no_clean_end_of_an_echo,
    an_answer_is_not_lost_to_a_byte_that_comes_just_before_the_close,
);

/// The second call of these in a thread or process fails so.
fn injections(model: &str) -> Vec<(&'static str, &'static [&'static str])> {
    const ACCEPT: (&str, &[&str]) = ("accept4", &["ECONNABORTED", "EMFILE", "ENFILE", "ENOBUFS", "EPROTO", "EINTR"]);
    const BYTES: [(&str, &[&str]); 2] =
        [("recvfrom", &["ECONNRESET", "ETIMEDOUT", "ENOMEM", "EINTR"]), ("sendto", &["EPIPE", "ENOBUFS", "EINTR"])];
    let own: &[(&str, &[&str])] = match model {
        "threads" => &[("?clone,?clone3", &["EAGAIN"]), ("?poll,ppoll", &["EINTR", "ENOMEM"])],
        "fork" => &[("?clone,?clone3", &["EAGAIN"]), ("wait4", &["EINTR"]), ("?poll,ppoll", &["EINTR", "ENOMEM"])],
        "select" => &[("?select,pselect6", &["EINTR", "ENOMEM"])],
        "poll" => &[("?poll,ppoll", &["EINTR", "ENOMEM"])],
        "uring" => return vec![("io_uring_enter", &["EINTR", "EAGAIN", "EBUSY"])],
        _ => &[("?epoll_wait,?epoll_pwait,?epoll_pwait2", &["EINTR"]), ("epoll_ctl", &["ENOMEM"])],
    };
    [&[ACCEPT], &BYTES[..], own].concat()
}

fn an_injected_error_ends_one_connection_at_most(model: &str) {
    if !may_trace() {
        return;
    }
    for (call, errors) in injections(model) {
        for error in errors {
            let first = match (call, *error) {
                // The wake-up is the first descriptor that is added to epoll, and the listener the
                // second: no loop can do without them.
                ("epoll_ctl", _) => 3,
                // The second call asks a listener whether a connection waits there.
                ("?poll,ppoll", "ENOMEM") => 1,
                _ => 2,
            };
            let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={first}"));
            let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
            let server = Server::under(&strace, "echo", model, workers);
            let outcomes: Vec<_> = (0..6).map(|_| echoes_once(&server).map_err(|error| error.kind())).collect();
            let lost = outcomes.iter().filter(|outcome| outcome.is_err()).count();
            assert!(lost <= 1, "{call} {error}: {outcomes:?}");
            assert!(!outcomes.contains(&Err(ErrorKind::UnexpectedEof)), "{call} {error}: a clean end of a part");
            let summary = server.stop();
            let counted = summary["errors"].as_object().expect("causes");
            assert!(lost == 0 || !counted.is_empty(), "{call} {error}: {summary}");
            assert!(!counted.contains_key("other"), "{call} {error}: {summary}");
        }
    }
}

fn a_write_that_this_machine_refuses_is_no_clean_end_of_an_echo(model: &str) {
    // A ring's sends are no calls. It fails where a file is sent, too.
    if !may_trace() || model == "uring" {
        return;
    }
    for error in ["ENOBUFS", "ENOMEM", "EIO"] {
        let inject = format!("inject=sendto:error={error}:when=2");
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto", "-e", &inject];
        let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
        let server = Server::under(&strace, "echo", model, workers);
        let mut stream = server.connect();
        assert_echoes(&mut stream, b"first");
        stream.write_all(b"second").expect("there is room");
        let end = stream.read(&mut [0; 100]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset), "{error}");
        let summary = server.stop();
        assert_eq!(summary["errors"][error.to_lowercase()], 1, "{summary}");
    }
}

/// A close on a byte that was not read is a reset (RFC 1122, section 4.2.2.13), and would drop what
/// was held back for the packet of the end.
fn an_answer_is_not_lost_to_a_byte_that_comes_just_before_the_close(model: &str) {
    if !may_trace() {
        return;
    }
    let folder = Folder::new();
    folder.write("small", &"x".repeat(600));
    folder.write("large", &"x".repeat(60_000));
    let root = folder.path("").to_str().expect("the path is text").to_owned();
    // The server stands still once the answer's last bytes are handed over; the kernel sends what
    // is held back after 200 ms by itself (tcp(7), TCP_CORK). A ring's small sends are no calls.
    for (call, file, length) in [("sendto", "small", 600), ("sendfile", "large", 60_000)] {
        if (model, call) == ("uring", "sendto") {
            continue;
        }
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:delay_exit=100000"));
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let server = Server::under(&strace, "http", model, &["--root", &root]);
        let mut stream = server.connect();
        let request = format!("GET /{file} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("there is room");
        std::thread::sleep(std::time::Duration::from_millis(50));
        // The server may have closed already where this comes late.
        let _ = stream.write_all(b"x");
        let mut answer = Vec::new();
        while !answer.ends_with(&vec![b'x'; length]) {
            let mut bytes = [0; 4096];
            let read =
                stream.read(&mut bytes).unwrap_or_else(|error| panic!("{call}: {} bytes, {error}", answer.len()));
            assert!(read > 0, "{call}: the end after {} bytes", answer.len());
            answer.extend_from_slice(&bytes[..read]);
        }
        server.stop();
    }
}

#[test]
fn a_listener_that_epoll_has_no_room_for_is_waited_for_a_moment_later() {
    if !may_trace() {
        return;
    }
    // The first call is about the wake-up, the second about the listener, the third about a
    // connection; past the limit the listener is taken out (4) and put back (5).
    for (model, error, number) in
        [("epoll", "ENOSPC", 2), ("epoll-et", "ENOMEM", 2), ("epoll", "ENOMEM", 5), ("epoll-et", "ENOSPC", 5)]
    {
        let inject = format!("inject=epoll_ctl:error={error}:when={number}");
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=epoll_ctl", "-e", &inject];
        let server = Server::under(&strace, "echo", model, &["--workers", "1", "--max-connections", "1"]);
        let mut first = server.connect();
        assert_echoes(&mut first, b"first");
        let mut second = server.connect();
        // A pause has a tenth of a second: by then the listener was taken out and put back.
        std::thread::sleep(std::time::Duration::from_millis(500));
        drop(first);
        assert_echoes(&mut second, b"second");
        drop(second);
        let summary = server.stop();
        assert!(summary["errors"][error.to_lowercase()].as_u64() > Some(0), "{model} {error} {number}: {summary}");
    }
}

#[test]
fn an_acceptor_that_can_hand_nothing_over_waits_for_a_moment_each_time() {
    if !may_trace() {
        return;
    }
    for error in ["ETOOMANYREFS", "ENOBUFS"] {
        let inject = format!("inject=sendmsg:error={error}:when=2+");
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendmsg", "-e", &inject];
        let server = Server::under(&strace, "echo", "epoll", &["--accept", "handoff", "--workers", "1"]);
        assert_echoes(&mut server.connect(), b"hello");
        let _waits = server.connect();
        until("waiting costs next to no CPU", || server.is_quiet());
        server.stop();
    }
}

#[test]
fn a_server_whose_ring_cannot_be_made_says_so_and_ends() {
    if !may_trace() {
        return;
    }
    for (call, error, number) in [
        ("io_uring_setup", "EPERM", 1),
        ("io_uring_setup", "ENOSYS", 1),
        ("io_uring_setup", "ENOMEM", 1),
        // Its table of sockets, and its pool of buffers.
        ("io_uring_register", "ENOMEM", 1),
        ("io_uring_register", "EINVAL", 2),
    ] {
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={number}"));
        let inner = command("echo", "uring", &["--workers", "1"]);
        let mut outer = Command::new("strace");
        outer.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
        let output = outer.arg(inner.get_program()).args(inner.get_args()).output().expect("strace is here");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{call} {error}: {said}");
        assert!(said.contains("io_uring cannot be used here"), "{call} {error}: {said}");
    }
}

#[test]
fn connections_that_cannot_be_handed_over_just_now_wait_and_are_served() {
    if !may_trace() {
        return;
    }
    // The acceptor sends each of them to its worker.
    for (error, when) in [("ETOOMANYREFS", "1..20"), ("ENOMEM", "2"), ("ENOBUFS", "2"), ("EAGAIN", "2")] {
        let inject = format!("inject=sendmsg:error={error}:when={when}");
        let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendmsg", "-e", &inject];
        let server = Server::under(&strace, "echo", "epoll", &["--accept", "handoff", "--workers", "1"]);
        for _ in 0..6 {
            assert_echoes(&mut server.connect(), b"hello");
        }
        server.stop();
    }
}

/// Larger than what is read and sent with its head, so that sendfile(2) sends it.
const FILE_BYTES: usize = 64 * 1024;

/// The calls that tell a file's size.
const STAT: &str = "?fstat,?statx,?newfstatat";

fn an_injected_error_spoils_one_file_at_most(model: &str) {
    if !may_trace() {
        return;
    }
    let folder = Folder::new();
    folder.write("file", &"x".repeat(FILE_BYTES));
    let root = folder.path("").to_str().expect("the path is text").to_owned();
    let file = folder.path("file").to_str().expect("the path is text").to_owned();
    let thread_each = matches!(model, "threads" | "fork");
    for (call, errors) in [
        ("sendfile", &["EIO", "EAGAIN", "EINTR", "ENOMEM", "ECONNRESET"][..]),
        ("openat2", &["EMFILE", "ENFILE", "ENOMEM", "EACCES", "EINTR", "EAGAIN", "EIO"]),
        (STAT, &["ENOMEM", "EIO"]),
    ] {
        for error in errors {
            // A kernel that says that there is no room reports room later, once (epoll(7)): after
            // an injected EAGAIN nothing does.
            if (model, *error) == ("epoll-et", "EAGAIN") {
                continue;
            }
            // strace counts the calls of each thread. One that serves a single connection opens the
            // file once.
            let number = if thread_each && call != "sendfile" { 1 } else { 2 };
            let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={number}"));
            let mut strace = vec!["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            if call == STAT {
                // The dynamic loader makes such calls before the program starts. How many depends
                // on LD_LIBRARY_PATH, so only those about the file count.
                strace.extend(["-P", &file]);
            }
            let mut arguments = vec!["--root", &root];
            if !thread_each {
                arguments.extend(["--workers", "1"]);
            }
            let server = Server::under(&strace, "http", model, &arguments);
            let outcomes: Vec<Fetched> = (0..6).map(|_| fetch(&server)).collect();
            let whole = outcomes.iter().filter(|outcome| **outcome == Fetched::Whole).count();
            // Where each connection has a thread or a process, each may have its own failure.
            assert!(whole >= 5 || number == 1 || model == "fork", "{call} {error}: {outcomes:?}");
            // An interrupted call is made again, as is one that met a rename (openat2(2)). A failed
            // sendfile(2) may cut the answer short.
            let (refused, again) = (outcomes.contains(&Fetched::Refused), ["EINTR", "EAGAIN"].contains(error));
            assert!(refused || call == "sendfile" || again, "{call} {error}: nothing was injected");
            assert!(!refused || !again, "{call} {error}: {outcomes:?}");
            let summary = server.stop();
            let counted = summary["errors"].as_object().expect("causes");
            let cut = outcomes.contains(&Fetched::Cut);
            assert!(!cut || !counted.is_empty(), "{call} {error}: a file was cut, and nothing is counted: {summary}");
            assert!(!outcomes.contains(&Fetched::Part), "{call} {error}: a clean end of a part: {outcomes:?}");
            assert!(!outcomes.contains(&Fetched::Missing), "{call} {error}: the file is there: {outcomes:?}");
            assert!(!counted.contains_key("other"), "{call} {error}: {summary}");
        }
    }
}

/// What came of a request for the file.
#[derive(Debug, PartialEq)]
enum Fetched {
    Whole,
    /// An answer that says that it failed.
    Refused,
    /// An answer that says that there is no such file.
    Missing,
    /// A reset.
    Cut,
    /// Less than was promised, and then the end of the stream.
    Part,
}

fn fetch(server: &Server) -> Fetched {
    let mut stream = server.connect();
    let mut answer = Vec::new();
    let request = b"GET /file HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    if stream.write_all(request).and_then(|()| stream.read_to_end(&mut answer)).is_err() {
        return Fetched::Cut;
    }
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| answer.len() - end - 4);
    match answer.get(9..12) {
        Some(b"200") if body == FILE_BYTES => Fetched::Whole,
        Some(b"404") => Fetched::Missing,
        Some([b'4' | b'5', ..]) => Fetched::Refused,
        _ => Fetched::Part,
    }
}

/// Has one connection served to its end.
fn echoes_once(server: &Server) -> io::Result<()> {
    let mut stream = server.connect();
    let mut answer = [0; 5];
    stream.write_all(b"hello")?;
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}
