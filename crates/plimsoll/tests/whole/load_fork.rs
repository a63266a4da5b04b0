//! `plimsoll load --engine fork`: a process for each connection, and one record of them all.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::peer::{Run, answer, command, delayed, echo, load, load_while, outcome, refusing, serve};

fn fork(target: std::net::SocketAddr, arguments: &str) -> Run {
    load(target, &format!("--engine fork {arguments}"))
}

#[test]
fn processes_that_begin_one_after_the_other_have_the_rate_of_the_whole_run() {
    let run = fork(echo(), "-c 20 --connect-rate 10 --each 1");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 20), "{}", run.stderr);
    // The twentieth connects 1.9 s after the first.
    let (seconds, rate) = (run.figure("elapsed_s"), run.figure("completed_rate"));
    assert!(seconds >= 1.8 && (rate * seconds - 20.0).abs() < 1e-6, "{rate}/s over {seconds} s");
    let window = run.figure("window.closed_unix_s") - run.figure("window.opened_unix_s");
    assert!((window - seconds).abs() < 1e-3, "{window}");
}

#[test]
fn counts_are_exact_over_all_processes() {
    let run = fork(echo(), "-n 103 -c 10 -s 100");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 103), "{}", run.stderr);
    assert_eq!((run.count("bytes_sent"), run.count("response_time_us.count")), (10_300, 103));
    assert_eq!((run.count("connections.established"), run.count("connections.requested")), (10, 10));
    assert_eq!((&run.summary()["generator"]["engine"], run.count("generator.threads")), (&"fork".into(), 10));
    let events: Vec<_> = run.lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["window_opened", "window_closed", "summary"]);
    let few = fork(echo(), "-n 3 -c 10");
    assert_eq!((few.count("requests.completed"), few.count("connections.requested")), (3, 3));
    let warned = few.warnings().into_iter().filter(|code| *code == "few_samples").count();
    assert_eq!(warned, 1, "of all of them together: {}", few.summary());
    let enough = fork(echo(), "-n 1000 -c 10");
    assert!(!enough.warnings().contains(&"few_samples"), "each process has fewer: {}", enough.summary());
}

#[test]
fn http_saturation_is_fetched_in_its_own_form() {
    let target = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
    });
    let url = format!("http://{target}/");
    let run =
        outcome(&command("http", &url, "--engine fork --http 1.0 --reconnect -n 100 -c 5").output().expect("it runs"));
    assert_eq!((run.count("requests.completed"), run.count("establishment_time_us.count")), (100, 100));
    assert_eq!(run.count("transmission_time_us.count"), 100);
}

#[test]
fn what_every_process_has_to_say_is_said_once() {
    let gone = refusing();
    let run = fork(gone, "-c 4 --each 5");
    assert_eq!((run.code, run.count("connections.failed"), run.count("requests.unsent")), (Some(1), 4, 20));
    let said = run.summary()["warnings"].to_string();
    let missing = run.warnings().into_iter().filter(|code| *code == "connections_missing").count();
    assert_eq!((missing, said.matches("ECONNREFUSED").count()), (1, 1), "{said}");
    assert!(said.contains("4 of 4 processes"), "{said}");
    let wrong = fork(answer(|bytes| Some(vec![0; bytes.len()])), "--each 5 -c 3");
    assert_eq!((wrong.count("errors.mismatch"), wrong.count("requests.unsent")), (3, 12));
}

#[test]
fn a_process_whose_connection_is_refused_has_no_window_and_makes_no_rate_lower() {
    let gone = refusing();
    // It is given up long before the window of the other opens.
    let run = fork(echo(), &format!("{gone} -c 2 -d 500ms --warm-up 2s"));
    assert_eq!((run.code, run.count("connections.failed")), (Some(1), 1), "{}", run.stderr);
    assert!((0.4999..0.5001).contains(&run.figure("elapsed_s")), "{}", run.summary());
    assert!(run.count("requests.completed") > 0);
}

#[test]
fn a_rate_of_which_a_refused_process_has_a_part_was_not_offered() {
    let gone = refusing();
    // Half of 500 requests, drawn at random: eleven standard deviations below what is too few.
    for rate in ["1000", "0:2000"] {
        let run = fork(echo(), &format!("{gone} -c 2 -d 500ms -R {rate}"));
        assert_eq!(run.figure("intended_rate"), 1000.0, "-R {rate}: {}", run.summary());
        assert!(run.warnings().contains(&"rate_not_offered"), "-R {rate}: {}", run.summary());
    }
}

