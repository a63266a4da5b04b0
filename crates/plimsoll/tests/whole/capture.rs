//! Captures of an interface, and their agreement with Wireshark's own analysis. Live ones need
//! root.

mod files;

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip_without_namespaces;
use crate::support::network::{Namespace, PLIMSOLL, Pair, Running, Scratch, run};
use serde_json::Value;

/// The summary of a file.
fn read(path: &str, arguments: &[&str]) -> Value {
    let text = run(PLIMSOLL, &[&["capture", "-r", path, "--json"], arguments].concat());
    serde_json::from_str(text.lines().last().expect("a summary")).expect("it is JSON")
}

/// Captures on the second host while `traffic` runs; returns the summary.
fn capture(pair: &Pair, file: &Scratch, traffic: impl FnOnce()) -> Value {
    let mut command = pair.hosts[1].command(PLIMSOLL);
    let capture = Running::start(command.args(["capture", "-i", &pair.devices[1], "-w", file.path(), "--json"]));
    traffic();
    capture.stop()
}

/// TCP segments that the hosts' kernels have sent again (`RetransSegs` in /proc/net/snmp, RFC
/// 4022).
fn sent_again(pair: &Pair) -> u64 {
    let of = |host: &crate::support::network::Namespace| {
        let output = host.command("cat").arg("/proc/net/snmp").output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let [names, values] =
            [0, 1].map(|place| text.lines().filter(|line| line.starts_with("Tcp:")).nth(place).expect("a line of TCP"));
        let place = names.split(' ').position(|name| name == "RetransSegs").expect("its name");
        values.split(' ').nth(place).and_then(|value| value.parse::<u64>().ok()).expect("its value")
    };
    pair.hosts.iter().map(of).sum()
}

