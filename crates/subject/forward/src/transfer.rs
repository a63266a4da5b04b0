//! The moving of bytes in one direction: a read, and a write of what was read, until one side has to wait.
//!
//! Small messages are copied through one buffer that the whole event loop shares; what the sink does not take at once waits in a buffer of its own. A direction that fills
//! the shared buffer several times in a row is moved through a pipe from then on, and goes back to copying when little comes at a time. Neither a buffer nor a pipe is
//! held while nothing waits in it. It must not decide what an end means: that is [`Relay`]'s.

use std::io;
use std::os::fd::OwnedFd;

use plimsoll_sys::net;
use plimsoll_sys::pipe::Pipe;

use crate::pool::Pool;
use crate::relay::{End, Refusal, Relay, Side, Step};

/// One side's socket and what is known of it. Edge-triggered: a flag stays set until a call has found the opposite.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) socket: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The end of the stream, or an error, is there to be read: a short read does not mean that nothing is left.
    pub(crate) ended: bool,
    /// A TCP connection; otherwise a Unix one.
    pub(crate) tcp: bool,
}

impl Leg {
    pub(crate) fn new(socket: OwnedFd, tcp: bool) -> Leg {
        Leg { socket, readable: false, writable: true, ended: false, tcp }
    }
}

/// Where bytes wait that the sink has not taken.
#[derive(Debug, Default)]
enum Waiting {
    #[default]
    Nowhere,
    Buffer {
        bytes: Box<[u8]>,
        start: usize,
    },
    Pipe(Pipe),
}

/// What one direction of one connection holds between turns.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    waiting: Waiting,
    /// Through a pipe, or by copying.
    moving: bool,
    /// While copying, full reads in a row; while moving, turns in a row that brought little.
    streak: u8,
}

impl Lane {
    /// Whether it goes through a pipe.
    pub(crate) fn is_moving(&self) -> bool {
        self.moving
    }

    /// Gives back what is held, when nothing moves any more.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        match std::mem::take(&mut self.waiting) {
            Waiting::Nowhere => {}
            Waiting::Buffer { bytes, .. } => pool.give_buffer(bytes),
            // Bytes may be left in it, so that nobody else may have it.
            Waiting::Pipe(pipe) => pool.discard_pipe(pipe),
        }
    }
}

/// Full reads in a row after which a direction is moved through a pipe: one or two may be a burst.
const FULL_READS: u8 = 4;
/// A turn that moves less than this was not worth a pipe, and after as many in a row the direction is copied again.
const WORTH_MOVING: usize = 32 * 1024;
const SMALL_TURNS: u8 = 4;
/// What one direction may move before other connections have their turn.
const TURN_COPIED: usize = 256 * 1024;
const TURN_MOVED: usize = 4 * 1024 * 1024;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A side has to become ready.
    Waits,
    /// There is more to do that will not be reported again.
    Yields,
}

/// Takes note of each read, for a log of transfers.
pub(crate) trait Watch {
    fn transferred(&mut self, source: &Leg, sink: &Leg, reads: u64, bytes: u64);
}

/// Moves what there is from `source`, which is `side`, to `sink`.
pub(crate) fn turn(
    relay: &mut Relay,
    side: Side,
    (source, sink): (&mut Leg, &mut Leg),
    lane: &mut Lane,
    pool: &mut Pool,
    mut watch: Option<&mut dyn Watch>,
) -> Turn {
    let mut moved = 0;
    loop {
        match relay.from(side).next(source.readable, sink.writable) {
            Step::Rest => break,
            Step::Write => write_waiting(relay, side, sink, lane, pool),
            Step::Tell(end) => {
                if end == End::Clean {
                    net::shutdown(&sink.socket, net::Half::Write);
                }
                relay.told(side, end);
            }
            Step::Read => {
                if moved >= if lane.moving { TURN_MOVED } else { TURN_COPIED } {
                    return Turn::Yields;
                }
                let before = relay.from(side).reads;
                moved += if lane.moving {
                    fill_pipe(relay, side, source, lane, pool)
                } else {
                    copy(relay, side, (source, sink), lane, pool)
                };
                if let Some(watch) = watch.as_deref_mut()
                    && relay.from(side).reads > before
                {
                    let direction = relay.from(side);
                    watch.transferred(source, sink, direction.reads, direction.taken());
                }
            }
        }
    }
    if relay.from(side).is_over() {
        lane.clear(pool);
    } else if lane.moving && moved > 0 {
        lane.streak = if moved < WORTH_MOVING { lane.streak + 1 } else { 0 };
        if lane.streak >= SMALL_TURNS {
            (lane.moving, lane.streak) = (false, 0);
        }
    }
    Turn::Waits
}

fn copy(
    relay: &mut Relay,
    side: Side,
    (source, sink): (&mut Leg, &mut Leg),
    lane: &mut Lane,
    pool: &mut Pool,
) -> usize {
    let length = match net::read(&source.socket, &mut pool.input) {
        Ok(length) => length,
        Err(error) => return not_read(relay, side, source, &error),
    };
    if length == 0 {
        source.readable = false;
        relay.ended(side, End::Clean);
        return 0;
    }
    let full = length == pool.input.len();
    // A read that did not fill the buffer took all there was (epoll(7)), except the end of the stream.
    source.readable = full || source.ended;
    lane.streak = if full { lane.streak + 1 } else { 0 };
    if lane.streak >= FULL_READS && pool.splices {
        (lane.moving, lane.streak) = (true, 0);
    } else {
        lane.streak = lane.streak.min(FULL_READS);
    }
    relay.from(side).read(length);
    let mut written = 0;
    if sink.writable {
        match net::write(&sink.socket, &pool.input[..length]) {
            Ok(taken) => {
                written = taken;
                relay.from(side).wrote(taken);
                sink.writable = taken == length;
            }
            Err(error) => not_written(relay, side, sink, &error),
        }
    }
    if relay.from(side).pending() > 0 {
        lane.waiting = Waiting::Buffer { bytes: pool.take_buffer(written..length), start: 0 };
    }
    length
}

