//! tcpbenchmark's form: what it prints, and how it counts what failed.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::peer::{answer, echo, serve};

/// Runs tcpbenchmark's form and returns its lines.
fn tcpbenchmark(target: &str, arguments: &str) -> Vec<String> {
    let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    load.args(["load", "echo", target, "--payload", "text", "--restart-sequence", "--csv=tcpbenchmark", "--quiet"]);
    let output = load.args(arguments.split_whitespace()).output().expect("it runs");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// The report's own example run; the digits of its times, which cannot be known, are `#`.
const TCPBENCHMARK: &str = "\
hostname = localhost, port = PORT
3 thread with 2 echoback.
message size is 5 bytes.
Thread stack size = STACK bytes
thread 0 created.
thread 1 created.
thread 2 created.
start count down: 2
start count down: 1
Thread Start!!
addr=127.0.0.1
port=PORT
addr=127.0.0.1
port=PORT
addr=127.0.0.1
port=PORT
Thread(0): true
  connectTime: UsedTime: 0.##########(sec)
  sendRecvTime: UsedTime: 0.##########(sec)
  failedConnectNum = 0
  failedSendRecvLoopNum = 0
  failedSendRecvNum = 0
Thread(1): true
  connectTime: UsedTime: 0.##########(sec)
  sendRecvTime: UsedTime: 0.##########(sec)
  failedConnectNum = 0
  failedSendRecvLoopNum = 0
  failedSendRecvNum = 0
Thread(2): true
  connectTime: UsedTime: 0.##########(sec)
  sendRecvTime: UsedTime: 0.##########(sec)
  failedConnectNum = 0
  failedSendRecvLoopNum = 0
  failedSendRecvNum = 0
-----
thread,success,failedConnect,failedSendRecvLoop,failedSendRecv,connectTime(total),connectTime(average),\
                            connectTime(sample \
                            variance),connectTime(max),sendRecvTime(total),sendRecvTime(average),sendRecvTime(sample \
                            variance),sendRecvTime(max),benchmarkTime(include failed)
3,3,0,0,0,0.######,0.######,0.######,0.######,0.######,0.######,0.######,0.######,0.######
-----
";

#[test]
fn tcpbenchmark_says_what_the_report_shows_to_the_letter() {
    let port = echo().port().to_string();
    let lines = tcpbenchmark(&format!("localhost:{port}"), "--engine threads -c 3 -s 5 --each 2 --countdown 2");
    // The digits of a decimal fraction cannot be known.
    let hide = |line: &str| -> String {
        let mut fraction = false;
        let hidden = line.chars().map(|character| {
            let digit = character.is_ascii_digit();
            let hide = fraction && digit;
            fraction = character == '.' || hide;
            if hide { '#' } else { character }
        });
        hidden.collect()
    };
    let told: Vec<String> =
        lines.iter().map(|line| if line.starts_with("addr=") { line.clone() } else { hide(line) }).collect();
    let stack = lines[3].split_whitespace().nth(4).expect("a number of bytes");
    assert!(stack.parse::<u64>().expect("a number") >= 65_536, "{stack}");
    let want = TCPBENCHMARK.replace("PORT", &port).replace("STACK", stack);
    assert_eq!(told, want.lines().collect::<Vec<_>>());
    let row: Vec<&str> = lines[lines.len() - 2].split(',').collect();
    let [connect, exchange, all] = [5, 9, 13].map(|column: usize| row[column].parse::<f64>().expect("seconds"));
    assert!(connect > 0.0 && exchange > 0.0 && all > 0.0);
}

#[test]
fn a_broken_sequence_is_started_over_and_counted() {
    // The first two connections end after one echo; all later ones are honest.
    let accepted = AtomicUsize::new(0);
    let target = serve(move |mut stream| {
        let honest = accepted.fetch_add(1, Ordering::SeqCst) >= 2;
        let mut message = [0; 10];
        while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() && honest {}
    });
    let lines = tcpbenchmark(&target.to_string(), "-c 2 -s 10 --each 5");
    let row: Vec<&str> = lines[lines.len() - 2].split(',').collect();
    assert_eq!(row[..4], ["2", "2", "0", "2"], "both succeed in the end, after a broken sequence each");
}

#[test]
fn a_sequence_that_never_succeeds_is_given_up_after_its_attempts() {
    let lines = tcpbenchmark(&answer(|_| None).to_string(), "-c 1 -s 10 --each 5 --attempts 3");
    let row: Vec<&str> = lines[lines.len() - 2].split(',').collect();
    assert_eq!(row[..5], ["1", "0", "0", "3", "3"]);
    assert!(lines.contains(&"Thread(0): false".to_owned()), "{lines:?}");
}
