//! tcpbenchmark's form: what it prints, and how it counts what failed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_sys::net::reset_on_close;

use crate::support::books;
use crate::support::peer::{answer, command, echo, outcome, serve};
use crate::support::server::{Server, for_every_model};

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
    // The digits of a decimal fraction cannot be known, nor on a busy machine the seconds.
    let hide = |line: &str| -> String {
        let mut fraction = false;
        let hidden = line.chars().map(|character| {
            let digit = character.is_ascii_digit();
            let hide = fraction && digit;
            fraction = character == '.' || hide;
            if hide { '#' } else { character }
        });
        let mut hidden: Vec<char> = hidden.collect();
        for place in 1..hidden.len().saturating_sub(1) {
            if hidden[place] == '.' && hidden[place + 1] == '#' {
                hidden[place - 1] = '0';
            }
        }
        hidden.into_iter().collect()
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

/// The row below the header, cell by cell.
fn row(lines: &[String]) -> Vec<&str> {
    let header = lines.iter().position(|line| line.starts_with("thread,")).expect("a header");
    assert_eq!(lines[header].split(',').count(), 14);
    let row: Vec<&str> = lines[header + 1].split(',').collect();
    assert_eq!(row.len(), 14, "{row:?}");
    row
}

/// The seconds in these columns of a row: total, average, sample variance, maximum.
fn times(row: &[&str], from: usize) -> [f64; 4] {
    [0, 1, 2, 3].map(|column| row[from + column].parse().expect("seconds"))
}

const CLIENTS: usize = 5;
const EACH: usize = 4;
const SIZE: usize = 20;

/// Every client succeeds, its times agree with each other, and the server has counted the same.
fn agrees_with_the_server(model: &str, postfix: &str) {
    let size = SIZE.to_string();
    let appends: &[&str] = if postfix.is_empty() { &[] } else { &["--postfix", postfix, "--message-size", &size] };
    let server = Server::echo(model, appends);
    let asked = format!("-c {CLIENTS} --each {EACH} -s {SIZE} --engine threads");
    let expects = if postfix.is_empty() { String::new() } else { format!(" --postfix {postfix}") };
    let lines = tcpbenchmark(&server.address().to_string(), &(asked + &expects));
    let told = row(&lines);
    assert_eq!(told[..5], ["5", "5", "0", "0", "0"], "{lines:?}");
    for from in [5, 9] {
        let [total, average, variance, most] = times(&told, from);
        assert!(total > 0.0 && (total / CLIENTS as f64 - average).abs() < 1e-6, "{told:?}");
        assert!(average - 1e-6 <= most && most <= total + 1e-6 && variance >= 0.0, "{told:?}");
    }
    let all: f64 = told[13].parse().expect("seconds");
    let [_, _, _, slowest] = times(&told, 9);
    assert!(all >= slowest, "the benchmark lasts as long as its slowest client: {told:?}");
    let summary = server.stop();
    let echoes = CLIENTS * EACH;
    assert_eq!(summary["connections"], CLIENTS as u64, "{summary}");
    assert_eq!(summary["bytes_received"], (echoes * SIZE) as u64, "{summary}");
    assert_eq!(summary["bytes_sent"], (echoes * (SIZE + postfix.len())) as u64, "{summary}");
}

fn every_client_succeeds_without_a_postfix(model: &str) {
    agrees_with_the_server(model, "");
}

fn every_client_succeeds_with_a_postfix(model: &str) {
    agrees_with_the_server(model, ":OK");
}

for_every_model!(every_client_succeeds_without_a_postfix, every_client_succeeds_with_a_postfix);

/// What becomes of one connection of a client, after so many honest echoes.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// It echoes until the client closes.
    Honest,
    /// The next echo has a wrong last byte.
    Corrupted(usize),
    /// The next message is read, and the connection closed.
    Closed(usize),
    /// The next message is read, and the connection reset.
    Reset(usize),
}

/// The behaviours of a client's connections, in turn. A client without any is refused each time.
type Script = &'static [Behaviour];

const ATTEMPTS: usize = 4;
const SCRIPTS: [Script; 6] = [
    &[Behaviour::Honest],
    &[],
    &[Behaviour::Corrupted(2), Behaviour::Closed(0), Behaviour::Honest],
    &[Behaviour::Reset(3), Behaviour::Honest],
    &[Behaviour::Closed(1), Behaviour::Reset(0), Behaviour::Corrupted(4), Behaviour::Honest],
    &[Behaviour::Closed(2), Behaviour::Corrupted(0), Behaviour::Reset(1), Behaviour::Closed(4), Behaviour::Honest],
];

/// What a script amounts to: success, failed connects, failed sequences, failed exchanges.
fn counters(script: Script) -> (bool, usize, usize, usize) {
    if script.is_empty() {
        return (false, ATTEMPTS, 0, 0);
    }
    let broken = script.iter().take(ATTEMPTS).take_while(|behaviour| !matches!(behaviour, Behaviour::Honest)).count();
    (broken < ATTEMPTS, 0, broken, broken)
}

fn follow(behaviour: Behaviour, mut stream: TcpStream) {
    let (Behaviour::Corrupted(honest) | Behaviour::Closed(honest) | Behaviour::Reset(honest)) = behaviour else {
        let mut message = [0; SIZE];
        while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
        return;
    };
    let mut message = [0; SIZE];
    for _ in 0..honest {
        stream.read_exact(&mut message).expect("the client sends");
        stream.write_all(&message).expect("the client reads");
    }
    stream.read_exact(&mut message).expect("the client sends");
    match behaviour {
        Behaviour::Corrupted(_) => {
            message[SIZE - 1] ^= 1;
            stream.write_all(&message).expect("the client reads");
            // The client is the one to end it.
            let _ = stream.read(&mut message);
        }
        Behaviour::Reset(_) => reset_on_close(&stream).expect("the socket is open"),
        _ => {}
    }
}

