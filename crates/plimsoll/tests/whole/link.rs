//! The emulated link between namespaces, as programs on the hosts see it. Needs root.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::skip_without_namespaces;
use crate::support::network::{Namespace, PLIMSOLL, Pair, Running, Scratch, fresh_name, run};

#[test]
fn a_mistake_in_the_configuration_is_refused_with_exit_code_2() {
    let config = Scratch::new(".json");
    std::fs::write(&config.0, r#"{"devices": ["a"], "links": [{"ends": ["a", "b"]}]}"#).expect("it can be written");
    for (path, said) in [(config.path(), "`b` is neither in `devices`"), ("/nowhere/links.json", "cannot read")] {
        let output = Command::new(PLIMSOLL).args(["link", "--config", path]).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said) && error.trim_end().lines().count() == 1, "{error}");
    }
}

#[test]
fn no_request_is_faster_than_the_link_and_every_packet_is_counted() {
    skip_without_namespaces!();
    let pair = Pair::new(r#", "rate": "100Mbit", "delay": "1ms""#);
    let (server, address) = pair.echo();
    let summary = pair.load(&address, &["-c", "1", "-n", "200"]);
    assert_eq!(summary["requests"]["completed"], 200, "{summary}");
    assert!(summary["response_time_us"]["min"].as_f64() >= Some(2000.0), "{summary}");
    drop(server);
    let summary = pair.link.stop();
    let there = &summary["links"][0];
    let count = |name: &str| there[name].as_u64().unwrap_or_else(|| panic!("{name} in {there}"));
    assert!(count("offered") >= 200 && count("dropped_by_queue") == 0 && count("dropped_by_loss") == 0, "{there}");
    assert!(count("delivered") + count("dropped_by_fault") <= count("offered"), "{there}");
    assert!(count("delivered") >= 200, "{there}");
}

#[test]
fn an_answer_is_whole_once_the_last_of_its_lost_packets_has_come() {
    skip_without_namespaces!();
    let pair = Pair::new(r#", "delay": "50ms", "reverse": {"delay": "50ms", "loss": "20%"}"#);
    let mut serve = pair.hosts[1].command(PLIMSOLL);
    let server = Running::start(serve.args(["serve", "http", "--synthetic", "--json", "--listen", "10.0.0.2:0"]));
    let url = format!("http://{}/bytes/10000", server.ready["addresses"][0].as_str().expect("an address"));
    // Eight packets, of which none is lost in a sixth of the answers. The others take two round
    // trips at least, and in four of five of them the last packet comes after one.
    let mut load = pair.hosts[0].command(PLIMSOLL);
    load.args(["load", "http", &url, "--json", "--quiet", "-t", "1", "--reconnect"]);
    let output = load.args(["-c", "100", "-R", "40", "-d", "4s"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    assert!(summary["transmission_time_us"]["count"].as_u64() >= Some(20), "{summary}");
    assert!(summary["transmission_time_us"]["p50"].as_f64() >= Some(200e3), "{summary}");
}

#[test]
fn the_share_asked_for_is_lost_and_counted() {
    skip_without_namespaces!();
    let pair = Pair::new(r#", "delay": "100us", "loss": "10%""#);
    let (_server, address) = pair.echo();
    let summary = pair.load(&address, &["-c", "16", "-n", "3000"]);
    assert_eq!(summary["requests"]["completed"], 3000, "TCP repairs what is lost: {summary}");
    let summary = pair.link.stop();
    for way in [0, 1] {
        let way = &summary["links"][way];
        let offered = way["offered"].as_f64().expect("a number");
        let lost = way["dropped_by_loss"].as_f64().expect("a number");
        // Five standard deviations of a binomial count.
        let tolerance = 5.0 * (offered * 0.1 * 0.9).sqrt();
        assert!(offered > 3000.0 && (lost - offered * 0.1).abs() < tolerance, "{way}");
    }
}

#[test]
fn frames_that_the_link_was_too_slow_to_read_are_counted_and_are_a_disturbance() {
    skip_without_namespaces!();
    let mut pair = Pair::new("");
    let (_server, address) = pair.echo();
    pair.load(&address, &["-c", "1", "-n", "1"]);
    let link = pair.link.child.id().to_string();
    run("kill", &["-STOP", &link]);
    // More than the device's queue holds (1,000 packets, txqueuelen); the address is known since
    // the request above.
    let send = "exec 3>/dev/udp/10.0.0.2/9; for each in $(seq 3000); do echo >&3; done";
    let sent = pair.hosts[0].command("bash").args(["-c", send]).output().expect("it starts");
    run("kill", &["-CONT", &link]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let disturbance = pair.link.event("disturbance");
    assert!(disturbance["lost_frames"].as_u64() > Some(0), "{disturbance}");
    // A connection comes through once everything before it has.
    pair.load(&address, &["-c", "1", "-n", "1"]);
    let summary = pair.link.stop();
    let [there, back] = [&summary["links"][0], &summary["links"][1]];
    let count = |way: &serde_json::Value, name: &str| way[name].as_u64().unwrap_or_else(|| panic!("{name} in {way}"));
    assert!(count(there, "dropped_by_fault") > 0 && count(back, "dropped_by_fault") == 0, "{summary}");
    assert!(count(there, "offered") >= 3000, "{summary}");
    assert!(count(there, "delivered") + count(there, "dropped_by_fault") >= 3000, "{summary}");
}

/// The counts once they agree with those of the hosts' own devices, which they do when nothing is
/// under way.
fn settled(pair: &mut Pair) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let counters = pair.link.event("counters");
        let hosts = [0, 1].map(|host: usize| pair.hosts[host].traffic(&pair.devices[host]));
        let agrees = |from: usize| {
            let way = |name: &str| counters["links"][from][name].as_u64().expect("a count");
            let (sender, receiver) = (hosts[from], hosts[1 - from]);
            let dropped = ["dropped_by_queue", "dropped_by_loss", "dropped_by_fault"].map(way).iter().sum::<u64>();
            [way("offered"), way("offered_bytes")] == [sender.sent, sender.sent_bytes]
                && [way("delivered"), way("delivered_bytes")] == [receiver.received, receiver.received_bytes]
                && way("offered") == way("delivered") + dropped
        };
        if agrees(0) && agrees(1) {
            let offered = [0, 1].map(|from: usize| counters["links"][from]["offered"].as_u64().expect("a count"));
            assert_eq!(counters["emulator"]["packets"], offered[0] + offered[1], "{counters}");
            return counters;
        }
        assert!(Instant::now() < deadline, "{counters} is not what the hosts say: {hosts:?}");
    }
}

#[test]
fn the_links_counts_are_those_of_the_hosts_own_devices() {
    skip_without_namespaces!();
    for (keys, dropped) in [
        // There is room for all, however fast they are sent.
        (r#", "rate": "100Mbit", "delay": "1ms", "queue": 1000"#, None),
        // A frame takes 83 ms to depart, so that most of those that are sent at once find no room.
        (r#", "rate": "100kbit", "queue": 10"#, Some("dropped_by_queue")),
        (r#", "delay": "1ms", "loss": "20%""#, Some("dropped_by_loss")),
    ] {
        let mut pair = Pair::start(keys, &["--interval", "100ms"]);
        let send = "exec 3<>/dev/udp/10.0.0.2/9; for each in $(seq 300); do printf %1000s x >&3; done; true";
        let deadline = Instant::now() + Duration::from_secs(60);
        let counters = loop {
            // Nobody listens there: a send that finds that out fails, and sends nothing.
            pair.hosts[0].output("bash", &["-c", send]);
            let counters = settled(&mut pair);
            // Where the question who has the address was lost, the host asks again after a second.
            if counters["links"][0]["offered"].as_u64() > Some(50) {
                break counters;
            }
            assert!(Instant::now() < deadline, "{keys}: {counters}");
        };
        let there = &counters["links"][0];
        for name in ["dropped_by_queue", "dropped_by_loss"] {
            assert_eq!(there[name].as_u64() > Some(0), dropped == Some(name), "{keys}: {name} in {counters}");
        }
        let figure = |name: &str| there[name].as_f64().expect("a number");
        let (longest, mean) = (figure("queue_wait_us_max"), figure("queue_wait_us_total") / figure("offered"));
        // A frame of these takes 83 ms, and nine are ahead of the last that finds room.
        match dropped {
            Some("dropped_by_queue") => assert!((83e3..9.0 * 84e3).contains(&longest) && mean < longest, "{counters}"),
            Some(_) => assert_eq!((longest, mean), (0.0, 0.0), "there is no rate to wait for: {counters}"),
            None => assert!(mean <= longest, "{counters}"),
        }
    }
}

#[test]
fn what_a_device_dropped_before_the_link_began_is_not_the_links() {
    skip_without_namespaces!();
    let host = Namespace::new();
    for device in ["one", "other"] {
        host.output("ip", &["tuntap", "add", "dev", device, "mode", "tap"]);
    }
    host.output("ip", &["link", "set", "one", "up"]);
    // Nobody holds the device, so that it drops whatever is sent.
    let send = "from socket import *\n\
                raw = socket(AF_PACKET, SOCK_RAW); raw.bind((\"one\", 0))\n\
                for _ in range(100): raw.send(bytes(100))";
    host.output("python3", &["-c", send]);
    let config = Scratch::new(".json");
    let json = r#"{"devices": ["one", "other"], "links": [{"ends": ["one", "other"]}]}"#;
    std::fs::write(&config.0, json).expect("it can be written");
    let mut command = host.command(PLIMSOLL);
    let summary = Running::start(command.args(["link", "--json", "--config", config.path()])).stop();
    let rows = host.output("cat", &["/proc/net/dev"]);
    let row = rows.lines().find_map(|line| line.trim().strip_prefix("one:")).expect("the device is still there");
    let dropped = row.split_whitespace().nth(11).and_then(|count| count.parse::<u64>().ok());
    assert!(dropped >= Some(100), "{rows}");
    // The device's own few packets may be lost: the other one is down.
    assert!(summary["links"][0]["dropped_by_fault"].as_u64() < Some(100), "{summary}");
}

/// CPU time of a process's first thread, and its wait for a CPU, in seconds (proc_pid_schedstat).
fn schedule(process: u32) -> Option<[f64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    let mut columns = text.split_whitespace().map(|column| column.parse::<f64>().expect("nanoseconds") / 1e9);
    Some([columns.next()?, columns.next()?])
}

#[test]
fn the_link_tells_what_it_costs_as_the_scheduler_counts_it() {
    skip_without_namespaces!();
    let mut pair = Pair::start(r#", "rate": "100Mbit""#, &["--interval", "100ms"]);
    let process = pair.link.child.id();
    let Some(begun) = schedule(process) else {
        println!("skipped: the kernel keeps no /proc/PID/schedstat");
        return;
    };
    let (server, address) = pair.echo();
    pair.load(&address, &["-c", "4", "-n", "2000"]);
    drop(server);
    let counters = settled(&mut pair);
    let ended = schedule(process).expect("it runs");
    let summary = pair.link.stop();
    // A counter that was read later has at least what one that was read earlier had.
    for (name, place) in [("cpu_s", 0), ("run_queue_wait_s", 1)] {
        let [earlier, later] = [&counters, &summary].map(|told| told["emulator"][name].as_f64().expect("seconds"));
        assert!(earlier <= ended[place] && later >= ended[place] - begun[place] - 1e-9, "{name}: {begun:?}, {ended:?}");
    }
    let cost = |name: &str| summary["emulator"][name].as_f64().expect("a number");
    assert!(cost("cpu_s") > 0.0 && cost("packets") >= 4000.0 && cost("longest_round_us") > 0.0, "{summary}");
    assert!((cost("cpu_us_per_packet") * cost("packets") / 1e6 - cost("cpu_s")).abs() < 1e-9, "{summary}");
}

#[test]
fn a_killed_link_leaves_no_device_in_any_namespace() {
    skip_without_namespaces!();
    let mut pair = Pair::new("");
    let name = pair.devices[0].clone();
    let exists = |host: &Namespace| host.output("ip", &["-o", "link"]).contains(&name);
    assert!(exists(&pair.hosts[0]));
    pair.link.child.kill().expect("it can be killed");
    pair.link.child.wait().expect("it can be waited for");
    assert!(!exists(&pair.hosts[0]));
}

#[test]
fn a_reader_that_reads_nothing_does_not_hold_up_the_end() {
    skip_without_namespaces!();
    for backend in ["tap", "kernel"] {
        let namespace = Namespace::new();
        let config = Scratch::new(".json");
        let json = r#"{"devices": ["a0", "b0"], "links": [{"ends": ["a0", "b0"]}]}"#;
        std::fs::write(&config.0, json).expect("it can be written");
        let (_reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut link = namespace.command(PLIMSOLL);
        link.args(["link", "--json", "--interval", "1ms", "--backend", backend, "--config", config.path()]);
        link.stdout(writer.try_clone().expect("a descriptor")).stderr(Stdio::piped());
        // The pipe is full before the link has anything to print.
        std::thread::spawn(move || std::io::Write::write_all(&mut writer, &[b'x'; 1 << 20]));
        let child = link.spawn().expect("it starts");
        drop(link);
        let started = Instant::now();
        while !namespace.output("ip", &["-o", "link"]).contains("b0") {
            assert!(started.elapsed() < Duration::from_secs(60), "no device was made");
        }
        run("kill", &["-TERM", &child.id().to_string()]);
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("less than 4 KiB of it was taken in 2s"), "{error}");
        assert!(!namespace.output("ip", &["-o", "link"]).contains("b0"));
    }
}

#[test]
fn a_slow_reader_has_the_whole_summary() {
    skip_without_namespaces!();
    let namespace = Namespace::new();
    let config = Scratch::new(".json");
    let json = r#"{"devices": ["a0", "b0"], "links": [{"ends": ["a0", "b0"]}]}"#;
    std::fs::write(&config.0, json).expect("it can be written");
    let mut link = namespace.command(PLIMSOLL);
    link.args(["link", "--json", "--interval", "1ms", "--config", config.path()]);
    let mut running = Running::start(&mut link);
    // Until some thousand lines wait.
    std::thread::sleep(Duration::from_secs(2));
    run("kill", &["-TERM", &running.child.id().to_string()]);
    let (mut text, mut bytes) = (Vec::new(), [0; 16 * 1024]);
    loop {
        // What waits takes longer than a reader who reads nothing is waited for.
        std::thread::sleep(Duration::from_millis(50));
        match std::io::Read::read(&mut running.lines, &mut bytes).expect("a pipe") {
            0 => break,
            count => text.extend_from_slice(&bytes[..count]),
        }
    }
    let text = String::from_utf8(text).expect("text");
    assert!(text.lines().last().is_some_and(|line| line.contains(r#""event":"summary""#)), "{}", text.len());
    assert!(running.child.wait().expect("it can be waited for").success());
}

#[test]
fn a_device_that_is_in_use_or_gone_is_named() {
    skip_without_namespaces!();
    let config = Scratch::new(".json");
    let (one, other) = (fresh_name(), fresh_name());
    let json = format!(r#"{{"devices": ["{one}", "{other}"], "links": [{{"ends": ["{one}", "{other}"]}}]}}"#);
    std::fs::write(&config.0, json).expect("it can be written");
    let arguments = ["link", "--json", "--config", config.path()];
    let mut first = Running::start(Command::new(PLIMSOLL).args(arguments));
    let second = Command::new(PLIMSOLL).args(arguments).output().expect("it starts");
    let error = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(5), "{error}");
    assert!(error.contains(&format!("`{one}`: an interface of this name is in use")), "{error}");
    run("ip", &["link", "del", &other]);
    assert_eq!(first.child.wait().expect("it can be waited for").code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(first.child.stderr.as_mut().expect("a pipe"), &mut said).expect("text");
    assert!(said.contains(&format!("`{other}` is gone")), "{said}");
}
