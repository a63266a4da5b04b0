//! The open loop and the truth of its times: a frozen server shows as pool wait, a late generator
//! as lag, a known delay as itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::network::Scratch;
use crate::support::peer::{Run, answer, command, delayed, echo, freeze, load, load_while, outcome, serve};
use crate::support::server::Server;

#[test]
fn requests_are_due_at_the_rate_until_their_number_is_reached() {
    for (arrivals, error) in [
        ("fixed", 1e-5),
        // The distances of a thousand of a Poisson process at 2000 a second add up to 0.5 s, give
        // or take 0.016: this is six times as much.
        ("poisson", 0.095),
    ] {
        for engine in ["epoll", "uring", "threads"] {
            let log = Scratch::new(".csv");
            let arguments = format!("-R 2k --arrivals {arrivals} -n 1000 -c 8 --request-log {}", log.path());
            let run = load(echo(), &format!("--engine {engine} {arguments}"));
            assert_eq!((run.code, run.count("requests.completed")), (Some(0), 1000), "{:?}", run.warnings());
            assert_eq!((run.count("pool_wait_us.count"), run.figure("intended_rate")), (1000, 2000.0));
            // However late they were sent, the log has when they were due.
            let due: Vec<f64> = log.text().lines().skip(1).map(intended_start).collect();
            let [first, last] = [due.iter().copied().fold(f64::MAX, f64::min), due.iter().copied().fold(0.0, f64::max)];
            let wrong = (last - first - 999.0 / 2000.0).abs();
            assert!(wrong < error, "{engine}, {arrivals}: 1000 requests are due within {} s", last - first);
            assert!(run.figure("elapsed_s") >= last - first - 1e-5, "{engine}: {}", run.summary());
        }
    }
}

/// When the request of a row of the log was to begin.
fn intended_start(row: &str) -> f64 {
    let cells: Vec<&str> = row.split(',').collect();
    let [ended, response_us] = [0, 4].map(|place: usize| cells[place].parse::<f64>().expect("a number"));
    ended - response_us / 1e6
}

#[test]
fn a_request_waits_in_no_event_loop_while_another_has_a_connection_free() {
    for engine in ["epoll -t 2", "uring -t 2", "threads"] {
        // The connection that is asked first answers once the other has answered all the rest.
        let (asked, answered) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let books = Arc::clone(&answered);
        let in_time = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&in_time);
        let target = serve(move |mut stream| {
            let mut message = [0; 64];
            while stream.read_exact(&mut message).is_ok() {
                if asked.fetch_add(1, Ordering::SeqCst) == 0 {
                    let deadline = Instant::now() + Duration::from_secs(10);
                    while books.load(Ordering::SeqCst) < 50 && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    seen.store(books.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                books.fetch_add(1, Ordering::SeqCst);
                if stream.write_all(&message).is_err() {
                    return;
                }
            }
        });
        let log = Scratch::new(".csv");
        let arguments = format!("-R 500 --arrivals fixed -n 51 -c 2 --request-log {}", log.path());
        let run = load(target, &format!("--engine {engine} {arguments}"));
        assert_eq!(run.count("requests.completed"), 51, "{engine}: {}", run.summary());
        assert_eq!(in_time.load(Ordering::SeqCst), 50, "{engine}: the others waited too: {}", run.summary());
        // None was skipped either, for a schedule of the connection that was busy.
        let mut due: Vec<f64> = log.text().lines().skip(1).map(intended_start).collect();
        due.sort_by(f64::total_cmp);
        let is_next = |pair: &[f64]| (pair[1] - pair[0] - 1.0 / 500.0).abs() < 1e-5;
        assert!(due.windows(2).all(is_next), "{engine}: {due:?}");
    }
}

#[test]
fn the_wait_to_open_a_lost_connection_again_is_told_apart() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        // The first connection ends in place of an answer.
        let met = AtomicUsize::new(0);
        let target = serve(move |mut stream| {
            let is_first = met.fetch_add(1, Ordering::SeqCst) == 0;
            let mut message = [0; 64];
            while stream.read_exact(&mut message).is_ok() && !is_first {
                if stream.write_all(&message).is_err() {
                    return;
                }
            }
        });
        let run = load(target, &format!("--engine {engine} -R 200 --arrivals fixed -n 30 -c 1"));
        let counts = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!(counts, [29, 1], "{engine}: {}", run.summary());
        // It waits for 50 ms or more, and the next request is due 5 ms after the first.
        assert!(run.figure("backoff_wait_us.max") >= 45_000.0, "{engine}: {}", run.summary());
        assert!(run.figure("response_time_us.max") >= 45_000.0, "{engine}: {}", run.summary());
        assert_eq!(run.count("pool_wait_us.count"), 30, "{engine}: {}", run.summary());
    }
}

