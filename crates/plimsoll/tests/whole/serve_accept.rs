//! What every accept strategy must do under every model that can have it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::server::{Noise, Server, assert_echoes, until};

/// Every pair that there is.
const PAIRS: [(&str, &[&str]); 5] = [
    ("select", &["single", "handoff", "reuseport"]),
    ("poll", &["single", "handoff", "reuseport"]),
    ("epoll", &["single", "handoff", "exclusive", "reuseport"]),
    ("epoll-et", &["single", "handoff", "exclusive", "reuseport"]),
    ("uring", &["single", "handoff", "exclusive", "reuseport"]),
];

fn for_every_pair(test: impl Fn(&str, &[&str])) {
    for (model, strategies) in PAIRS {
        for strategy in strategies {
            let workers: &[&str] = if *strategy == "single" { &[] } else { &["--workers", "3"] };
            test(model, &[&["--accept", strategy], workers].concat());
        }
    }
}

#[test]
fn every_connection_is_served_and_counted_at_its_worker() {
    for_every_pair(|model, arguments| {
        let server = Server::echo(model, arguments);
        let mut streams: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
        for (number, stream) in streams.iter_mut().enumerate() {
            assert_echoes(stream, &Noise::new(number as u64).bytes(100 + number * 50));
        }
        drop(streams);
        let summary = server.stop();
        let each: Vec<u64> = summary["connections_per_worker"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|count| count.as_u64().expect("a number"))
            .collect();
        assert_eq!(each.len(), if arguments.contains(&"single") { 1 } else { 3 }, "{model} {arguments:?}: {summary}");
        assert_eq!(each.iter().sum::<u64>(), 200, "{model} {arguments:?}: {summary}");
        assert_eq!(summary["connections"], 200, "{model} {arguments:?}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{model} {arguments:?}");
        if arguments.contains(&"handoff") {
            // All were open at once, so each went to one with no more than the others.
            assert!(each.iter().all(|count| (66..=67).contains(count)), "{model}: {each:?}");
        }
    });
}

#[test]
fn few_places_are_used_as_well_by_several_workers_as_by_one() {
    // More clients than places, each with a connection per message.
    let takes = |model: &str, accept: &[&str]| {
        let server = Server::echo(model, &[&["--max-connections", "2"], accept].concat());
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..250).for_each(|_| assert_echoes(&mut server.connect(), b"x")));
            }
        });
        let elapsed = start.elapsed();
        assert_eq!(server.stop()["peak_connections"], 2);
        elapsed
    };
    for model in ["epoll", "uring"] {
        let one = takes(model, &["--accept", "single"]);
        for strategy in ["handoff", "exclusive", "reuseport"] {
            let several = takes(model, &["--workers", "2", "--accept", strategy]);
            assert!(several < 10 * one + Duration::from_secs(2), "{model} {strategy}: {several:?}, one {one:?}");
        }
    }
}

