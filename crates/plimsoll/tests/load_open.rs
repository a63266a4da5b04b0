//! The open loop and the truth of its times: a frozen server shows as pool wait, a late generator as lag, a known delay as itself.

mod peer;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use peer::{Run, command, echo, load, outcome, serve};

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
        // On a busy machine the generator may well have been late, and says so (exit code 4).
        assert!(matches!(run.code, Some(0 | 4)), "{:?}", run.warnings());
        assert_eq!(run.count("requests.completed"), 1000);
        let seconds = run.figure("elapsed_s");
        assert!((0.40..0.8).contains(&seconds), "1000 at 2000 a second took {seconds}");
        assert_eq!(run.count("pool_wait_us.count"), 1000);
        assert_eq!(run.figure("intended_rate"), 2000.0);
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

#[test]
fn a_frozen_server_shows_as_pool_wait_and_response_time_and_not_as_lag() {
    // The shape of the freeze is one of the ten parts of the run, as a second of ten would be.
    let frozen = Arc::new(AtomicBool::new(false));
    let is_frozen = Arc::clone(&frozen);
    let target = delayed(move |_| {
        while is_frozen.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1));
        }
        Duration::ZERO
    });
    let run = load_while(target, "-R 1k -d 4s -c 8 -t 1", |_| {
        sleep(Duration::from_secs(1));
        frozen.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(400));
        frozen.store(false, Ordering::SeqCst);
    });
    assert_eq!((run.code, run.summary()["valid"].as_bool()), (Some(0), Some(true)), "{:?}", run.warnings());
    assert!(run.figure("response_time_us.p99") >= 320_000.0, "{}", run.figure("response_time_us.p99"));
    assert!(run.figure("pool_wait_us.p99") >= 300_000.0);
    assert!(run.figure("schedule_lag_us.p99") < 50_000.0);
    // Only the eight under way when it froze took that long from their send on.
    assert!(run.figure("service_time_us.p99") < 100_000.0 && run.figure("service_time_us.max") >= 350_000.0);
    assert!(run.warnings().contains(&"connections_busy"));
}

#[test]
fn a_generator_that_was_stopped_shows_it_as_its_own_lag_and_in_the_response_time() {
    let run = load_while(echo(), "-R 1k -d 2s -c 64", |child| {
        sleep(Duration::from_millis(500));
        let kill = |signal: &str| {
            let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
            assert!(status.expect("kill runs").success());
        };
        kill("STOP");
        sleep(Duration::from_millis(200));
        kill("CONT");
    });
    assert!(run.figure("schedule_lag_us.p99") >= 150_000.0, "{}", run.figure("schedule_lag_us.p99"));
    assert!(run.figure("response_time_us.p99") >= 150_000.0);
    assert_eq!((run.code, run.summary()["valid"].as_bool()), (Some(4), Some(false)));
    assert!(run.warnings().contains(&"generator_late"));
}

#[test]
fn a_known_delay_is_measured_as_itself() {
    // Every tenth answer takes 50 ms, the others 5 ms.
    let delay = |request: usize| Duration::from_millis(if request % 10 == 9 { 50 } else { 5 });
    for arguments in ["-d 2s -c 10", "-d 2s -c 50 -R 200 --arrivals fixed"] {
        let run = load(delayed(delay), arguments);
        let figure = |name: &str| run.figure(name) / 1000.0;
        // A busy machine adds to a tail, and takes nothing away.
        let near = |value: f64, delay: f64| (delay..delay * 2.0).contains(&value);
        for times in ["response_time_us", "service_time_us"] {
            assert!(near(figure(&format!("{times}.p50")), 5.0), "{arguments}: {}", run.summary()[times]);
            assert!(near(figure(&format!("{times}.p99")), 50.0), "{arguments}: {}", run.summary()[times]);
            assert!(figure(&format!("{times}.min")) >= 5.0);
        }
    }
}

#[test]
fn a_request_that_finds_no_connection_in_time_times_out() {
    let target = serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let run = load(target, "-R 500 --arrivals fixed -d 1s -c 2 -t 1 --timeout 200ms");
    let [scheduled, timed_out, unsent] =
        ["scheduled", "timed_out", "unsent"].map(|name| run.count(&format!("requests.{name}")));
    assert!((495..=505).contains(&scheduled), "{scheduled}");
    assert!(timed_out >= 350, "all but those of the last 200 ms: {timed_out}");
    assert!(unsent >= 50, "{unsent}");
    assert_eq!(run.count("requests.completed"), 0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn connections_that_the_server_ends_are_replaced_and_the_rate_goes_on() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let target = serve(move |mut stream| {
        let mut message = [0; 64];
        for _ in 0..20 {
            if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                return;
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let run = load(target, "-R 500 -d 1s -c 20");
    assert!(run.count("connections.reopened") > 0);
    assert!(run.count("requests.completed") > 200, "{}", run.summary()["requests"]);
}
