//! The forwarder's table: read, refused, and replaced while connections go on.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::forwarder::{
    Folder, Forwarder, accept, answer, asks, command, connect, echo, exchange, listener, text_of, until,
};

/// Runs the command to its end: its exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(arguments).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_says_whether_a_table_is_whole_and_listens_nowhere() {
    let folder = Folder::new();
    let (_taken, address) = listener();
    // The address is taken: checking does not care.
    let whole = folder.write("whole.toml", &format!("[forward]\n\"{address}\" = \"192.0.2.1:80\"\n"));
    assert_eq!(run(&["--config", &whole, "--check"]).0, Some(0));
    let port_fwd =
        folder.write("port_fwd_table.config", "# a comment\n7000=192.168.0.18|7000\n8000=192.168.0.17|7000\n");
    let (code, out, _) = run(&["--table", &port_fwd, "--check"]);
    assert_eq!((code, out.trim()), (Some(0), "{\"event\":\"checked\",\"rules\":4}"));
    for (name, text, reason) in [
        ("broken.toml", "[forward]\n\"*:1\" = \"192.0.2.1:x\"\n", "broken.toml: line 2, column 1: "),
        (
            "twice.toml",
            "[forward]\n\"*:1\" = \"192.0.2.1:1\"\n\"127.0.0.1:1\" = \"192.0.2.1:1\"\n",
            "127.0.0.1:1 and 0.0.0.0:1 cannot both be listened on (the other is on line 2)",
        ),
        (
            "source.toml",
            "[forward.\"*:1\"]\nto = \"192.0.2.1:1\"\nsource = \"203.0.113.77\"\n",
            "source.toml: line 1, column 10: the source 203.0.113.77 cannot be connected from",
        ),
        (
            "itself.toml",
            "[forward]\n\"*:7000\" = \"127.0.0.1:7000\"\n",
            "itself.toml: line 2, column 1: 0.0.0.0:7000 leads back to itself",
        ),
        (
            "nowhere.toml",
            "[forward]\n\"*:7000\" = \"no-such-name.invalid:7000\"\n",
            "cannot resolve `no-such-name.invalid`",
        ),
    ] {
        let (code, out, said) = run(&["--config", &folder.write(name, text), "--check"]);
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.contains(reason) && said.lines().count() == 1 && out.is_empty(), "{name}: {said}");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for (arguments, reason) in [
        (&[][..], "MAPPING"),
        (&["127.0.0.1:1"], "no `=`"),
        (&["127.0.0.1:1=127.0.0.1:2", "--config", "x"], "cannot be used with"),
        (&["127.0.0.1:1=127.0.0.1:2", "--watch"], "--watch needs a file"),
        (&["127.0.0.1:1=127.0.0.1:2", "--accept", "handoffs"], "no accept strategy"),
        (&["127.0.0.1:1=127.0.0.1:2", "--accept", "single", "--workers", "2"], "one worker"),
        (&["127.0.0.1:1=127.0.0.1:2", "--log", "stdout"], "nothing but JSON"),
        (&["--config", "/no/such/file"], "cannot read the table"),
        (&["--table", "x", "--source-ip", "127.0.0.1"], "cannot be used with"),
        (&["127.0.0.1:1=127.0.0.1:2", "--source-ip", "here"], "--source-ip here: not an address or CIDR range"),
        (&["127.0.0.1:1=127.0.0.1:2", "--source-ip", "203.0.113.77", "--check"], "203.0.113.77 cannot be connected"),
        (&["127.0.0.1:1=[::1]:2", "--source-ip", "127.0.0.9", "--check"], "to from the source 127.0.0.9, as none has"),
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    let (_held, address) = listener();
    let (code, _, said) = run(&[&format!("{address}=127.0.0.1:9")]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot listen on") && said.contains("ss -ltnp"), "{said}");
}

#[test]
fn connections_come_from_each_source_address_in_turn() {
    let (destination, address) = listener();
    let forwarder = Forwarder::to(address, &["--workers", "1", "--source-ip", "127.9.0.4/31"]);
    let mut seen: Vec<String> = (0..4)
        .map(|_| {
            let _client = connect(forwarder.address());
            accept(&destination).peer_addr().expect("it is connected").ip().to_string()
        })
        .collect();
    seen.sort();
    assert_eq!(seen, ["127.9.0.4", "127.9.0.4", "127.9.0.5", "127.9.0.5"]);
}

#[test]
fn a_reload_leads_new_connections_elsewhere_and_leaves_old_ones_alone() {
    let folder = Folder::new();
    let (first, second) = (answer(b'1'), answer(b'2'));
    let table = |to: SocketAddr| format!("[forward]\n\"127.0.0.1:0\" = \"{to}\"\n");
    let config = folder.write("forward.toml", &table(first));
    let mut forwarder = Forwarder::start(&["--config", &config]);
    let mut old = forwarder.connect();
    assert_eq!(asks(&mut old), b'1');
    folder.write("forward.toml", &table(second));
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("the table is reloaded"));
    until("new connections go to the second", || asks(&mut forwarder.connect()) == b'2');
    assert_eq!(asks(&mut old), b'1');
    // A table that makes no sense changes nothing.
    folder.write("forward.toml", "[forward]\n\"127.0.0.1:0\" = \"\n");
    forwarder.signal("HUP");
    let said = forwarder.sentence();
    assert!(said.contains("refused") && said.contains("line 2, column"), "{said}");
    assert_eq!(asks(&mut forwarder.connect()), b'2');
    // Nor does one that is in order but cannot be had.
    let ((_held, taken), path) = (listener(), folder.path("listen"));
    let rules = ["127.0.0.1:0", &format!("unix:{}", path.display()), &taken.to_string()];
    let rules = rules.map(|listen| format!("\"{listen}\" = \"{first}\"\n"));
    folder.write("forward.toml", &format!("[forward]\n{}", rules.concat()));
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("cannot listen on"));
    assert_eq!(asks(&mut forwarder.connect()), b'2');
    assert!(!path.exists(), "a socket's name is left");
    drop(old);
    let summary = forwarder.stop();
    assert_eq!((&summary["reloads"], &summary["reloads_refused"]), (&1.into(), &2.into()));
}