#[test]
fn a_count_that_processes_draw_apart_and_offer_later_than_asked_for_is_told() {
    // Each draws its own arrivals, and the last of forty single ones comes late.
    let run = fork(echo(), "-n 40 -R 100 -c 40 --seed 5");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 40), "{}", run.stderr);
    assert!(run.figure("offered_rate") < 70.0, "{}", run.summary());
    assert!(run.warnings().contains(&"rate_not_offered"), "{}", run.summary());
    // Processes that wait for a CPU are late, as their run says: it is made again.
    let target = echo();
    let says = |run: &Run, code: &str| run.warnings().contains(&code);
    let late: Vec<Run> = (0..5)
        .map(|_| fork(target, "-n 40 -R 100 -c 40 --arrivals fixed"))
        .take_while(|run| says(run, "rate_not_offered"))
        .collect();
    if let Some(run) = late.iter().find(|run| !says(run, "cpu_contended")) {
        assert!(late.len() < 5, "{}", run.summary());
    }
}

#[test]
fn a_count_that_a_slow_server_keeps_processes_from_offering_is_told() {
    // Two connections carry 200/s, and of 1,000/s the last request has waited for most of the run.
    let slow = delayed(|_| Duration::from_millis(10));
    for arguments in ["", "--engine fork"] {
        let run = load(slow, &format!("-n 100 -R 1000 -c 2 --arrivals fixed {arguments}"));
        assert!(run.warnings().contains(&"rate_not_offered"), "{arguments}: {}", run.summary());
    }
}

#[test]
fn a_signal_ends_every_process_and_is_named_as_the_one_that_came() {
    for (signal, code, name) in [("INT", 130, "interrupt"), ("TERM", 143, "terminate")] {
        let run = signalled_once_open(signal, "-c 4 -d 1h");
        assert_eq!((run.code, run.count("connections.requested")), (Some(code), 4), "{signal}");
        let summary = run.summary();
        assert_eq!(summary["interrupted"], name, "{summary}");
        let warnings = summary["warnings"].as_array().expect("a list of warnings");
        let said: Vec<_> = warnings.iter().filter(|warning| warning["code"] == "interrupted").collect();
        assert_eq!(said.len(), 1, "{summary}");
        assert!(said[0]["message"].to_string().contains(&format!("ended early ({name})")), "{summary}");
    }
}

#[test]
fn connections_that_were_up_one_after_the_other_were_not_up_at_once() {
    let arguments = "--engine fork -c 3 --each 1 --connect-rate 5";
    let run = load(echo(), &format!("{arguments} --limit connections.peak>=2"));
    assert_eq!((run.told, run.count("connections.peak"), run.count("connections.established")), (Some(3), 1, 3));
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let load = load.args(["load", "echo", &echo().to_string()]).args(arguments.split(' '));
    let text = String::from_utf8(load.output().expect("it runs").stdout).expect("text");
    assert!(text.contains("3 of 3 established, at most 1 at once\n"), "{text}");
    let together = fork(echo(), "-c 3 -d 1s");
    assert_eq!(together.count("connections.peak"), 3, "{}", together.summary());
    // Each is lost after its first answer, and opened again.
    let lost = serve(|mut stream| {
        let mut byte = [0];
        if std::io::Read::read(&mut stream, &mut byte).is_ok() {
            let _ = stream.write_all(&byte);
        }
    });
    let lost = fork(lost, "-c 3 -d 1s --size 1 --think 200ms");
    assert_eq!(lost.count("connections.peak"), 3, "{}", lost.summary());
}

#[test]
fn the_window_of_a_run_of_which_a_process_was_killed_is_told_to_its_end() {
    let mut load = command("echo", &echo().to_string(), "--engine fork -c 3 -d 1h");
    let mut child = load.spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    stdout.read_line(&mut lines).expect("the window opens");
    let started = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("it runs");
    let one = started.split_whitespace().next().expect("it has started three").to_owned();
    for (signal, process) in [("KILL", one), ("TERM", child.id().to_string())] {
        assert!(Command::new("kill").args(["-s", signal, &process]).status().expect("kill runs").success());
    }
    stdout.read_to_string(&mut lines).expect("text");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("ended without a result"), "{stderr}");
    let told: Vec<_> = lines.lines().map(|line| line.contains("\"window_closed\"")).collect();
    assert_eq!(told, [false, true], "{lines}");
}

