//! `plimsoll load echo` against servers that answer rightly, wrongly, late or never: how each
//! request is counted, and what is printed about it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::skip_without_namespaces;
use crate::support::forwarder::{Folder, Forwarder};
use crate::support::network::{Namespace, PLIMSOLL};
use crate::support::peer::{Run, answer, command, echo, load, outcome, refusing, serve};
use plimsoll_sys::net::reset_on_close;

#[test]
fn a_count_of_requests_is_sent_exactly_and_answered() {
    // Without --barrier, one loop may have done all its work before the other has connected.
    let run = load(echo(), "-n 501 -c 10 -t 2 -s 100 --barrier");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("requests.scheduled"), run.count("requests.completed")), (501, 501));
    assert_eq!((run.count("bytes_sent"), run.count("bytes_received")), (50_100, 50_100));
    assert_eq!((run.count("connections.established"), run.count("connections.peak")), (10, 10));
    assert_eq!((run.count("response_time_us.count"), run.count("establishment_time_us.count")), (501, 10));
    assert!(run.figure("failed_ratio") == 0.0);
}

#[test]
fn each_connection_carries_its_number_of_requests_and_then_closes() {
    let served = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&served);
    let target = serve(move |mut stream| {
        let mut message = [0; 64];
        let mut requests = 0;
        while stream.read_exact(&mut message).is_ok() {
            requests += 1;
            stream.write_all(&message).expect("the generator reads");
        }
        log.lock().expect("no test thread panics").push(requests);
    });
    let run = load(target, "--each 7 -c 20");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 140));
    // The generator has ended, so every connection is closed or about to be read as such.
    while served.lock().expect("no test thread panics").len() < 20 {
        std::thread::yield_now();
    }
    assert_eq!(*served.lock().expect("no test thread panics"), [7; 20]);
}

#[test]
fn the_window_has_the_length_asked_for_and_its_ends_are_announced() {
    let run = load(echo(), "-d 1500ms --warm-up 1s -c 4");
    let at = |line: usize, event: &str| {
        assert_eq!(run.lines[line]["event"], event);
        run.lines[line]["unix_s"].as_f64().expect("an instant")
    };
    let length = at(1, "window_closed") - at(0, "window_opened");
    assert_eq!(run.lines.len(), 3);
    assert!((1.4999..1.5001).contains(&run.figure("elapsed_s")));
    // They may be printed late, and say when they were.
    assert!((length - run.figure("elapsed_s")).abs() < 1e-5, "{length}");
    assert!(run.count("warm_up.requests.completed") > 0 && run.count("requests.completed") > 0);
    let rate = run.figure("requests.completed") / run.figure("elapsed_s");
    assert!((rate / run.figure("completed_rate") - 1.0).abs() < 1e-9);
}

#[test]
fn a_wrong_echo_is_a_mismatch() {
    let target = answer(|bytes| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut()? ^= 1;
        Some(bytes)
    });
    let run = load(target, "--each 5 -c 3");
    assert_eq!(run.code, Some(1));
    assert_eq!((run.count("requests.failed"), run.count("errors.mismatch")), (3, 3));
    assert_eq!((run.count("requests.scheduled"), run.count("requests.unsent")), (15, 12));
    assert!(run.warnings().contains(&"nothing_completed"), "{:?}", run.warnings());
    let careless = load(target, "--each 5 -c 3 --verify length");
    assert_eq!((careless.code, careless.count("requests.completed")), (Some(0), 15));
}

#[test]
fn an_echo_that_is_too_long_is_a_mismatch() {
    let run = load(answer(|bytes| Some([bytes, b"x"].concat())), "--each 5 -c 3");
    assert_eq!((run.count("requests.failed"), run.count("errors.mismatch")), (3, 3));
}

#[test]
fn an_echo_that_is_too_short_times_out() {
    let run = load(answer(|bytes| Some(bytes[..bytes.len() - 1].to_vec())), "--each 1 -c 3 --timeout 100ms");
    assert_eq!((run.count("requests.timed_out"), run.count("errors.timeout")), (3, 3));
    assert!(run.figure("response_time_us.max") >= 100_000.0, "an unanswered request counts at its age");
    assert_eq!(run.count("response_time_us.unanswered"), 3);
}

#[test]
fn a_postfix_is_expected_where_it_was_announced() {
    let target = answer(|bytes| Some([bytes, b":OK"].concat()));
    let run = load(target, "-n 50 -c 5 --payload text --postfix :OK");
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 50));
}

#[test]
fn a_server_that_closes_without_an_answer_fails_the_request() {
    let run = load(answer(|_| None), "--each 5 -c 3");
    assert_eq!((run.code, run.count("requests.failed"), run.count("requests.unsent")), (Some(1), 3, 12));
    assert_eq!(run.count("errors.closed"), 3);
}

