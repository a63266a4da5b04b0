//! What every accept strategy must do: relay, spread, outgrow a table, follow a reload, and lose
//! nobody who was queued.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use crate::support::forwarder::{Folder, Forwarder, answer, asks, connect, echo, exchange, until};
use crate::support::peer::read_once;

/// Every strategy, with its workers.
const STRATEGIES: [&[&str]; 5] = [
    &["--accept", "single"],
    &["--accept", "handoff", "--workers", "1"],
    &["--accept", "handoff", "--workers", "3"],
    &["--accept", "exclusive", "--workers", "3"],
    &["--accept", "reuseport", "--workers", "3"],
];

fn counts(summary: &serde_json::Value) -> Vec<u64> {
    let counts = summary["connections_per_worker"].as_array().expect("a list");
    counts.iter().map(|count| count.as_u64().expect("a number")).collect()
}

#[test]
fn every_connection_is_relayed_and_counted_at_its_worker() {
    let server = echo();
    for strategy in STRATEGIES {
        let forwarder = Forwarder::to(server, strategy);
        let mut streams: Vec<TcpStream> = (0..120).map(|_| forwarder.connect()).collect();
        streams.iter_mut().for_each(exchange);
        drop(streams);
        let summary = forwarder.stop();
        let each = counts(&summary);
        assert_eq!(each.len(), if strategy.last() == Some(&"3") { 3 } else { 1 }, "{strategy:?}: {summary}");
        assert_eq!(each.iter().sum::<u64>(), 120, "{strategy:?}: {summary}");
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 120}), "{strategy:?}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{strategy:?}");
        if strategy[1] == "handoff" && each.len() == 3 {
            // All were open at once, so each went to one with no more than the others.
            assert_eq!(each, [40; 3], "{summary}");
        }
    }
}

#[test]
fn more_connections_than_a_table_holds_are_relayed_by_more_tables() {
    let server = echo();
    for strategy in STRATEGIES {
        let mapping = format!("127.0.0.1:0={server}");
        let forwarder = Forwarder::start_with_limit(100, &[&[mapping.as_str()], strategy].concat());
        let mut streams: Vec<TcpStream> = (0..300).map(|_| forwarder.connect()).collect();
        streams.iter_mut().for_each(exchange);
        drop(streams);
        let summary = forwarder.stop();
        assert_eq!(summary["peak_connections"], 300, "{strategy:?}");
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 300}), "{strategy:?}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{strategy:?}");
    }
}

#[test]
fn max_connections_holds_for_all_workers_together_and_who_waits_is_served_later() {
    let server = echo();
    for strategy in STRATEGIES {
        let folder = Folder::new();
        let table = format!("[defaults]\nmax_connections = 5\n[forward]\n\"127.0.0.1:0\" = \"{server}\"\n");
        let config = folder.write("forward.toml", &table);
        let forwarder = Forwarder::start(&[&["--config", config.as_str()], strategy].concat());
        let mut streams: Vec<TcpStream> = (0..20).map(|_| forwarder.connect()).collect();
        let mut served = 0;
        // Whoever is answered leaves, and makes room for another.
        streams.iter_mut().for_each(|stream| stream.write_all(b"hello").expect("there is room"));
        until("all were served", || {
            streams.retain_mut(|stream| {
                stream.set_nonblocking(true).expect("a socket takes it");
                let answered = read_once(&mut *stream, &mut [0; 5]).is_ok();
                served += usize::from(answered);
                !answered
            });
            streams.is_empty()
        });
        assert_eq!(served, 20, "{strategy:?}");
        let summary = forwarder.stop();
        assert!(summary["connections"] == 20 && summary["errors"] == serde_json::json!({}), "{strategy:?}: {summary}");
        // A place is taken before a connection is: workers that accept at the same moment have one
        // each.
        assert!(summary["peak_connections"].as_u64() <= Some(5), "{strategy:?}: {summary}");
    }
}

#[test]
fn a_reload_moves_listeners_and_drops_nobody() {
    let (first, second) = (answer(b'1'), answer(b'2'));
    for strategy in STRATEGIES {
        let folder = Folder::new();
        let extra = crate::support::forwarder::listener().1;
        let table = |to: SocketAddr, more: bool| {
            let more = if more { format!("\"{extra}\" = \"{first}\"\n") } else { String::new() };
            format!("[forward]\n\"127.0.0.1:0\" = \"{to}\"\n{more}")
        };
        let config = folder.write("forward.toml", &table(first, true));
        let mut forwarder = Forwarder::start(&[&["--config", config.as_str()], strategy].concat());
        let mut old = forwarder.connect();
        let mut at_extra = connect(extra);
        assert_eq!((asks(&mut old), asks(&mut at_extra)), (b'1', b'1'));
        folder.write("forward.toml", &table(second, false));
        forwarder.signal("HUP");
        assert!(forwarder.sentence().contains("1 listeners, 0 new, 1 gone"), "{strategy:?}");
        until("new connections go to the second", || asks(&mut forwarder.connect()) == b'2');
        until("the port is closed", || TcpStream::connect(extra).is_err());
        assert_eq!((asks(&mut old), asks(&mut at_extra)), (b'1', b'1'), "{strategy:?}");
        folder.write("forward.toml", &table(second, true));
        forwarder.signal("HUP");
        assert!(forwarder.sentence().contains("2 listeners, 1 new, 0 gone"), "{strategy:?}");
        assert_eq!(asks(&mut connect(extra)), b'1', "{strategy:?}");
        drop((old, at_extra));
        assert_eq!(forwarder.stop()["errors"], serde_json::json!({}), "{strategy:?}");
    }
}

#[test]
fn who_waits_beyond_max_connections_is_served_when_sigterm_comes() {
    let server = answer(b'a');
    for strategy in STRATEGIES {
        let folder = Folder::new();
        let table = format!("[defaults]\nmax_connections = 2\n[forward]\n\"127.0.0.1:0\" = \"{server}\"\n");
        let config = folder.write("forward.toml", &table);
        let forwarder = Forwarder::start(&[&["--config", config.as_str()], strategy].concat());
        let mut held: Vec<TcpStream> = (0..2).map(|_| forwarder.connect()).collect();
        held.iter_mut().for_each(|stream| assert_eq!(asks(stream), b'a', "{strategy:?}"));
        let mut waiting: Vec<TcpStream> = (0..5).map(|_| forwarder.connect()).collect();
        forwarder.signal("TERM");
        // Those that have their place keep it.
        waiting.iter_mut().chain(&mut held).for_each(|stream| assert_eq!(asks(stream), b'a', "{strategy:?}"));
        drop((held, waiting));
        let (status, summary, said) = forwarder.wait();
        assert_eq!(status.code(), Some(0), "{strategy:?}: {said}");
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 7}), "{strategy:?}: {summary}");
    }
}

#[test]
fn who_was_queued_before_sigterm_is_served() {
    let server = echo();
    for strategy in STRATEGIES {
        let forwarder = Forwarder::to(server, strategy);
        // The forwarder stands still while they queue, so that none is accepted before the signal.
        forwarder.signal("STOP");
        let mut queued: Vec<TcpStream> = (0..50).map(|_| forwarder.connect()).collect();
        forwarder.signal("TERM");
        forwarder.signal("CONT");
        queued.iter_mut().for_each(exchange);
        drop(queued);
        let (status, summary, _) = forwarder.wait();
        assert_eq!(status.code(), Some(0));
        assert_eq!(summary["ends"], serde_json::json!({"client_closed": 50}), "{strategy:?}: {summary}");
    }
}