#[test]
fn mistakes_are_told_with_their_exit_code() {
    let text = Scratch::new(".pcapng");
    std::fs::write(&text.0, "not a capture at all, but long enough").expect("it can be written");
    for (arguments, code, said) in [
        (&["-r", "/nowhere.pcapng"][..], 2, "cannot read `/nowhere.pcapng`"),
        (&["-r", text.path()], 1, "not a pcapng file"),
        (&["-i", "no-such-device"], 5, "cannot capture on `no-such-device`"),
        (&["-i", "lo", "--snap", "77"], 2, "--snap is out of range; write 78 "),
        (&["-i", "lo", "-w", "-"], 2, "--write does not write to standard output"),
        (&["-i", "lo", "--interval", "0"], 2, "--interval is less than a millisecond"),
        (&[], 2, "--interface"),
        (&["-r", text.path(), "-i", "lo"], 2, "cannot be used with"),
    ] {
        let output = Command::new(PLIMSOLL).arg("capture").args(arguments).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn a_capture_that_cannot_begin_leaves_the_file_that_it_was_to_write() {
    let file = Scratch::new(".pcapng");
    std::fs::write(&file.0, "an earlier capture").expect("it can be written");
    let mut command = Command::new(PLIMSOLL);
    let output = command.args(["capture", "-i", "no-such-device", "-w", file.path()]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(std::fs::read_to_string(&file.0).expect("it is there"), "an earlier capture");
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let file = Scratch::new(".pcapng");
    // A section of no interfaces: the byte-order magic, version 1.0, a length that is not stated.
    let numbers = [0x0a0d_0d0a_u32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28];
    std::fs::write(&file.0, numbers.map(u32::to_le_bytes).concat()).expect("it can be written");
    assert_eq!(read(file.path(), &[])["packets"], 0);
    for arguments in [&["--json"][..], &[]] {
        let full = std::fs::File::create("/dev/full").expect("it is there on every Linux");
        let mut command = Command::new(PLIMSOLL);
        command.args(["capture", "-r", file.path()]).args(arguments).stdout(full).stderr(Stdio::piped());
        let output = command.output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("the result cannot be written to standard output: No space left"), "{error}");
    }
}

/// What a capture printed and said that failed.
fn failed(output: &std::process::Output) -> (Value, String) {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("it is JSON");
    assert_eq!(summary["event"], "summary", "{error}");
    let told = summary["error"].as_str().expect("what ended it");
    assert!(error.contains(told), "{error}: {told}");
    (summary, error)
}

/// Sends datagrams of 60,000 bytes over the loopback interface of a namespace.
fn send_datagrams(host: &Namespace, count: usize) {
    let send = format!(
        "from socket import *\n\
         receiver = socket(AF_INET, SOCK_DGRAM); receiver.bind((\"127.0.0.1\", 0))\n\
         for _ in range({count}): receiver.sendto(bytes(60000), receiver.getsockname())"
    );
    host.output("python3", &["-c", &send]);
}

#[test]
fn a_capture_whose_disk_is_full_fails_and_says_what_to_do_and_what_it_has() {
    skip_without_namespaces!();
    let host = Namespace::new();
    let capture = |arguments: &[&str]| {
        let mut command = host.command(PLIMSOLL);
        command.args(["capture", "-i", "lo", "-w", "/dev/full", "--json"]).args(arguments);
        command
    };
    // What it has to write goes to the disk at its end, where /dev/full has no room.
    let (summary, error) = failed(&capture(&["-d", "100ms"]).output().expect("it starts"));
    assert!(error.contains("`/dev/full`: No space left") && error.contains("make room on its disk"), "{error}");
    assert_eq!(summary["packets"], 0, "{summary}");
    // It has to write more than it keeps, so that it ends.
    let running = Running::start(&mut capture(&["--snap", "65600"]));
    send_datagrams(&host, 100);
    let (summary, _) = failed(&running.output());
    assert!((1..=100).contains(&summary["packets"].as_u64().expect("a count")), "{summary}");
    assert_eq!(summary["kernel_drops"], 0, "{summary}");
}

#[test]
fn a_capture_whose_interface_goes_away_has_all_until_then_and_its_file_is_not_taken_for_whole() {
    skip_without_namespaces!();
    let host = Namespace::new();
    let file = Scratch::new(".pcapng");
    let mut command = host.command(PLIMSOLL);
    let running = Running::start(command.args(["capture", "-i", "lo", "-w", file.path(), "--json"]));
    send_datagrams(&host, 20);
    host.output("ip", &["link", "set", "lo", "down"]);
    let (summary, error) = failed(&running.output());
    assert!(error.contains("cannot capture on `lo`: it went down or away"), "{error}");
    assert_eq!((&summary["packets"], &summary["kernel_drops"]), (&20.into(), &0.into()), "{summary}");
    let intervals = summary["interval"].as_array().expect("intervals");
    assert_eq!(intervals.iter().filter_map(|each| each["packets"].as_u64()).sum::<u64>(), 20, "{summary}");
    let again = Command::new(PLIMSOLL).args(["capture", "-r", file.path(), "--json"]).output().expect("it starts");
    let (again, error) = failed(&again);
    assert!(error.contains("it is cut short") && error.contains("20 packets"), "{error}");
    assert_eq!((&again["packets"], &again["kernel_drops"]), (&20.into(), &Value::Null), "{again}");
    let sentence = Command::new(PLIMSOLL).args(["capture", "-r", file.path()]).output().expect("it starts");
    assert!(String::from_utf8_lossy(&sentence.stdout).starts_with("until it failed, 20 packets"), "{sentence:?}");
}

#[test]
fn a_reader_that_reads_nothing_does_not_hold_up_the_end() {
    skip_without_namespaces!();
    let host = Namespace::new();
    let file = Scratch::new(".pcapng");
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    let mut command = host.command(PLIMSOLL);
    command.args(["capture", "-i", "lo", "-w", file.path(), "--interval", "1ms", "--json"]);
    command.stdout(writer.try_clone().expect("a descriptor")).stderr(Stdio::piped());
    // The pipe is full before the capture has anything to print.
    std::thread::spawn(move || writer.write_all(&[b'x'; 1 << 20]));
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let patience = Duration::from_secs(20);
    let started = Instant::now();
    while !file.0.exists() {
        assert!(started.elapsed() < patience, "no capture began");
    }
    send_datagrams(&host, 20);
    run("kill", &["-TERM", &child.id().to_string()]);
    let signalled = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if signalled.elapsed() > patience {
            child.kill().expect("it runs");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("it has ended");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("less than 4 KiB of it was taken in 2s"), "{error}");
    let summary = read(file.path(), &[]);
    assert_eq!((&summary["packets"], &summary["kernel_drops"]), (&20.into(), &0.into()), "{summary}");
}

/// A capture into this file with some 5,000 intervals, which is asked to end.
fn of_many_intervals(host: &Namespace, file: &Scratch) -> Running {
    let mut command = host.command(PLIMSOLL);
    let capture = ["capture", "-i", "lo", "-w", file.path(), "--interval", "1ms", "--json"];
    let capture = Running::start(command.args(capture));
    // All intervals of the pause are over at once, as its end is the next packet.
    let send = "import socket, time\n\
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); receiver.bind((\"127.0.0.1\", 0))\n\
                for pause in (0, 5): time.sleep(pause); receiver.sendto(b\"x\", receiver.getsockname())";
    host.output("python3", &["-c", send]);
    run("kill", &["-TERM", &capture.child.id().to_string()]);
    capture
}

#[test]
fn every_interval_and_the_summary_reach_a_reader_who_reads_however_slowly() {
    skip_without_namespaces!();
    let (host, file) = (Namespace::new(), Scratch::new(".pcapng"));
    let mut capture = of_many_intervals(&host, &file);
    let (mut output, mut bytes) = (Vec::new(), [0; 16 * 1024]);
    loop {
        // The summary alone takes longer than a reader who takes nothing is waited for.
        std::thread::sleep(Duration::from_millis(50));
        match std::io::Read::read(&mut capture.lines, &mut bytes).expect("a pipe") {
            0 => break,
            count => output.extend_from_slice(&bytes[..count]),
        }
    }
    assert!(capture.child.wait().expect("it can be waited for").success());
    let output = String::from_utf8(output).expect("text");
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let (summary, reported) = lines.split_last().expect("a summary");
    let intervals = summary["interval"].as_array().expect("intervals");
    assert!(intervals.len() > 5000 && reported.len() == intervals.len(), "{} of {}", reported.len(), intervals.len());
    assert!(reported.iter().zip(intervals).all(|(line, interval)| line["packets"] == interval["packets"]));
}

#[test]
fn a_further_signal_ends_the_wait_for_a_slow_reader_and_the_file_is_complete_before() {
    skip_without_namespaces!();
    let (host, file) = (Namespace::new(), Scratch::new(".pcapng"));
    let mut capture = of_many_intervals(&host, &file);
    let started = Instant::now();
    while read_once(&file) != Some(2) {
        assert!(started.elapsed() < Duration::from_secs(60), "the file is not completed");
    }
    // Asked again and again, as a person would: it ends with one that comes late enough.
    let mut bytes = [0; 4096];
    while capture.child.try_wait().expect("it can be waited for").is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
        run("kill", &["-TERM", &capture.child.id().to_string()]);
        let _ = std::io::Read::read(&mut capture.lines, &mut bytes);
        std::thread::sleep(Duration::from_millis(200));
    }
    let status = capture.child.wait().expect("it has ended");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
}

/// The packets of a file, if it is complete.
fn read_once(file: &Scratch) -> Option<u64> {
    let output = Command::new(PLIMSOLL).args(["capture", "-r", file.path(), "--json"]).output().expect("it starts");
    let summary: Value = serde_json::from_slice(&output.stdout).ok()?;
    summary["packets"].as_u64().filter(|_| output.status.success())
}

#[test]
fn the_least_snap_length_holds_all_that_the_figures_need() {
    skip_without_namespaces!();
    let host = Namespace::new();
    let file = Scratch::new(".pcapng");
    let mut command = host.command(PLIMSOLL);
    let capture = ["capture", "-i", "lo", "-w", file.path(), "--snap", "78", "--json"];
    let capture = Running::start(command.args(capture));
    let talk = "import socket\n\
                for family, address in (socket.AF_INET, \"127.0.0.1\"), (socket.AF_INET6, \"::1\"):\n    \
                    server = socket.socket(family); server.bind((address, 0)); server.listen()\n    \
                    client = socket.create_connection(server.getsockname()[:2]); client.sendall(bytes(1000))\n    \
                    peer = server.accept()[0]; peer.recv(1000, socket.MSG_WAITALL); client.close(); peer.close()";
    host.output("python3", &["-c", talk]);
    let summary = capture.stop();
    assert_eq!((&summary["unreadable"], &summary["cut_off"]), (&0.into(), &0.into()), "{summary}");
    assert_eq!((&summary["endpoints"], &summary["flags"]["syn"]), (&4.into(), &4.into()), "{summary}");
    assert_eq!(read(file.path(), &[]), summary);
}

#[test]
fn every_packet_between_two_hosts_is_captured_once() {
    skip_without_namespaces!();
    let pair = Pair::new("");
    let (_server, address) = pair.echo();
    let file = Scratch::new(".pcapng");
    let summary = capture(&pair, &file, || {
        let summary = pair.load(&address, &["-c", "40", "--each", "5", "-s", "64B"]);
        assert_eq!(summary["requests"]["completed"], 200, "{summary}");
    });
    assert_eq!(summary["endpoints"], 41, "each connection's, and the server's: {summary}");
    // A handshake of 3, a request and a reply of 5 times 1 at least, and an end of 3 at least.
    assert!(summary["packets"].as_u64() >= Some(40 * (3 + 10 + 3)), "{summary}");
    assert_eq!((&summary["kernel_drops"], &summary["unreadable"]), (&Value::from(0), &Value::from(0)));
    // None on a quiet machine; one that holds the emulator up for long makes the kernels send
    // again, and they count it.
    let again = summary["tcp"]["retransmissions"].as_u64().zip(summary["tcp"]["out_of_order"].as_u64());
    assert_eq!(again.map(|(retransmitted, reordered)| retransmitted + reordered), Some(sent_again(&pair)), "{summary}");
    assert_eq!(summary["tcp"]["unanswered_syn"], 0, "{summary}");
    let sum: u64 =
        summary["interval"].as_array().expect("intervals").iter().filter_map(|one| one["packets"].as_u64()).sum();
    assert_eq!(summary["packets"], sum);
    let again = read(file.path(), &[]);
    assert_eq!(again, summary, "the file comes to the same");
    let finer = read(file.path(), &["--interval", "1ms"]);
    assert_eq!((&finer["packets"], &finer["tcp"]), (&summary["packets"], &summary["tcp"]));
    let milliseconds = summary["elapsed_s"].as_f64().expect("a number") * 1e3;
    assert_eq!(finer["interval"].as_array().map(Vec::len), Some(milliseconds as usize + 1));
}

#[test]
fn on_the_loopback_interface_each_packet_counts_once() {
    skip_without_namespaces!();
    let pair = Pair::new("");
    let mut command = pair.hosts[1].command(PLIMSOLL);
    let capture = Running::start(command.args(["capture", "-i", "lo", "--json"]));
    let mut command = pair.hosts[1].command(PLIMSOLL);
    let refused =
        command.args(["load", "echo", "127.0.0.1:1", "-c", "1", "-n", "1", "--json"]).output().expect("it starts");
    assert!(!refused.status.success());
    let passed = pair.hosts[1].traffic("lo");
    let summary = capture.stop();
    // A SYN to a port nobody listens on, and the reset it gets.
    assert_eq!(summary["packets"].as_u64().map(|count| count % 2), Some(0), "{summary}");
    assert_eq!(summary["packets"].as_u64().map(|count| count / 2), summary["tcp"]["resets"].as_u64(), "{summary}");
    assert_eq!(summary["tcp"]["retransmissions"], 0, "{summary}");
    // The loopback device counts the bytes above the Ethernet header.
    let bytes = passed.received_bytes + 14 * passed.received;
    assert_eq!((&summary["packets"], &summary["bytes"]), (&passed.received.into(), &bytes.into()), "{summary}");
}

#[test]
fn a_vlan_tag_is_captured_with_its_packet() {
    skip_without_namespaces!();
    let pair = Pair::new("");
    let file = Scratch::new(".pcapng");
    let summary = capture(&pair, &file, || {
        // Frames of an experimental kind (IEEE 802, section 9.2.2), with one tag and with two.
        let send = format!(
            "from socket import *\n\
             raw = socket(AF_PACKET, SOCK_RAW); raw.bind((\"{}\", 0))\n\
             for tags in (\"81000005\", \"88a8000681000007\"):\n    \
                 raw.send(bytes.fromhex(\"ffffffffffff020000000009\" + tags + \"88b5\") + bytes(range(100, 200)))",
            pair.devices[0]
        );
        pair.hosts[0].output("python3", &["-c", &send]);
    });
    let bytes = std::fs::read(&file.0).expect("it was written");
    let holds = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(holds(b"\x02\0\0\0\0\x09\x81\0\0\x05\x88\xb5def"), "one tag: {summary}");
    assert!(holds(b"\x02\0\0\0\0\x09\x88\xa8\0\x06\x81\0\0\x07\x88\xb5def"), "two tags: {summary}");
    // Captured length and length, of all of the first.
    assert!(holds(&[118_u32.to_le_bytes(), 118_u32.to_le_bytes()].concat()), "{summary}");
}

#[test]
fn packets_that_find_no_room_are_counted_once_as_dropped() {
    skip_without_namespaces!();
    let host = Namespace::new();
    let mut command = host.command(PLIMSOLL);
    let capture = Running::start(command.args(["capture", "-i", "lo", "--snap", "65600", "--json"]));
    let process = capture.child.id().to_string();
    run("kill", &["-STOP", &process]);
    // Almost four times what the ring of 32 MiB holds.
    send_datagrams(&host, 2000);
    run("kill", &["-CONT", &process]);
    let passed = host.traffic("lo").received;
    let summary = capture.stop();
    let count = |name: &str| summary[name].as_u64().expect("a count");
    assert!(passed >= 2000 && count("packets") > 0 && count("kernel_drops") > 0, "{summary}");
    assert_eq!(count("packets") + count("kernel_drops"), passed, "{summary}");
}

#[test]
fn a_capture_ends_by_itself_after_its_duration() {
    skip_without_namespaces!();
    let pair = Pair::new("");
    let mut command = pair.hosts[0].command(PLIMSOLL);
    let output = command.args(["capture", "-i", &pair.devices[0], "-d", "200ms"]).output().expect("it starts");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("0 retransmissions"));
}

