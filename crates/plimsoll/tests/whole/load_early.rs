//! `plimsoll load` against servers that answer before they have the whole request, or go away: each
//! engine says the same of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sys::net::reset_on_close;
use rustls::version::{TLS12, TLS13};

use crate::support::books::tls;
use crate::support::network::Scratch;
use crate::support::peer::{Run, command, load, outcome, serve};

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];

fn fetch(engine: &str, target: SocketAddr, arguments: &str) -> Run {
    let arguments = format!("--engine {engine} {arguments}");
    outcome(&command("http", &format!("http://{target}/"), &arguments).output().expect("the binary runs"))
}

#[test]
fn an_answer_that_is_there_before_the_request_is_read() {
    // A server with no room left says so at once, and reads on, so that no reset overtakes its
    // answer.
    let busy = serve(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for engine in ENGINES {
        let run = fetch(engine, busy, "-c 64 -n 512");
        let told = format!("{engine}: {}", run.summary());
        assert_eq!((run.count("statuses.503"), run.count("requests.timed_out")), (512, 0), "{told}");
    }
}

#[test]
fn the_end_of_a_connection_that_is_there_before_the_request_is_seen() {
    let ending = serve(|mut stream| {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for engine in ENGINES {
        let run = fetch(engine, ending, "-c 64 -n 64");
        assert_eq!((run.count("errors.closed"), run.count("errors.timeout")), (64, 0), "{engine}: {}", run.summary());
    }
}

#[test]
fn the_end_of_a_connection_that_comes_with_the_end_of_its_handshake_is_seen() {
    // In TLS 1.2 the server's part of the handshake is the last.
    let config = Arc::new(tls(&[&TLS12]));
    let ending = serve(move |stream| {
        let mut session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
        let mut stream = &stream;
        while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let load = |engine: &str| {
        let load = format!("--engine {engine} -c 32 -d 9s --timeout 8s --insecure");
        outcome(&command("http", &format!("https://{ending}/"), &load).output().expect("the binary runs"))
    };
    // Side by side: they wait for most of their time.
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || {
                let run = load(engine);
                let told = format!("{engine}: {}", run.summary());
                assert_eq!((run.count("requests.completed"), run.count("errors.timeout")), (0, 0), "{told}");
                assert!(run.count("connections.reopened") > 0, "{told}");
            });
        }
    });
}

/// Reads a request's head, and perhaps a part of its body.
fn read_head(stream: &mut impl Read) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => read.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

#[test]
fn an_answer_counts_though_the_server_resets_the_connection_before_the_request_is_whole() {
    let refusing = serve(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno");
        let _ = reset_on_close(&stream);
    });
    // More than the buffers of both sockets hold.
    let body = Scratch::new(".body");
    std::fs::write(&body.0, vec![0; 20 << 20]).expect("a file");
    for engine in ENGINES {
        let run = fetch(engine, refusing, &format!("-c 4 -n 16 -b {}", body.path()));
        assert_eq!((run.count("statuses.413"), run.count("errors.status")), (16, 16), "{engine}: {}", run.summary());
    }
}

