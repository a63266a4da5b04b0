//! What `plimsoll load` records beside its summary, and the forms of other tools that it writes.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::network::Scratch;
use crate::support::peer::{answer, command, delayed, echo, load, outcome};

/// open(2), on Linux.
const O_NONBLOCK: i32 = 0o4000;

#[test]
fn every_completed_request_has_a_row_in_the_log() {
    let log = Scratch::new(".txt");
    let run = load(echo(), &format!("--each 50 -c 4 -s 100 -t 2 --request-log {}", log.0.display()));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = log.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time,connection,request,bytes,response_time_us,phase,outcome"));
    let rows: Vec<Vec<f64>> = lines
        .map(|line| {
            let (numbers, end) = line.split_at(line.find(",window,ok").expect("all were answered in the window"));
            assert_eq!(end, ",window,ok");
            numbers.split(',').map(|cell| cell.parse().expect("a number")).collect()
        })
        .collect();
    assert_eq!(rows.len(), 200);
    for connection in 0..4 {
        let own: Vec<f64> = rows.iter().filter(|row| row[1] == f64::from(connection)).map(|row| row[2]).collect();
        assert_eq!(own, (1..=50).map(f64::from).collect::<Vec<_>>(), "each connection's requests, in order");
    }
    assert!(rows.iter().all(|row| row[3] == 100.0 && row[0] > 1.7e9));
    let mean = rows.iter().map(|row| row[4]).sum::<f64>() / 200.0;
    assert!((mean / run.figure("response_time_us.mean") - 1.0).abs() < 1e-6);
}

#[test]
fn the_seconds_add_up_to_the_run() {
    let series = Scratch::new(".txt");
    let run = load(echo(), &format!("-d 2500ms -c 4 -t 2 -R 400 --timeseries {}", series.0.display()));
    let lines: Vec<serde_json::Value> =
        series.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    let of = |phase: &str| -> u64 {
        let own = lines.iter().filter(|line| line["phase"] == phase);
        own.filter_map(|line| line["completed"].as_u64()).sum()
    };
    assert_eq!(of("window"), run.count("requests.completed"));
    // What was under way at the window's end is answered in the drain.
    assert!(of("drain") <= 4, "{lines:?}");
    assert!(lines.windows(2).all(|pair| pair[0]["second"].as_u64() <= pair[1]["second"].as_u64()));
    assert!(lines.iter().all(|line| line["unix_s"].as_f64() > Some(1.7e9)));
    let window: Vec<_> = lines.iter().filter(|line| line["phase"] == "window").collect();
    let covered: f64 = window.iter().filter_map(|line| line["covers_s"].as_f64()).sum();
    assert!((covered - run.figure("elapsed_s")).abs() < 1e-6, "the lines cover {covered} s: {lines:?}");
    let from = window[0]["from_unix_s"].as_f64().expect("a number");
    assert!((from - run.figure("window.opened_unix_s")).abs() < 1e-5, "{from}: {lines:?}");
    assert!(lines.iter().all(|line| line["response_time_us"]["count"] == line["completed"]));
}

#[test]
fn percentiles_are_written_for_plotters() {
    for engine in ["epoll", "fork"] {
        let file = Scratch::new(".txt");
        let run = load(echo(), &format!("-n 1000 -c 4 --engine {engine} --hdr {}", file.0.display()));
        let text = file.text();
        assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"), "{engine}: {text}");
        assert!(text.contains("Total count    =         1000]"), "{engine}: {text}");
        let median = run.figure("response_time_us.p50") / 1000.0;
        let line = text.lines().find(|line| line.contains(" 0.5000000")).expect("the median");
        let value: f64 = line.split_whitespace().next().and_then(|cell| cell.parse().ok()).expect("a number");
        assert!((value - median).abs() <= 0.002 * median, "{engine}: {value} for {median}");
    }
}

#[test]
fn a_record_that_cannot_be_written_is_said_before_the_run_or_after_it() {
    let early = command("echo", &echo().to_string(), "-n 1 --request-log /no/such/folder/x").output().expect("it runs");
    assert_eq!(early.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&early.stderr).contains("name a file in a folder that you can write to"));
    for flag in ["--request-log", "--timeseries", "--hdr"] {
        let late = command("echo", &echo().to_string(), &format!("-n 1000 -c 2 {flag} /dev/full")).output();
        let run = outcome(&late.expect("it runs"));
        assert_eq!((run.code, run.count("requests.completed")), (Some(1), 1000), "{flag}: {}", run.stderr);
        let said = "the record /dev/full is incomplete: No space left on device (os error 28); make room on its disk";
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
}

