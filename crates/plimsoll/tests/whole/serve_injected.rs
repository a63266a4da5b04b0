//! Errors of the kernel that no test can bring about at will, injected by strace(1): each ends one
//! connection at most, is counted, and leaves nothing behind.

use std::io::{Read, Write};

use crate::support::server::{Server, for_every_model, may_trace};

for_every_model!(an_injected_error_ends_one_connection_at_most);

/// The second call of these in a thread or process fails so.
fn injections(model: &str) -> Vec<(&'static str, &'static [&'static str])> {
    const ACCEPT: (&str, &[&str]) = ("accept4", &["ECONNABORTED", "EMFILE", "ENFILE", "ENOBUFS", "EPROTO", "EINTR"]);
    const BYTES: [(&str, &[&str]); 2] =
        [("recvfrom", &["ECONNRESET", "ETIMEDOUT", "EINTR"]), ("sendto", &["EPIPE", "ENOBUFS", "EINTR"])];
    let own: &[(&str, &[&str])] = match model {
        "threads" => &[("?clone,?clone3", &["EAGAIN"])],
        "fork" => &[("?clone,?clone3", &["EAGAIN"]), ("wait4", &["EINTR"])],
        "select" => &[("?select,pselect6", &["EINTR"])],
        "poll" => &[("?poll,ppoll", &["EINTR"])],
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
            // The wake-up is the first descriptor that epoll is told of, and the listener the
            // second: without those no loop can be.
            let first = if call == "epoll_ctl" { 3 } else { 2 };
            let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={first}"));
            let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
            let server = Server::under(&strace, "echo", model, workers);
            let lost = (0..6).filter(|_| !is_echoed(&server)).count();
            assert!(lost <= 1, "{call} {error}: {lost} connections were lost");
            let summary = server.stop();
            let counted = summary["errors"].as_object().expect("causes");
            assert!(lost == 0 || !counted.is_empty(), "{call} {error}: {summary}");
            assert!(!counted.contains_key("other"), "{call} {error}: {summary}");
        }
    }
}

/// Whether one connection is served to its end.
fn is_echoed(server: &Server) -> bool {
    let mut stream = server.connect();
    let mut answer = [0; 5];
    stream.write_all(b"hello").and_then(|()| stream.read_exact(&mut answer)).is_ok() && &answer == b"hello"
}