#[test]
fn an_answer_without_a_length_is_not_whole_where_the_connection_is_reset() {
    let breaking = serve(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\na part");
        let _ = reset_on_close(&stream);
    });
    let body = Scratch::new(".body");
    std::fs::write(&body.0, vec![0; 20 << 20]).expect("a file");
    for engine in ENGINES {
        let run = fetch(engine, breaking, &format!("-c 4 -n 8 -b {}", body.path()));
        assert_eq!((run.count("requests.completed"), run.count("requests.failed")), (0, 8), "{engine}");
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

#[test]
fn connections_whose_requests_time_out_have_not_failed() {
    // It answers on its first connections, and then reads on in silence.
    for engine in ENGINES {
        let answered = AtomicU64::new(0);
        let silent = serve(move |mut stream| {
            read_head(&mut stream);
            if answered.fetch_add(1, Ordering::Relaxed) < 3 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let run = fetch(engine, silent, "-c 3 -d 3s --timeout 200ms");
        let told = format!("{engine}: {}", run.summary());
        assert!(run.count("requests.timed_out") > 0, "{told}");
        assert_eq!(run.count("connections.failed"), 0, "{told}");
        assert!(!run.warnings().contains(&"connections_missing"), "{told}");
    }
}

#[test]
fn connections_whose_handshake_does_not_end_cannot_be_opened_again() {
    let config = Arc::new(tls(&[&TLS12]));
    thread::scope(|scope| {
        for engine in ENGINES {
            let (config, met) = (Arc::clone(&config), AtomicU64::new(0));
            let falling_silent = serve(move |stream| {
                if met.fetch_add(1, Ordering::SeqCst) >= 3 {
                    let _ = (&stream).read_to_end(&mut Vec::new());
                    return;
                }
                let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut stream = rustls::StreamOwned::new(session, stream);
                read_head(&mut stream);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
            });
            scope.spawn(move || {
                let load = format!("--engine {engine} -c 3 -d 6s --timeout 4s --insecure");
                let load = command("http", &format!("https://{falling_silent}/"), &load).output();
                let run = outcome(&load.expect("the binary runs"));
                assert_eq!((run.code, run.count("connections.failed")), (Some(1), 3), "{engine}: {}", run.summary());
            });
        }
    });
}

#[test]
fn a_connection_that_is_lost_in_a_pause_still_pauses_for_as_long() {
    // As servers do whose limit for idle connections is shorter than the pause.
    let closing = serve(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        thread::sleep(Duration::from_millis(20));
    });
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || {
                let run = fetch(engine, closing, "-c 16 -n 64 --think 1s");
                // Four of each connection, or more of some: three pauses, less what opening takes.
                assert_eq!(run.count("requests.scheduled"), 64, "{engine}: {}", run.summary());
                assert!(run.figure("elapsed_s") >= 2.5, "{engine}: {}", run.summary());
                assert!(run.count("connections.ended_idle") > 0, "{engine}: {}", run.summary());
            });
        }
    });
}

#[test]
fn a_connection_that_was_away_when_its_request_was_due_makes_no_lag_of_the_generators() {
    const AWAY: Duration = Duration::from_secs(3);
    let config = Arc::new(tls(&[&TLS12]));
    thread::scope(|scope| {
        for engine in ENGINES {
            let (config, met) = (Arc::clone(&config), AtomicU64::new(0));
            // It ends each connection in its first pause, and takes its time for all but the first.
            let slow = serve(move |stream| {
                if met.fetch_add(1, Ordering::SeqCst) >= 2 {
                    thread::sleep(AWAY);
                }
                let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut stream = rustls::StreamOwned::new(session, stream);
                read_head(&mut stream);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                thread::sleep(Duration::from_millis(20));
            });
            scope.spawn(move || {
                let load = format!("--engine {engine} -c 2 -d 6s --think 500ms --lockstep --insecure");
                let load = command("http", &format!("https://{slow}/"), &load).output().expect("the binary runs");
                let run = outcome(&load);
                let told = format!("{engine}: {}", run.summary());
                assert!(run.figure("response_time_us.max") >= 2_000_000.0, "{told}");
                assert!(run.figure("schedule_lag_us.max") < 1_500_000.0, "{told}");
            });
        }
    });
}

#[test]
fn a_connection_of_one_request_is_not_missing_once_its_sequence_is_done() {
    let server = serve(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for engine in ENGINES {
        let run = fetch(engine, server, "-c 2 --each 5 --reconnect --restart-sequence");
        assert_eq!((run.code, run.count("connections.failed")), (Some(0), 0), "{engine}: {}", run.summary());
    }
}

#[test]
fn a_whole_pause_follows_a_request_that_is_lost() {
    // Each request but the first of a connection is lost.
    let breaking = serve(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        read_head(&mut stream);
    });
    thread::scope(|scope| {
        for (engine, phase) in ENGINES.into_iter().flat_map(|engine| [(engine, ""), (engine, "--lockstep")]) {
            scope.spawn(move || {
                let run = fetch(engine, breaking, &format!("-c 16 -n 64 --think 1s {phase}"));
                // Four of each connection, or more of some: three pauses, less what opening takes.
                assert_eq!(run.count("requests.scheduled"), 64, "{engine} {phase}: {}", run.summary());
                assert!(run.figure("elapsed_s") >= 2.5, "{engine} {phase}: {}", run.summary());
                assert!(run.count("requests.failed") > 0, "{engine} {phase}: {}", run.summary());
            });
        }
    });
}

