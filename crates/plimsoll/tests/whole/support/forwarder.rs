//! A `plimsoll forward` process for a test, and what it is put between.

use std::fmt::Display;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::{Value, json};

pub(crate) use super::running::{Folder, Noise, PATIENCE, connect, text_of, until};
use super::running::{Running, limited, plimsoll};

pub(crate) struct Forwarder(Running);

impl Deref for Forwarder {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.0
    }
}

impl DerefMut for Forwarder {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.0
    }
}

impl Forwarder {
    /// `plimsoll forward --json` with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Forwarder {
        Forwarder::spawn(command(arguments))
    }

    /// The same with a descriptor limit.
    pub(crate) fn start_with_limit(descriptors: usize, arguments: &[&str]) -> Forwarder {
        Forwarder::spawn(limited(&command(arguments), descriptors))
    }

    /// Starts a forwarder from a free port to `destination`.
    pub(crate) fn to(destination: SocketAddr, arguments: &[&str]) -> Forwarder {
        let mapping = format!("127.0.0.1:0={destination}");
        Forwarder::start(&[&[mapping.as_str()], arguments].concat())
    }

    pub(crate) fn spawn(command: Command) -> Forwarder {
        Forwarder(Running::start(command))
    }

    /// A forwarder that was started otherwise.
    pub(crate) fn of(running: Running) -> Forwarder {
        Forwarder(running)
    }

    /// Waits for the end, asserts that nothing leaked, and returns the status, the summary and what
    /// was said.
    pub(crate) fn wait(self) -> (ExitStatus, Value, String) {
        let (status, summary, said) = self.0.wait();
        let nothing = json!({"descriptors": 0, "pipes": 0, "slots": 0, "timers": 0, "buffers": 0, "requests": 0});
        assert_eq!(summary["leaked"], nothing, "{said}");
        (status, summary, said)
    }

    /// Waits for the end of a forwarder that cannot go on, and returns the status and standard
    /// error.
    pub(crate) fn wait_failed(self) -> (ExitStatus, String) {
        self.0.wait_failed()
    }

    /// Stops the forwarder, asserts that it ends well and that nothing leaked, and returns its
    /// summary.
    pub(crate) fn stop(self) -> Value {
        self.signal("TERM");
        let (status, summary, said) = self.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        summary
    }

    /// Stops one that is made to leak, asserts that it ends well, and returns its summary.
    pub(crate) fn stop_leaking(self) -> Value {
        self.0.stop()
    }

    /// Where `[admin]` answers.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.ready["admin"].as_str().expect("an address").parse().expect("an address")
    }

    /// Connections of clients that are open at its first address.
    pub(crate) fn open_connections(&self) -> usize {
        let port = self.address().port();
        let table = fs::read_to_string("/proc/net/tcp").expect("there is one");
        // A client's connection, as the forwarder has it (proc_net_tcp in the kernel's
        // documentation).
        let local = format!(":{port:04X}");
        let is_open = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&local) && ["01", "08"].contains(&fields[3])
        };
        table.lines().skip(1).filter(is_open).count()
    }
}

/// A forwarder whose threads each have this call fail, the one of that number, or as strace has it.
pub(crate) fn injected(call: &str, error: &str, when: impl Display, arguments: &[&str]) -> Forwarder {
    Forwarder::spawn(traced(call, error, when, arguments))
}

/// The same as a command.
pub(crate) fn traced(call: &str, error: &str, when: impl Display, arguments: &[&str]) -> Command {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={when}"));
    let inner = command(arguments);
    let mut outer = Command::new("strace");
    outer.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    plimsoll(&[&["forward", "--json"], arguments].concat())
}

/// A listener on a free port of a loopback address that no other test uses, and its address. When
/// it is dropped the port stays free for the next listener: a port of 127.0.0.1 may be taken by
/// then, also as the source of a connection.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 128 + NEXT.fetch_add(1, Ordering::Relaxed) % 100, high, low);
    let listener = TcpListener::bind((own, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// The next connection that a listener has, whose reads fail rather than wait for ever.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// Makes closing this connection a reset.
pub(crate) fn reset(stream: TcpStream) {
    plimsoll_sys::net::reset_on_close(&stream).expect("a socket takes it");
    drop(stream);
}

/// An echo server that ends each stream when its peer does.
pub(crate) fn echo() -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let echo = move || {
                let (mut stream, mut buffer) = (stream, [0; 4096]);
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().stack_size(64 * 1024).spawn(echo).expect("a thread");
        }
    });
    address
}

pub(crate) fn exchange(stream: &mut TcpStream) {
    stream.write_all(b"hello").expect("it is relayed");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("it is answered");
    assert_eq!(&answer, b"hello");
}

/// What `[admin]` answers.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("there is room");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Answers every connection with one byte that says which server it is, and the byte that came.
pub(crate) fn answer(name: u8) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut stream, mut byte) = (stream, [0]);
                while stream.read_exact(&mut byte).is_ok() {
                    let _ = stream.write_all(&[name, byte[0]]);
                }
            });
        }
    });
    address
}

pub(crate) fn asks(stream: &mut TcpStream) -> u8 {
    let mut reply = [0; 2];
    stream.write_all(b"?").expect("it lives");
    stream.read_exact(&mut reply).expect("it is answered");
    assert_eq!(reply[1], b'?');
    reply[0]
}