#[test]
fn a_reset_fails_the_request() {
    let target = serve(|mut stream| {
        let _ = stream.read(&mut [0; 8]);
        reset_on_close(&stream).expect("the socket is open");
    });
    let run = load(target, "--each 5 -c 3");
    assert_eq!((run.count("requests.failed"), run.count("requests.unsent")), (3, 12));
    assert_eq!(run.count("errors.read") + run.count("errors.write"), 3);
}

#[test]
fn a_connection_that_ends_between_requests_is_opened_again_and_fails_none() {
    // Each connection answers once and ends its half after that; the next request is due only
    // later.
    let target = serve(|mut stream| {
        let mut message = [0; 64];
        if stream.read_exact(&mut message).is_ok() {
            let _ = stream.write_all(&message);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0]);
        }
    });
    let run = load(target, "-n 6 -c 2 --think 1s");
    assert_eq!(run.code, Some(0));
    assert_eq!((run.count("requests.completed"), run.count("requests.failed")), (6, 0));
    assert!(run.count("connections.reopened") >= 2);
    assert!(run.count("connections.ended_idle") >= 4);
    assert_eq!((run.count("errors.closed"), run.count("connections.unrequested")), (0, 0));
}

#[test]
fn what_is_never_answered_is_in_flight_at_the_end_of_the_window() {
    let run = load(serve(|mut stream| drop(stream.read_to_end(&mut Vec::new()))), "-d 1s -c 5");
    assert_eq!(run.code, Some(1));
    assert_eq!((run.count("requests.scheduled"), run.count("requests.in_flight")), (5, 5));
    assert_eq!(run.count("response_time_us.unanswered"), 5);
    // They were begun when the window opened, as soon as the machine let the generator.
    assert!(run.figure("response_time_us.min") >= 100_000.0);
}

#[test]
fn nobody_listening_is_said_with_its_name_and_remedy() {
    let address = refusing();
    let each = ["-c 3 --each 5", "-c 3 --each 5 --barrier", "-c 3 --each 5 -R 100", "-c 3 --each 5 --warm-up 5s"];
    for arguments in ["-c 3 -d 30s", "-c 3 -n 10", "-c 3 -n 10 --barrier"].into_iter().chain(each) {
        let run = load(address, arguments);
        assert_eq!((run.code, run.count("connections.failed"), run.count("requests.completed")), (Some(1), 3, 0));
        let warnings = run.summary()["warnings"].to_string();
        assert!(warnings.contains("ECONNREFUSED") && warnings.contains("start the server"), "{warnings}");
        let due = match arguments {
            "-c 3 -d 30s" => 0,
            _ if arguments.contains("--each") => 15,
            _ => 10,
        };
        assert_eq!(run.count("requests.unsent"), due, "{arguments}");
    }
}

/// The port that the kernel gives every connect of [`only_one_source_port`].
const ONLY_PORT: u16 = 40_000;

/// A namespace in which a connect to [`ONLY_PORT`] has that port as its source too. Where nobody
/// listens there, the socket connects to itself (RFC 9293, section 3.5: simultaneous open).
fn only_one_source_port() -> Namespace {
    let host = Namespace::new();
    let set = format!("echo {ONLY_PORT} {ONLY_PORT} > /proc/sys/net/ipv4/ip_local_port_range");
    host.output("sh", &["-c", &set]);
    host
}

/// Runs `plimsoll load` in a namespace.
fn load_in(host: &Namespace, protocol: &str, target: &str, arguments: &str) -> Run {
    let mut load = host.command(PLIMSOLL);
    load.args(["load", protocol, target, "--json", "--quiet"]).args(arguments.split_whitespace());
    outcome(&load.output().expect("nsenter runs"))
}

#[test]
fn a_connection_to_itself_is_no_server() {
    skip_without_namespaces!();
    let host = only_one_source_port();
    let refusal = |port: u16, arguments: &str| {
        let target = format!("127.0.0.1:{port}");
        let run = load_in(&host, "echo", &target, arguments);
        let counts =
            ["connections.failed", "connections.established", "requests.completed"].map(|path| run.count(path));
        assert_eq!((run.code, counts), (Some(1), [1, 0, 0]), "{arguments} at {port}: {:?}", run.warnings());
        let warnings = run.summary()["warnings"].as_array().expect("a list of warnings").iter();
        let refused: Vec<_> = warnings.filter(|warning| warning["code"] == "connections_missing").collect();
        refused[0]["message"].to_string().replace(&target, "the target")
    };
    for engine in ["epoll", "uring", "threads", "fork"] {
        for how in ["-d 1s", "--each 5", "-n 10"] {
            let arguments = format!("-c 1 {how} --engine {engine}");
            assert_eq!(refusal(ONLY_PORT, &arguments), refusal(ONLY_PORT + 1, &arguments), "{arguments}");
        }
    }
    let followed = load_in(&host, "http", &format!("http://127.0.0.1:{ONLY_PORT}/"), "--follow -n 1 -c 1");
    assert!(followed.stderr.contains("Connection refused"), "{}", followed.stderr);
}