#[test]
fn processes_that_are_ended_before_they_begin_move_no_end_of_the_window() {
    let before = unix_s();
    // The second begins an hour after the first.
    let run = signalled_once_open("TERM", "-c 2 -n 1M --connect-rate 0.0003");
    assert_eq!((run.code, run.count("connections.requested")), (Some(143), 2));
    let [opened, elapsed] = ["window.opened_unix_s", "elapsed_s"].map(|name| run.figure(name));
    assert!(opened >= before && elapsed <= unix_s() - before, "{elapsed} s from {opened} on");
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

#[test]
fn the_window_opens_and_closes_with_the_processes_that_measure() {
    let gone = refusing();
    // One is refused at once, while the other is in its warm-up.
    let run = fork(echo(), &format!("{gone} -c 2 -d 200ms --warm-up 500ms"));
    let told = |event: &str| {
        let line = run.lines.iter().find(|line| line["event"] == event).expect("it is told");
        line["unix_s"].as_f64().expect("an instant")
    };
    for (event, end) in [("window_opened", "opened_unix_s"), ("window_closed", "closed_unix_s")] {
        let stated = run.figure(&format!("window.{end}"));
        assert!((told(event) - stated).abs() < 1e-3, "{event} {}: {}", told(event), run.summary());
    }
}

#[test]
fn a_run_whose_processes_are_all_refused_has_a_window_without_length() {
    let gone = refusing();
    for engine in ["epoll", "uring", "threads", "fork"] {
        let run = load(gone, &format!("--engine {engine} -c 3 -d 200ms"));
        let events: Vec<_> = run.lines.iter().filter_map(|line| line["event"].as_str()).collect();
        assert_eq!(events, ["window_opened", "window_closed", "summary"], "{engine}");
        assert_eq!(run.lines[0]["unix_s"], run.lines[1]["unix_s"], "{engine}");
        assert_eq!((run.code, run.figure("elapsed_s")), (Some(1), 0.0), "{engine}: {}", run.summary());
    }
}

/// The process and those that it started, with what `read` makes of each one's folder in /proc.
fn each_process(of: u32, read: impl Fn(&str) -> f64) -> Vec<f64> {
    let started = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).expect("the kernel tells");
    let numbers = [of.to_string()].into_iter().chain(started.split_whitespace().map(str::to_owned));
    numbers.map(|number| read(&format!("/proc/{number}"))).collect()
}

/// CPU time of all threads of a process (proc_pid_schedstat), in seconds.
fn cpu_s(process: &str) -> f64 {
    let threads = std::fs::read_dir(format!("{process}/task")).expect("it runs").flatten();
    let used = threads.map(|thread| {
        let counts = std::fs::read_to_string(thread.path().join("schedstat")).expect("it runs");
        counts.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds")
    });
    used.sum::<f64>() / 1e9
}

#[test]
fn the_cpu_of_the_process_that_coordinates_is_in_that_of_the_generator() {
    for attempt in 0..20 {
        let (mut used, mut began, mut ended) = (Vec::new(), 0.0, 0.0);
        let run = load_while(echo(), "--engine fork -c 60 -d 4s -R 6", |child| {
            std::thread::sleep(Duration::from_millis(100));
            began = unix_s();
            let before = each_process(child.id(), cpu_s);
            std::thread::sleep(Duration::from_millis(3700 - 150 * attempt));
            used = each_process(child.id(), cpu_s).into_iter().zip(before).map(|(now, then)| now - then).collect();
            ended = unix_s();
        });
        // Where the first window has closed, or the last was yet to open, as on a busy machine, the
        // readings say nothing.
        let [opened, closed] = ["opened", "closed"].map(|end| run.figure(&format!("window.{end}_unix_s")));
        if began < closed - 4.0 || ended > opened + 4.0 {
            continue;
        }
        assert_eq!((used.len(), run.code), (61, Some(0)), "{}", run.summary());
        let told = run.figure("generator.cpu_cores") * run.figure("elapsed_s");
        let least: f64 = used.iter().sum();
        assert!(told >= least, "{told} s, and the coordinator alone used {} s of {least} s", used[0]);
        let each = run.figure("generator.cpu_us_per_request") * run.figure("requests.completed");
        assert!((each / 1e6 / told - 1.0).abs() < 1e-6, "{each} us in {told} s");
        return;
    }
    panic!("no run was looked at in time");
}

