//! `plimsoll load` against servers that answer before they have the whole request, or go away: each
//! engine says the same of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::support::peer::{Run, command, outcome};

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];

fn fetch(engine: &str, target: SocketAddr, arguments: &str) -> Run {
    let arguments = format!("--engine {engine} {arguments}");
    outcome(&command("http", &format!("http://{target}/"), &arguments).output().expect("the binary runs"))
}

/// Reads a request's head, and perhaps a part of its body.
fn read_head(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => read.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

/// A server that answers one request on each of so many connections, and then is gone.
fn gone_after(connections: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().flatten().take(connections).collect();
        drop(listener);
        for mut stream in streams {
            read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    address
}

#[test]
fn connections_that_cannot_be_opened_again_have_failed() {
    for engine in ENGINES {
        let run = fetch(engine, gone_after(3), "-c 3 -d 3s");
        let told = format!("{engine}: {}", run.summary());
        assert_eq!((run.code, run.count("connections.failed")), (Some(1), 3), "{told}");
        // Each loses the request that finds no server, and no other is begun.
        let of = |name: &str| run.count(&format!("warm_up.requests.{name}")) + run.count(&format!("requests.{name}"));
        assert_eq!((of("completed"), of("failed")), (3, 3), "{told}");
        assert!(run.warnings().contains(&"connections_missing"), "{told}");
    }
}