#[test]
fn rules_come_and_go_with_their_listeners() {
    let folder = Folder::new();
    let (first, second) = (answer(b'1'), answer(b'2'));
    // A port that is free now; asked for by number, as the table must name it.
    let extra = listener().1;
    let both = format!("[forward]\n\"127.0.0.1:0\" = \"{first}\"\n\"{extra}\" = \"{second}\"\n");
    let one = format!("[forward]\n\"127.0.0.1:0\" = \"{first}\"\n");
    let config = folder.write("forward.toml", &one);
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "2", "--watch"]);
    assert!(TcpStream::connect(extra).is_err());
    folder.replace("forward.toml", &both);
    assert!(forwarder.sentence().contains("2 listeners, 1 new, 0 gone"), "--watch has noticed");
    let mut living = connect(extra);
    assert_eq!(asks(&mut living), b'2');
    folder.replace("forward.toml", &one);
    assert!(forwarder.sentence().contains("1 listeners, 0 new, 1 gone"));
    until("the port is closed", || TcpStream::connect(extra).is_err());
    assert_eq!(asks(&mut living), b'2', "its connection lives on");
    assert_eq!(asks(&mut forwarder.connect()), b'1');
}

#[test]
fn a_hundred_reloads_under_load_refuse_and_drop_nothing() {
    let folder = Folder::new();
    let servers = [answer(b'1'), answer(b'2')];
    // Every reload changes where rule 0 leads, and opens and closes another listener.
    let extra = listener().1;
    let table = |round: usize| {
        let more = if round.is_multiple_of(2) { format!("\"{extra}\" = \"{}\"\n", servers[0]) } else { String::new() };
        format!("[forward]\n\"127.0.0.1:0\" = \"{}\"\n{more}", servers[round % 2])
    };
    let config = folder.write("forward.toml", &table(0));
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "2"]);
    let address = forwarder.address();
    let (stop, exchanges) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = (0..8)
        .map(|number| {
            let (stop, exchanges) = (Arc::clone(&stop), Arc::clone(&exchanges));
            std::thread::spawn(move || {
                let mut long = connect(address);
                let server = asks(&mut long);
                while !stop.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        assert_eq!(asks(&mut long), server, "it stays with its server");
                    } else {
                        asks(&mut connect(address));
                    }
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(asks(&mut long), server);
            })
        })
        .collect();
    for round in 1..=100 {
        folder.write("forward.toml", &table(round));
        let before = exchanges.load(Ordering::Relaxed);
        forwarder.signal("HUP");
        let said = forwarder.sentence();
        assert!(said.contains("the table is reloaded"), "{said}");
        until("the load goes on", || exchanges.load(Ordering::Relaxed) > before + 8);
    }
    stop.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().expect("nothing was refused or dropped"));
    let summary = forwarder.stop();
    assert_eq!(summary["reloads"], 100);
    let ends = summary["ends"].as_object().expect("counts");
    assert_eq!(ends.keys().collect::<Vec<_>>(), ["client_closed"], "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}));
}