#[test]
fn two_records_in_one_file_are_refused() {
    let file = Scratch::new(".txt");
    let path = file.path();
    for flags in ["--request-log {} --timeseries {}", "--timeseries {} --hdr {}"] {
        let both = flags.replace("{}", path);
        let refused = command("echo", &echo().to_string(), &format!("-n 1 {both}")).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{flags}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("are the same file or pipe, where one would mix with the other"), "{said}");
    }
    // What was there stays, and the summary is a record too.
    std::fs::write(path, "mine").expect("it can be written");
    command("echo", &echo().to_string(), &format!("-n 1 --timeseries {path} --hdr {path}")).output().expect("it runs");
    assert_eq!(file.text(), "mine");
    let mut beside = command("echo", &echo().to_string(), &format!("-n 1 --request-log {path}"));
    let refused = beside.stdout(std::fs::File::create(path).expect("it can be written")).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    // A pipe is one as well.
    let piped = command("echo", &echo().to_string(), "-n 1 --request-log /dev/stdout").output().expect("it runs");
    assert_eq!((piped.status.code(), piped.stdout.len()), (Some(2), 0), "{}", String::from_utf8_lossy(&piped.stderr));
    // At a device nothing does.
    let run = load(echo(), "-n 10 -c 2 --request-log /dev/null --timeseries /dev/null");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 10), "{}", run.stderr);
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_that_takes_nothing() {
    let fifo = Scratch::new(".fifo");
    assert!(Command::new("mkfifo").arg(fifo.path()).status().expect("mkfifo runs").success());
    // Without waiting for a writer (fifo(7)); it holds 64 KiB, and 5,000 rows are 200 KiB.
    let reader = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(fifo.path()).expect("it is there");
    // Behind the window, and in it: one signal is enough.
    for (arguments, told_at) in [("-n 5000 -c 2", r#""summary""#), ("-d 1h -c 2", r#""window_opened""#)] {
        let mut load = command("echo", &echo().to_string(), &format!("{arguments} --request-log {}", fifo.path()));
        let mut running = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
        let has_come = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains(told_at));
        assert!(lines.by_ref().any(has_come), "{told_at} is told");
        std::thread::sleep(Duration::from_millis(500));
        let signalled = Command::new("kill").args(["-TERM", &running.id().to_string()]).status();
        assert!(signalled.expect("kill runs").success());
        // Its summary has to go somewhere.
        let rest = std::thread::spawn(move || lines.count());
        let ended = running.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("is incomplete: its reader or disk takes nothing, and terminate ended"), "{said}");
        rest.join().expect("it comes to its end");
    }
    drop(reader);
}

#[test]
fn each_connection_has_a_result() {
    let run = load(echo(), "--each 3 -c 5 --per-connection");
    assert_eq!(run.code, Some(0));
    let results: Vec<_> = run.lines.iter().filter(|line| line["event"] == "connection").collect();
    assert_eq!(results.len(), 5);
    for (result, number) in results.iter().zip(0..) {
        assert_eq!((result["connection"].as_i64(), result["completed"].as_u64()), (Some(number), Some(3)));
        assert_eq!(result["success"], true);
        assert!(result["establishment_time_us"].as_f64() > Some(0.0));
    }
}

#[test]
fn the_connections_have_completed_what_the_window_has() {
    // Of a run that has no CPU in its warm-up there is none.
    let mut before = 0;
    for engine in ["epoll", "uring", "threads"] {
        for end in ["-d 300ms", "-n 40", "--each 10"] {
            // Requests are under way at both ends of the window.
            let slow = delayed(|_| Duration::from_millis(20));
            let arguments = format!("{end} --warm-up 210ms -c 4 --engine {engine} --per-connection");
            let run = load(slow, &arguments);
            let results = run.lines.iter().filter(|line| line["event"] == "connection");
            let completed: u64 = results.filter_map(|result| result["completed"].as_u64()).sum();
            assert_eq!(completed, run.count("requests.completed"), "{engine} {end}: {}", run.summary());
            before += run.count("warm_up.requests.completed");
        }
    }
    assert!(before > 0);
}