/// Memory that a process would give back alone, and what else of it is resident
/// (proc_pid_smaps_rollup), in bytes.
fn memory(process: &str) -> (f64, f64) {
    let rollup = std::fs::read_to_string(format!("{process}/smaps_rollup")).expect("it runs");
    let kib = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells");
        line.trim().split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).expect("a number")
    };
    let own = kib("Private_Clean:") + kib("Private_Dirty:");
    (own * 1024.0, (kib("Rss:") - own) * 1024.0)
}

#[test]
fn a_page_that_processes_share_counts_once_in_the_memory_of_all() {
    let (mut own, mut shared) = (0.0, 0.0_f64);
    let run = load_while(echo(), "--engine fork -c 40 -d 1s -R 40", |child| {
        own = each_process(child.id(), |process| memory(process).0).iter().sum();
        shared = each_process(child.id(), |process| memory(process).1).into_iter().fold(0.0, f64::max);
    });
    let told = run.figure("generator.memory_bytes");
    // They may have more of their own by the end of the window, though far less than they share.
    assert!(told >= 0.9 * own + 0.5 * shared, "{told}: {own} of their own, {shared} shared");
    assert!(told <= 0.5 * 40.0 * shared, "{told}: {own} of their own, {shared} shared");
}

/// A run that is ended by this signal as soon as its window is open.
fn signalled_once_open(signal: &str, arguments: &str) -> Run {
    let mut load = command("echo", &echo().to_string(), &format!("--engine fork {arguments}"));
    let mut child = load.spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    stdout.read_line(&mut lines).expect("the window opens");
    let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    stdout.read_to_string(&mut lines).expect("text");
    let mut output = child.wait_with_output().expect("it ends");
    output.stdout = lines.into_bytes();
    outcome(&output)
}

#[test]
fn what_processes_cannot_do_is_refused() {
    for arguments in ["-t 2", "--barrier", "--per-connection", "--csv=tcpbenchmark"] {
        let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        load.args(["load", "echo", "127.0.0.1:7", "--engine", "fork"]).args(arguments.split_whitespace());
        let output = load.output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_signal_after_the_windows_of_all_processes_has_cut_none_short() {
    // What it is asked stays under way, so that the processes do not end with their windows.
    let silent = serve(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let mut child = command("echo", &silent.to_string(), "--engine fork -c 2 -d 100ms").spawn().expect("it runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    while !lines.contains("\"window_closed\"") {
        assert!(stdout.read_line(&mut lines).expect("a line") > 0, "it ended before its windows closed: {lines}");
    }
    let kill = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    stdout.read_to_string(&mut lines).expect("text");
    let mut output = child.wait_with_output().expect("it ends");
    output.stdout = lines.into_bytes();
    let run = outcome(&output);
    // The processes go on for a second; this one may be kept from a CPU for longer.
    assert!([Some(143), Some(1)].contains(&run.told), "{}", run.stderr);
    assert_eq!((run.summary().get("interrupted"), run.count("requests.in_flight")), (None, 2), "{}", run.summary());
    assert!(!run.warnings().contains(&"interrupted"), "{}", run.summary());
}

#[test]
fn a_run_that_is_interrupted_twice_still_says_what_it_counted() {
    let (asked, requests) = mpsc::channel();
    let silent = serve(move |mut stream| {
        stream.read_exact(&mut [0]).expect("a request");
        asked.send(()).expect("the test waits for it");
        drop(stream.read_to_end(&mut Vec::new()));
    });
    for engine in ["epoll", "uring", "threads", "fork"] {
        let arguments = format!("--engine {engine} -c 4 -d 1h");
        let mut child = command("echo", &silent.to_string(), &arguments).spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = String::new();
        for event in ["window_opened", "window_closed"] {
            stdout.read_line(&mut lines).expect("a line");
            assert!(lines.contains(event), "{engine}: {lines}");
            if event == "window_opened" {
                requests.iter().take(4).for_each(drop);
            }
            let kill = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
            assert!(kill.expect("kill runs").success(), "{engine}");
        }
        stdout.read_to_string(&mut lines).expect("text");
        let mut output = child.wait_with_output().expect("it ends");
        output.stdout = lines.into_bytes();
        let run = outcome(&output);
        let in_flight = run.count("requests.in_flight");
        // The processes are told when the first window is open. One whose window is not, as it had
        // no CPU yet, has warmed up until then, and its request is no part of what is counted.
        let fewest = if engine == "fork" { 1 } else { 4 };
        assert!(run.code == Some(130) && (fewest..=4).contains(&in_flight), "{engine}: {in_flight} {}", run.stderr);
    }
}
