//! A `plimsoll` process of a test, which runs until a signal stops it: started, asked, ended, and
//! never left behind.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Only against hanging: nothing here is timed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    pub(crate) ready: Value,
}

impl Running {
    /// Starts a command that prints JSON lines, and waits for its ready line.
    pub(crate) fn start(command: Command) -> Running {
        Running::start_with_input(command, Stdio::null())
    }

    /// The same with a standard input.
    pub(crate) fn start_with_input(mut command: Command, input: Stdio) -> Running {
        let command = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a ready line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut why = String::new();
            let _ = stderr.read_to_string(&mut why);
            panic!("not a ready line: {line:?}; {why}")
        });
        Running { child, stdout, stderr, ready }
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

    /// A connection whose reads and writes fail rather than wait for ever.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// The next sentence on standard error.
    pub(crate) fn sentence(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("a line");
        line
    }

    /// Waits for the end, and returns the status, the summary and what was said.
    pub(crate) fn wait(mut self) -> (ExitStatus, Value, String) {
        let (mut rest, mut said) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).expect("text");
        self.stderr.read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("a status");
        assert!(!said.contains("panicked"), "{said}");
        let summary = rest.lines().last().unwrap_or_default();
        (status, serde_json::from_str(summary).unwrap_or_else(|_| panic!("not a summary: {rest:?}; {said}")), said)
    }

    /// Waits for the end of what cannot go on, and returns the status and what was said.
    pub(crate) fn wait_failed(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("text");
        (self.child.wait().expect("a status"), said)
    }

    /// Sends SIGTERM, asserts that it ends well, and returns its summary.
    pub(crate) fn stop(self) -> Value {
        self.signal("TERM");
        let (status, summary, said) = self.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        summary
    }

    /// Whether it spends next to nothing in a while: one that spins spends all of it, or what other
    /// programs leave.
    pub(crate) fn is_quiet(&self) -> bool {
        let (before, _) = self.cost();
        std::thread::sleep(Duration::from_millis(300));
        self.cost().0 <= before + 1
    }

    /// CPU time so far, in clock ticks, and resident bytes (proc_pid_stat(5)).
    pub(crate) fn cost(&self) -> (u64, u64) {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let number = |index: usize| fields[index].parse::<u64>().expect("a number");
        (number(11) + number(12), number(21) * 4096)
    }

    /// Whether it has ended, and waits for this test to ask how (proc_pid_stat(5): Z is a zombie).
    pub(crate) fn is_over(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("nobody else waits for it");
        stat.rsplit_once(')').expect("a name").1.starts_with(" Z")
    }

    /// SIGKILL: no chance to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a status");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `plimsoll COMMAND`, not yet run.
pub(crate) fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments);
    command
}

/// A command under a descriptor limit.
pub(crate) fn limited(inner: &Command, descriptors: usize) -> Command {
    let mut outer = Command::new("sh");
    outer.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""));
    outer.arg(inner.get_program()).args(inner.get_args());
    outer
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connections are taken");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// How many connections wait to be accepted by those that listen at this port.
pub(crate) fn queued_at(address: SocketAddr) -> u64 {
    let here = format!(":{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    // State 0A is LISTEN, whose receive queue is that of connections (proc_net_tcp(5)).
    let listeners = lines.filter(|fields| fields[1].ends_with(&here) && fields[3] == "0A");
    let queues = listeners.filter_map(|fields| u64::from_str_radix(fields[4].split_once(':')?.1, 16).ok());
    queues.sum()
}

/// Waits for something that another process brings about.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder of a test's own, cleared away with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder can be written to");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Replaces a file at once: a reader finds the old text or the new one, and nothing between.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write("new", text);
        fs::rename(self.path("new"), self.path(name)).expect("the folder can be written to");
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("the folder can be written to");
        text_of(&path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn text_of(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
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

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.word() >> 11) as usize % bound
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.word().to_ne_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}