#[test]
fn http_is_served_and_a_drain_finishes_what_is_under_way() {
    for_every_pair(|model, arguments| {
        let server = Server::http(model, &[&["--synthetic", "--drain", "60s"], arguments].concat());
        let mut busy: Vec<TcpStream> = (0..6).map(|_| server.connect()).collect();
        for stream in &mut busy {
            stream.write_all(b"GET /bytes/5000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
        }
        let mut first = [0; 15];
        for stream in &mut busy {
            stream.read_exact(&mut first).expect("the server answers");
            assert_eq!(&first, b"HTTP/1.1 200 OK");
        }
        server.terminate();
        for stream in &mut busy {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("all of it comes");
            let end = rest.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
            assert_eq!(rest.len() - end, 5_000_000, "{model} {arguments:?}");
        }
        assert_eq!(server.wait().0.code(), Some(0), "{model} {arguments:?}");
    });
}

#[test]
fn a_worker_of_a_handoff_grows_by_tables() {
    for model in ["poll", "epoll", "epoll-et", "uring"] {
        let server = Server::echo_with_limit(model, 64, &["--accept", "handoff", "--workers", "2"]);
        let mut streams: Vec<TcpStream> = (0..150).map(|_| server.connect()).collect();
        for stream in &mut streams {
            assert_echoes(stream, b"past one table");
        }
        let summary = {
            drop(streams);
            server.stop()
        };
        assert_eq!(summary["peak_connections"], 150, "{model}: {summary}");
    }
}

#[test]
fn a_connection_on_its_way_to_a_worker_does_not_stay_open_in_a_table_that_is_added_meanwhile() {
    for model in ["poll", "epoll", "epoll-et", "uring"] {
        // So few descriptors may be on their way at once that there is always one in the acceptor's
        // hand, while tables are added.
        let server = Server::echo_with_limit(model, 64, &["--accept", "handoff", "--workers", "1"]);
        let mut streams: Vec<TcpStream> = (0..400).map(|_| server.connect()).collect();
        for stream in &mut streams {
            assert_echoes(stream, b"past one table");
        }
        for mut stream in streams {
            stream.shutdown(std::net::Shutdown::Write).expect("it is connected");
            assert_eq!(stream.read_to_end(&mut Vec::new()).expect("the server closes it"), 0, "{model}");
        }
        server.stop();
    }
}

#[test]
fn a_table_that_cannot_be_added_pauses_accepting_and_stops_nothing() {
    if !crate::support::server::may_trace() {
        return;
    }
    // From now on no thread gets a table of its own, or no loop what it waits by.
    for (model, call) in [
        ("poll", "unshare"),
        ("epoll", "unshare"),
        ("epoll-et", "unshare"),
        ("epoll", "epoll_create1"),
        ("epoll-et", "epoll_create1"),
        ("uring", "io_uring_setup"),
    ] {
        let mut server = Server::echo_with_limit(model, 64, &["--workers", "1"]);
        // The first table is there once it answers: without one, a server rightly stops.
        assert_echoes(&mut server.connect(), b"up");
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=ENOMEM"));
        let mut strace = Command::new("strace")
            .args(["-f", "-p", &server.pid().to_string(), "-o", "/dev/null", "-e", &trace, "-e", &inject])
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is here");
        let mut said = BufReader::new(strace.stderr.take().expect("piped"));
        said.read_line(&mut String::new()).expect("it says that it has attached");
        let mut streams: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
        assert_echoes(&mut streams[0], b"served");
        assert!(server.sentence().contains("no descriptor table can be added"), "{model}, {call}");
        until("nobody tries again and again", || server.is_quiet());
        for mut stream in streams {
            // Each makes room for one that waits.
            assert_echoes(&mut stream, b"and now me");
        }
        strace.kill().expect("it runs");
        strace.wait().expect("a status");
        server.stop();
    }
}

#[test]
fn past_the_most_connections_accepting_pauses_and_goes_on_when_one_ends() {
    let limited = |model: &str, arguments: &[&str]| {
        let server = Server::echo(model, &[&["--max-connections", "5"], arguments].concat());
        let mut streams: Vec<TcpStream> = (0..5).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream.write_all(b"in").expect("the server reads");
        }
        let mut answer = [0; 2];
        let mut rest: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
        // Where each worker has a queue of its own, the five may not be those that came first.
        if !arguments.contains(&"reuseport") {
            streams.iter_mut().for_each(|stream| stream.read_exact(&mut answer).expect("it is served"));
            rest[0].write_all(b"in").expect("the kernel takes it");
            rest[0].set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout can be set");
            assert!(rest[0].read_exact(&mut answer).is_err(), "{model} {arguments:?}: a sixth is served");
            rest[0].set_read_timeout(Some(crate::support::server::PATIENCE)).expect("a timeout can be set");
            rest.remove(0);
        }
        drop(streams);
        // Where each worker has a queue of its own, whose place is free may not be where one waits:
        // they end one by one.
        for mut stream in rest.drain(..) {
            if arguments.contains(&"reuseport") {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            } else {
                assert_echoes(&mut stream, b"and now me");
            }
        }
        until("all have been served", || server.queued() == 0);
        let summary = server.stop();
        assert!(summary["peak_connections"].as_u64() <= Some(5), "{model} {arguments:?}: {summary}");
    };
    for model in ["threads", "fork"] {
        limited(model, &[]);
    }
    for_every_pair(limited);
}

#[test]
fn what_a_model_cannot_have_is_refused_with_the_way_out() {
    for (arguments, part) in [
        (&["--model", "select", "--accept", "exclusive"][..], "use handoff or reuseport"),
        (&["--model", "threads", "--accept", "reuseport"], "leave --accept out"),
        (&["--accept", "single", "--workers", "2"], "leave --workers out"),
        (&["--accept", "random"], "use one of single, handoff, exclusive, reuseport"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "echo"])
            .args(arguments)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{arguments:?}: {output:?}");
    }
}

#[test]
fn past_the_limit_each_address_has_its_turn() {
    let alone = [("threads", None), ("fork", None)].into_iter();
    let pairs =
        PAIRS.iter().flat_map(|(model, strategies)| strategies.iter().map(|strategy| (*model, Some(*strategy))));
    for (model, strategy) in alone.chain(pairs) {
        let workers = if strategy.is_some() { &["--workers", "1"][..] } else { &[] };
        let accept: Vec<&str> = strategy.iter().flat_map(|strategy| ["--accept", strategy]).collect();
        let limits = ["--max-connections", "1", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
        let server = Server::echo(model, &[&limits, workers, &accept].concat());
        let connect = |listener: usize| {
            let mut stream = TcpStream::connect(server.addresses()[listener]).expect("its queue has room");
            stream.write_all(b"x").expect("the kernel takes it");
            stream.set_nonblocking(true).expect("it can be set");
            stream
        };
        let first = connect(0);
        until("the only place is taken", || (&first).read(&mut [0]).is_ok());
        // All of them queue in the kernel, most of them at the first address.
        let mut queued: Vec<(usize, TcpStream)> = [0, 0, 0, 0, 0, 0, 1].map(|of| (of, connect(of))).into();
        drop(first);
        let mut served = Vec::new();
        while served.len() < 2 {
            until("another is served", || queued.iter().any(|(_, stream)| stream.peek(&mut [0]).is_ok()));
            let next = queued.iter().position(|(_, stream)| stream.peek(&mut [0]).is_ok()).expect("just seen");
            served.push(queued.remove(next).0);
        }
        assert!(served.contains(&1), "{model} {strategy:?}: {served:?}");
    }
}
