//! When connections are opened and when requests begin: barriers, connect rates, think times and
//! starts in the future.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::peer::{echo, load};

/// Answers 40 connections three times each, one after the other; how many were up at the first
/// request, and how many were still up before the last answer.
fn count_at_the_first_request_and_the_last(listener: &TcpListener) -> (usize, usize) {
    let mut message = [0; 64];
    let mut streams = vec![listener.accept().expect("a connection").0];
    streams[0].read_exact(&mut message).expect("the first request");
    listener.set_nonblocking(true).expect("a listener");
    // The kernel completes a connect before the server accepts it.
    streams.extend(std::iter::from_fn(|| listener.accept().ok()).map(|(stream, _)| stream));
    let at_first = streams.len();
    streams[0].write_all(&message).expect("room");
    for round in 0..3 {
        for place in usize::from(round == 0)..streams.len() {
            streams[place].set_nonblocking(false).expect("a stream");
            streams[place].read_exact(&mut message).expect("a request");
            if (round, place) == (2, streams.len() - 1) {
                break;
            }
            streams[place].write_all(&message).expect("room");
        }
    }
    let (last, others) = streams.split_last_mut().expect("streams");
    let still_up = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).expect("a stream");
        stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let at_last = 1 + others.iter_mut().map(still_up).filter(|up| *up).count();
    last.write_all(&message).expect("room");
    (at_first, at_last)
}

#[test]
fn behind_a_barrier_all_connections_are_up_from_before_the_first_request_until_after_the_last_answer() {
    // The 39 intervals of 25 ms before the barrier are not in the window.
    for (engine, pace, opening) in
        [("epoll", "--connect-rate 40", 0.975), ("uring", "--connect-rate 40", 0.975), ("threads", "", 0.0)]
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let target = listener.local_addr().expect("an address");
        let server = thread::spawn(move || count_at_the_first_request_and_the_last(&listener));
        let begun = Instant::now();
        let run = load(target, &format!("-c 40 --each 3 --barrier {pace} --engine {engine}"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 120), "{engine}");
        assert_eq!(server.join().expect("a server"), (40, 40), "{engine}");
        let outside = begun.elapsed().as_secs_f64() - run.figure("elapsed_s");
        assert!(outside >= opening, "{engine}: {outside}");
    }
}

#[test]
fn connections_are_opened_at_the_rate_asked_for() {
    // The window begins as the first one is opened, which a busy machine does late.
    let begun = Instant::now();
    let run = load(echo(), "-c 21 --each 1 --connect-rate 100 -t 2");
    assert_eq!(run.count("requests.completed"), 21);
    assert!(begun.elapsed() >= Duration::from_millis(200), "20 intervals of 10 ms");
}

/// When each request was meant to start, by the request log: a row is written at its end.
fn intended_starts(arguments: &str) -> Vec<f64> {
    let path = std::env::temp_dir().join(format!("plimsoll-starts-{}-{}", std::process::id(), arguments.len()));
    let run = load(echo(), &format!("{arguments} --request-log {}", path.display()));
    let text = std::fs::read_to_string(&path).expect("the log is written");
    let _ = std::fs::remove_file(&path);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let names: Vec<&str> = text.lines().next().expect("a header").split(',').collect();
    let place =
        |name: &str| names.iter().position(|each| *each == name).unwrap_or_else(|| panic!("{name} in {names:?}"));
    let (time, response) = (place("time"), place("response_time_us"));
    let start = |line: &str| {
        let number =
            |place: usize| line.split(',').nth(place).and_then(|cell| cell.parse::<f64>().ok()).expect("a number");
        number(time) - number(response) / 1e6
    };
    text.lines().skip(1).map(start).collect()
}

#[test]
fn first_requests_are_spread_over_the_think_time_and_only_lockstep_begins_at_once() {
    let range = |mut starts: Vec<f64>| {
        assert_eq!(starts.len(), 20);
        starts.sort_by(f64::total_cmp);
        starts[19] - starts[0]
    };
    // Times as they were meant to be: a late generator does not move them. That twenty even phases
    // fall within half of the time has a probability of 2 in 100,000.
    let spread = range(intended_starts("-c 20 --each 1 --think 4s -t 1"));
    let lockstep = range(intended_starts("-c 20 --each 1 --think 4s -t 1 --lockstep"));
    assert!((2.0..=4.1).contains(&spread), "{spread} s");
    assert!(lockstep < 2.0, "{lockstep} s");
}

#[test]
fn think_time_separates_requests() {
    for arguments in ["", "--lockstep"] {
        let run = load(echo(), &format!("-c 10 --each 3 --think 50ms {arguments}"));
        assert_eq!(run.count("requests.completed"), 30);
        assert!(run.figure("elapsed_s") >= 0.1, "two pauses");
        assert_eq!((run.count("schedule_lag_us.count"), run.count("service_time_us.count")), (30, 30));
    }
}

#[test]
fn a_start_in_the_future_is_waited_for() {
    // An instant that has passed when the program comes to look at it is refused.
    let at = std::time::SystemTime::now() + Duration::from_secs(5);
    let seconds = at.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let run = load(echo(), &format!("-n 10 -c 1 --start-at {seconds}"));
    assert!(run.lines[0]["unix_s"].as_f64().expect("an instant") >= seconds);
}