#[test]
fn a_request_timeout_that_comes_in_pieces_while_nothing_is_asked_is_no_answer() {
    let closing = serve(|mut stream| {
        let _ = stream.set_nodelay(true);
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        for piece in ["HTTP/1.1 4", "08", " Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"] {
            thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(piece.as_bytes());
        }
    });
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || {
                let run = fetch(engine, closing, "-c 4 -n 12 --think 2s");
                let told = format!("{engine}: {}", run.summary());
                assert!(run.count("connections.ended_idle") > 0, "{told}");
                assert_eq!(run.count("connections.unrequested"), 0, "{told}");
            });
        }
    });
}

#[test]
fn an_answer_that_comes_with_the_end_of_the_handshake_is_read() {
    // In TLS 1.2 the server's part of the handshake is the last, and its answer goes with it.
    let config = Arc::new(tls(&[&TLS12]));
    // The longer one is of several records.
    for length in [4, 40_000] {
        let config = Arc::clone(&config);
        let busy = serve(move |stream| {
            let mut session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
            let head = format!("HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            session.writer().write_all(head.as_bytes()).expect("room for it");
            session.writer().write_all(&vec![b'x'; length]).expect("room for it");
            let mut stream = &stream;
            while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
            let _ = session.complete_io(&mut stream);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        thread::scope(|scope| {
            for engine in ENGINES {
                scope.spawn(move || {
                    let load = format!("--engine {engine} -c 8 -n 32 --timeout 30s --insecure");
                    let load = command("http", &format!("https://{busy}/"), &load).output().expect("the binary runs");
                    let run = outcome(&load);
                    let told = format!("{engine}: {}", run.summary());
                    assert_eq!((run.count("statuses.503"), run.count("requests.timed_out")), (32, 0), "{told}");
                });
            }
        });
    }
}

#[test]
fn bytes_of_a_request_that_breaks_off_count_as_far_as_they_were_sent() {
    thread::scope(|scope| {
        for engine in ENGINES {
            let (received, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let books = (Arc::clone(&received), Arc::clone(&ended));
            let slow = serve(move |mut stream| {
                // Longer than the time-out. What the kernel has of the request by then still comes.
                thread::sleep(Duration::from_secs(3));
                let mut buffer = vec![0; 1 << 20];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    books.0.fetch_add(count as u64, Ordering::SeqCst);
                }
                books.1.fetch_add(1, Ordering::SeqCst);
            });
            scope.spawn(move || {
                let run = load(slow, &format!("--engine {engine} -c 2 -n 2 -s 16MiB --timeout 200ms"));
                let told = format!("{engine}: {}", run.summary());
                assert_eq!(run.count("requests.timed_out"), 2, "{told}");
                let connections = run.count("connections.established") + run.count("connections.reopened");
                let deadline = Instant::now() + Duration::from_secs(60);
                while ended.load(Ordering::SeqCst) < connections && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(run.count("bytes_sent"), received.load(Ordering::SeqCst), "{told}");
            });
        }
    });
}

#[test]
fn a_handshake_ends_on_both_sides_though_no_request_follows() {
    // In TLS 1.3 the client's part of the handshake is the last.
    let config = Arc::new(tls(&[&TLS13]));
    thread::scope(|scope| {
        for engine in ENGINES {
            let (config, whole) = (Arc::clone(&config), Arc::new(AtomicU64::new(0)));
            let books = Arc::clone(&whole);
            let server = serve(move |stream| {
                let mut session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut stream = &stream;
                while session.is_handshaking() && session.complete_io(&mut stream).is_ok_and(|(read, _)| read > 0) {}
                books.fetch_add(u64::from(!session.is_handshaking()), Ordering::SeqCst);
                let _ = stream.read_to_end(&mut Vec::new());
            });
            scope.spawn(move || {
                let load = format!("--engine {engine} -c 3 -d 1s --think 1h --insecure");
                let load = command("http", &format!("https://{server}/"), &load).output().expect("the binary runs");
                let told = format!("{engine}: {}", outcome(&load).summary());
                let deadline = Instant::now() + Duration::from_secs(60);
                while whole.load(Ordering::SeqCst) < 3 && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(whole.load(Ordering::SeqCst), 3, "{told}");
            });
        }
    });
}