fn fill_pipe(relay: &mut Relay, side: Side, source: &mut Leg, lane: &mut Lane, pool: &mut Pool) -> usize {
    let pipe = match std::mem::take(&mut lane.waiting) {
        Waiting::Pipe(pipe) => pipe,
        _ => match pool.take_pipe() {
            Some(pipe) => pipe,
            None => {
                // No descriptor is left for one: copying always works.
                (lane.moving, lane.streak) = (false, 0);
                return 0;
            }
        },
    };
    // The pipe is empty, as a direction is read only when nothing waits: so EAGAIN means that the socket is.
    match pipe.fill(&source.socket) {
        Ok(0) => {
            source.readable = false;
            relay.ended(side, End::Clean);
        }
        Ok(length) => {
            relay.from(side).read(length);
            lane.waiting = Waiting::Pipe(pipe);
            return length;
        }
        Err(error) => {
            not_read(relay, side, source, &error);
        }
    }
    pool.give_pipe(pipe);
    0
}

fn write_waiting(relay: &mut Relay, side: Side, sink: &mut Leg, lane: &mut Lane, pool: &mut Pool) {
    let pending = relay.from(side).pending();
    let outcome = match &lane.waiting {
        Waiting::Buffer { bytes, start } => net::write(&sink.socket, &bytes[*start..*start + pending]),
        Waiting::Pipe(pipe) => pipe.drain(&sink.socket, pending),
        Waiting::Nowhere => unreachable!("what is pending waits somewhere"),
    };
    match outcome {
        Ok(taken) => {
            relay.from(side).wrote(taken);
            if let Waiting::Buffer { start, .. } = &mut lane.waiting {
                *start += taken;
                sink.writable = taken == pending;
                if taken == pending {
                    lane.clear(pool);
                }
            }
        }
        Err(error) if matches!(lane.waiting, Waiting::Pipe(_)) && lost_reset(relay, side, sink, &error) => {
            not_written(relay, side, sink, &io::ErrorKind::ConnectionReset.into());
        }
        Err(error) => not_written(relay, side, sink, &error),
    }
}

/// Whether the sink was reset, although the error does not say so. A splice sends piece by piece; it reports the pieces that were taken, and the error of the next one is
/// used up (splice_to_socket in the kernel's splice.c), so that from then on the socket looks as if its peer had ended it cleanly.
fn lost_reset(relay: &mut Relay, side: Side, sink: &Leg, error: &io::Error) -> bool {
    let read = relay.from(side.other()).taken();
    sink.tcp
        && error.kind() == io::ErrorKind::BrokenPipe
        && net::end_has_arrived(&sink.socket, read).is_ok_and(|arrived| !arrived)
}

/// Returns 0, as nothing was read.
fn not_read(relay: &mut Relay, side: Side, source: &mut Leg, error: &io::Error) -> usize {
    source.readable = false;
    if error.kind() != io::ErrorKind::WouldBlock {
        relay.ended(side, End::Reset);
    }
    0
}

fn not_written(relay: &mut Relay, side: Side, sink: &mut Leg, error: &io::Error) {
    sink.writable = false;
    if error.kind() != io::ErrorKind::WouldBlock {
        relay.refused(side.other(), refusal(error));
        // What it sent before is read to its end, and no further edge will say that it is there.
        (sink.readable, sink.ended) = (true, true);
    }
}

/// What an error of a write, or of the connection, says of the peer.
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::BrokenPipe { Refusal::Closed } else { Refusal::Reset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn pair() -> (TcpStream, Leg) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (near, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("a socket takes it");
        (far, Leg { readable: true, ..Leg::new(near.into(), true) })
    }

    #[test]
    fn a_reset_whose_error_a_splice_has_used_up_is_told_from_a_clean_end() {
        for clean in [false, true] {
            let (mut client, mut near_client) = pair();
            let (mut server, mut near_server) = pair();
            let (mut relay, mut pool) = (Relay::NEW, Pool::new(true, 4));
            let (mut up, mut down) = (Lane { moving: true, ..Lane::default() }, Lane::default());
            client.write_all(&[7; 50_000]).expect("there is room");
            server.write_all(b"the last words").expect("there is room");
            near_server.writable = false;
            let _ = turn(&mut relay, Side::Client, (&mut near_client, &mut near_server), &mut up, &mut pool, None);
            assert!(relay.up.pending() > 0, "bytes wait in a pipe");
            if clean {
                server.shutdown(std::net::Shutdown::Write).expect("connected");
            }
            net::reset_on_close(&server).expect("a socket takes it");
            drop(server);
            // As the kernel does where some of a splice was taken before.
            let deadline = Instant::now() + Duration::from_secs(60);
            while net::take_error(&near_server.socket).is_ok() {
                assert!(Instant::now() < deadline, "the reset does not arrive");
                std::thread::sleep(Duration::from_millis(1));
            }
            near_server.writable = true;
            let _ = turn(&mut relay, Side::Client, (&mut near_client, &mut near_server), &mut up, &mut pool, None);
            let _ = turn(&mut relay, Side::Server, (&mut near_server, &mut near_client), &mut down, &mut pool, None);
            assert_eq!(relay.down.bytes, 14, "what it had sent is delivered");
            let end = if clean { End::Clean } else { End::Reset };
            assert_eq!(relay.cause, Some((Side::Server, end)));
            assert_eq!(relay.verdict(), crate::relay::Verdict::Dismiss { survivor: Side::Client, end });
        }
    }
}
