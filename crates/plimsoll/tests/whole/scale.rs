//! A hundred thousand connections between one server command and one generator command, past
//! RLIMIT_NOFILE on both sides. `make million` is the same with ten times as many.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::process::Command;

use crate::support::server::Server;
use plimsoll_sys::descriptor;
use serde_json::Value;

const CONNECTIONS: u64 = 100_000;
/// What the kernel needs for the two ends of a connection on loopback (8.6 KiB measured), and
/// something to spare.
const KIB_A_CONNECTION: u64 = 12;

fn skip_reason() -> Option<String> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("/proc");
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line");
    let available: u64 = available.trim().trim_end_matches(" kB").parse().expect("KiB");
    (available < CONNECTIONS * KIB_A_CONNECTION).then(|| {
        format!(
            "{CONNECTIONS} connections need {} MiB, {} MiB are free",
            CONNECTIONS * KIB_A_CONNECTION / 1024,
            available / 1024
        )
    })
}

fn hold_a_hundred_thousand(model: &str) {
    if let Some(reason) = skip_reason() {
        eprintln!("skipped: {reason}");
        return;
    }
    // Small tables on both sides, where the limit is a large one: many of them are the point.
    let limit = descriptor::limit().min(20_000);
    let server = Server::echo_with_limit(model, limit, &[]);
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_plimsoll"), "load", "echo"])
        .arg(server.address().to_string())
        .args(["-c", &CONNECTIONS.to_string(), "--barrier", "--each", "2", "--timeout", "5m", "--json", "--quiet"])
        .output()
        .expect("the generator starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let load: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    // 4: the machine was too slow for its timing to be trusted, which is not what this is about.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{load}");
    assert_eq!(load["connections"]["established"], CONNECTIONS, "{load}");
    assert_eq!(load["connections"]["peak"], CONNECTIONS, "{load}");
    assert_eq!(load["requests"]["scheduled"], 2 * CONNECTIONS, "{load}");
    assert_eq!(load["requests"]["completed"], 2 * CONNECTIONS, "{load}");
    let summary = server.stop();
    assert_eq!(summary["peak_connections"], CONNECTIONS, "{summary}");
    assert_eq!(summary["connections"], CONNECTIONS, "{summary}");
    assert_eq!(summary["requests"], 2 * CONNECTIONS, "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
}

// One after the other: together they would need twice the memory.
#[test]
fn a_hundred_thousand_connections_are_held_by_epoll_and_then_by_uring() {
    hold_a_hundred_thousand("epoll");
    hold_a_hundred_thousand("uring");
}