#[test]
fn a_connection_that_is_lost_again_and_again_hides_no_wait_for_another_that_is_busy() {
    for engine in ["epoll", "uring", "threads"] {
        // One connection is answered slowly, and the other ends in place of an answer, always.
        let met = AtomicUsize::new(0);
        let target = serve(move |mut stream| {
            let is_first = met.fetch_add(1, Ordering::SeqCst) == 0;
            let mut message = [0; 64];
            while stream.read_exact(&mut message).is_ok() && is_first {
                std::thread::sleep(Duration::from_millis(40));
                if stream.write_all(&message).is_err() {
                    return;
                }
            }
        });
        let run = load(target, &format!("--engine {engine} -R 100 --arrivals fixed -n 40 -c 2"));
        let times = |name: &str| run.summary()[name].clone();
        let sum = |name: &str| {
            let of = times(name);
            of["mean"].as_f64().unwrap_or_default() * of["count"].as_f64().unwrap_or_default()
        };
        let (pool, backoff) = (sum("pool_wait_us"), sum("backoff_wait_us"));
        // One of two waits to be opened again, at most: the other half is the busy one's.
        assert!(backoff > 0.0 && pool >= 0.999 * backoff, "{engine}: {pool} and {backoff}: {}", run.summary());
    }
}

#[test]
fn requests_that_time_out_while_connections_wait_to_be_opened_again_waited_for_that() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        // It takes the connection, and after a request it is gone.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let target = listener.local_addr().expect("it is bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            drop(listener);
            drop(stream.read(&mut [0; 64]));
        });
        let arguments = format!("--engine {engine} -R 100 --arrivals fixed -d 2s -c 1 --timeout 200ms");
        let run = load(target, &arguments);
        let sum = |name: &str| {
            let times = &run.summary()[name];
            times["mean"].as_f64().unwrap_or_default() * times["count"].as_f64().unwrap_or_default()
        };
        assert!(run.count("requests.timed_out") > 0, "{engine}: {}", run.summary());
        let (pool, backoff) = (sum("pool_wait_us"), sum("backoff_wait_us"));
        assert!(backoff > pool, "{engine}: {pool} and {backoff}: {}", run.summary());
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

/// Requests of a thousand a second that were due while something was stopped for a sixth of the run
/// waited for it, whatever else the machine did meanwhile; `make measure` tests whose doing it was.
fn assert_the_stop_is_in_the_response_times(run: &Run) {
    assert!(run.figure("response_time_us.p99") >= 450_000.0, "{}", run.summary());
}

#[test]
fn a_server_that_was_frozen_shows_in_the_response_times_of_requests_due_meanwhile() {
    let server = Server::echo("epoll", &["--workers", "1"]);
    for engine in ["epoll", "uring"] {
        let run = load_while(server.address(), &format!("--engine {engine} -R 1k -d 3s -c 8 -t 1"), |_| {
            freeze(server.pid(), Duration::from_millis(500));
        });
        assert_the_stop_is_in_the_response_times(&run);
        // One of the eight under way when it froze.
        assert!(run.figure("service_time_us.max") >= 450_000.0, "{}", run.summary());
    }
}

#[test]
fn a_generator_that_was_stopped_has_it_in_its_lag_and_in_the_response_times() {
    for engine in ["epoll", "uring", "threads"] {
        let arguments = format!("--engine {engine} -R 1k -d 3s -c 64 --limit response_time.p99<1us");
        let run = load_while(echo(), &arguments, |child| freeze(child.id(), Duration::from_millis(500)));
        assert_the_stop_is_in_the_response_times(&run);
        assert!(run.figure("schedule_lag_us.p99") >= 450_000.0, "{}", run.summary());
        assert!(run.warnings().contains(&"generator_late"));
        // A limit that an invalid result misses is not missed.
        assert_eq!((run.told, &run.summary()["valid"]), (Some(4), &false.into()));
    }
}

#[test]
fn no_answer_is_timed_as_faster_than_the_server_gave_it() {
    for arguments in [
        "-d 1s -c 20",
        "-d 1s -c 50 -R 200 --arrivals fixed",
        "-d 1s -c 50 -R 200 --engine uring",
        "-d 1s -c 20 --engine threads",
    ] {
        let run = load(delayed(|_| Duration::from_millis(20)), arguments);
        for times in ["response_time_us", "service_time_us"] {
            assert!(run.figure(&format!("{times}.min")) >= 20_000.0, "{arguments}: {}", run.summary()[times]);
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
    // All but those of the last 200 ms, where the machine lets the generator come to it before the
    // window ends.
    assert!(timed_out >= 100, "{timed_out}");
    assert!(unsent >= 50, "{unsent}");
    assert_eq!(run.count("requests.completed"), 0);
    assert_eq!(run.code, Some(1));
}

#[test]
fn runs_draw_arrivals_of_their_own_unless_they_are_given_a_seed() {
    for engine in ["epoll", "fork"] {
        let seeds = |more: &str| {
            let run = load(echo(), &format!("--engine {engine} -R 1k -n 4 -c 2 {more}"));
            run.summary()["seeds"].as_array().expect("a list").iter().map(|seed| seed.as_u64()).collect::<Vec<_>>()
        };
        assert_eq!(seeds("--seed 5"), [Some(5)]);
        let drawn: Vec<_> = (0..4).map(|_| seeds("")).collect();
        assert!(
            drawn.iter().all(|seeds| seeds.len() == 1) && drawn.iter().any(|seeds| *seeds != drawn[0]),
            "{drawn:?}"
        );
    }
}

#[test]
fn requests_that_timed_out_in_the_queue_hold_up_none_of_those_that_came_later() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        let met = AtomicUsize::new(0);
        let target = serve(move |mut stream| {
            let is_first = met.fetch_add(1, Ordering::SeqCst) == 0;
            let mut message = [0; 64];
            while stream.read_exact(&mut message).is_ok() {
                if !is_first && stream.write_all(&message).is_err() {
                    return;
                }
            }
        });
        // By the time that there is another connection more requests have timed out than are
        // handled in a turn.
        let run = load(target, &format!("--engine {engine} -R 4000 --arrivals fixed -d 2s -c 1 --timeout 200ms"));
        // On a busy machine no answer may be in time: those of the oldest in the queue have next to
        // none left. They are sent all the same.
        let sent = (run.figure("offered_rate") * run.figure("elapsed_s")).round();
        assert!(sent >= 2.0 || run.count("connections.reopened") == 0, "{engine}: {}", run.summary());
    }
}

