//! Servers that misbehave on purpose, for the generator to meet; and the generator, run as people
//! run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;

/// Listens on a free port and runs `handle` in a thread for each connection, for as long as the
/// test lives.
pub(crate) fn serve(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = Arc::clone(&handle);
            thread::Builder::new().stack_size(256 * 1024).spawn(move || handle(stream)).expect("a thread");
        }
    });
    address
}

/// An address at which every connection is refused, for as long as the tests live: the client's end
/// of a connection, whose port nobody else gets and nobody listens on.
pub(crate) fn refusing() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let client = listener.local_addr().and_then(TcpStream::connect).expect("it listens");
    let (client, _) = Box::leak(Box::new((client, listener)));
    client.local_addr().expect("it is bound")
}

/// One read, again after EINTR, with which a receive with a time-out may end without a signal
/// handler (signal(7)).
pub(crate) fn read_once(mut stream: impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// A server that answers what it has read with what `answer` makes of it, until `answer` says no
/// more.
pub(crate) fn answer(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut stream| {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let Some(bytes) = answer(&buffer[..count]) else { return };
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    })
}

/// An honest echo server.
pub(crate) fn echo() -> SocketAddr {
    answer(|bytes| Some(bytes.to_vec()))
}

/// An echo server that answers `delay(n)` after the n-th request came in.
pub(crate) fn delayed(delay: impl Fn(usize) -> Duration + Send + Sync + 'static) -> SocketAddr {
    let requests = AtomicUsize::new(0);
    serve(move |mut stream| {
        let mut message = [0; 64];
        while stream.read_exact(&mut message).is_ok() {
            sleep(delay(requests.fetch_add(1, Ordering::SeqCst)));
            if stream.write_all(&message).is_err() {
                return;
            }
        }
    })
}

/// What a run of the generator yielded.
#[derive(Clone)]
pub(crate) struct Run {
    /// Its exit code, where 4 counts as 0: that the machine was too busy for the timing to be
    /// trusted is nothing that a test can help. Whether the result was valid, the summary says.
    pub(crate) code: Option<i32>,
    /// Its exit code as it was.
    pub(crate) told: Option<i32>,
    /// The JSON lines of standard output.
    pub(crate) lines: Vec<Value>,
    pub(crate) stderr: String,
}

impl Run {
    /// The summary, in which every request is accounted for.
    pub(crate) fn summary(&self) -> &Value {
        let summary = self.lines.last().unwrap_or_else(|| panic!("no output; standard error: {}", self.stderr));
        assert_eq!(summary["event"], "summary");
        for requests in [&summary["requests"], &summary["warm_up"]["requests"]] {
            let count = |name: &str| requests[name].as_u64().unwrap_or_else(|| panic!("{name} in {requests}"));
            let parts = ["completed", "failed", "timed_out", "in_flight", "unsent"];
            assert_eq!(count("scheduled"), parts.map(count).iter().sum::<u64>(), "{requests}");
        }
        summary
    }

    /// A figure by its path in the summary, such as `requests.completed`.
    pub(crate) fn figure(&self, path: &str) -> f64 {
        let value = path.split('.').fold(self.summary(), |value, name| &value[name]);
        value.as_f64().unwrap_or_else(|| panic!("{path} is {value}"))
    }

    /// A count by its path.
    pub(crate) fn count(&self, path: &str) -> u64 {
        self.figure(path) as u64
    }

    /// The codes of the warnings.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let warnings = self.summary()["warnings"].as_array().expect("a list of warnings");
        warnings.iter().filter_map(|warning| warning["code"].as_str()).collect()
    }
}

/// The command `plimsoll load PROTOCOL TARGET ARGUMENTS --json`, not yet run.
pub(crate) fn command(protocol: &str, target: &str, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["load", protocol, target, "--json", "--quiet"]).args(arguments.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `plimsoll load echo`.
pub(crate) fn load(target: SocketAddr, arguments: &str) -> Run {
    outcome(&command("echo", &target.to_string(), arguments).output().expect("the binary runs"))
}

/// What a finished process said.
pub(crate) fn outcome(output: &Output) -> Run {
    let lines = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("panicked"), "{stderr}");
    let code = output.status.code().map(|code| if code == 4 { 0 } else { code });
    Run { code, told: output.status.code(), lines: lines.lines().map(parse).collect(), stderr }
}

/// Runs the generator and calls `meanwhile` once its window is open.
pub(crate) fn load_while(target: SocketAddr, arguments: &str, meanwhile: impl FnOnce(&Child)) -> Run {
    let mut child = command("echo", &target.to_string(), arguments).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    stdout.read_line(&mut lines).expect("the window opens");
    meanwhile(&child);
    stdout.read_to_string(&mut lines).expect("text");
    let mut output = child.wait_with_output().expect("it ends");
    output.stdout = lines.into_bytes();
    outcome(&output)
}

/// Stops a process for a time, and lets it go on.
pub(crate) fn freeze(process: u32, time: Duration) {
    let kill = |signal: &str| {
        let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
        assert!(status.expect("kill runs").success());
    };
    kill("STOP");
    sleep(time);
    kill("CONT");
}
