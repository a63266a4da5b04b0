//! Seeded torture: sizes, pauses, orders of closing, resets. Direct TCP is the oracle: each case is
//! run without the forwarder first, and what both sides see through it must be the same.
//!
//! `PLIMSOLL_TORTURE_CONNECTIONS` says how many (10,000 unless told), `PLIMSOLL_TORTURE_SEED` from
//! which seed. A case that fails names its seed.

use std::io;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::forwarder::{Folder, Forwarder, Noise, PATIENCE, listener};
use plimsoll_sys::net;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;

/// How one side ends its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finish {
    /// Ends its stream when it has sent all, and reads to the end of the other's.
    Half,
    /// Reads until the other ends the connection.
    Stay,
    /// Resets when its bytes are acknowledged and it has received this many.
    ResetAfter(usize),
    /// Ends its stream, and resets when the bytes and the end are acknowledged and it has received
    /// this many.
    HalfThenResetAfter(usize),
    /// Resets as soon as it has sent all.
    ResetAtOnce,
    /// Closes when something has arrived that it has not read: the kernel resets.
    CloseUnread,
    /// Closes when its bytes are acknowledged and it has received this many.
    CloseAfter(usize),
}

#[derive(Clone, Copy, Debug)]
struct Script {
    sends: usize,
    /// Only after the other's end.
    answers: bool,
    /// Sends until a write is refused, once the other's stream has ended.
    persists: bool,
    finish: Finish,
    most_a_write: usize,
    most_a_read: usize,
    /// In a thousand writes or reads.
    pauses: usize,
    /// It turns from bulk to small messages and back, again and again.
    turns: bool,
}

/// How a side saw the other's stream end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Clean,
    Reset,
    /// It closed first.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    received: usize,
    seen: Seen,
    /// A side that persists was told that it cannot.
    refused: bool,
}

/// What both are to do, and whether how much they receive is certain.
fn script(seed: u64) -> ([Script; 2], bool) {
    let mut noise = Noise::new(seed);
    let mut size = || match noise.below(16) {
        0 => 0,
        1..=7 => 1 + noise.below(600),
        8..=12 => noise.below(20_000),
        13 | 14 => noise.below(300_000),
        _ => noise.below(3_000_000),
    };
    let sends = [size(), size()];
    let small = |sends: usize| 1 + sends % 20_000;
    let a = noise.below(2);
    let b = 1 - a;
    let mut finish = [Finish::Stay; 2];
    let mut sends = sends;
    let (mut answers, mut persists, mut certain) = ([false; 2], [false; 2], true);
    match noise.below(10) {
        0..=3 => {
            finish = [Finish::Half; 2];
            answers[a] = noise.below(3) == 0;
        }
        4 => finish[a] = Finish::ResetAfter(sends[b]),
        5 => {
            (finish[a], finish[b], answers[b]) = (Finish::Half, Finish::ResetAfter(sends[a]), noise.below(2) == 0);
        }
        6 => finish[a] = Finish::HalfThenResetAfter(sends[b]),
        7 => {
            finish[a] = Finish::ResetAtOnce;
            certain = false;
        }
        8 => {
            finish[a] = Finish::CloseUnread;
            // What fits into any socket, as it is not read.
            sends[b] = small(sends[b]);
            // What `a` sends may be dropped with its reset, unless it is acknowledged before.
        }
        _ => {
            finish[a] = Finish::CloseAfter(0);
            (sends[b], answers[b], persists[b]) = (0, true, true);
        }
    }
    // Of a sequence of its own, so that seeds of former runs mean what they did.
    let mut turning = Noise::new(seed ^ 0x7475_726e);
    let mut one = |side: usize| Script {
        turns: turning.below(4) == 0,
        sends: sends[side],
        answers: answers[side],
        persists: persists[side],
        finish: finish[side],
        // Pieces small and large, but never so many that the test's own calls are all that is
        // tested.
        most_a_write: (1 << (4 + noise.below(16))).max(sends[side] / 200),
        most_a_read: (1 << (9 + noise.below(9))).max(sends[1 - side] / 200),
        pauses: [0, 0, 0, 5, 50][noise.below(5)],
    };
    ([one(0), one(1)], certain)
}

struct Peer {
    stream: Option<TcpStream>,
    script: Script,
    chances: Noise,
    /// What it sends and what it must receive, as they come.
    out: Pattern,
    expected: Pattern,
    sent: usize,
    ended: bool,
    cut: bool,
    idle_until: Instant,
    outcome: Outcome,
}

/// Bytes of a stream, by their place in it: a stretch of noise over and over, of a prime length,
/// begun at a place of the stream's own.
struct Pattern {
    noise: &'static [u8],
    start: usize,
}

const PERIOD: usize = 65_521;
/// How much a script that turns sends in pieces of its own, and then in small messages.
const BULK: usize = 400_000;
const SMALL: usize = 10_000;

impl Pattern {
    fn new(stream: u64) -> Pattern {
        static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
        Pattern { noise: NOISE.get_or_init(|| Noise::new(1).bytes(PERIOD)), start: (stream % PERIOD as u64) as usize }
    }