/// What tshark counts in a file, under our names.
fn tshark(path: &str) -> HashMap<&'static str, u64> {
    let count = |filter: &str| run("tshark", &["-r", path, "-Y", filter]).lines().count() as u64;
    let endpoints = run("tshark", &["-r", path, "-q", "-z", "endpoints,tcp"]);
    // Connections whose SYN was seen, less those in which a SYN or a reset came back.
    let streams = |filter: &str| -> std::collections::HashSet<String> {
        run("tshark", &["-r", path, "-Y", filter, "-T", "fields", "-e", "tcp.stream"])
            .lines()
            .map(str::to_owned)
            .collect()
    };
    let begun = streams("tcp.flags.syn==1 && tcp.flags.ack==0");
    let answered = streams("(tcp.flags.syn==1 && tcp.flags.ack==1) || (tcp.flags.reset==1 && tcp.srcport < 32768)");
    HashMap::from([
        ("retransmissions", count("tcp.analysis.retransmission")),
        ("out_of_order", count("tcp.analysis.out_of_order")),
        ("duplicate_acks", count("tcp.analysis.duplicate_ack")),
        ("zero_windows", count("tcp.analysis.zero_window")),
        ("resets", count("tcp.flags.reset==1")),
        ("unanswered_syn", begun.difference(&answered).count() as u64),
        ("endpoints", endpoints.lines().filter(|line| line.starts_with("10.")).count() as u64),
    ])
}

