//! The link whose packets the kernel delivers (`--backend kernel`): its devices, its counts, and
//! that it leaves nothing behind. Needs root.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip_without_namespaces;
use crate::support::network::{Namespace, PLIMSOLL, Running, Scratch, ScratchFolder, run};

/// A namespace in which the kernel seems to have htb and netem: `ip` is the real one, and `tc`
/// makes a plain queue, which every kernel has, in place of netem.
struct KernelHost {
    namespace: Namespace,
    programs: ScratchFolder,
    config: Scratch,
}

impl KernelHost {
    fn new() -> KernelHost {
        let config = Scratch::new(".json");
        let json = r#"{"devices": ["h1-eth0", "h2-eth0"], "switches": ["br0"],
            "links": [{"ends": ["h1-eth0", "br0"], "rate": "1Mbit"}, {"ends": ["h2-eth0", "br0"], "delay": "1ms"}]}"#;
        std::fs::write(&config.0, json).expect("it can be written");
        let host = KernelHost { namespace: Namespace::new(), programs: ScratchFolder::new(), config };
        host.replace_tc("case \"$*\" in *htb*) exit 0 ;; esac", "s/parent 1:1/root/; s/netem.*/pfifo limit 10/");
        host
    }

    /// Has `tc` do something else before, and then run with its arguments edited by sed(1).
    fn replace_tc(&self, before: &str, edit: &str) {
        let real = run("sh", &["-c", "command -v tc"]);
        self.replace("tc", &format!("{before}\nexec {} $(echo \"$*\" | sed '{edit}')", real.trim()));
    }

    /// Replaces a program by a script.
    fn replace(&self, program: &str, script: &str) {
        let path = self.programs.0.join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode can be changed");
    }

    fn link(&self) -> Command {
        let mut command = self.namespace.command(PLIMSOLL);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.0.display()));
        command.args(["link", "--backend", "kernel", "--config", self.config.path()]);
        command
    }

    /// The names of its devices.
    fn devices(&self) -> Vec<String> {
        let lines = self.namespace.output("ip", &["-o", "link"]);
        let name = |line: &str| line.split([':', '@']).nth(1).expect("a name").trim().to_owned();
        lines.lines().map(name).filter(|name| name != "lo").collect()
    }
}

#[test]
fn a_kernel_link_removes_the_devices_that_it_made_and_no_other() {
    skip_without_namespaces!();
    for taken in ["br0", "p1", "h2-eth0", "plneed0"] {
        let host = KernelHost::new();
        host.namespace.output("ip", &["link", "add", "name", taken, "type", "bridge"]);
        let output = host.link().output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{error}");
        assert!(error.contains("File exists") && error.trim_end().lines().count() == 1, "{error}");
        assert_eq!(host.devices(), [taken]);
    }
}

#[test]
fn a_kernel_link_counts_what_its_queue_drops() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    let has_htb = host.namespace.command("tc").args(["qdisc", "add", "dev", "lo", "root", "htb"]).status();
    if !has_htb.expect("it starts").success() {
        println!("skipped: this kernel has no htb (module sch_htb)");
        return;
    }
    host.replace_tc("", "s/netem.*/pfifo limit 10/");
    let mut running = Running::start(host.link().args(["--json", "--interval", "100ms"]));
    let hosts = [Namespace::new(), Namespace::new()];
    for (number, other) in hosts.iter().enumerate() {
        let device = format!("h{}-eth0", number + 1);
        host.namespace.output("ip", &["link", "set", &device, "netns", &other.process()]);
        other.output("ip", &["address", "add", &format!("10.0.0.{}/24", number + 1), "dev", &device]);
        other.output("ip", &["link", "set", &device, "up"]);
    }
    let send = "exec 3<>/dev/udp/10.0.0.2/9; for each in $(seq 300); do printf %1000s x >&3; done; true";
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let counters = running.event("counters");
        let count = |name: &str| counters["links"][0][name].as_u64().expect("a count");
        if count("dropped") <= 100 {
            // A frame takes 8 ms to depart, so that most of those that are sent at once find no
            // room. Nobody listens there: a send that finds that out fails, and sends nothing.
            hosts[0].output("bash", &["-c", send]);
        } else if count("offered") == count("delivered") + count("dropped") {
            assert_eq!(count("dropped_by_fault"), 0, "{counters}");
            break;
        }
        assert!(Instant::now() < deadline, "{counters}");
    }
    running.stop();
}

