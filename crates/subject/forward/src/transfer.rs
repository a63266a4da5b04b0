//! The moving of bytes in one direction: a read, and a write of what was read, until one side has to wait.
//!
//! Small messages are copied through the outbox that the whole event loop shares, and go out with those of other connections; what the sink does not take then waits in a buffer of
//! its own. A direction whose reads are as large as a read may be several times in a row is moved through a pipe from then on, and goes back to copying when little comes at a
//! time. Neither a buffer nor a pipe is held while nothing waits in it. It must not decide what an end means: that is [`Relay`]'s.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::net;
use plimsoll_sys::pipe::Pipe;

use crate::outbox::{Message, READ_BYTES};
use crate::pool::Pool;
use crate::relay::{Direction, End, Refusal, Relay, Side, Step};

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
    /// What was read in this round goes out with the others'.
    Outbox,
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

    /// Whether what was read waits in the outbox.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self.waiting, Waiting::Outbox)
    }

    /// Gives back what is held, when nothing moves any more.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        match std::mem::take(&mut self.waiting) {
            Waiting::Nowhere | Waiting::Outbox => {}
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

/// One direction of one connection, with what it needs for a turn.
pub(crate) struct Transfer<'a> {
    /// Names the connection.
    pub(crate) key: Key,
    pub(crate) relay: &'a mut Relay,
    /// Whose bytes they are.
    pub(crate) side: Side,
    pub(crate) source: &'a mut Leg,
    pub(crate) sink: &'a mut Leg,
    pub(crate) lane: &'a mut Lane,
}

