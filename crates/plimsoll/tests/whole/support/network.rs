//! Namespaces and links for a test, gone when it ends. Needs root and `ip` of iproute2; without,
//! the test says so and is skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Why no namespace can be made here, if so.
pub(crate) fn lacking() -> Option<String> {
    match Command::new("unshare").args(["--net", "ip", "link"]).output() {
        Err(error) => Some(format!("`unshare` of util-linux does not run: {error}")),
        Ok(output) if !output.status.success() => {
            Some(format!("no namespace can be made: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Ok(_) if !std::path::Path::new("/dev/net/tun").exists() => Some("/dev/net/tun is missing".to_owned()),
        Ok(_) => None,
    }
}

/// Returns from a test that cannot run here, after saying why.
#[macro_export]
macro_rules! skip_without_namespaces {
    () => {
        if let Some(reason) = $crate::support::network::lacking() {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// Nothing else on this machine has this name: short enough for an interface with a suffix.
pub(crate) fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("pl{}n{}", std::process::id() % 1_000_000, COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A namespace. It has no name, which would outlive a test that is killed: it lasts as long as the
/// process in it, and that reads from this one until the end.
pub(crate) struct Namespace {
    keeper: Child,
}

impl Namespace {
    pub(crate) fn new() -> Namespace {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = unshare.spawn().expect("unshare starts");
        // It answers from within.
        let (input, output) = (keeper.stdin.as_mut().expect("a pipe"), keeper.stdout.as_mut().expect("a pipe"));
        input.write_all(b"\n").expect("it reads");
        output.read_exact(&mut [0]).expect("a namespace can be made");
        let namespace = Namespace { keeper };
        namespace.output("ip", &["link", "set", "lo", "up"]);
        namespace
    }

    /// What `ip` calls it by.
    pub(crate) fn process(&self) -> String {
        self.keeper.id().to_string()
    }

    /// A command that runs in the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.process(), "--net", "--", program]);
        command
    }

    /// What a program prints here.
    pub(crate) fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("it starts");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// What the kernel counts of a device (proc_pid_net(5), `dev`).
    pub(crate) fn traffic(&self, device: &str) -> Traffic {
        let text = self.output("cat", &["/proc/net/dev"]);
        let row = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let columns: Vec<u64> = row
            .unwrap_or_else(|| panic!("no {device} in {text}"))
            .split_whitespace()
            .map(|column| column.parse().expect("a number"))
            .collect();
        let [received_bytes, received, sent_bytes, sent] = [0, 1, 8, 9].map(|place: usize| columns[place]);
        Traffic { received, received_bytes, sent, sent_bytes }
    }

    /// Moves a device here, gives it an address and brings it up.
    pub(crate) fn plug(&self, device: &str, address: &str) {
        run("ip", &["link", "set", device, "netns", &self.process()]);
        self.output("ip", &["address", "add", address, "dev", device]);
        self.output("ip", &["link", "set", device, "up"]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Packets and bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
}

/// A `plimsoll` command that prints JSON lines until it is stopped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) lines: BufReader<std::process::ChildStdout>,
    pub(crate) ready: Value,
}

impl Running {
    /// Starts a command, and returns once it says that it is ready.
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut running = Running { child, lines, ready: Value::Null };
        running.ready = running.event("ready");
        running
    }

    /// The next line of this kind.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).expect("its output is text");
            assert!(count > 0, "it ended without `{kind}`");
            let value: Value = serde_json::from_str(&line).expect("each line is JSON");
            if value["event"] == kind {
                return value;
            }
        }
    }

    /// Waits until it has ended, and returns what it printed since it was ready.
    pub(crate) fn output(mut self) -> Output {
        let mut output = Output { status: Default::default(), stdout: Vec::new(), stderr: Vec::new() };
        self.lines.read_to_end(&mut output.stdout).expect("its output is a pipe");
        let stderr = self.child.stderr.as_mut().expect("its errors are a pipe");
        stderr.read_to_end(&mut output.stderr).expect("its errors are a pipe");
        output.status = self.child.wait().expect("it can be waited for");
        output
    }

    /// Asks it to end, and returns its summary.
    pub(crate) fn stop(mut self) -> Value {
        run("kill", &["-TERM", &self.child.id().to_string()]);
        let summary = self.event("summary");
        assert!(self.child.wait().expect("it can be waited for").success());
        summary
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that is removed with this.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(suffix: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("{}{suffix}", fresh_name())))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }

    /// What was written there.
    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.0).expect("the file was written")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A folder that is removed with this.
pub(crate) struct ScratchFolder(pub(crate) PathBuf);

impl ScratchFolder {
    pub(crate) fn new() -> ScratchFolder {
        let path = std::env::temp_dir().join(fresh_name());
        std::fs::create_dir(&path).expect("a temporary folder can be made");
        ScratchFolder(path)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Two hosts, 10.0.0.1 and 10.0.0.2, on one link.
pub(crate) struct Pair {
    pub(crate) link: Running,
    pub(crate) hosts: [Namespace; 2],
    pub(crate) devices: [String; 2],
    _config: Scratch,
}

impl Pair {
    /// `keys` are further members of the link's object in the configuration.
    pub(crate) fn new(keys: &str) -> Pair {
        Pair::start(keys, &[])
    }

    /// The same, with further arguments of the link.
    pub(crate) fn start(keys: &str, arguments: &[&str]) -> Pair {
        let devices = [fresh_name(), fresh_name()];
        let config = Scratch::new(".json");
        let [one, other] = &devices;
        let json = format!(r#"{{"devices": ["{one}", "{other}"], "links": [{{"ends": ["{one}", "{other}"]{keys}}}]}}"#);
        std::fs::write(&config.0, json).expect("a temporary file can be written");
        let mut command = Command::new(PLIMSOLL);
        let link = Running::start(command.args(["link", "--json", "--config", config.path()]).args(arguments));
        let hosts = [Namespace::new(), Namespace::new()];
        hosts[0].plug(&devices[0], "10.0.0.1/24");
        hosts[1].plug(&devices[1], "10.0.0.2/24");
        Pair { link, hosts, devices, _config: config }
    }

    /// An echo server on the second host; returns it and where it listens.
    pub(crate) fn echo(&self) -> (Running, String) {
        let mut command = self.hosts[1].command(PLIMSOLL);
        let server =
            Running::start(command.args(["serve", "echo", "--json", "--listen", "10.0.0.2:0", "--workers", "1"]));
        let address = server.ready["addresses"][0].as_str().expect("an address").to_owned();
        (server, address)
    }

    /// Loads it from the first host; returns the summary.
    pub(crate) fn load(&self, address: &str, arguments: &[&str]) -> Value {
        let mut command = self.hosts[0].command(PLIMSOLL);
        let output: Output =
            command.args(["load", "echo", address, "--json", "-t", "1"]).args(arguments).output().expect("load starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        serde_json::from_str(last).expect("its last line is the summary")
    }
}

#[test]
fn a_namespace_ends_with_the_pipe_of_the_program_that_made_it_however_that_ends() {
    skip_without_namespaces!();
    let mut namespace = Namespace::new();
    drop(namespace.keeper.stdin.take());
    assert!(namespace.keeper.wait().expect("it can be waited for").success());
}
