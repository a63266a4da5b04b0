//! A `plimsoll serve` process for a test, and what the system says of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

pub(crate) use super::running::{Folder, Noise, PATIENCE, text_of, until};
use super::running::{Running, limited, plimsoll, queued_at};

pub(crate) struct Server(Running);

impl Deref for Server {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl Server {
    /// `plimsoll serve echo --json` on a free port of 127.0.0.1, with these arguments too.
    pub(crate) fn echo(model: &str, arguments: &[&str]) -> Server {
        Server(Running::start(command("echo", model, arguments)))
    }

    /// `plimsoll serve http --json` on a free port of 127.0.0.1, with these arguments too.
    pub(crate) fn http(model: &str, arguments: &[&str]) -> Server {
        Server(Running::start(command("http", model, arguments)))
    }

    /// `plimsoll serve echo` with a descriptor limit.
    pub(crate) fn echo_with_limit(model: &str, descriptors: usize, arguments: &[&str]) -> Server {
        Server(Running::start(limited(&command("echo", model, arguments), descriptors)))
    }

    /// The same, run by another program.
    pub(crate) fn under(runner: &[&str], protocol: &str, model: &str, arguments: &[&str]) -> Server {
        let inner = command(protocol, model, arguments);
        let mut outer = Command::new(runner[0]);
        outer.args(&runner[1..]).arg(inner.get_program()).args(inner.get_args());
        Server(Running::start(outer))
    }

    /// The next sentence on standard error.
    pub(crate) fn sentence(&mut self) -> String {
        self.0.sentence()
    }

    /// Asserts that the server answers a fresh connection.
    pub(crate) fn assert_serves(&self) {
        assert_echoes(&mut self.connect(), b"still there?");
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Waits for the end, and returns the status and the summary.
    pub(crate) fn wait(self) -> (ExitStatus, Value) {
        let (status, summary, _) = self.0.wait();
        assert_gave_all_back(&summary);
        (status, summary)
    }

    /// Waits for a server that cannot go on, and returns the status and what it said.
    pub(crate) fn wait_failed(self) -> (ExitStatus, String) {
        self.0.wait_failed()
    }

    /// Stops the server, asserting that it ends well, and returns its summary.
    pub(crate) fn stop(self) -> Value {
        let summary = self.0.stop();
        assert_gave_all_back(&summary);
        summary
    }

    /// SIGKILL: no chance to clean up.
    pub(crate) fn kill(self) {
        self.0.kill();
    }

    /// Whether the server's end of a connection of this test is still established.
    pub(crate) fn holds(&self, stream: &TcpStream) -> bool {
        self.state(stream).is_some_and(|state| state == "01")
    }

    /// Whether the server has ended its half of a connection of this test, while its peer has not
    /// acknowledged that yet (FIN_WAIT1) or has not ended the other half (FIN_WAIT2).
    pub(crate) fn has_ended(&self, stream: &TcpStream) -> bool {
        self.state(stream).is_some_and(|state| matches!(state.as_str(), "04" | "05"))
    }

    /// The state of the server's end of a connection of this test, as /proc/net/tcp has it
    /// (proc_net_tcp(5)).
    fn state(&self, stream: &TcpStream) -> Option<String> {
        let port = |address: SocketAddr| format!(":{:04X}", address.port());
        let (here, there) = (port(self.address()), port(stream.local_addr().expect("it was connected")));
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields[1].ends_with(&here) && fields[2].ends_with(&there)).then(|| fields[3].to_owned())
        })
    }

    /// How many connections at its listeners' port it has not closed: established ones, and those
    /// whose client has closed (proc_net_tcp(5): 01 is ESTABLISHED, 08 CLOSE_WAIT).
    pub(crate) fn unclosed(&self) -> usize {
        let here = format!(":{:04X}", self.address().port());
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
        lines.filter(|fields| fields[1].ends_with(&here) && matches!(fields[3], "01" | "08")).count()
    }

    /// How many connections wait at its listeners to be accepted.
    pub(crate) fn queued(&self) -> u64 {
        queued_at(self.address())
    }

    /// The processes of the server: itself and its children.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let mut all = Process::all();
        all.retain(|process| process.pid == self.pid() || process.parent == self.pid());
        all
    }
}

/// A model may come with an accept strategy, as `epoll/handoff`: then there are two workers, where
/// the strategy allows it.
pub(crate) fn command(protocol: &str, model: &str, arguments: &[&str]) -> Command {
    let (model, strategy) = model.split_once('/').map_or((model, None), |(model, strategy)| (model, Some(strategy)));
    let accept: &[&str] = match &strategy {
        None => &[],
        Some("single") => &["--accept", "single"],
        Some(strategy) => &["--workers", "2", "--accept", strategy],
    };
    let free: &[&str] = if arguments.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    plimsoll(&[&["serve", protocol, "--json", "--model", model], accept, free, arguments].concat())
}