/// A server of one client, which follows its script.
fn scripted(script: Script) -> SocketAddr {
    if script.is_empty() {
        // Its port is taken at one address of loopback, so that nobody listens there at another.
        let taken = serve(drop);
        return SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), taken.port()));
    }
    let accepted = AtomicUsize::new(0);
    serve(move |stream| follow(script[accepted.fetch_add(1, Ordering::SeqCst)], stream))
}

#[test]
fn its_counters_equal_the_script_of_a_server_that_refuses_corrupts_closes_and_resets() {
    for engine in ["threads", "epoll"] {
        let targets = SCRIPTS.map(|script| scripted(script).to_string());
        // Client by client: each has a server of its own.
        let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        load.args(["load", "echo"]).args(&targets).args(["--payload", "text", "--restart-sequence", "--quiet"]);
        load.args(["--csv=tcpbenchmark", "--engine", engine, "-c", &SCRIPTS.len().to_string()]);
        load.args(["-s", &SIZE.to_string(), "--each", "5", "--attempts", &ATTEMPTS.to_string()]);
        let output = load.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "two clients failed");
        let text = String::from_utf8(output.stdout).expect("text");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut sums = [0; 4];
        let (mut connect, mut exchange) = (0.0, 0.0);
        for (number, script) in SCRIPTS.into_iter().enumerate() {
            let (success, connects, sequences, exchanges) = counters(script);
            let at = lines.iter().position(|line| *line == format!("Thread({number}): {success}"));
            let told = &lines[at.unwrap_or_else(|| panic!("{engine} {number} {script:?}: {text}"))..];
            assert_eq!(told[3], format!("  failedConnectNum = {connects}"), "{engine} {number} {script:?}");
            assert_eq!(told[4], format!("  failedSendRecvLoopNum = {sequences}"), "{engine} {number} {script:?}");
            assert_eq!(told[5], format!("  failedSendRecvNum = {exchanges}"), "{engine} {number} {script:?}");
            let [connected, exchanged] = [1, 2].map(|line: usize| {
                let seconds = told[line].rsplit_once(' ').map_or("", |(_, last)| last).trim_end_matches("(sec)");
                seconds.parse::<f64>().expect("seconds")
            });
            assert_eq!((connected > 0.0, exchanged > 0.0), (success, success), "times exclude failures: {told:?}");
            connect += connected;
            exchange += exchanged;
            for (sum, count) in sums.iter_mut().zip([usize::from(success), connects, sequences, exchanges]) {
                *sum += count;
            }
        }
        let told = row(&lines);
        let counts: Vec<usize> = told[..5].iter().map(|cell| cell.parse().expect("a count")).collect();
        assert_eq!(counts, [SCRIPTS.len(), sums[0], sums[1], sums[2], sums[3]], "{engine}");
        assert!((times(&told, 5)[0] - connect).abs() < 1e-6 && (times(&told, 9)[0] - exchange).abs() < 1e-6);
    }
}

/// A server over TLS that ends some connections, by their numbers from 0, in place of a handshake.
fn ends_handshakes(of: &'static [usize]) -> SocketAddr {
    let (accepted, config) = (AtomicUsize::new(0), Arc::new(books::tls(rustls::DEFAULT_VERSIONS)));
    serve(move |stream| {
        if of.contains(&accepted.fetch_add(1, Ordering::SeqCst)) {
            return;
        }
        let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
        let mut secure = rustls::StreamOwned::new(session, stream);
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut part = [0; 1024];
            let Ok(count @ 1..) = secure.read(&mut part) else { return };
            request.extend_from_slice(&part[..count]);
        }
        let _ = secure.write_all(books::answer().as_bytes());
    })
}

#[test]
fn a_sequence_starts_over_where_a_connection_of_it_cannot_be_opened() {
    // Connections that cannot be opened, sequences broken off by that, and requests answered.
    let cases: [(&[usize], u64, u64); 4] = [(&[0, 1], 0, 3), (&[1], 1, 4), (&[2], 1, 5), (&[1, 4], 2, 6)];
    for engine in ["epoll", "uring", "threads"] {
        for (ended, broken, answered) in cases {
            let url = format!("https://127.0.0.1:{}/", ends_handshakes(ended).port());
            let arguments = "-k -c 1 --each 3 --reconnect --restart-sequence --per-connection";
            let load = command("http", &url, &format!("{arguments} --engine {engine}")).output();
            let run = outcome(&load.expect("it runs"));
            let line = run.lines.iter().find(|line| line["event"] == "connection").expect("a line for the connection");
            let told = ["completed", "failed_sequences", "failed_requests", "failed_connects"].map(|name| &line[name]);
            let failed = ended.len() as u64;
            assert!(line["success"] == true && run.code == Some(0), "{engine} {ended:?}: {line}");
            assert_eq!(
                told.map(serde_json::Value::as_u64),
                [answered, broken, failed, failed].map(Some),
                "{engine} {ended:?}"
            );
            let counts = ["completed", "failed", "unsent"].map(|name| run.count(&format!("requests.{name}")));
            assert_eq!(counts, [answered, failed, 0], "{engine} {ended:?}");
        }
    }
}
