//! Parity with other generators: the same slow server, asked at the same low rate, is found to
//! answer in the same time. So all three mean the same by a response time. It shows nothing of
//! times below a millisecond, as wrk2's timers are too coarse, or of high rates: what a generator
//! costs there is a row of `bench/generators.py`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::support::peer::{command, outcome, serve};

/// Requests a second over 16 connections: each is free for most of the time, so that no generator
/// queues.
const RATE: &str = "160";
/// wrk2 measures nothing in its first ten seconds.
const SECONDS: &str = "16";
/// How far two generators may lie apart.
const TOLERANCE: f64 = 0.10;

/// An HTTP server whose answers take 20 ms, and one in twenty 80 ms: longer than what any generator
/// adds of its own (wrk2's timers are of whole milliseconds).
fn slow_server() -> SocketAddr {
    let requests = AtomicUsize::new(0);
    serve(move |mut stream| {
        let mut buffer = [0; 4096];
        while matches!(stream.read(&mut buffer), Ok(1..)) {
            let late = requests.fetch_add(1, Ordering::SeqCst) % 20 == 19;
            sleep(Duration::from_millis(if late { 80 } else { 20 }));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    })
}

/// Median and 99th percentile, in milliseconds.
type Percentiles = [f64; 2];

fn ours(url: &str) -> Percentiles {
    let arguments = format!("-c 16 -t 1 -R {RATE} --arrivals fixed -d {SECONDS}s");
    let run = outcome(&command("http", url, &arguments).output().expect("the binary runs"));
    assert_eq!(run.count("requests.failed"), 0, "{}", run.summary());
    ["p50", "p99"].map(|name| run.figure(&format!("response_time_us.{name}")) / 1000.0)
}

/// A generator among the tools that `make measure` installs, or on the machine.
fn find(name: &str) -> Option<PathBuf> {
    let tools = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = [tools].into_iter().chain(std::env::split_paths(&path)).map(|folder| folder.join(name));
    found.into_iter().find(|program| program.exists())
}

fn output(program: &PathBuf, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).stderr(Stdio::null()).output().expect("it was found");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn fortio(program: &PathBuf, url: &str) -> Percentiles {
    let time = format!("{SECONDS}s");
    // fortio's buckets are a tenth to a quarter of a value wide, and it interpolates between their
    // ends: counted from just below the server's times they are fine enough.
    let histogram = ["-offset", "19ms", "-r", "0.0001", "-p", "50,99", "-json", "-"];
    let load = ["load", "-quiet", "-c", "16", "-qps", RATE, "-t", &time, "-uniform"];
    let arguments = [&load[..], &histogram, &[url]].concat();
    let said = output(program, &arguments);
    let result: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let percentiles = result["DurationHistogram"]["Percentiles"].as_array().expect("percentiles");
    [0, 1].map(|place| percentiles[place]["Value"].as_f64().expect("seconds") * 1000.0)
}

fn wrk2(program: &PathBuf, url: &str) -> Percentiles {
    let time = format!("{SECONDS}s");
    let said = output(program, &["-c", "16", "-t", "1", "-R", RATE, "-d", &time, "--latency", url]);
    // Such as ` 50.000%   20.45ms`.
    ["50.000%", "99.000%"].map(|percent| {
        let line = said.lines().find(|line| line.trim_start().starts_with(percent)).unwrap_or_else(|| panic!("{said}"));
        let time = line.split_whitespace().nth(1).unwrap_or_default();
        plimsoll_measure::units::duration(time).unwrap_or_else(|error| panic!("{error}: {said}")).as_secs_f64() * 1000.0
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn assert_parity(name: &str, theirs: impl Fn(&PathBuf, &str) -> Percentiles) {
    let rounds = std::env::var("PLIMSOLL_PARITY_ROUNDS").ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(3);
    let Some(program) = find(name) else {
        eprintln!("skipped: {name} is not installed");
        return;
    };
    let url = format!("http://{}/", slow_server());
    let pairs: Vec<(Percentiles, Percentiles)> = (0..rounds).map(|_| (ours(&url), theirs(&program, &url))).collect();
    for (place, percentile) in ["p50", "p99"].into_iter().enumerate() {
        let ratio = median(pairs.iter().map(|(ours, theirs)| ours[place] / theirs[place]).collect());
        eprintln!("{percentile}: {ratio:.3} of {name}'s; milliseconds, ours and theirs: {pairs:?}");
        assert!((1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio), "{percentile} of {name}: {pairs:?}");
    }
}

#[test]
fn percentiles_of_a_slow_server_at_a_low_rate_are_fortios() {
    assert_parity("fortio", fortio);
}

#[test]
fn percentiles_of_a_slow_server_at_a_low_rate_are_wrk2s() {
    assert_parity("wrk2", wrk2);
}