#[test]
fn ten_thousand_rules_reload_at_less_than_a_second_of_cpu_and_have_one_listener_each() {
    const RULES: usize = 10_000;
    let folder = Folder::new();
    let servers = [answer(b'1'), answer(b'2')];
    // Half of the rules stay where they are, half move to another address and back. Another run of
    // this test beside this one has other addresses.
    let home = 2 + std::process::id() as usize % 60 * 2;
    let away = home + 1;
    let table = |host: usize, to: SocketAddr| {
        let rules = (0..RULES).map(|n| {
            let moving = if n < RULES / 2 { host } else { home };
            format!("\"127.{moving}.{}.1:{}\" = \"{to}\"\n", 1 + n / 1000, 20_000 + n % 1000)
        });
        format!("[forward]\n{}", rules.collect::<String>())
    };
    let config = folder.write("forward.toml", &table(home, servers[0]));
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "4"]);
    let last: SocketAddr = format!("127.{home}.10.1:20999").parse().expect("an address");
    assert_eq!(asks(&mut connect(last)), b'1');
    let inodes = |pid: u32| {
        let mut listening = std::collections::HashSet::new();
        for line in fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it runs").lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == "0A" && fields[1].ends_with(&format!("{:04X}", 20_999)) {
                listening.insert(fields[9].to_owned());
            }
        }
        listening
    };
    let before = inodes(forwarder.pid());
    assert_eq!(before.len(), 10, "one listener an address, whatever the number of workers");
    // CPU time, as a clock would measure the other tests too; bench and docs have the seconds.
    let mut reload = |host: usize, to: SocketAddr, said: &str| {
        folder.write("forward.toml", &table(host, to));
        let (ticks, _) = forwarder.cost();
        forwarder.signal("HUP");
        let sentence = forwarder.sentence();
        assert!(sentence.contains(said), "{sentence}");
        until("the new table holds", || asks(&mut connect(last)) == if to == servers[0] { b'1' } else { b'2' });
        forwarder.cost().0 - ticks
    };
    let kept: Vec<u64> =
        (1..=3).map(|round| reload(home, servers[round % 2], "10000 listeners, 0 new, 0 gone")).collect();
    let moved = [reload(away, servers[0], "5000 new, 5000 gone"), reload(home, servers[1], "5000 new, 5000 gone")];
    // Ticks are hundredths of a second (getconf CLK_TCK).
    assert!(kept.iter().min() < Some(&100), "{kept:?} ticks of CPU");
    assert!(moved.iter().min() < Some(&100), "{moved:?} ticks of CPU");
    assert_eq!(inodes(forwarder.pid()).intersection(&before).count(), 5, "the listeners that stayed are the same");
    until("the former are closed", || TcpStream::connect(format!("127.{away}.5.1:20999")).is_err());
}

#[test]
fn a_port_that_was_given_up_can_be_had_again_at_once() {
    let folder = Folder::new();
    let (server, extra) = (answer(b'1'), listener().1);
    let table = |more: bool| {
        let more = if more { format!("\"{extra}\" = \"{server}\"\n") } else { String::new() };
        format!("[forward]\n\"127.0.0.1:0\" = \"{server}\"\n{more}")
    };
    let config = folder.write("forward.toml", &table(true));
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "4"]);
    for round in 0..40 {
        folder.write("forward.toml", &table(round % 2 == 1));
        forwarder.signal("HUP");
        let sentence = forwarder.sentence();
        assert!(sentence.contains("the table is reloaded"), "round {round}: {sentence}");
    }
    assert_eq!(asks(&mut connect(extra)), b'1');
}

#[test]
fn a_name_is_resolved_again_while_the_forwarder_runs() {
    let folder = Folder::new();
    // Two servers at one port of two addresses, so that only the name decides.
    let ((near, address), (other, elsewhere)) = (listener(), listener());
    drop(other);
    let far = TcpListener::bind((elsewhere.ip(), address.port())).expect("the port is free there too");
    let hosts = folder.write("hosts", &format!("{} plimsoll-moves.test\n", address.ip()));
    let settings = "resolve_every = \"20ms\"";
    let rule = format!("[forward.\"127.0.0.1:0\"]\nto = \"plimsoll-moves.test:{}\"\n{settings}\n", address.port());
    let config = folder.write("forward.toml", &rule);
    // A mount namespace of its own, in which /etc/hosts is ours.
    let inner = command(&["--config", &config]);
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\"", &hosts]);
    if !Command::new("unshare")
        .args(["--mount", "mount", "--bind", &hosts, "/etc/hosts"])
        .status()
        .is_ok_and(|status| status.success())
    {
        let _ = writeln!(std::io::stderr(), "skipped: no mount namespace can be made here");
        return;
    }
    own.arg(inner.get_program()).args(inner.get_args());
    let forwarder = Forwarder::spawn(own);
    let arrives_at = |server: &TcpListener| {
        server.set_nonblocking(true).expect("a socket takes it");
        until("a connection arrives", || {
            let _client = forwarder.connect();
            server.accept().is_ok()
        });
    };
    arrives_at(&near);
    folder.write("hosts", &format!("{} plimsoll-moves.test\n", elsewhere.ip()));
    arrives_at(&far);
    // A name that is gone keeps the addresses that it had.
    folder.write("hosts", "127.0.0.1 localhost\n");
    std::thread::sleep(Duration::from_millis(100));
    arrives_at(&far);
}

