//! Servers that answer requests over HTTP/1.x as a test says, and `plimsoll load http` at them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::peer::{Run, command, outcome, serve};

pub(crate) const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Reads one request without a body: its head.
pub(crate) fn request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Answers every request with the same bytes, in the given pieces; closes after an answer where
/// told to.
pub(crate) fn answering(pieces: &'static [&'static str], close: bool) -> SocketAddr {
    serve(move |mut stream| {
        stream.set_nodelay(true).expect("the socket is open");
        while request(&mut stream).is_some() {
            for piece in pieces {
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
                if pieces.len() > 1 {
                    // So that the pieces arrive apart: what matters is that they may, not that they
                    // do.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if close {
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut [0]);
                return;
            }
        }
    })
}

pub(crate) fn fetch(target: SocketAddr, arguments: &str) -> Run {
    outcome(&command("http", &format!("http://{target}/x"), arguments).output().expect("the binary runs"))
}