#[test]
fn a_forwarder_that_is_connected_to_itself_has_no_server() {
    skip_without_namespaces!();
    let (host, folder) = (only_one_source_port(), Folder::new());
    let server = format!("127.0.0.1:{ONLY_PORT}");
    // Each rule has a port that no connect can have as its source.
    let check = "check = { every = \"1h\", fall = 1 }";
    for (rule, says) in [(check, "is down: 1 checks failed: Connection refused"), ("", "Connection refused")] {
        let table = format!("[forward.\"127.0.0.1:7000\"]\nto = \"{server}\"\n{rule}\n");
        // It ends by itself where it has nothing to say.
        let mut command = host.command("timeout");
        command.args(["60", PLIMSOLL, "forward", "--json", "--config", &folder.write("forward.toml", &table)]);
        let mut forwarder = Forwarder::spawn(command);
        if rule.is_empty() {
            let run = load_in(&host, "echo", "127.0.0.1:7000", "-c 1 --each 1");
            assert_eq!(run.count("requests.completed"), 0, "{:?}", run.warnings());
        }
        let sentence = forwarder.sentence();
        assert!(sentence.contains(&server) && sentence.contains(says), "{sentence}");
        forwarder.stop();
    }
}

#[test]
fn a_message_larger_than_every_buffer_comes_back_whole() {
    let run = load(echo(), "-n 6 -c 2 -s 8MiB");
    assert_eq!((run.code, run.count("requests.completed"), run.count("bytes_received")), (Some(0), 6, 6 * (8 << 20)));
}

#[test]
fn several_targets_are_used_in_turn() {
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [first, second] = counts.clone().map(|count| {
        serve(move |mut stream| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = std::io::copy(&mut stream.try_clone().expect("a descriptor"), &mut stream);
        })
    });
    let run = load(first, &format!("{second} -c 10 --each 2"));
    assert_eq!((run.code, run.count("requests.completed")), (Some(0), 20));
    assert_eq!(counts.map(|count| count.load(Ordering::SeqCst)), [5, 5]);
}

#[test]
fn sources_are_rotated_through() {
    let peers: Arc<Mutex<HashSet<_>>> = Arc::default();
    let log = Arc::clone(&peers);
    let target = serve(move |mut stream| {
        log.lock().expect("no test thread panics").insert(stream.peer_addr().expect("connected").ip().to_string());
        let _ = std::io::copy(&mut stream.try_clone().expect("a descriptor"), &mut stream);
    });
    let run = load(target, "-c 8 --each 1 --source-ip 127.9.9.0/29");
    assert_eq!(run.code, Some(0));
    assert_eq!(peers.lock().expect("no test thread panics").len(), 6);
}

#[test]
fn more_connections_than_a_descriptor_table_holds_get_further_tables() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll")]);
    let target = echo().to_string();
    limited.args(["load", "echo", &target, "-c", "300", "--each", "2", "--barrier", "-t", "2", "--json", "--quiet"]);
    let run = outcome(&limited.output().expect("a shell"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("requests.completed"), run.count("connections.peak")), (600, 300));
    assert!(run.count("generator.tables") >= 5);
}

#[test]
fn a_missed_limit_is_exit_code_3_and_a_met_one_is_not() {
    for (limit, met, code) in [("response_time.p99 < 1h", true, 0), ("completed_rate > 100M", false, 3)] {
        let mut limited = command("echo", &echo().to_string(), "-n 2000 -c 1");
        let run = outcome(&limited.args(["--limit", limit]).output().expect("the binary runs"));
        assert_eq!(run.summary()["limits"][0]["met"], met);
        // On a busy machine the result may be invalid, which is an exit code of its own.
        let valid = run.summary()["valid"] == true;
        assert_eq!(run.told, Some(if valid { code } else { 4 }), "{limit}");
    }
}

#[test]
fn an_interrupted_run_keeps_its_partial_result() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        for arguments in ["-d 1h -c 4", "-c 4 --each 1M", "-c 4 -n 1M --think 1s"] {
            let mut child = command("echo", &echo().to_string(), arguments).spawn().expect("the binary runs");
            let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
            let mut lines = String::new();
            stdout.read_line(&mut lines).expect("the window opens");
            let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
            assert!(kill.expect("kill runs").success());
            stdout.read_to_string(&mut lines).expect("text");
            let mut output = child.wait_with_output().expect("it ends");
            output.stdout = lines.into_bytes();
            let run = outcome(&output);
            assert_eq!((run.code, run.warnings().contains(&"interrupted")), (Some(code), true), "{arguments}");
            if arguments.contains("1M") {
                assert!(run.count("requests.unsent") > 0, "what was due and not sent is said");
            }
        }
    }
}

