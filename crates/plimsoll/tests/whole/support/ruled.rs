//! A forwarder with one rule, and clients of it from chosen addresses.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use super::forwarder::{Folder, Forwarder, PATIENCE, text_of, until};
use super::peer::read_once;

/// A forwarder with one rule, at a free port, and its log.
pub(crate) struct Ruled {
    pub(crate) forwarder: Forwarder,
    pub(crate) folder: Folder,
}

impl Ruled {
    pub(crate) fn new(to: &[SocketAddr], settings: &str) -> Ruled {
        Ruled::with(&["--workers", "1"], to, settings)
    }

    pub(crate) fn with(arguments: &[&str], to: &[SocketAddr], settings: &str) -> Ruled {
        let folder = Folder::new();
        let to: Vec<String> = to.iter().map(|address| format!("\"{address}\"")).collect();
        let table = format!("[forward.\"127.0.0.1:0\"]\nto = [{}]\n{settings}\n", to.join(", "));
        let (config, log) = (folder.write("forward.toml", &table), text_of(&folder.path("log.csv")));
        let forwarder = Forwarder::start(&[&["--config", &config, "--log", &log], arguments].concat());
        Ruled { forwarder, folder }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.forwarder.connect()
    }

    /// The last two columns of each row of the log, when there are as many.
    pub(crate) fn ends(&self, count: usize) -> Vec<(String, String)> {
        let read = || fs::read_to_string(self.folder.path("log.csv")).unwrap_or_default();
        until(&format!("the log has {count} rows"), || read().lines().count() > count);
        let end = |line: &str| {
            let mut fields = line.rsplit(',');
            let error = fields.next().unwrap_or_default().to_owned();
            (fields.next().unwrap_or_default().to_owned(), error)
        };
        read().lines().skip(1).map(end).collect()
    }
}

/// A connection from an address of this machine.
pub(crate) fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = plimsoll_sys::net::connect(address, Some(IpAddr::from(source)), plimsoll_sys::net::Mode::Blocking);
    let stream = TcpStream::from(socket.expect("connections are taken"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// Whether the other side cuts the connection off without a byte. The reset is told to whichever
/// call comes first: a read after a write that was told of it sees an end of the stream.
pub(crate) fn is_cut_off(mut stream: TcpStream) -> bool {
    let is_reset = |kind: ErrorKind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    match stream.write_all(b"?").and_then(|()| read_once(&stream, &mut [0])) {
        Ok(_) => false,
        Err(error) => is_reset(error.kind()),
    }
}
