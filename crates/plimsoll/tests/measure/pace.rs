//! Times as the generator measures them, near to what they are; and that a stop is told as the
//! doing of whoever was stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::peer::{Run, command, echo, load, outcome, serve};
use crate::support::server::Server;

/// Whether two of three runs show what they have to: another machine on the same hardware may hold
/// one up.
fn assert_shown_in_two_of_three(mut run: impl FnMut() -> Run, shows: impl Fn(&Run) -> bool) {
    let runs: Vec<Run> = (0..3).map(|_| run()).collect();
    let shown = runs.iter().filter(|run| shows(run)).count();
    assert!(shown >= 2, "in {shown} of {:?}", runs.iter().map(Run::summary).collect::<Vec<_>>());
}

/// Runs the generator and calls `meanwhile` once its window is open.
fn load_while(target: SocketAddr, arguments: &str, meanwhile: impl FnOnce(&Child)) -> Run {
    let mut child = command("echo", &target.to_string(), arguments).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    stdout.read_line(&mut lines).expect("the window opens");
    meanwhile(&child);
    stdout.read_to_string(&mut lines).expect("text");
    let mut output = child.wait_with_output().expect("it ends");
    output.stdout = lines.into_bytes();
    outcome(&output)
}

/// An echo server that answers `delay(n)` after the n-th request came in.
fn delayed(delay: impl Fn(usize) -> Duration + Send + Sync + 'static) -> SocketAddr {
    let requests = AtomicUsize::new(0);
    serve(move |mut stream| {
        let mut message = [0; 64];
        while stream.read_exact(&mut message).is_ok() {
            sleep(delay(requests.fetch_add(1, Ordering::SeqCst)));
            if stream.write_all(&message).is_err() {
                return;
            }
        }
    })
}

/// Stops a process for a time, and lets it go on.
fn freeze(process: u32, time: Duration) {
    let kill = |signal: &str| {
        let status = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
        assert!(status.expect("kill runs").success());
    };
    kill("STOP");
    sleep(time);
    kill("CONT");
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
