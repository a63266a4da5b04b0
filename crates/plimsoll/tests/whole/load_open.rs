//! The open loop and the truth of its times: a frozen server shows as pool wait, a late generator as lag, a known delay as itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::peer::{Run, command, echo, load, outcome, serve, shown_in_one_of_three};
use crate::support::server::Server;

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

#[test]
fn a_rate_is_offered_and_a_count_of_requests_ends_it() {
    for arrivals in ["poisson", "fixed"] {
        let run = load(echo(), &format!("-R 2k --arrivals {arrivals} -n 1000 -c 8"));
        assert_eq!(run.code, Some(0), "{:?}", run.warnings());
        assert_eq!(run.count("requests.completed"), 1000);
        let seconds = run.figure("elapsed_s");
        // The thousandth of a Poisson process at 2000 a second is due after 0.5 s, give or take 0.016; the machine may make it later, and nothing sooner.
        assert!(seconds >= 0.40, "1000 at 2000 a second took {seconds}");
        assert_eq!(run.count("pool_wait_us.count"), 1000);
        assert_eq!(run.figure("intended_rate"), 2000.0);
    }
}

#[test]
fn sending_in_time_takes_no_spinning() {
    for engine in ["epoll", "uring"] {
        let run = load(echo(), &format!("--engine {engine} -R 300 -d 1s -c 4 -t 1"));
        // The best of many: a busy machine may make any of them late, but waits in whole milliseconds would make every one.
        assert!(run.figure("schedule_lag_us.min") < 1000.0, "{engine}: {}", run.summary()["schedule_lag_us"]);
        let cores = run.figure("generator.busiest_thread_cpu_cores");
        assert!(cores < 0.5, "{engine}: {cores} of a core for 300 requests a second");
    }
}

#[test]
fn a_ramp_offers_the_mean_of_its_rates() {
    let run = load(echo(), "-R 0:2k --arrivals fixed -d 1s -c 8 --warm-up 100ms");
    let scheduled = run.count("requests.scheduled");
    assert!((990..=1010).contains(&scheduled), "{scheduled}");
    assert_eq!(run.count("warm_up.requests.scheduled"), 0, "nothing is due before a ramp from 0");
}

#[test]
fn each_connection_carries_its_number_in_an_open_loop_too() {
    let run = load(echo(), "-R 1k --each 5 -c 20 -t 2");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 100));
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
fn a_server_frozen_for_one_second_of_ten_shows_as_pool_wait_and_response_time_and_not_as_lag() {
    let server = Server::echo("epoll", &["--workers", "1"]);
    for engine in ["epoll", "uring"] {
        let frozen = || {
            load_while(server.address(), &format!("--engine {engine} -R 1k -d 10s -c 8 -t 1"), |_| {
                sleep(Duration::from_secs(4));
                freeze(server.pid(), Duration::from_secs(1));
            })
        };
        shown_in_one_of_three(frozen, |run| {
            let told = run.summary();
            let times = |name: &str| run.figure(&format!("{name}_us.p99")) / 1e6;
            let (response, wait, lag) = (times("response_time"), times("pool_wait"), times("schedule_lag"));
            // A tenth of the requests were due while it was frozen, the first of them for all of the second: of all requests one in a hundred waited for 0.9 s or more.
            assert!(response >= 0.8, "{told}");
            // Only the eight under way when it froze took that long from their send on.
            assert!(run.figure("service_time_us.max") >= 0.9e6, "{told}");
            assert!(run.warnings().contains(&"connections_busy"));
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
        shown_in_one_of_three(stopped, |run| {
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
        // A busy machine adds to a time, and takes nothing away.
        shown_in_one_of_three(
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

#[test]
fn a_request_that_finds_no_connection_in_time_times_out() {
    let target = serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let run = load(target, "-R 500 --arrivals fixed -d 1s -c 2 -t 1 --timeout 200ms");
    let [scheduled, timed_out, unsent] =
        ["scheduled", "timed_out", "unsent"].map(|name| run.count(&format!("requests.{name}")));
    assert!((495..=505).contains(&scheduled), "{scheduled}");
    // All but those of the last 200 ms, where the machine lets the generator come to it before the window ends.
    assert!(timed_out >= 100, "{timed_out}");
    assert!(unsent >= 50, "{unsent}");
    assert_eq!(run.count("requests.completed"), 0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn connections_that_the_server_ends_are_replaced_and_the_rate_goes_on() {
    let target = serve(move |mut stream| {
        let mut message = [0; 64];
        for _ in 0..20 {
            if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                return;
            }
        }
    });
    let run = load(target, "-R 500 -n 1000 -c 20");
    assert!(run.count("connections.reopened") > 0);
    // The first twenty connections carry 400.
    assert!(run.count("requests.completed") > 500, "{}", run.summary()["requests"]);
}

#[test]
fn what_is_due_after_the_window_is_not_counted_however_long_closing_takes() {
    // Four tables of one worker, which close one after another.
    let inner = command("echo", &echo().to_string(), "-c 500 -t 1 -R 20k --arrivals fixed -d 1s --timeout 1m");
    let mut limited = Command::new("sh");
    limited.arg("-c").arg("ulimit -n 200; exec \"$0\" \"$@\"").arg(inner.get_program()).args(inner.get_args());
    let run = outcome(&limited.output().expect("the binary runs"));
    assert!(matches!(run.code, Some(0 | 4)), "{:?}", run.warnings());
    assert!(run.count("generator.tables") > 1);
    // Whether they were sent in time or not, as many were due as the rate says; each table's share may round.
    assert!(run.count("requests.scheduled").abs_diff(20_000) <= 4, "{}", run.count("requests.scheduled"));
}