#[test]
fn a_rinetd_table_may_name_hosts_and_services() {
    let folder = Folder::new();
    let hosts = folder.write("hosts", "::1 plimsoll.test\n127.0.0.9 plimsoll.test\n");
    let services = "# plimsoll 6/tcp\nplimsoll 7/udp\nother 8/tcp plimsoll-too # plimsoll\nplimsoll 9/tcp\n";
    let services = folder.write("services", services);
    let own = |inner: &[&str]| {
        let mount = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/services && shift && exec \"$@\"";
        let mut own = Command::new("unshare");
        own.args(["--mount", "sh", "-c", mount, &hosts, &services]).args(inner);
        own.output().expect("util-linux is here")
    };
    if !own(&["true"]).status.success() {
        let _ =
            writeln!(std::io::stderr(), "skipped: there is no /etc/services, or no mount namespace can be made here");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_plimsoll");
    for (rule, same) in [("plimsoll.test plimsoll", "127.0.0.9 9"), ("127.0.0.9 plimsoll-too/tcp", "127.0.0.9 8")] {
        // That two rules listen at one place tells where that is.
        let table = folder.write("rinetd.conf", &format!("{rule} 192.0.2.1 80\n{same} 192.0.2.1 80\n"));
        let output = own(&[binary, "forward", "--table", &table, "--check"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let place = same.replace(' ', ":");
        assert!(said.contains(&format!("{place} is listened on twice")), "{rule}: {said}");
        let table = folder.write("rinetd.conf", &format!("{rule} 192.0.2.1 other\n"));
        assert_eq!(own(&[binary, "forward", "--table", &table, "--check"]).status.code(), Some(0), "{rule}");
    }
    for (rule, unknown) in
        [("plimsoll.test other/udp", "udp"), ("absent.invalid 80", "absent.invalid"), ("127.0.0.9 none", "none")]
    {
        let table = folder.write("rinetd.conf", &format!("{rule} 192.0.2.1 80\n"));
        let output = own(&[binary, "forward", "--table", &table, "--check"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(&format!("`{unknown}`")), "{rule}: {said}");
    }
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew_at_a_hangup() {
    let folder = Folder::new();
    let (listener, server) = listener();
    let config = folder.write("forward.toml", &format!("[forward]\n\"127.0.0.1:0\" = \"{server}\"\n"));
    let log = folder.path("log.csv");
    let mut forwarder = Forwarder::start(&["--config", &config, "--log", &text_of(&log)]);
    let once = |forwarder: &Forwarder, listener: &TcpListener| {
        drop((forwarder.connect(), accept(listener)));
        until("there is a row", || fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2));
    };
    once(&forwarder, &listener);
    fs::rename(&log, folder.path("log.csv.1")).expect("it is there");
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("reloaded"));
    once(&forwarder, &listener);
    assert_eq!(fs::read_to_string(folder.path("log.csv.1")).expect("it was moved").lines().count(), 2);
}

#[test]
fn a_reload_that_ends_in_a_drain_costs_no_cpu() {
    let folder = Folder::new();
    let place = folder.path("forward.toml");
    assert!(Command::new("mkfifo").arg(&place).status().expect("coreutils are here").success());
    let table = format!("[forward]\n\"127.0.0.1:0\" = \"{}\"\n", echo());
    // Whoever reads a named pipe waits for who writes to it.
    let (first, text) = (place.clone(), table.clone());
    let writes = std::thread::spawn(move || fs::write(first, text));
    let forwarder = Forwarder::start(&["--config", &text_of(&place), "--workers", "1", "--drain", "1h"]);
    writes.join().expect("no panic").expect("it is read");
    let mut held = forwarder.connect();
    exchange(&mut held);
    forwarder.signal("HUP");
    forwarder.signal("TERM");
    until("it drains", || TcpStream::connect(forwarder.address()).is_err());
    fs::write(&place, table).expect("the reload has waited for it");
    until("the reload is over", || forwarder.is_quiet() && forwarder.is_quiet());
    exchange(&mut held);
    drop(held);
    let (status, _, said) = forwarder.wait();
    assert_eq!(status.code(), Some(0), "{said}");
}
