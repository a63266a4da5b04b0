//! One side of a case: what it is to do, what it has done, and what it has seen.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use plimsoll_sys::net;

use crate::support::forwarder::Noise;

/// How one side ends its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finish {
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
pub(super) struct Script {
    sends: usize,
    /// Only after the other's end.
    answers: bool,
    /// Sends until a write is refused, once the other's stream has ended.
    persists: bool,
    pub(super) finish: Finish,
    most_a_write: usize,
    most_a_read: usize,
    /// In a thousand writes or reads.
    pauses: usize,
    /// It turns from bulk to small messages and back, again and again.
    turns: bool,
}

/// How a side saw the other's stream end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Seen {
    Clean,
    Reset,
    /// It closed first.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) received: usize,
    pub(super) seen: Seen,
    /// A side that persists was told that it cannot.
    refused: bool,
}

/// What both are to do, and whether how much they receive is certain.
pub(super) fn script(seed: u64) -> ([Script; 2], bool) {
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

pub(super) struct Peer {
    pub(super) stream: Option<TcpStream>,
    script: Script,
    chances: Noise,
    /// What it sends and what it must receive, as they come.
    out: Pattern,
    expected: Pattern,
    pub(super) sent: usize,
    ended: bool,
    cut: bool,
    pub(super) idle_until: Instant,
    pub(super) outcome: Outcome,
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
    pub(super) fn new(stream: TcpStream, script: Script, seed: u64, side: u64) -> Peer {
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

    pub(super) fn is_done(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn may_send(&self) -> bool {
        let other_ended = self.outcome.seen != Seen::Nothing;
        let left = self.sent < self.script.sends || self.script.persists && !self.outcome.refused;
        left && !self.cut && !self.ended && (!self.script.answers || other_ended)
    }

    pub(super) fn reads(&self) -> bool {
        self.outcome.seen == Seen::Nothing && self.script.finish != Finish::CloseUnread
    }

    fn pause(&mut self) {
        if self.chances.below(1000) < self.script.pauses {
            self.idle_until = Instant::now() + Duration::from_micros(self.chances.below(3000) as u64);
        }
    }

    pub(super) fn send(&mut self) -> bool {
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

    pub(super) fn receive(&mut self) -> bool {
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
    pub(super) fn finish(&mut self) -> bool {
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