/// What tshark counts in each interval of 100 ms since the first packet, in the form of our own
/// summary.
fn tshark_intervals(path: &str, count: usize) -> Vec<Value> {
    const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    const FAULTS: [&str; 4] = ["retransmissions", "out_of_order", "duplicate_acks", "zero_windows"];
    let fields = [
        "frame.time_relative",
        "frame.len",
        "tcp.flags",
        "tcp.analysis.retransmission",
        "tcp.analysis.out_of_order",
        "tcp.analysis.duplicate_ack",
        "tcp.analysis.zero_window",
    ];
    let mut arguments = vec!["-r", path, "-T", "fields"];
    arguments.extend(fields.iter().flat_map(|field| ["-e", *field]));
    let names: Vec<&str> = ["packets", "bytes"].into_iter().chain(FLAGS).chain(FAULTS).collect();
    let mut intervals = vec![vec![0_u64; names.len()]; count];
    for line in run("tshark", &arguments).lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let interval = (columns[0].parse::<f64>().expect("seconds") * 10.0) as usize;
        let length = columns[1].parse::<u64>().expect("bytes");
        let flags = u64::from_str_radix(columns[2].trim_start_matches("0x"), 16).unwrap_or(0);
        let set = (0..FLAGS.len()).map(|bit| flags >> bit & 1);
        let seen = columns[3..].iter().map(|column| u64::from(!column.is_empty()));
        for (total, one) in intervals[interval].iter_mut().zip([1, length].into_iter().chain(set).chain(seen)) {
            *total += one;
        }
    }
    let record = |counts: Vec<u64>| {
        Value::Object(names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), count.into())).collect())
    };
    intervals.into_iter().map(record).collect()
}

