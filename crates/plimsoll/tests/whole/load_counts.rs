//! What a count of requests, a warm-up, a pause and an outage do to the generator's counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::books::{answer_once, now};
use crate::support::peer::{answer, command, delayed, echo, load, outcome, serve};
use crate::support::running::until;

const ENGINES: [&str; 4] = ["epoll", "uring", "threads", "fork"];

#[test]
fn a_count_of_few_rounds_behind_a_warm_up_says_that_its_rate_may_be_too_high() {
    let target = delayed(|_| Duration::from_millis(50));
    for engine in ENGINES {
        for (arguments, is_said) in [
            ("-n 4 --warm-up 120ms", true),
            ("--each 2 --warm-up 120ms", true),
            ("-n 4", false),
            ("-n 4 -R 40 --warm-up 120ms", false),
        ] {
            let run = load(target, &format!("-c 4 {arguments} --engine {engine}"));
            assert_eq!(run.code, Some(0), "{engine} {arguments}: {}", run.stderr);
            assert_eq!(run.warnings().contains(&"head_start"), is_said, "{engine} {arguments}: {:?}", run.warnings());
        }
    }
}

#[test]
fn a_count_reaches_as_many_connections_at_once_as_it_can_employ() {
    for engine in ENGINES {
        for more in ["", "-t 4"] {
            if !more.is_empty() && matches!(engine, "threads" | "fork") {
                continue;
            }
            // Nobody is answered before eight requests are there; held up for ever, the run would
            // time out.
            let barrier = Arc::new(Barrier::new(8));
            let target = serve(move |mut stream| {
                let mut message = [0; 64];
                while stream.read_exact(&mut message).is_ok() {
                    barrier.wait();
                    if stream.write_all(&message).is_err() {
                        return;
                    }
                }
            });
            let run = load(target, &format!("-n 8 -c 8 --timeout 20s --engine {engine} {more}"));
            assert_eq!(run.count("requests.completed"), 8, "{engine} {more}: {}", run.summary());
        }
    }
}

#[test]
fn a_count_is_of_the_window_and_not_of_its_warm_up() {
    for engine in ["epoll", "uring", "threads"] {
        for (arguments, count) in
            [("-n 20 -c 4", 20), ("-n 2 -c 4", 2), ("--each 5 -c 4", 20), ("-n 20 -c 4 -R 400", 20)]
        {
            let run = load(
                echo(),
                &format!("{arguments} --think 1ms --warm-up 100ms --engine {engine}")
                    .replace(if arguments.contains("-R") { "--think 1ms" } else { "no such argument" }, ""),
            );
            assert_eq!(run.count("requests.completed"), count, "{engine} {arguments}: {}", run.summary());
            assert!(run.count("warm_up.requests.completed") > 0, "{engine} {arguments}");
            assert!(run.figure("elapsed_s") > 0.0 && run.figure("completed_rate") > 0.0);
        }
    }
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_a_window_at_its_end_and_nothing_in_it() {
    for engine in ENGINES {
        // Every connection is lost to its first request.
        let run = load(answer(|_| None), &format!("--each 5 -c 3 --warm-up 1h --engine {engine}"));
        let told = format!("{engine}: {}", run.summary());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        for end in ["opened_unix_s", "closed_unix_s"] {
            let at = run.figure(&format!("window.{end}"));
            assert!((now - 600.0..=now).contains(&at), "{told}");
        }
        let [scheduled, unsent] = ["scheduled", "unsent"].map(|name| run.count(&format!("requests.{name}")));
        assert_eq!((run.code, run.count("warm_up.requests.failed"), scheduled, unsent), (Some(1), 3, 15, 15), "{told}");
        assert_eq!((run.figure("elapsed_s"), run.figure("generator.cpu_us_per_request")), (0.0, 0.0), "{told}");
    }
}

#[test]
fn a_count_ends_with_its_last_request_and_connections_are_opened_after_it() {
    thread::scope(|scope| {
        for engine in ["epoll", "uring", "threads"] {
            scope.spawn(move || {
                let accepted = Arc::new(Mutex::new(Vec::new()));
                let books = Arc::clone(&accepted);
                let target = serve(move |stream| {
                    books.lock().expect("nobody panics").push(now().as_secs_f64());
                    answer_once(stream);
                });
                // The second connection is opened two seconds after the first.
                let run = load(target, &format!("-n 1 -c 2 --connect-rate 0.5 --engine {engine}"));
                let told = format!("{engine}: {}", run.summary());
                let counts = ["requests.completed", "connections.established"].map(|name| run.count(name));
                assert_eq!((run.code, counts), (Some(0), [1, 2]), "{told}");
                let taken = || accepted.lock().expect("nobody panics").get(1).copied();
                until("the server takes the second connection", || taken().is_some());
                let second = taken().expect("it was waited for");
                let [opened, closed] = ["opened", "closed"].map(|end| run.figure(&format!("window.{end}_unix_s")));
                assert!(closed < second, "it was accepted at {second}: {told}");
                assert!((closed - opened - run.figure("elapsed_s")).abs() < 1e-3, "{told}");
                assert!(run.figure("available_ratio") <= 0.5, "{told}");
            });
        }
    });
}

/// Sends back what comes on a connection, until it ends; how many bytes that were.
fn echo_until_it_ends(mut stream: TcpStream) -> usize {
    let (mut buffer, mut echoed) = (vec![0; 64 * 1024], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer)
        && stream.write_all(&buffer[..count]).is_ok()
    {
        echoed += count;
    }
    echoed
}

#[test]
fn the_end_of_a_count_is_told_although_another_request_cannot_be_sent() {
    const SIZE: usize = 16 << 20;
    for engine in ["epoll", "uring"] {
        let (tell, told) = mpsc::channel();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let target = listener.local_addr().expect("it is bound");
        // The first connection has the only request of the count, the second one of the warm-up.
        let server = thread::spawn(move || {
            let [first, second] = [0; 2].map(|_| listener.accept().expect("a connection").0);
            thread::spawn(|| echo_until_it_ends(first));
            told.recv().expect("the end is told");
            echo_until_it_ends(second)
        });
        let arguments = format!("-n 1 -c 2 -t 1 -s {SIZE} --warm-up 100ms --timeout 60s --engine {engine}");
        let mut child = command("echo", &target.to_string(), &arguments).spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = String::new();
        while !lines.contains("window_closed") {
            assert!(stdout.read_line(&mut lines).expect("text") > 0, "{engine}: {lines}");
        }
        tell.send(()).expect("the server waits for it");
        stdout.read_to_string(&mut lines).expect("text");
        let mut output = child.wait_with_output().expect("it ends");
        output.stdout = lines.into_bytes();
        let run = outcome(&output);
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 1), "{engine}: {}", run.summary());
        // It was not given up before the end was told.
        assert_eq!(server.join().expect("a server"), SIZE, "{engine}: {}", run.summary());
    }
}