fn full() -> Stdio {
    Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full opens"))
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

#[test]
fn a_result_that_reaches_nobody_is_a_failure_with_a_clear_line() {
    let forms = ["--json", "--csv", "--csv=tcpbenchmark", "--per-connection", "--engine fork", ""];
    for form in forms {
        for (stdout, reason) in [(full(), "No space left on device"), (closed(), "Broken pipe")] {
            let mut load = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            load.args(["load", "echo", &echo().to_string(), "--each", "50", "-c", "2", "--quiet"]);
            let output = load.args(form.split_whitespace()).stdout(stdout).output().expect("the binary runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{form}: {stderr}");
            assert!(stderr.contains("the result could not be written to standard output"), "{form}: {stderr}");
            assert!(stderr.contains(reason) && !stderr.contains("panicked"), "{form}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{form}: {stderr}");
        }
    }
}

#[test]
fn a_standard_error_that_takes_nothing_is_no_failure() {
    for stderr in [full(), closed()] {
        let mut load = command("echo", &echo().to_string(), "-n 100 -c 2");
        let output = load.stderr(stderr).output().expect("the binary runs");
        assert!(matches!(output.status.code(), Some(0 | 4)));
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_way_out() {
    let target = "127.0.0.1:7";
    for (target, arguments, says) in [
        (target, "-c 0", "at least 1 connection"),
        (target, "-s 0", "at least one byte"),
        (target, "-n 0", "asks for nothing"),
        (target, "--each 2000M", "give a --duration"),
        (target, "-d 0", "nothing happens in no time"),
        (target, "--restart-sequence", "give --each"),
        (target, "--restart-sequence -n 5", "give --each"),
        (target, "--restart-sequence -d 1s", "give --each"),
        (target, "-d 5x", "such as 250ms"),
        (target, "-n 5 -d 5s", "cannot be used with"),
        (target, "--timeout 0", "give a duration"),
        (target, "--verify some", "full, length, none"),
        (target, "--limit speed<3", "no figure is called 'speed'"),
        (target, "--source-ip here", "not an address"),
        // The lab recognises a late start by these words.
        (target, "--start-at 5", "that instant has passed"),
        (target, "--start-at 1763800000250", "more than a year ahead"),
        (target, "--start-at=-1", "no instant"),
        (target, "-c 2 --engine fork --connect-rate 0.00000000000000000001", "opened in more than a year"),
        ("nohost.invalid:7", "", "write ADDR:PORT"),
        ("127.0.0.1", "", "write ADDR:PORT"),
        ("127.0.0.1:0", "", "nothing listens on port 0"),
    ] {
        let output = command("echo", target, arguments).output().expect("the binary runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{target} {arguments}: {stderr}");
        assert!(stderr.contains(says), "{target} {arguments}: {stderr}");
    }
}

/// Ten lines that have nothing of ours in them.
const FOREIGN: &str = "
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128
with Server(('127.0.0.1', 0), Echo) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
";

#[test]
fn a_foreign_echo_server_is_loaded_alike() {
    let mut python = Command::new("python3");
    let mut server = python.args(["-c", FOREIGN]).stdout(Stdio::piped()).spawn().expect("python3");
    let mut port = String::new();
    BufReader::new(server.stdout.take().expect("it is piped")).read_line(&mut port).expect("its port");
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port.trim().parse().expect("a port")));
    let run = load(target, "-n 1000 -c 20 -s 1000");
    server.kill().and_then(|()| server.wait()).expect("it ends");
    assert_eq!((run.code, run.count("requests.completed"), run.count("requests.failed")), (Some(0), 1000, 0));
}

#[test]
fn the_summary_in_words_names_what_matters() {
    let mut words = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = words.args(["load", "echo", &echo().to_string(), "-n", "200", "-c", "2"]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["completed", "200 requests", "connections", "response time", "generator", "p99"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains('\x1b') && !text.contains('\r'), "no colour without a terminal");
}

#[test]
fn a_refusing_stream_is_not_connected_twice_at_once() {
    // A listener that is never accepted from still completes connects in its backlog; nothing is
    // sent twice on them.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let run = load(listener.local_addr().expect("it is bound"), "-c 4 -d 1s");
    assert_eq!((run.count("requests.in_flight"), run.count("connections.established")), (4, 4));
    let accepted: Vec<TcpStream> = (0..4).filter_map(|_| listener.accept().ok().map(|(stream, _)| stream)).collect();
    assert_eq!(accepted.len(), 4);
}
