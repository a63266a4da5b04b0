//! Errors of the kernel, injected by strace(1), at the link, the capture and the generator's
//! timers: each is survived, or ends the command with what failed.

use std::process::Command;

use crate::skip_without_namespaces;
use crate::support::network::{Namespace, PLIMSOLL, Running, Scratch, fresh_name, run};
use crate::support::server::{Server, may_trace};

/// `plimsoll` with these arguments, where every call from the `first` one on fails so.
fn injected(call: &str, error: &str, first: u32, arguments: &[&str]) -> Command {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={first}+"));
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, PLIMSOLL]).args(arguments);
    command
}

/// A configuration of two devices, and their names.
fn two_devices() -> (Scratch, [String; 2]) {
    let (config, devices) = (Scratch::new(".json"), [fresh_name(), fresh_name()]);
    let [one, other] = &devices;
    let json = format!(r#"{{"devices": ["{one}", "{other}"], "links": [{{"ends": ["{one}", "{other}"]}}]}}"#);
    std::fs::write(&config.0, json).expect("a temporary file can be written");
    (config, devices)
}

#[test]
fn without_precise_timers_a_generator_runs() {
    if !may_trace() {
        return;
    }
    let server = Server::echo("epoll", &["--workers", "1"]);
    let address = server.address().to_string();
    for engine in ["epoll", "threads"] {
        let arguments = ["load", "echo", &address, "--engine", engine, "-c", "1", "-n", "3", "--json"];
        let output = injected("prctl", "EPERM", 1, &arguments).output().expect("strace starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let summary: serde_json::Value =
            text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| {
                panic!("{engine}: {}", String::from_utf8_lossy(&output.stderr));
            });
        assert_eq!(summary["requests"]["completed"], 3, "{engine}: {summary}");
    }
    server.stop();
}

#[test]
fn a_link_that_is_not_told_its_cpus_goes_on_without_a_second_thread() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    let (config, _) = two_devices();
    // As where there are more CPUs than this program knows of.
    let arguments = ["link", "--json", "--config", config.path()];
    let link = Running::start(&mut injected("sched_getaffinity", "EINVAL", 1, &arguments));
    assert_eq!(link.stop()["links"][0]["offered"], 0);
}

#[test]
fn a_link_without_precise_timers_says_so_and_goes_on() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    let (config, _) = two_devices();
    let mut link = Running::start(&mut injected("prctl", "EPERM", 1, &["link", "--json", "--config", config.path()]));
    let why = link.event("timers_coarse")["why"].to_string();
    assert!(why.contains("not permitted"), "{why}");
    assert_eq!(link.stop()["links"][0]["offered"], 0);
}

#[test]
fn a_device_that_cannot_be_read_or_made_is_named_with_the_reason() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    for (call, error, said) in [
        ("readv", "EIO", "cannot read frames from the TAP device"),
        ("ioctl", "EPERM", "cannot make the TAP device"),
        ("ioctl", "EBUSY", "an interface of this name is in use"),
    ] {
        let (config, devices) = two_devices();
        let host = Namespace::new();
        let mut command = injected(call, error, 1, &["link", "--json", "--config", config.path()]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().expect("strace starts");
        if call == "readv" {
            // A device that comes up sends of its own accord (IPv6 router solicitation).
            until_there(&devices[0]);
            host.plug(&devices[0], "10.0.0.1/24");
        }
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{call} {error}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{call} {error}: {text}");
        let events = events(&output);
        if call == "readv" {
            let summary = events.last().expect("it has begun");
            assert_eq!((&summary["event"], &summary["links"][0]["delivered"]), (&"summary".into(), &0.into()));
            assert!(summary["error"].as_str().is_some_and(|error| error.contains(said)), "{summary}");
        } else {
            assert!(events.is_empty(), "{call} {error}: {events:?}");
        }
    }
}

/// The JSON lines that a command printed.
fn events(output: &std::process::Output) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn a_link_that_cannot_begin_does_not_say_that_it_is_ready() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    // The event of the second thread; the signals, after both devices.
    for (call, error, first) in [("eventfd2", "EMFILE", 1), ("epoll_ctl", "ENOSPC", 3)] {
        let (config, _) = two_devices();
        let mut command = injected(call, error, first, &["link", "--json", "--config", config.path()]);
        let output = command.output().expect("strace starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("cannot wait for frames"), "{call} {error}: {text}");
        assert!(events(&output).is_empty(), "{call} {error}: {:?}", events(&output));
    }
}

#[test]
fn devices_whose_drops_cannot_be_read_are_named_in_every_count() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    let (config, devices) = two_devices();
    let arguments = ["link", "--json", "--interval", "20ms", "--config", config.path()];
    // Their counts are read in their own namespace.
    let mut link = Running::start(&mut injected("setns", "EPERM", 1, &arguments));
    let unknown = serde_json::json!(devices);
    assert_eq!(link.event("drops_unknown")["device"], devices[0]);
    assert_eq!(link.event("counters")["drops_unknown"], unknown);
    assert_eq!(link.stop()["drops_unknown"], unknown);
    let (config, devices) = two_devices();
    let mut command = injected("setns", "EPERM", 1, &["link", "--quiet", "--config", config.path()]);
    let link = command.stdout(std::process::Stdio::piped()).spawn().expect("strace starts");
    until_there(&devices[1]);
    run("kill", &["-TERM", &link.id().to_string()]);
    let output = link.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("`{}`, `{}` dropped are in no count", devices[0], devices[1])), "{text}");
}

fn until_there(device: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !run("ip", &["-o", "link"]).contains(device) {
        assert!(std::time::Instant::now() < deadline, "{device} is not made");
        std::thread::yield_now();
    }
}

#[test]
fn a_capture_survives_what_it_may_and_says_what_it_may_not() {
    skip_without_namespaces!();
    if !may_trace() {
        return;
    }
    let host = Namespace::new();
    let file = Scratch::new(".pcapng");
    let waits = "?epoll_wait,?epoll_pwait,?epoll_pwait2";
    for (call, error, said) in [
        (waits, "EINTR", None),
        (waits, "EBADF", Some("cannot wait for packets")),
        ("getsockopt", "ENOBUFS", Some("what the kernel counted")),
        ("setsockopt", "ENOMEM", Some("cannot capture on `lo`")),
        ("bind", "ENETDOWN", Some("cannot capture on `lo`")),
        ("epoll_ctl", "ENOSPC", Some("cannot wait for packets")),
    ] {
        let arguments = ["capture", "-i", "lo", "-w", file.path(), "--json", "--duration", "300ms"];
        let inner = injected(call, error, 1, &arguments);
        let mut command = host.command("strace");
        let output = command.args(inner.get_args()).output().expect("strace starts");
        let text = String::from_utf8_lossy(&output.stderr);
        match said {
            None => assert!(output.status.success(), "{call} {error}: {text}"),
            Some(said) => {
                assert!(!output.status.success() && text.contains(said), "{call} {error}: {text}");
                assert_eq!(text.trim_end().lines().count(), 1, "{call} {error}: {text}");
                // One that has begun prints what it has.
                let events = events(&output);
                let kinds: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
                if ["setsockopt", "bind", "epoll_ctl"].contains(&call) {
                    assert!(kinds.is_empty(), "{call} {error}: {events:?}");
                } else {
                    assert_eq!((kinds.first(), kinds.last()), (Some(&"ready"), Some(&"summary")), "{call} {error}");
                    let told = events.last().map(|summary| summary["error"].to_string()).unwrap_or_default();
                    assert!(told.contains(said), "{call} {error}: {told}");
                }
            }
        }
    }
}