#[test]
fn what_is_due_just_before_the_end_is_sent_where_a_connection_is_free() {
    // The last arrival is due 10 us before the end, which is less than a timer is late by: of this
    // seed the first is due at once, within a hundred thousandth of a distance. There are more
    // connections than arrivals, so one is free however busy the machine is.
    for (engine, load, scheduled) in [
        ("epoll", "-R 1000 -c 128 -d 100010us", 101),
        ("uring", "-R 1000 -c 128 -d 100010us", 101),
        ("threads", "-R 1000 -c 128 -d 100010us", 101),
        // Each process's second request is due two seconds after its first.
        ("fork", "-R 1 -c 2 -d 2000010us", 3),
    ] {
        let run = self::load(echo(), &format!("--engine {engine} --arrivals fixed --seed 155376 {load}"));
        let counts = [run.count("requests.scheduled"), run.count("requests.unsent")];
        assert_eq!(counts, [scheduled, 0], "{engine}: {}", run.summary());
    }
}

#[test]
fn a_run_that_is_interrupted_in_its_warm_up_has_nothing_in_its_window() {
    for engine in ["epoll", "uring", "threads"] {
        let answered = Arc::new(AtomicUsize::new(0));
        let books = Arc::clone(&answered);
        let target = answer(move |bytes| {
            books.fetch_add(1, Ordering::SeqCst);
            Some(bytes.to_vec())
        });
        let arguments = format!("--engine {engine} -R 5k -c 64 -d 1s --warm-up 1h");
        let child = command("echo", &target.to_string(), &arguments).spawn().expect("the binary runs");
        let deadline = Instant::now() + Duration::from_secs(60);
        while answered.load(Ordering::SeqCst) < 100 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let kill = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let run = outcome(&child.wait_with_output().expect("it ends"));
        let counts = (run.code, run.figure("elapsed_s") > 0.0, run.count("requests.completed"));
        assert_eq!(counts, (Some(130), false, 0), "{engine}: {}", run.summary());
    }
}

#[test]
fn what_is_due_in_a_closed_loop_just_before_the_end_is_sent() {
    for engine in ["epoll", "uring", "threads", "fork"] {
        for _ in 0..3 {
            // The phases of so many pauses lie closer to each other than a timer is late by.
            let connections = if matches!(engine, "threads" | "fork") { 100 } else { 2000 };
            let run = load(echo(), &format!("--engine {engine} -c {connections} -d 50ms --think 50ms"));
            assert_eq!(run.count("requests.unsent"), 0, "{engine}: {}", run.summary());
        }
    }
}

#[test]
fn connections_that_the_server_ends_are_replaced_and_the_rate_goes_on() {
    for engine in ["epoll", "uring", "threads"] {
        let answered = Arc::new(AtomicUsize::new(0));
        let books = Arc::clone(&answered);
        let target = serve(move |mut stream| {
            let mut message = [0; 64];
            for _ in 0..20 {
                if stream.read_exact(&mut message).is_err() {
                    return;
                }
                books.fetch_add(1, Ordering::SeqCst);
                if stream.write_all(&message).is_err() {
                    return;
                }
            }
        });
        let run = load(target, &format!("--engine {engine} -R 1k -n 600 -c 5"));
        let [completed, failed] = ["completed", "failed"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!((completed, completed + failed), (answered.load(Ordering::SeqCst) as u64, 600), "{engine}");
        // A connection loses one request at most, after it has answered twenty.
        assert!(20 * failed <= completed, "{engine}: {}", run.summary());
        assert!(run.count("connections.reopened") >= completed.div_ceil(20) - 5, "{engine}: {}", run.summary());
    }
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
    // Whether they were sent in time or not, as many were due as the rate says; each table's share
    // may round.
    assert!(run.count("requests.scheduled").abs_diff(20_000) <= 4, "{}", run.count("requests.scheduled"));
}