#[test]
fn the_summary_is_a_row_of_named_columns() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let target = echo().to_string();
    let output =
        load.args(["load", "echo", &target, "-n", "100", "-s", "50", "--csv", "--quiet"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), lines[0].len()), (2, lines[1].len()));
    let cell = |name: &str| lines[0].iter().position(|column| *column == name).map(|place| lines[1][place]);
    assert_eq!((cell("server"), cell("size_bytes")), (Some(target.as_str()), Some("50")));
    assert_eq!((cell("requests.completed"), cell("valid").is_some()), (Some("100"), true));
    assert!(cell("response_time_us.p99_9").is_some() && cell("elapsed_s").is_some());
}

#[test]
fn a_row_stands_alone() {
    for form in ["--csv", "--csv=three-servers", "--csv=tcpbenchmark"] {
        for other in ["--per-connection", "--json"] {
            let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            let output = load.args(["load", "echo", "127.0.0.1:7", form, other]).output().expect("it runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(2) && stderr.contains("cannot be used with"),
                "{form} {other}: {stderr}"
            );
        }
    }
}

#[test]
fn the_rows_of_three_servers_client_are_appended_run_by_run() {
    let file = Scratch::new(".txt");
    let target = echo().to_string();
    for size in ["5", "50"] {
        let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        load.args(["load", "echo", &target, "-c", "1", "-n", "3", "-s", size, "--csv=three-servers", "--quiet"]);
        let appended = OpenOptions::new().create(true).append(true).open(&file.0).expect("a file of ours");
        assert!(load.stdout(appended).status().expect("it runs").success());
    }
    let text = file.text();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2, "a row a run, and no header: {text}");
    for (row, size) in rows.iter().zip(["5", "50"]) {
        assert_eq!((row.len(), row[0], row[1]), (3, "127.0.0.1", size), "{text}");
        assert_eq!(row[2].split_once('.').map(|(_, digits)| digits.len()), Some(6), "{text}");
        assert!(row[2].parse::<f64>().expect("seconds") > 0.0, "{text}");
    }
}

#[test]
fn a_run_without_an_answer_has_no_time_in_its_row() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let target = answer(|_| None).to_string();
    load.args(["load", "echo", &target, "-c", "1", "-n", "1", "-s", "5", "--csv=three-servers", "--quiet"]);
    let output = load.output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"127.0.0.1,5,\n".to_vec()));
}

#[test]
fn the_time_in_a_row_is_that_of_the_answers_alone() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let target = answer(|bytes| {
        if ASKED.fetch_add(1, Ordering::Relaxed) == 1 {
            std::thread::sleep(Duration::from_secs(6));
        }
        Some(bytes.to_vec())
    });
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let target = target.to_string();
    let arguments = ["-c", "1", "-n", "2", "-s", "5", "--timeout", "3s", "--csv=three-servers", "--quiet"];
    let output = load.args(["load", "echo", &target]).args(arguments).output().expect("it runs");
    let row = String::from_utf8(output.stdout).expect("text");
    let seconds: f64 = row.trim_end().rsplit(',').next().expect("a cell").parse().expect("seconds");
    assert!(seconds < 1.4, "the age of one that had no answer is in it: {row}");
}

#[test]
fn a_generator_that_writes_records_ends_on_a_signal_with_its_summary() {
    let (series, log) = (Scratch::new(".txt"), Scratch::new(".txt"));
    let records = format!("--timeseries {} --request-log {}", series.0.display(), log.0.display());
    let mut load = command("echo", &echo().to_string(), &format!("-c 2 -d 10m --think 1ms {records}"));
    let mut running = load.stdout(std::process::Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
    let opened = lines.next().expect("the window opens").expect("a line");
    assert!(opened.contains("window_opened"), "{opened}");
    let signalled = Command::new("kill").args(["-TERM", &running.id().to_string()]).status();
    assert!(signalled.expect("kill runs").success());
    let summary = lines.last().expect("a summary").expect("a line");
    assert!(summary.contains(r#""event":"summary""#), "{summary}");
    assert_eq!(running.wait().expect("it ends").code(), Some(143));
}
