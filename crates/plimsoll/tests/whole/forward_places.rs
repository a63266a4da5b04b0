//! Who has a place where places are few: `max_connections`, and `limit.connections` of a rule.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, echo, exchange, get, until};

#[test]
fn few_places_are_used_as_well_by_several_workers_as_by_one() {
    // More clients than places, each with a connection per message. Where the second rule has its
    // share, two of the places are kept for it.
    let takes = |most: usize, workers: &str, accept: &str| {
        let (folder, server) = (Folder::new(), echo());
        let rules = format!("\"127.0.0.1:0\" = \"{server}\"\n\"127.0.0.2:0\" = \"{server}\"\n");
        let table = format!("[defaults]\nmax_connections = {most}\n[forward]\n{rules}");
        let config = folder.write("forward.toml", &table);
        let forwarder = Forwarder::start(&["--config", &config, "--workers", workers, "--accept", accept]);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| (0..20).for_each(|_| exchange(&mut forwarder.connect())));
            }
        });
        let elapsed = start.elapsed();
        forwarder.stop();
        elapsed
    };
    for most in [2, 18] {
        let one = takes(most, "1", "single");
        for accept in ["handoff", "exclusive", "reuseport"] {
            let several = takes(most, "2", accept);
            assert!(several < 10 * one + Duration::from_secs(2), "{most} {accept}: {several:?}, one {one:?}");
        }
    }
}

#[test]
fn of_clients_that_come_together_as_many_are_led_on_as_their_rule_allows() {
    let folder = Folder::new();
    let table = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[forward.\"127.0.0.1:0\"]\nto = \"{}\"\nlimit = {{ connections = 1 \
         }}\naccept_proxy = {{ from = [\"127.0.0.1\"] }}\n",
        echo()
    );
    let forwarder = Forwarder::start(&["--config", &folder.write("forward.toml", &table)]);
    let [mut first, mut second] = [(); 2].map(|()| forwarder.connect());
    // Both are accepted, and neither has said for whom it connects.
    let line = format!("plimsoll_forward_connections{{listen=\"{}\"}} 2", forwarder.address());
    until("both are accepted", || get(forwarder.admin(), "/metrics").lines().any(|found| found == line));
    first.write_all(b"PROXY UNKNOWN\r\n").expect("there is room");
    exchange(&mut first);
    let end = second.write_all(b"PROXY UNKNOWN\r\n").and_then(|()| second.read(&mut [0]));
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    drop(first);
    until("the place is free again", || {
        let mut third = forwarder.connect();
        third.write_all(b"PROXY UNKNOWN\r\nhello").and_then(|()| third.read_exact(&mut [0; 5])).is_ok()
    });
    let summary = forwarder.stop();
    assert_eq!(summary["ends"]["client_closed"], 2, "{summary}");
}
