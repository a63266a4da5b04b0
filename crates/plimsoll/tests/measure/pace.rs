//! The generator's times are near the real ones, and the stop of a process shows as that process's
//! doing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::support::books::{BookKeeper, Script, Speaks};
use crate::support::peer::{Run, command, delayed, echo, freeze, load, load_while, outcome};
use crate::support::server::Server;

/// Whether two of three runs show what they have to: another machine on the same hardware may hold
/// one up.
fn assert_shown_in_two_of_three(mut run: impl FnMut() -> Run, shows: impl Fn(&Run) -> bool) {
    let runs: Vec<Run> = (0..3).map(|_| run()).collect();
    let shown = runs.iter().filter(|run| shows(run)).count();
    assert!(shown >= 2, "in {shown} of {:?}", runs.iter().map(Run::summary).collect::<Vec<_>>());
}

#[test]
fn sending_in_time_takes_no_spinning() {
    for engine in ["epoll", "uring"] {
        let run = load(echo(), &format!("--engine {engine} -R 300 -d 1s -c 4 -t 1"));
        // Waits in whole milliseconds would make every one late.
        assert!(run.figure("schedule_lag_us.min") < 1000.0, "{engine}: {}", run.summary()["schedule_lag_us"]);
        let cores = run.figure("generator.busiest_thread_cpu_cores");
        assert!(cores < 0.5, "{engine}: {cores} of a core for 300 requests a second");
    }
}

#[test]
fn polling_before_a_request_is_due_sends_it_in_time() {
    for engine in ["epoll", "uring"] {
        for pace in ["-R 500", "--think 8ms"] {
            let lag = |spin: &str| {
                let run = load(echo(), &format!("--engine {engine} {pace} -d 1s -c 4 -t 1 {spin}"));
                run.figure("schedule_lag_us.p50")
            };
            let ratios: Vec<f64> = (0..5).map(|_| lag("--spin 500us") / lag("")).collect();
            let halved = ratios.iter().filter(|ratio| **ratio < 0.5).count();
            assert!(halved >= 3, "{engine} {pace}: {ratios:?}");
        }
    }
}

#[test]
fn a_server_frozen_for_one_second_of_ten_shows_as_pool_wait_and_response_time_and_not_as_lag() {
    let server = Server::echo("epoll", &["--workers", "1"]);
    for engine in ["epoll", "uring"] {
        let frozen = || {
            load_while(server.address(), &format!("--engine {engine} -R 1k -d 10s -c 8 -t 1"), |_| {
                sleep(Duration::from_secs(4));
                freeze(server.pid(), Duration::from_secs(1));
            })
        };
        assert_shown_in_two_of_three(frozen, |run| {
            let told = run.summary();
            let times = |name: &str| run.figure(&format!("{name}_us.p99")) / 1e6;
            let (response, wait, lag) = (times("response_time"), times("pool_wait"), times("schedule_lag"));
            // A tenth of the requests were due while it was frozen, the first of them for all of
            // the second: of all requests one in a hundred waited for 0.9 s or more.
            assert!(response >= 0.8, "{told}");
            // Only the eight under way when it froze took that long from their send on.
            assert!(run.figure("service_time_us.max") >= 0.9e6, "{told}");
            assert!(run.warnings().contains(&"connections_busy"), "{told}");
            // It is the server's doing, and not the generator's, and the result stays valid.
            let services = wait >= 0.8 * response && times("service_time") <= 0.2 * response;
            services && lag <= 0.2 * response && told["valid"] == true && run.told == Some(0)
        });
    }
}

#[test]
fn a_generator_that_was_stopped_shows_it_as_its_own_lag_and_in_the_response_time() {
    for engine in ["epoll", "uring", "threads"] {
        let arguments = format!("--engine {engine} -R 1k -d 4s -c 64 --limit response_time.p99<1us");
        let stopped = || load_while(echo(), &arguments, |child| freeze(child.id(), Duration::from_millis(200)));
        assert_shown_in_two_of_three(stopped, |run| {
            // One request in twenty was due meanwhile.
            assert!(run.figure("schedule_lag_us.p99") >= 150_000.0, "{}", run.figure("schedule_lag_us.p99"));
            assert!(run.figure("response_time_us.p99") >= 150_000.0);
            assert!(run.warnings().contains(&"generator_late"));
            // A limit that an invalid result misses is not missed.
            (run.told, &run.summary()["valid"]) == (Some(4), &false.into())
        });
    }
}

