//! Seeded torture: sizes, pauses, orders of closing, resets. Direct TCP is the oracle: each case is
//! run without the forwarder first, and what both sides see through it must be the same.
//!
//! `PLIMSOLL_TORTURE_CONNECTIONS` says how many (10,000 unless told), `PLIMSOLL_TORTURE_SEED` from
//! which seed. A case that fails names its seed.

mod peer;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, PATIENCE, listener};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;

use peer::{Finish, Outcome, Peer, Script, Seen, script};

fn run(client: TcpStream, server: TcpStream, scripts: [Script; 2], seed: u64) -> [Outcome; 2] {
    let mut peers = [Peer::new(client, scripts[0], seed, 0), Peer::new(server, scripts[1], seed, 1)];
    let deadline = Instant::now() + PATIENCE;
    while !peers.iter().all(Peer::is_done) {
        assert!(
            Instant::now() < deadline,
            "nothing happens any more: {:?}",
            peers.map(|peer| (peer.sent, peer.outcome))
        );
        let mut busy = false;
        let mut timeout = Duration::from_millis(1);
        for peer in &mut peers {
            let now = Instant::now();
            if peer.idle_until > now {
                timeout = timeout.min(peer.idle_until - now);
            } else {
                busy |= peer.may_send() && peer.send();
                busy |= peer.reads() && peer.receive();
            }
            busy |= peer.finish();
        }
        if !busy {
            let mut places: Vec<Place> = peers
                .iter()
                .filter(|peer| peer.idle_until <= Instant::now())
                .filter_map(|peer| {
                    let (read, write) = (peer.reads(), peer.may_send());
                    (read || write).then_some(())?;
                    Some(Place::new(peer.stream.as_ref()?.as_raw_fd(), Interest { read, write }))
                })
                .collect();
            poll::wait(&mut places, Some(timeout)).expect("poll waits");
        }
    }
    peers.map(|peer| peer.outcome)
}

fn pair(listener: &TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(address).expect("it takes connections");
    let (server, _) = listener.accept().expect("the connection is passed on");
    (client, server)
}

fn torture(listener: &TcpListener, direct: SocketAddr, forwarded: SocketAddr, seed: u64) {
    let (scripts, certain) = script(seed);
    let [oracle, outcome] = [direct, forwarded].map(|address| {
        let (client, server) = pair(listener, address);
        run(client, server, scripts, seed)
    });
    for side in 0..2 {
        let (mut oracle, mut outcome) = (oracle[side], outcome[side]);
        if !certain {
            // How much is out before a reset is a race in TCP itself. That it was a prefix has been
            // checked.
            (oracle.received, outcome.received) = (0, 0);
        }
        if !matches!(scripts[side].finish, Finish::Half | Finish::Stay) {
            // It leaves by itself: whether the other's end came before that is a race.
            (oracle.seen, outcome.seen) = (Seen::Nothing, Seen::Nothing);
        }
        if matches!(scripts[1 - side].finish, Finish::HalfThenResetAfter(_)) {
            // The reset follows the end at once where everything has been received by then: which
            // of them this side finds is a race in TCP itself.
            for seen in [&mut oracle.seen, &mut outcome.seen] {
                *seen = if *seen == Seen::Reset { Seen::Clean } else { *seen };
            }
        }
        assert_eq!(outcome, oracle, "seed {seed}, side {side}: the forwarder and then TCP itself; {scripts:?}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Has `count` connections tortured by threads, while `meanwhile` is called again and again.
fn torture_all(
    listeners: &[(TcpListener, SocketAddr)],
    addresses: &[SocketAddr],
    count: u64,
    first: u64,
    mut meanwhile: impl FnMut(),
) {
    let (next, running) = (AtomicU64::new(0), AtomicU64::new(listeners.len() as u64));
    std::thread::scope(|scope| {
        for ((listener, direct), forwarded) in listeners.iter().zip(addresses) {
            let (next, running) = (&next, &running);
            scope.spawn(move || {
                let _ended = Ended(running);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seed = first + number;
                    let case = || torture(listener, *direct, *forwarded, seed);
                    if let Err(cause) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(case)) {
                        next.store(count, Ordering::Relaxed);
                        let _ = writeln!(std::io::stderr(), "seed {seed}: {:?}", script(seed));
                        std::panic::resume_unwind(cause);
                    }
                }
            });
        }
        while running.load(Ordering::Relaxed) > 0 {
            meanwhile();
        }
    });
}

/// Counts a thread that has ended, however it ended.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const THREADS: u64 = 16;

#[test]
fn whatever_two_sides_do_they_see_what_they_would_without_the_forwarder() {
    let (count, first) = (number("PLIMSOLL_TORTURE_CONNECTIONS", 10_000), number("PLIMSOLL_TORTURE_SEED", 1));
    let listeners: Vec<(TcpListener, SocketAddr)> = (0..THREADS).map(|_| listener()).collect();
    let mappings: Vec<String> = listeners.iter().map(|(_, address)| format!("127.0.0.1:0={address}")).collect();
    let arguments: Vec<&str> = mappings.iter().map(String::as_str).collect();
    let forwarder = Forwarder::start(&arguments);
    let addresses = forwarder.addresses();
    torture_all(&listeners, &addresses, count, first, || std::thread::sleep(Duration::from_millis(5)));
    let summary = forwarder.stop();
    assert_eq!(summary["connections"], count);
    assert_eq!(summary["errors"], serde_json::json!({}));
}

#[test]
fn reloads_new_descriptor_tables_and_few_descriptors_change_nothing_of_that() {
    // A tenth of the others for each strategy.
    let (count, first) = (number("PLIMSOLL_TORTURE_CONNECTIONS", 10_000) / 10, number("PLIMSOLL_TORTURE_SEED", 1));
    for (accept, workers, descriptors) in
        [("single", "1", 48), ("handoff", "2", 48), ("exclusive", "2", 48), ("reuseport", "2", 64)]
    {
        let folder = Folder::new();
        let listeners: Vec<(TcpListener, SocketAddr)> = (0..THREADS).map(|_| listener()).collect();
        let table = |extra: &str| {
            let rule = |(number, (_, address)): (usize, &(TcpListener, SocketAddr))| {
                format!("\"127.0.1.{number}:0\" = \"{address}\"\n")
            };
            let rules: String = listeners.iter().enumerate().map(rule).collect();
            format!("[forward]\n{rules}{extra}")
        };
        let config = folder.write("forward.toml", &table(""));
        // At this limit a table has 16 listeners and room for a few connections: more tables are
        // added as they come.
        let arguments = ["--config", config.as_str(), "--accept", accept, "--workers", workers];
        let mut forwarder = Forwarder::start_with_limit(descriptors, &arguments);
        let addresses = forwarder.addresses();
        let mut reloads = 0;
        torture_all(&listeners, &addresses, count, first, || {
            let extra = if reloads % 2 == 0 { "\"127.0.0.2:0\" = \"127.0.0.1:9\"\n" } else { "" };
            folder.replace("forward.toml", &table(extra));
            forwarder.signal("HUP");
            while !forwarder.sentence().contains("the table is reloaded") {}
            reloads += 1;
            std::thread::sleep(Duration::from_millis(10));
        });
        let summary = forwarder.stop();
        assert_eq!(summary["connections"], count, "{accept}");
        assert_eq!(summary["reloads"], reloads, "{accept}");
        assert_eq!(summary["errors"], serde_json::json!({}), "{accept}");
    }
}