#[test]
fn an_interrupt_while_a_kernel_link_is_removed_leaves_no_device() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    // As Ctrl-C does, to the whole group of the link, which leads it.
    let ip = run("sh", &["-c", "command -v ip"]);
    let script = format!("case \"$*\" in *delete*) kill -INT -- -$PPID ;; esac\nexec {} \"$@\"", ip.trim());
    host.replace("ip", &script);
    let output = host.link().process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = output.expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    lines.next().expect("it says that it is ready");
    run("kill", &["-INT", &child.id().to_string()]);
    let ended = child.wait_with_output().expect("it can be waited for");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(host.devices(), [""; 0]);
}

#[test]
fn a_killed_kernel_link_leaves_no_device() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    let mut running = Running::start(host.link().arg("--json"));
    assert!(!host.devices().is_empty());
    running.child.kill().expect("it can be killed");
    running.child.wait().expect("it can be waited for");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !host.devices().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", host.devices());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_kernel_link_says_of_a_device_that_is_gone_only_that_it_is() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    let mut running = Running::start(host.link().args(["--json", "--interval", "10ms"]).stderr(Stdio::piped()));
    host.namespace.output("ip", &["link", "delete", "h1-eth0"]);
    assert_eq!(running.child.wait().expect("it can be waited for").code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(running.child.stderr.as_mut().expect("a pipe"), &mut said).expect("text");
    assert!(said.contains("`p0x` is gone") && said.lines().count() == 1, "{said}");
    let summary = running.event("summary");
    assert!(summary["error"].as_str().is_some_and(|error| error.contains("`p0x` is gone")), "{summary}");
    assert_eq!(host.devices(), [""; 0]);
}

#[test]
fn frames_for_other_bridges_pass_a_kernel_link_as_they_pass_a_wire() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    let link = Running::start(host.link().arg("--json"));
    for device in ["h1-eth0", "h2-eth0"] {
        host.namespace.output("ip", &["link", "set", device, "up"]);
    }
    let before = host.namespace.traffic("h2-eth0").received;
    // LLDP (IEEE 802.1AB), which a bridge keeps unless it is told to forward it.
    let send = "import socket; sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); \
                sender.bind(('h1-eth0', 0)); \
                [sender.send(bytes.fromhex('0180c200000e02000000000188cc') + bytes(50)) for _ in range(5)]";
    host.namespace.output("python3", &["-c", send]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while host.namespace.traffic("h2-eth0").received < before + 5 {
        assert!(Instant::now() < deadline, "they have not come");
    }
    let summary = link.stop();
    let links = summary["links"].as_array().expect("links");
    for (from, to) in [("h1-eth0", "br0"), ("br0", "h2-eth0")] {
        let direction = links.iter().find(|each| each["from"] == from && each["to"] == to).expect("a direction");
        assert!(direction["delivered"].as_u64() >= Some(5), "{direction}");
        assert_eq!(direction["dropped"], 0, "{direction}");
    }
}

#[test]
fn a_kernel_link_prints_sentences_or_json_as_it_was_asked_to() {
    skip_without_namespaces!();
    let host = KernelHost::new();
    let mut child = host.link().stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let ready = lines.next().expect("it says that it is ready");
    assert_eq!(ready, "linking h1-eth0, h2-eth0 (2 links, 1 switches, large segments cut) by kernel");
    assert!(!host.devices().is_empty());
    run("kill", &["-TERM", &child.id().to_string()]);
    let summary: Vec<String> = lines.collect();
    assert_eq!(summary.len(), 4, "a line a direction: {summary:?}");
    assert!(summary[0].starts_with("h1-eth0 -> br0: ") && summary[0].ends_with(" dropped"), "{summary:?}");
    assert!(child.wait().expect("it can be waited for").success());
    assert_eq!(host.devices(), [""; 0]);

    let mut running = Running::start(host.link().args(["--json", "--interval", "10ms"]));
    assert_eq!(running.ready["backend"], "kernel");
    assert!(running.event("counters")["unix_s"].as_f64() > Some(0.0));
    let summary = running.stop();
    let first = &summary["links"][0];
    assert_eq!((&first["from"], &first["to"]), (&"h1-eth0".into(), &"br0".into()));
    assert!(
        ["offered", "delivered", "dropped", "offered_bytes", "delivered_bytes"].iter().all(|key| first[key].is_u64())
    );
}