#[test]
fn a_known_delay_is_measured_as_itself() {
    // Every tenth answer takes 100 ms, the others 20 ms.
    let delay = |request: usize| Duration::from_millis(if request % 10 == 9 { 100 } else { 20 });
    for arguments in [
        "-d 2s -c 20",
        "-d 2s -c 50 -R 200 --arrivals fixed",
        "-d 2s -c 50 -R 200 --engine uring",
        "-d 2s -c 20 --engine threads",
    ] {
        assert_shown_in_two_of_three(
            || load(delayed(delay), arguments),
            |run| {
                ["response_time_us", "service_time_us"].into_iter().all(|times| {
                    let figure = |name: &str| run.figure(&format!("{times}.{name}")) / 1000.0;
                    let (fastest, median, tail) = (figure("min"), figure("p50"), figure("p99"));
                    assert!(fastest >= 20.0 && tail >= 100.0, "{arguments}: {}", run.summary()[times]);
                    median < 40.0 && tail < 200.0
                })
            },
        );
    }
}

/// A server of HTTP with Nagle's algorithm, which writes the head of an answer and then its body.
fn in_two_writes() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it listens");
    let answer = |mut stream: TcpStream| {
        let mut request = [0; 4096];
        // A request comes in one piece, and the next one after its answer.
        while stream.read(&mut request).is_ok_and(|count| count > 0) {
            let body = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
                .and_then(|()| stream.write_all(b"hello"));
            if body.is_err() {
                return;
            }
        }
    };
    spawn(move || listener.incoming().flatten().for_each(|stream| drop(spawn(move || answer(stream)))));
    address
}

#[test]
fn the_rest_of_an_answer_in_two_writes_does_not_wait_for_the_next_request() {
    // The body is sent once the head is acknowledged, which is as it is read. A connection has a
    // request each 150 ms: far more often the generator would acknowledge by sending, and far less
    // often at once.
    let address = in_two_writes();
    let median = |engine: &str| {
        let arguments = format!("--engine {engine} -R 200 -c 30 -d 4s --warm-up 2s");
        let done = command("http", &format!("http://{address}/"), &arguments).output();
        outcome(&done.expect("the binary runs")).figure("response_time_us.p50")
    };
    let ratios: Vec<f64> = (0..3).map(|_| median("epoll") / median("uring")).collect();
    let alike = ratios.iter().filter(|ratio| **ratio < 3.0).count();
    assert!(alike >= 2, "{ratios:?}");
}

/// How much longer than the server's own time the times of an idle machine may be: for the way
/// there and back, and two wake-ups.
const MEDIAN_ABOVE_US: f64 = 500.0;
const P90_ABOVE_US: f64 = 1000.0;

#[test]
fn times_are_little_longer_than_the_servers_own() {
    // A third of the requests each: median and 90th percentile lie amid those of one time.
    const TIMES: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(3)];
    for engine in ["epoll", "uring", "threads", "fork"] {
        for (speaks, scheme) in [(Speaks::Echo, ""), (Speaks::Http, "http://"), (Speaks::Https, "https://")] {
            for pace in ["", "--think 2ms", "-R 200 --arrivals fixed"] {
                let mut shown = Vec::new();
                for _ in 0..3 {
                    let keeper = BookKeeper::start(speaks, Script { times: &TIMES, ..Script::default() });
                    let protocol = if speaks == Speaks::Echo { "echo" } else { "http" };
                    let secure = if speaks == Speaks::Https { "-k" } else { "" };
                    let arguments = format!("--engine {engine} -c 4 -n 200 {pace} {secure}");
                    let load = command(protocol, &format!("{scheme}{}", keeper.address), &arguments).output();
                    let run = outcome(&load.expect("the binary runs"));
                    assert_eq!(run.count("service_time_us.count"), 200, "{arguments}: {}", run.stderr);
                    let mut own: Vec<Duration> = keeper.read(4).handled.iter().map(|each| each.own).collect();
                    own.sort();
                    let above = |name: &str, place: usize| {
                        run.figure(&format!("service_time_us.{name}")) - own[place - 1].as_secs_f64() * 1e6
                    };
                    shown.push((above("p50", 100), above("p90", 180)));
                }
                let kept = shown.iter().filter(|(median, p90)| *median < MEDIAN_ABOVE_US && *p90 < P90_ABOVE_US);
                let kept = kept.count();
                assert!(kept >= 2, "{engine}, {speaks:?}, {pace}: above the server's own by {shown:?} us");
            }
        }
    }
}