impl Transfer<'_> {
    /// What it can do now.
    pub(crate) fn next(&mut self) -> Step {
        if self.lane.is_posted() {
            return Step::Rest;
        }
        self.relay.from(self.side).next(self.source.readable, self.sink.writable)
    }

    fn direction(&mut self) -> &mut Direction {
        self.relay.from(self.side)
    }

    /// Moves what there is.
    pub(crate) fn turn(&mut self, pool: &mut Pool, mut watch: Option<&mut dyn Watch>) -> Turn {
        let mut moved = 0;
        loop {
            match self.next() {
                Step::Rest => break,
                Step::Write => self.write_waiting(pool),
                Step::Tell(end) => {
                    if end == End::Clean {
                        net::shutdown(&self.sink.socket, net::Half::Write);
                    }
                    self.relay.told(self.side, end);
                }
                Step::Read => {
                    if moved >= if self.lane.moving { TURN_MOVED } else { TURN_COPIED } {
                        return Turn::Yields;
                    }
                    let before = self.direction().reads;
                    moved += if self.lane.moving { self.fill_pipe(pool) } else { self.copy(pool) };
                    let direction = *self.direction();
                    if let Some(watch) = watch.as_deref_mut()
                        && direction.reads > before
                    {
                        watch.transferred(self.source, self.sink, direction.reads, direction.taken());
                    }
                }
            }
        }
        if self.direction().is_over() {
            self.lane.clear(pool);
        } else if self.lane.moving && moved > 0 {
            self.lane.streak = if moved < WORTH_MOVING { self.lane.streak + 1 } else { 0 };
            if self.lane.streak >= SMALL_TURNS {
                (self.lane.moving, self.lane.streak) = (false, 0);
            }
        }
        Turn::Waits
    }

    fn copy(&mut self, pool: &mut Pool) -> usize {
        let length = match net::read(&self.source.socket, pool.outbox.room()) {
            Ok(length) => length,
            Err(error) => return self.not_read(&error),
        };
        if length == 0 {
            self.source.readable = false;
            self.relay.ended(self.side, End::Clean);
            return 0;
        }
        let full = length == READ_BYTES;
        // A read of less than there was room for took all there was (epoll(7)), except the end of the stream.
        self.source.readable = full || self.source.ended;
        self.lane.streak = if full { self.lane.streak + 1 } else { 0 };
        if self.lane.streak >= FULL_READS && pool.splices {
            (self.lane.moving, self.lane.streak) = (true, 0);
        } else {
            self.lane.streak = self.lane.streak.min(FULL_READS);
        }
        self.direction().read(length);
        let place = pool.outbox.place(length);
        if !self.sink.writable {
            self.lane.waiting = Waiting::Buffer { bytes: pool.take_buffer(place), start: 0 };
        } else if full {
            // There is more where it came from, which does not wait for others' messages.
            let outcome = net::write(&self.sink.socket, pool.outbox.bytes(place.clone()));
            self.written(place, outcome, pool);
        } else {
            pool.outbox.post(Message { key: self.key, from: self.side, place });
            self.lane.waiting = Waiting::Outbox;
        }
        length
    }

    /// What lies at a place of the outbox was written, or as much of it as there was room for, or none.
    pub(crate) fn written(&mut self, place: Range<usize>, outcome: io::Result<usize>, pool: &mut Pool) {
        self.lane.waiting = Waiting::Nowhere;
        if self.direction().is_over() {
            // The sink was found to be gone after the read.
            return;
        }
        let mut taken = 0;
        match outcome {
            Ok(bytes) => {
                taken = bytes;
                self.direction().wrote(taken);
                self.sink.writable = taken == place.len();
            }
            Err(error) => self.not_written(&error),
        }
        if self.direction().pending() > 0 {
            let rest = place.start + taken..place.end;
            self.lane.waiting = Waiting::Buffer { bytes: pool.take_buffer(rest), start: 0 };
        }
    }

    fn fill_pipe(&mut self, pool: &mut Pool) -> usize {
        let pipe = match std::mem::take(&mut self.lane.waiting) {
            Waiting::Pipe(pipe) => pipe,
            _ => match pool.take_pipe() {
                Some(pipe) => pipe,
                None => {
                    // No descriptor is left for one: copying always works.
                    (self.lane.moving, self.lane.streak) = (false, 0);
                    return 0;
                }
            },
        };
        // The pipe is empty, as a direction is read only when nothing waits: so EAGAIN means that the socket is.
        match pipe.fill(&self.source.socket) {
            Ok(0) => {
                self.source.readable = false;
                self.relay.ended(self.side, End::Clean);
            }
            Ok(length) => {
                self.direction().read(length);
                // Rather than run after the sender, packet by packet: a connection that goes through pipes is asked after anew, or looked at, after each turn.
                self.source.readable = length >= pipe.capacity() / 4 || self.source.ended;
                self.lane.waiting = Waiting::Pipe(pipe);
                return length;
            }
            Err(error) => {
                self.not_read(&error);
            }
        }
        pool.give_pipe(pipe);
        0
    }

    fn write_waiting(&mut self, pool: &mut Pool) {
        let pending = self.direction().pending();
        let outcome = match &self.lane.waiting {
            Waiting::Buffer { bytes, start } => net::write(&self.sink.socket, &bytes[*start..*start + pending]),
            Waiting::Pipe(pipe) => pipe.drain(&self.sink.socket, pending),
            Waiting::Nowhere | Waiting::Outbox => unreachable!("what is pending waits somewhere"),
        };
        match outcome {
            Ok(taken) => {
                self.direction().wrote(taken);
                if let Waiting::Buffer { start, .. } = &mut self.lane.waiting {
                    *start += taken;
                    self.sink.writable = taken == pending;
                    if taken == pending {
                        self.lane.clear(pool);
                    }
                }
            }
            Err(error) if matches!(self.lane.waiting, Waiting::Pipe(_)) && self.lost_reset(&error) => {
                self.not_written(&io::ErrorKind::ConnectionReset.into());
            }
            Err(error) => self.not_written(&error),
        }
    }

    /// Whether the sink was reset, although the error does not say so. A splice sends piece by piece; it reports the pieces that were taken, and the error of the next one is
    /// used up (splice_to_socket in the kernel's splice.c), so that from then on the socket looks as if its peer had ended it cleanly.
    fn lost_reset(&mut self, error: &io::Error) -> bool {
        let read = self.relay.from(self.side.other()).taken();
        self.sink.tcp
            && error.kind() == io::ErrorKind::BrokenPipe
            && net::end_has_arrived(&self.sink.socket, read).is_ok_and(|arrived| !arrived)
    }

    /// Returns 0, as nothing was read.
    fn not_read(&mut self, error: &io::Error) -> usize {
        self.source.readable = false;
        if error.kind() != io::ErrorKind::WouldBlock {
            self.relay.ended(self.side, End::Reset);
        }
        0
    }

    fn not_written(&mut self, error: &io::Error) {
        self.sink.writable = false;
        if error.kind() != io::ErrorKind::WouldBlock {
            self.relay.refused(self.side.other(), refusal(error));
            // What it sent before is read to its end, and no further edge will say that it is there.
            (self.sink.readable, self.sink.ended) = (true, true);
        }
    }
}

/// What an error of a write, or of the connection, says of the peer.
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::BrokenPipe { Refusal::Closed } else { Refusal::Reset }
}

#[cfg(test)]
mod tests;
