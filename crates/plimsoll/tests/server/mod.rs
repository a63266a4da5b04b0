//! A `plimsoll serve` process for a test: started, asked, told to stop, and never left behind.
#![allow(dead_code, reason = "each test file is a program of its own, and none needs all of this")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use plimsoll_sys::process;
use serde_json::Value;

/// Only against hanging: nothing here is timed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) ready: Value,
}

impl Server {
    /// `plimsoll serve echo --json` on a free port of 127.0.0.1, with these arguments too.
    pub(crate) fn echo(model: &str, arguments: &[&str]) -> Server {
        Server::start(command("echo", model, arguments))
    }

    /// `plimsoll serve http --json` on a free port of 127.0.0.1, with these arguments too.
    pub(crate) fn http(model: &str, arguments: &[&str]) -> Server {
        Server::start(command("http", model, arguments))
    }

    /// The same with a descriptor limit.
    pub(crate) fn echo_with_limit(model: &str, descriptors: usize, arguments: &[&str]) -> Server {
        let inner = command("echo", model, arguments);
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""));
        limited.arg(inner.get_program()).args(inner.get_args());
        Server::start(limited)
    }

    /// The same, run by another program.
    pub(crate) fn echo_under(runner: &[&str], model: &str, arguments: &[&str]) -> Server {
        let inner = command("echo", model, arguments);
        let mut outer = Command::new(runner[0]);
        outer.args(&runner[1..]).arg(inner.get_program()).args(inner.get_args());
        Server::start(outer)
    }

    fn start(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("the server starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a ready line: {line:?}"));
        Server { child, stdout, ready }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.ready["addresses"].as_array().expect("addresses");
        addresses.iter().map(|text| text.as_str().expect("text").parse().expect("an address")).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A connection whose reads fail rather than wait for ever.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("the server takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream
    }

    /// Asserts that the server answers a fresh connection.
    pub(crate) fn assert_serves(&self) {
        assert_echoes(&mut self.connect(), b"still there?");
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        process::end(process::Child::from_number(self.pid() as i32).expect("not 0"), false);
    }

    /// Waits for the end, and returns the status and the summary.
    pub(crate) fn wait(mut self) -> (ExitStatus, Value) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("a status");
        let summary = rest.lines().last().unwrap_or_default();
        (status, serde_json::from_str(summary).unwrap_or_else(|_| panic!("not a summary: {rest:?}")))
    }

    /// Stops the server, asserting that it ends well, and returns its summary.
    pub(crate) fn stop(self) -> Value {
        self.terminate();
        let (status, summary) = self.wait();
        assert_eq!(status.code(), Some(0));
        summary
    }

    /// SIGKILL: no chance to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a status");
    }

    /// Whether the server's end of a connection of this test is still established, as /proc/net/tcp has it (proc_net_tcp(5)).
    pub(crate) fn holds(&self, stream: &TcpStream) -> bool {
        let port = |address: SocketAddr| format!(":{:04X}", address.port());
        let (here, there) = (port(self.address()), port(stream.local_addr().expect("it was connected")));
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&here) && fields[2].ends_with(&there) && fields[3] == "01"
        })
    }

    /// How many connections wait at its listeners to be accepted.
    pub(crate) fn queued(&self) -> u64 {
        let here = format!(":{:04X}", self.address().port());
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
        // State 0A is LISTEN, whose receive queue is that of connections.
        let listeners = lines.filter(|fields| fields[1].ends_with(&here) && fields[3] == "0A");
        let queues = listeners.filter_map(|fields| u64::from_str_radix(fields[4].split_once(':')?.1, 16).ok());
        queues.sum()
    }

    /// The processes of the server: itself and its children.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let mut all = Process::all();
        all.retain(|process| process.pid == self.pid() || process.parent == self.pid());
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(protocol: &str, model: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["serve", protocol, "--json", "--model", model]);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.args(arguments);
    command
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

    /// What its descriptors name.
    pub(crate) fn descriptors(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return Vec::new() };
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect()
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
    (@ $module:ident $model:literal; $($test:ident)*) => {
        mod $module {
            $(#[test] fn $test() { super::$test($model) })*
        }
    };
}
#[allow(unused_imports, reason = "each suite uses a part of this module")]
pub(crate) use for_every_model;

/// Waits for something that another process brings about.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn assert_echoes(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(message).expect("the server reads");
    let mut answer = vec![0; message.len()];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(answer, message);
}

/// Bytes that no shift or swap leaves the same (xorshift64).
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.word().to_ne_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}
