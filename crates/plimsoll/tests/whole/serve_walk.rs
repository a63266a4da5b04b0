//! One connection's walk through each model, as strace(1) sees it: which system calls it is made
//! of, and which it is not.
//!
//! `PLIMSOLL_WALKS=FOLDER` writes each walk there, for docs/models.md.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::server::{Folder, Server, assert_echoes, for_every_model, may_trace, text_of, until};

for_every_model!(
    one_connection_makes_the_calls_of_its_model,
    a_large_file_goes_out_by_sendfile,
    a_drain_and_the_end_of_its_time_are_waited_for_and_not_asked_after,
);

/// Calls that wait, move bytes, or make and end something. A question mark: not on every
/// architecture.
const TRACED: &str = "--trace=accept4,recvfrom,sendto,sendmsg,sendfile,close,clone,?clone3,wait4,exit,exit_group,?\
                      select,pselect6,?poll,ppoll,epoll_ctl,?epoll_wait,epoll_pwait,?epoll_pwait2,?io_uring_enter";

/// What a model waits by, in the thread or process that serves.
fn waits_by(model: &str) -> &'static [&'static str] {
    match model {
        "select" => &["select", "pselect6"],
        "poll" => &["poll", "ppoll"],
        "epoll" | "epoll-et" => &["epoll_wait", "epoll_pwait", "epoll_pwait2"],
        "uring" => &["io_uring_enter"],
        _ => &[],
    }
}

/// The steps of a connection that says `hello` once, in order: the calls that may make each, and
/// what its line must contain.
fn steps(model: &str) -> Vec<(&'static [&'static str], &'static str)> {
    let waits = waits_by(model);
    let echo: [(&'static [&'static str], &'static str); 3] =
        [(&["recvfrom"], "\"hello\""), (&["sendto"], "\"hello\""), (&["recvfrom"], "= 0")];
    match model {
        "threads" => {
            let begun: [(&[&str], &str); 2] = [(&["accept4"], "sin_port"), (&["clone", "clone3"], "CLONE_THREAD")];
            [&begun[..], &echo, &[(&["close"], "= 0")]].concat()
        }
        "fork" => {
            let begun: [(&[&str], &str); 2] = [(&["accept4"], "sin_port"), (&["clone", "clone3"], "SIGCHLD")];
            [&begun[..], &echo, &[(&["exit_group"], ""), (&["wait4"], "WIFEXITED")]].concat()
        }
        // It connects, its bytes come, they are sent, its end comes, it is closed: the ring says no
        // more than that something was done.
        "uring" => vec![(waits, ""); 5],
        _ => {
            let begun: [(&[&str], &str); 2] = [(&["accept4"], "sin_port"), (waits, "")];
            [&begun[..], &echo[..2], &[(waits, ""), echo[2], (&["close"], "= 0")]].concat()
        }
    }
}

/// A server under strace, on one worker where there are workers.
struct Traced {
    server: Server,
    file: PathBuf,
}

/// One call: whose, and its line without the number.
#[derive(Clone)]
struct Call {
    process: u32,
    line: String,
}

impl Call {
    fn name(&self) -> &str {
        self.line.split('(').next().unwrap_or_default()
    }

    /// A poll that returns at once asks a listener whether a connection waits: it is no wait.
    fn asks(&self) -> bool {
        matches!(self.name(), "poll" | "ppoll") && self.line.contains("{tv_sec=0, tv_nsec=0}")
    }

    fn is(&self, (names, part): (&[&str], &str)) -> bool {
        names.contains(&self.name()) && self.line.contains(part)
    }
}

impl Traced {
    fn start(protocol: &str, model: &str, arguments: &[&str]) -> Option<Traced> {
        if !may_trace() {
            return None;
        }
        // Several tests trace the same model at once.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("plimsoll-walk-{model}-{}-{number}", std::process::id()));
        // -D: the server is our child, and not strace's.
        let strace = ["strace", "-D", "-f", "-qq", TRACED, "-o", file.to_str().expect("text")];
        let workers: &[&str] = if matches!(model, "threads" | "fork") { &[] } else { &["--workers", "1"] };
        let server = Server::under(&strace, protocol, model, &[workers, arguments].concat());
        Some(Traced { server, file })
    }