/// Whether both counted the same. Among packets in free order a late one is a retransmission or out
/// of order by its age alone, so one at the very bound of 3 ms may be either.
fn agrees(name: &str, ours: &Value, theirs: u64, keys: &str) -> bool {
    let slack = if keys.contains("free") && ["retransmissions", "out_of_order"].contains(&name) { 2 } else { 0 };
    ours.as_u64().is_some_and(|ours| ours.abs_diff(theirs) <= slack)
}

#[test]
fn wireshark_counts_the_same() {
    skip_without_namespaces!();
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: `tshark` is not installed (apt-get install tshark)");
        return;
    }
    for keys in [
        r#", "rate": "20Mbit", "delay": "5ms", "queue": 20, "loss": "1%""#,
        r#", "delay": "5ms", "jitter": "2ms", "order": "free", "loss": "0.3%""#,
    ] {
        let pair = Pair::new(keys);
        let (_server, address) = pair.echo();
        let file = Scratch::new(".pcapng");
        let ours = capture(&pair, &file, || {
            pair.load(&address, &["-c", "10", "-d", "2s", "-s", "20000B", "--verify", "length"]);
            // Nobody listens there; and nobody is there.
            pair.load("10.0.0.2:9", &["-c", "3", "-n", "3"]);
            let neighbour = "neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev";
            let arguments: Vec<&str> = neighbour.split(' ').chain([pair.devices[0].as_str()]).collect();
            pair.hosts[0].output("ip", &arguments);
            let mut silent = pair.hosts[0].command("timeout");
            let _ = silent.args(["3", PLIMSOLL, "load", "echo", "10.0.0.77:7000", "-c", "3", "-n", "3"]).output();
        });
        let theirs = tshark(file.path());
        println!("ours {ours}\ntheirs {theirs:?}");
        for (name, count) in &theirs {
            let ours = if *name == "endpoints" { &ours[*name] } else { &ours["tcp"][*name] };
            assert!(agrees(name, ours, *count, keys), "{name} with {keys}: {ours}, not {count}");
        }
        let finer = read(file.path(), &["--interval", "100ms"]);
        let intervals = finer["interval"].as_array().expect("intervals");
        for (number, theirs) in tshark_intervals(file.path(), intervals.len()).iter().enumerate() {
            let ours = &intervals[number];
            for (name, count) in theirs.as_object().expect("an object") {
                let ours = if ours[name].is_null() { &ours["flags"][name] } else { &ours[name] };
                let count = count.as_u64().expect("a count");
                assert!(
                    agrees(name, ours, count, keys),
                    "{name} in interval {number} with {keys}: {ours}, not {count}"
                );
            }
        }
        let sum = |name: &str| intervals.iter().filter_map(|each| each[name].as_u64()).sum::<u64>();
        assert_eq!(ours["endpoints"], sum("new_endpoints"));
        assert_eq!(ours["tcp"]["retransmissions"], sum("retransmissions"));
        assert!(theirs["retransmissions"] > 0 && theirs["resets"] > 0 && theirs["unanswered_syn"] == 3, "{theirs:?}");
    }
}