/// Whether strace(1) is here and may trace; if not, says that a test is skipped.
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
pub(crate) fn may_trace() -> bool {
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let may = quiet(Command::new("strace").args(["-D", "true"])).is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: strace is not installed (`apt-get install strace`), or may not trace here");
    }
    may
}

/// Asserts that a server has given back whatever it had taken.
fn assert_gave_all_back(summary: &Value) {
    let nothing = ["descriptors", "pipes", "slots", "timers", "buffers", "requests"]
        .map(|kind| (kind.to_owned(), Value::from(0)));
    assert_eq!(summary["leaked"], Value::Object(nothing.into_iter().collect()), "{summary}");
}

/// What /proc says of a process (proc_pid_stat(5)).
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// CPU time in clock ticks, its own and that of reaped children.
    pub(crate) ticks: u64,
    /// Resident pages.
    pub(crate) resident: u64,
}

impl Process {
    fn all() -> Vec<Process> {
        let entries =
            fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        entries.filter_map(|name| name.parse().ok()).filter_map(Process::read).collect()
    }

    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Process {
            pid,
            parent: number(1)? as u32,
            ticks: number(11)? + number(12)? + number(13)? + number(14)?,
            resident: number(21)?,
        })
    }

    /// What its descriptors name: those of the process's own table, and of the table that each
    /// worker's thread has for itself.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let named = |folder: PathBuf| {
            let entries = fs::read_dir(folder.join("fd")).into_iter().flatten();
            entries.filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        };
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let threads = fs::read_dir(process.join("task")).into_iter().flatten();
        let workers = threads
            .filter_map(|thread| Some(thread.ok()?.path()))
            .filter(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("worker")));
        workers.flat_map(named).chain(named(process.clone())).collect()
    }
}

/// Makes a test of each function for each model.
#[allow(unused_macros, reason = "each suite uses a part of this module")]
macro_rules! for_every_model {
    ($($test:ident),* $(,)?) => {
        for_every_model!(@ threads "threads"; $($test)*);
        for_every_model!(@ fork "fork"; $($test)*);
        for_every_model!(@ select "select"; $($test)*);
        for_every_model!(@ poll "poll"; $($test)*);
        for_every_model!(@ epoll "epoll"; $($test)*);
        for_every_model!(@ epoll_et "epoll-et"; $($test)*);
        for_every_model!(@ uring "uring"; $($test)*);
    };
    (and every strategy: $($test:ident),* $(,)?) => {
        for_every_model!($($test),*);
        for_every_model!(@ select_single "select/single"; $($test)*);
        for_every_model!(@ select_handoff "select/handoff"; $($test)*);
        for_every_model!(@ select_reuseport "select/reuseport"; $($test)*);
        for_every_model!(@ poll_single "poll/single"; $($test)*);
        for_every_model!(@ poll_handoff "poll/handoff"; $($test)*);
        for_every_model!(@ poll_reuseport "poll/reuseport"; $($test)*);
        for_every_model!(@ epoll_single "epoll/single"; $($test)*);
        for_every_model!(@ epoll_handoff "epoll/handoff"; $($test)*);
        for_every_model!(@ epoll_exclusive "epoll/exclusive"; $($test)*);
        for_every_model!(@ epoll_reuseport "epoll/reuseport"; $($test)*);
        for_every_model!(@ epoll_et_single "epoll-et/single"; $($test)*);
        for_every_model!(@ epoll_et_handoff "epoll-et/handoff"; $($test)*);
        for_every_model!(@ epoll_et_exclusive "epoll-et/exclusive"; $($test)*);
        for_every_model!(@ epoll_et_reuseport "epoll-et/reuseport"; $($test)*);
        for_every_model!(@ uring_single "uring/single"; $($test)*);
        for_every_model!(@ uring_handoff "uring/handoff"; $($test)*);
        for_every_model!(@ uring_exclusive "uring/exclusive"; $($test)*);
        for_every_model!(@ uring_reuseport "uring/reuseport"; $($test)*);
    };
    (@ $module:ident $model:literal; $($test:ident)*) => {
        mod $module {
            $(#[test] fn $test() { super::$test($model) })*
        }
    };
}
#[allow(unused_imports, reason = "each suite uses a part of this module")]
pub(crate) use for_every_model;

pub(crate) fn assert_echoes(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(message).expect("the server reads");
    let mut answer = vec![0; message.len()];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(answer, message);
}