    /// The calls that have been completed so far.
    fn calls(&self) -> Vec<Call> {
        let (mut calls, mut begun) = (Vec::new(), HashMap::new());
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        // The last line may be half written.
        for line in text.rsplit_once('\n').map_or("", |(lines, _)| lines).lines() {
            let Some((process, line)) = line.split_once(' ') else { continue };
            let (process, line) = (process.parse().unwrap_or(0), line.trim_start());
            if let Some(first) = line.strip_suffix("<unfinished ...>") {
                begun.insert(process, first.to_owned());
            } else if let Some((_, rest)) = line.strip_prefix("<... ").and_then(|line| line.split_once(" resumed>")) {
                let line = begun.remove(&process).unwrap_or_default() + rest;
                calls.push(Call { process, line });
            } else {
                calls.push(Call { process, line: line.to_owned() });
            }
        }
        calls
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// The part of `calls` from the first step to the last, if all are there in order, and the call
/// before it that waited.
fn walk<'a>(calls: &'a [Call], steps: &[(&'static [&'static str], &'static str)]) -> Option<&'a [Call]> {
    let (mut first, mut from) = (None, 0);
    for step in steps {
        let place = from + calls[from..].iter().position(|call| call.is(*step))?;
        first.get_or_insert(place);
        from = place + 1;
    }
    let first = first?;
    // What a worker closes before its first wait is of its making.
    let is_before = |call: &Call| call.process == calls[first].process && call.name() != "close" && !call.asks();
    let before = calls[..first].iter().rposition(is_before);
    Some(&calls[before.unwrap_or(first)..from])
}

fn one_connection_makes_the_calls_of_its_model(model: &str) {
    let Some(traced) = Traced::start("echo", model, &[]) else { return };
    let mut stream = traced.server.connect();
    assert_echoes(&mut stream, b"hello");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(stream.read_to_end(&mut Vec::new()).expect("it is closed cleanly"), 0);
    let steps = steps(model);
    let main = traced.server.pid();
    // The main thread tries whether it may make a ring, with calls that look like steps.
    let calls =
        || traced.calls().into_iter().filter(|call| model != "uring" || call.process != main).collect::<Vec<_>>();
    until("every step was seen", || walk(&calls(), &steps).is_some());
    let calls = calls();
    let walk = walk(&calls, &steps).expect("just seen");
    // Every other model's way of waiting is absent from the thread that serves; its coordinator
    // waits for signals by poll.
    let others: Vec<&str> =
        ["select", "poll", "epoll", "uring"].iter().flat_map(|other| waits_by(other)).copied().collect();
    for call in walk.iter().filter(|call| call.process != main) {
        let strange = others.contains(&call.name()) && !waits_by(model).contains(&call.name()) && !call.asks();
        assert!(!strange, "{model}: {}", call.line);
        let carried = matches!(call.name(), "accept4" | "recvfrom" | "sendto" | "close");
        assert!(model != "uring" || !carried, "the ring carries all: {}", call.line);
    }
    if model == "epoll-et" {
        let adding = |call: &&Call| call.name() == "epoll_ctl";
        assert!(walk.iter().filter(adding).all(|call| call.line.contains("EPOLLET")), "it registers once, for edges");
        assert_eq!(walk.iter().filter(adding).count(), 1, "and never again");
    }
    if let Some(folder) = std::env::var_os("PLIMSOLL_WALKS") {
        write_down(walk, main, model, Path::new(&folder));
    }
}

fn write_down(walk: &[Call], main: u32, model: &str, folder: &Path) {
    let other = match model {
        "threads" => "thread",
        "fork" => "child",
        _ => "worker",
    };
    let role = |call: &Call| if call.process == main { "acceptor" } else { other };
    let lines = walk.iter().map(|call| format!("{:<9}{}\n", role(call), tidy(&call.line)));
    fs::create_dir_all(folder).expect("a folder can be made");
    fs::write(folder.join(format!("{model}.txt")), lines.collect::<String>()).expect("a file can be written");
}

/// A line as a page has room for it: strace pads, and a thread's flags are long.
fn tidy(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" )", ")");
    match line.split_once("|CLONE_FS") {
        Some((start, rest)) => format!("{start}|...) ={}", rest.rsplit_once('=').map_or("", |(_, result)| result)),
        None => line,
    }
}

fn a_large_file_goes_out_by_sendfile(model: &str) {
    let root = Folder::new();
    fs::write(root.path("large"), vec![b'x'; 1 << 20]).expect("a file can be written");
    let Some(traced) = Traced::start("http", model, &["--root", &text_of(&root.path(""))]) else { return };
    let mut stream = traced.server.connect();
    stream.write_all(b"GET /large HTTP/1.0\r\n\r\n").expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    assert!(answer.ends_with(&[b'x'; 1 << 20]));
    until("the file was sent by sendfile", || {
        let calls = traced.calls();
        let sent = calls.iter().filter(|call| call.name() == "sendfile");
        sent.filter_map(|call| call.line.rsplit_once("= ")?.1.parse::<usize>().ok()).sum::<usize>() == 1 << 20
    });
}

fn a_drain_and_the_end_of_its_time_are_waited_for_and_not_asked_after(model: &str) {
    let Some(traced) = Traced::start("http", model, &["--synthetic", "--drain", "500ms"]) else { return };
    let mut stuck = traced.server.connect();
    stuck.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
    stuck.read_exact(&mut [0]).expect("the answer begins");
    let main = traced.server.pid();
    traced.server.terminate();
    until("it is over", || traced.server.is_over());
    // strace writes what it saw a moment later.
    let has_ended = |call: &Call| call.process == main && call.name() == "exit_group";
    until("its end was seen", || traced.calls().iter().any(has_ended));
    // Also those that return at once: a wait for a time that has passed is one.
    let waits = |call: &&Call| call.process == main && matches!(call.name(), "poll" | "ppoll");
    let waited = traced.calls().iter().filter(waits).count();
    assert!((1..50).contains(&waited), "{model}: {waited} waits");
}