#[test]
fn of_a_request_that_nobody_reads_as_many_bytes_are_sent_as_the_kernel_took() {
    thread::scope(|scope| {
        for engine in ["epoll", "uring", "threads"] {
            scope.spawn(move || {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
                let target = listener.local_addr().expect("it is bound");
                // More than the buffers of both sockets hold.
                let run = load(target, &format!("-c 1 -d 2s --barrier -s 16MiB --engine {engine}"));
                let told = format!("{engine}: {}", run.summary());
                assert_eq!(run.count("requests.in_flight"), 1, "{told}");
                // Only now does anybody take it.
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut received = Vec::new();
                stream.read_to_end(&mut received).expect("the end");
                assert_eq!(run.count("bytes_sent"), received.len() as u64, "{told}");
            });
        }
    });
}

#[test]
fn where_each_request_opens_a_connection_none_is_missed_before_its_turn() {
    for engine in ENGINES {
        // The last of them has its turn 0.75 s after the first.
        let run = load(echo(), &format!("-c 4 --each 1 --reconnect --connect-rate 4 --engine {engine}"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 4), "{engine}: {}", run.summary());
        assert!(run.figure("elapsed_s") >= 0.7, "{engine}: {}", run.summary());
        // Processes begin at one instant, as well as the machine lets them.
        assert!(run.figure("available_ratio") > 0.8, "{engine}: {}", run.summary());
    }
}

#[test]
fn processes_that_had_nothing_more_to_send_were_available() {
    // One of two connections is answered a second later than the other.
    let late = delayed(|number| Duration::from_secs(number as u64));
    let run = load(late, "-n 2 -c 2 --engine fork");
    let available = run.figure("available_ratio");
    // The window begins with the first process's, and the second begins milliseconds later.
    assert!(available > 0.75, "{}", run.summary());
}

#[test]
fn nobody_thinks_before_a_request_that_is_never_sent() {
    // With an hour between two requests a run ends only if no connection thinks after its last one.
    for engine in ENGINES {
        let run = load(echo(), &format!("-n 8 -c 8 --think 1h --lockstep --engine {engine}"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(0), 8), "{engine}");
    }
}

#[test]
fn a_server_that_ends_each_connection_is_asked_again_at_once() {
    for engine in ["epoll", "uring", "threads"] {
        let run = load(serve(answer_once), &format!("-n 2000 -c 2 --engine {engine}"));
        let (completed, failed) = (run.count("requests.completed"), run.count("requests.failed"));
        assert_eq!(completed + failed, 2000, "{engine}: {}", run.summary());
        // A wait of 50 to 100 ms after each answer would add up to 50 s and more.
        assert!(run.figure("elapsed_s") < 40.0, "{engine}: {}", run.summary());
        let errors = ["read", "write", "closed"].map(|cause| run.count(&format!("errors.{cause}")));
        assert_eq!(errors.iter().sum::<u64>(), failed, "the errors are the causes of what failed");
    }
}

#[test]
fn an_outage_is_shown_in_the_available_ratio_and_misses_a_limit_on_it() {
    for engine in ["epoll", "uring", "threads"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let target = listener.local_addr().expect("it is bound");
        // Two connections are served for ten answers each, and then nobody listens.
        thread::spawn(move || {
            let streams: Vec<_> = listener.incoming().flatten().take(2).collect();
            drop(listener);
            for mut stream in streams {
                thread::spawn(move || {
                    let mut message = [0; 64];
                    for _ in 0..10 {
                        if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                            return;
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                });
            }
        });
        let limits = "--limit failed_ratio<60% --limit available_ratio>99%";
        let run = load(target, &format!("-d 1s -c 2 --engine {engine} {limits}"));
        let available = run.figure("available_ratio");
        // Some 50 ms of a second, and no more than half of it however slow the machine is.
        assert!(available < 0.75, "{engine}: {available}");
        assert!(run.warnings().contains(&"connections_unavailable"), "{engine}: {:?}", run.warnings());
        let met: Vec<bool> =
            run.summary()["limits"].as_array().into_iter().flatten().map(|l| l["met"] == true).collect();
        assert_eq!(met, [true, false], "{engine}: {}", run.summary());
    }
}
