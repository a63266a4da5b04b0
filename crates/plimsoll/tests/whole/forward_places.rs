//! Who has a place where places are few: `max_connections`.

use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, echo, exchange};

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
