//! The forwarder's table: read, refused, and replaced while connections go on.

mod forwarder;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forwarder::{Folder, Forwarder, accept, command, connect, listener, text_of, until};

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
        ("later.toml", "[forward.\"*:1\"]\nto = \"192.0.2.1:1\"\nallow = []\n", "`allow` is not supported yet"),
        (
            "itself.toml",
            "[forward]\n\"*:7000\" = \"127.0.0.1:7000\"\n",
            "line 2, column 1: 0.0.0.0:7000 leads back to itself",
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

/// Answers every connection with one byte that says which server it is, and the byte that came.
fn answer(name: u8) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut stream, mut byte) = (stream, [0]);
                while stream.read_exact(&mut byte).is_ok() {
                    let _ = stream.write_all(&[name, byte[0]]);
                }
            });
        }
    });
    address
}

fn asks(stream: &mut TcpStream) -> u8 {
    let mut reply = [0; 2];
    stream.write_all(b"?").expect("it lives");
    stream.read_exact(&mut reply).expect("it is answered");
    assert_eq!(reply[1], b'?');
    reply[0]
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
    let (_held, taken) = listener();
    folder.write("forward.toml", &format!("[forward]\n\"127.0.0.1:0\" = \"{first}\"\n\"{taken}\" = \"{first}\"\n"));
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("cannot listen on"));
    assert_eq!(asks(&mut forwarder.connect()), b'2');
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
    folder.write("forward.toml", &both);
    assert!(forwarder.sentence().contains("2 listeners, 1 new, 0 gone"), "--watch has noticed");
    let mut living = connect(extra);
    assert_eq!(asks(&mut living), b'2');
    folder.write("forward.toml", &one);
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
fn ten_thousand_rules_reload_within_a_second_and_have_one_listener_each() {
    const RULES: usize = 10_000;
    let folder = Folder::new();
    let server = answer(b'1');
    let table = |to: u16| {
        let rules = (0..RULES).map(|n| {
            let host = 1 + n / 1000;
            format!("\"127.77.{host}.1:{}\" = \"127.0.0.1:{to}\"\n", 20_000 + n % 1000)
        });
        format!("[forward]\n{}", rules.collect::<String>())
    };
    let config = folder.write("forward.toml", &table(server.port()));
    let mut forwarder = Forwarder::start(&["--config", &config, "--workers", "4"]);
    let last: SocketAddr = "127.77.10.1:20999".parse().expect("an address");
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
    let second = answer(b'2');
    folder.write("forward.toml", &table(second.port()));
    let begun = Instant::now();
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("10000 listeners, 0 new, 0 gone"));
    let mut answered = asks(&mut connect(last));
    while answered != b'2' {
        answered = asks(&mut connect(last));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    assert_eq!(inodes(forwarder.pid()), before, "the listeners are the same");
    // Half of them replaced by others: new ones are opened before old ones are closed, and the descriptor limit holds both.
    let text = table(second.port());
    let replaced =
        (1..=5).fold(text, |text, host| text.replace(&format!("127.77.{host}.1:"), &format!("127.78.{host}.1:")));
    folder.write("forward.toml", &replaced);
    let begun = Instant::now();
    forwarder.signal("HUP");
    assert!(forwarder.sentence().contains("10000 listeners, 5000 new, 5000 gone"));
    let took = begun.elapsed();
    assert_eq!(asks(&mut connect("127.78.5.1:20999".parse().expect("an address"))), b'2');
    until("the former are closed", || TcpStream::connect("127.77.5.1:20999").is_err());
    assert!(took < Duration::from_secs(1), "it took {took:?}");
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
