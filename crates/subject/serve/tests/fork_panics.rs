//! A connection of the model `fork` whose service panics: its peer gets a reset, its end is
//! counted, and the server goes on.
//!
//! A program of its own, without the test harness: that has several threads, and `fork` is refused
//! there. It runs itself once more as the server.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_serve::service::{NextStep, Output, Processed, Service, ServiceContext};
use plimsoll_serve::{Config, Model, Server, Strategy};
use plimsoll_sys::signal::{Signal, Signals};

/// Set where this program is the server.
const SERVES: &str = "PLIMSOLL_FORK_PANICS_SERVES";
/// Only against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Panics;

impl Service for Panics {
    fn is_timed(&self) -> bool {
        false
    }

    fn send_timeout(&self) -> Option<Duration> {
        None
    }

    fn opened(&mut self, _: &impl ServiceContext) -> Option<Instant> {
        None
    }

    fn receive(&mut self, _: &[u8], _: &mut impl ServiceContext, _: &mut Output) -> Processed {
        panic!("as a fault of the service would")
    }

    fn expired(&mut self, _: bool, _: &mut impl ServiceContext, _: &mut Output) -> NextStep {
        NextStep::Close
    }
}

fn main() {
    if env::var_os(SERVES).is_some() { serve() } else { a_connection_that_panics_is_reset_and_counted() }
}

/// Writes its address, and what was counted once it is told to end.
fn serve() {
    let signals = Signals::take(&[Signal::Terminate, Signal::Child]).expect("this thread is alone");
    let config = Config {
        model: Model::Fork,
        listen: vec!["127.0.0.1:0".parse().expect("an address")],
        workers: 1,
        accept: Strategy::Single,
        drain: PATIENCE,
        max_connections: None,
        root: None,
        connection_log: None,
    };
    let server = Server::bind(config, Box::new(|_| {})).expect("a free port");
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", server.addresses()[0]).expect("it is read");
    let totals = server.run(Panics, &signals).expect("it ends well");
    writeln!(stdout, "{:?} {:?}", totals.errors, totals.leaked.is_nothing()).expect("it is read");
}

/// A process that is gone by the end of the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_connection_that_panics_is_reset_and_counted() {
    let this = env::current_exe().expect("a path");
    let mut command = Command::new(this);
    command.env(SERVES, "1").env("RUST_BACKTRACE", "0").stdout(Stdio::piped());
    let mut server = Ended(command.spawn().expect("it starts"));
    let mut told = BufReader::new(server.0.stdout.take().expect("piped"));
    let mut address = String::new();
    told.read_line(&mut address).expect("an address");
    for connection in 0..2 {
        let mut client = TcpStream::connect(address.trim()).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        client.write_all(b"x").expect("the child reads");
        let end = client.read(&mut [0]).map_err(|error| error.kind());
        // An end of the stream would say that all was sent.
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "connection {connection}");
    }
    let status = Command::new("kill").arg(server.0.id().to_string()).status().expect("kill runs");
    assert!(status.success());
    let mut counted = String::new();
    told.read_to_string(&mut counted).expect("text");
    assert_eq!(counted, "{\"child_failed\": 2} true\n");
    assert!(server.0.wait().expect("a status").success());
}