    /// The bytes from `place` on, as many of `most` as stand in a row.
    fn piece(&self, place: usize, most: usize) -> &[u8] {
        let from = (self.start + place) % PERIOD;
        &self.noise[from..PERIOD.min(from + most)]
    }

    fn check(&self, place: usize, bytes: &[u8]) {
        let mut checked = 0;
        while checked < bytes.len() {
            let piece = self.piece(place + checked, bytes.len() - checked);
            assert!(
                bytes[checked..checked + piece.len()] == *piece,
                "a wrong byte at {} or soon after",
                place + checked
            );
            checked += piece.len();
        }
    }
}

impl Peer {
    fn new(stream: TcpStream, script: Script, seed: u64, side: u64) -> Peer {
        stream.set_nonblocking(true).expect("a socket takes it");
        Peer {
            stream: Some(stream),
            script,
            chances: Noise::new(seed ^ side << 40),
            out: Pattern::new(seed.wrapping_mul(7919) + side * 30_011),
            expected: Pattern::new(seed.wrapping_mul(7919) + (1 - side) * 30_011),
            sent: 0,
            ended: false,
            cut: false,
            idle_until: Instant::now(),
            outcome: Outcome { received: 0, seen: Seen::Nothing, refused: false },
        }
    }

    fn is_done(&self) -> bool {
        self.stream.is_none()
    }

    fn may_send(&self) -> bool {
        let other_ended = self.outcome.seen != Seen::Nothing;
        let left = self.sent < self.script.sends || self.script.persists && !self.outcome.refused;
        left && !self.cut && !self.ended && (!self.script.answers || other_ended)
    }

    fn reads(&self) -> bool {
        self.outcome.seen == Seen::Nothing && self.script.finish != Finish::CloseUnread
    }

    fn pause(&mut self) {
        if self.chances.below(1000) < self.script.pauses {
            self.idle_until = Instant::now() + Duration::from_micros(self.chances.below(3000) as u64);
        }
    }

    fn send(&mut self) -> bool {
        // After a few full reads the forwarder splices, and after a few small ones it copies again.
        let small = self.script.turns && self.sent % (BULK + SMALL) >= BULK;
        let most = 1 + self.chances.below(if small { 600 } else { self.script.most_a_write });
        let length = if self.script.persists { most } else { most.min(self.script.sends - self.sent) };
        let Some(stream) = &self.stream else { return false };
        match net::write(stream, self.out.piece(self.sent, length)) {
            Ok(written) => {
                self.sent += written;
                self.pause();
                if small {
                    // So that messages arrive one by one.
                    self.idle_until = self.idle_until.max(Instant::now() + Duration::from_micros(50));
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                self.outcome.refused = self.script.persists;
                // After this a reset reads as a clean end.
                self.cut |= error.kind() == io::ErrorKind::ConnectionReset;
                self.script.sends = self.sent;
                true
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut buffer = vec![0; self.script.most_a_read];
        let Some(stream) = &self.stream else { return false };
        match net::read(stream, &mut buffer) {
            Ok(0) => self.outcome.seen = if self.cut { Seen::Reset } else { Seen::Clean },
            Ok(length) => {
                self.expected.check(self.outcome.received, &buffer[..length]);
                self.outcome.received += length;
                self.pause();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => {
                (self.outcome.seen, self.cut) = (Seen::Reset, true);
                self.script.sends = self.sent;
            }
        }
        true
    }

    /// Ends what is to be ended now.
    fn finish(&mut self) -> bool {
        let Some(stream) = &self.stream else { return false };
        let sent_all = self.sent >= self.script.sends && (!self.script.answers || self.outcome.seen != Seen::Nothing);
        let acknowledged = || net::unacknowledged(stream).expect("a socket has a queue") == 0;
        let seen = self.outcome.seen != Seen::Nothing;
        let close = match self.script.finish {
            Finish::Half if sent_all && !self.ended => {
                let _ = stream.shutdown(Shutdown::Write);
                self.ended = true;
                return true;
            }
            Finish::HalfThenResetAfter(_) if sent_all && !self.ended => {
                let _ = stream.shutdown(Shutdown::Write);
                self.ended = true;
                return true;
            }
            Finish::Half => self.ended && seen,
            Finish::Stay => seen && sent_all && (!self.script.persists || self.outcome.refused),
            Finish::ResetAfter(received) | Finish::HalfThenResetAfter(received) | Finish::CloseAfter(received) => {
                self.cut || sent_all && self.outcome.received >= received && acknowledged()
            }
            Finish::ResetAtOnce => sent_all,
            Finish::CloseUnread => sent_all && acknowledged() && net_waits(stream),
        };
        if close && let Some(stream) = self.stream.take() {
            if matches!(self.script.finish, Finish::ResetAfter(_) | Finish::HalfThenResetAfter(_) | Finish::ResetAtOnce)
            {
                crate::support::forwarder::reset(stream);
            }
            return true;
        }
        false
    }
}

fn net_waits(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|length| length > 0)
}

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
