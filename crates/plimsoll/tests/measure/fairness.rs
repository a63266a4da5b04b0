//! A peer that floods and a peer that stalls: the response times of the worker's other connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::support::server::Server;

/// One who floods has hundreds of requests under way at any time, and one who stalls asks for a
/// gigabyte and takes nothing of it. Gone when dropped.
struct Disturbance {
    flooding: TcpStream,
    stalled: TcpStream,
}

impl Disturbance {
    fn of(server: &Server) -> Disturbance {
        let mut stalled = server.connect();
        stalled.write_all(b"GET /bytes/1000000000 HTTP/1.1\r\nHost: test\r\n\r\n").expect("the server reads");
        let flooding = server.connect();
        let (mut writer, mut reader) =
            (flooding.try_clone().expect("a stream can be cloned"), flooding.try_clone().expect("and again"));
        std::thread::spawn(move || {
            let requests = REQUEST.repeat(500);
            while writer.write_all(requests.as_bytes()).is_ok() {}
        });
        let mut first = [0; 15];
        reader.read_exact(&mut first).expect("the flood is answered");
        std::thread::spawn(move || {
            let mut waste = vec![0; 1 << 18];
            while reader.read(&mut waste).is_ok_and(|length| length > 0) {}
        });
        Disturbance { flooding, stalled }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        let _ = self.flooding.shutdown(Shutdown::Both);
        let _ = self.stalled.shutdown(Shutdown::Both);
    }
}

/// Each costs the server a millisecond of CPU time, so that response times depend on the order of
/// service and little else.
const REQUEST: &str = "GET /burn/1ms/100 HTTP/1.1\r\nHost: test\r\n\r\n";

/// The 99th percentile of the times of 208 answers, of requests that sixteen connections make
/// together.
fn p99(streams: &mut [TcpStream]) -> Duration {
    let mut times = Vec::new();
    let mut answer = vec![0; 1 << 16];
    for _ in 0..13 {
        let start = Instant::now();
        streams.iter_mut().for_each(|stream| stream.write_all(REQUEST.as_bytes()).expect("the server reads"));
        for stream in &mut *streams {
            let _ = stream.read(&mut answer).expect("the server answers");
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[test]
fn beside_one_who_floods_and_one_who_stalls_the_others_p99_stays_within_twice_the_quiet_one() {
    // `make soak` asks for more.
    let asked = std::env::var("PLIMSOLL_FAIRNESS_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = asked.unwrap_or(4);
    for model in ["select", "poll", "epoll", "epoll-et", "uring"] {
        let server = Server::http(model, &["--synthetic", "--workers", "1"]);
        let mut streams: Vec<TcpStream> = (0..16).map(|_| server.connect()).collect();
        let (mut quiet, mut disturbed) = (Duration::MAX, Duration::MAX);
        // In turn, and the best of each: whatever else this machine does meanwhile is in neither.
        // Where it does much, more rounds find a quiet moment.
        for round in 0..10 * rounds {
            if round >= rounds && disturbed < 2 * quiet {
                break;
            }
            quiet = quiet.min(p99(&mut streams));
            let disturbance = Disturbance::of(&server);
            disturbed = disturbed.min(p99(&mut streams));
            drop(disturbance);
        }
        eprintln!("{model}: p99 {quiet:?}, beside a flood and a stall {disturbed:?}");
        // Half a second of the flood's work is under way at any time; served in the order of
        // arrival, all would wait for it.
        assert!(disturbed < 2 * quiet, "{model}: {disturbed:?} beside them, {quiet:?} without");
    }
}
