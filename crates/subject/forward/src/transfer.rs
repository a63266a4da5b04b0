//! The moving of bytes in one direction: a read, and a write of what was read, until one side has
//! to wait.
//!
//! A [`Channel`] holds what was read and not yet written. A direction whose reads fill the room for
//! a read several times in a row is spliced through a pipe from then on, and copied again when
//! little comes at a time. It must not decide what an end means: that is [`Relay`]'s.

mod channel;

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use plimsoll_reactor::slab::Key;
use plimsoll_sys::net;

use crate::meter::Meter;
use crate::outbox::READ_BYTES;
use crate::pool::Pool;
use crate::relay::{Direction, End, Refusal, Relay, Side, Step};

pub(crate) use channel::Channel;
use channel::Held;

/// One side's socket and its readiness. Edge-triggered: a flag stays set until a call has found the
/// opposite.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The end of the stream, or an error, is there to be read: a short read does not mean that
    /// nothing is left.
    pub(crate) ended: bool,
    /// Urgent data has arrived, and no read has found the socket empty since. A read stops before
    /// the urgent byte (tcp_recvmsg_locked in the kernel's tcp.c), so a short one does not mean
    /// that nothing is left; and a splice never passes it (tcp_read_sock).
    pub(crate) urgent: bool,
    /// A TCP connection; otherwise a Unix one.
    pub(crate) tcp: bool,
    /// Bytes that were read before those that are relayed: a PROXY header.
    pub(crate) header_bytes: u32,
}

impl Endpoint {
    pub(crate) fn new(socket: OwnedFd, tcp: bool) -> Endpoint {
        Endpoint { socket, readable: false, writable: true, ended: false, urgent: false, tcp, header_bytes: 0 }
    }

    /// Whether more may be there to be read after a read of less than there was room for.
    fn may_hold_more(&self) -> bool {
        self.ended || self.urgent
    }
}

/// Full reads in a row after which a direction is spliced: one or two may be a burst.
const FULL_READS: u8 = 4;
/// A turn that moves less than this was not worth a pipe. After this many in a row the direction is
/// copied again.
const WORTH_SPLICING: usize = 32 * 1024;
const SMALL_TURNS: u8 = 4;
/// Bytes that are read at once of a direction that is held to a bandwidth, however low that is.
const LEAST_METERED: usize = 1024;
/// What one direction may move before other connections have their turn: some 70 us either way.
const TURN_COPIED: usize = 256 * 1024;
const TURN_SPLICED: usize = 1024 * 1024;

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferOutcome {
    /// A side has to become ready.
    Waits,
    /// There is more to do, and no event will report it.
    Yields,
    /// There may be more to do after this time, which will not be reported again: the bandwidth is
    /// used up.
    Metered(Duration),
}

/// Gets each read, for a log of transfers.
pub(crate) trait TransferObserver {
    fn transferred(&mut self, source: &Endpoint, sink: &Endpoint, reads: u64, bytes: u64);
}

/// One direction of one connection, with what it needs for a turn.
pub(crate) struct Transfer<'a> {
    /// Names the connection.
    pub(crate) key: Key,
    pub(crate) relay: &'a mut Relay,
    /// Whose bytes they are.
    pub(crate) side: Side,
    pub(crate) source: &'a mut Endpoint,
    pub(crate) sink: &'a mut Endpoint,
    pub(crate) channel: &'a mut Channel,
}

impl Transfer<'_> {
    /// What it can do now.
    pub(crate) fn next(&mut self) -> Step {
        if self.channel.posted().is_some() || self.relay.failure.is_some() {
            return Step::Wait;
        }
        let pending = self.channel.held.length();
        self.relay.from(self.side).next(pending, self.source.readable, self.sink.writable)
    }

    fn direction(&mut self) -> &mut Direction {
        self.relay.from(self.side)
    }

    /// Moves what there is.
    pub(crate) fn turn(
        &mut self,
        pool: &mut Pool,
        mut watch: Option<&mut dyn TransferObserver>,
        meter: Option<(&Meter, Instant)>,
    ) -> TransferOutcome {
        let mut moved = 0;
        let outcome = loop {
            match self.next() {
                Step::Wait => break TransferOutcome::Waits,
                Step::Write => self.write_held(pool),
                Step::Tell(end) => {
                    if end == End::Clean {
                        net::shutdown(&self.sink.socket, net::Half::Write);
                    }
                    self.relay.told(self.side, end);
                }
                Step::Read => {
                    if moved >= if self.channel.spliced { TURN_SPLICED } else { TURN_COPIED } {
                        break TransferOutcome::Yields;
                    }
                    if let Some(wait) = meter.and_then(|(meter, now)| meter.wait(now)) {
                        break TransferOutcome::Metered(wait);
                    }
                    let before = self.direction().reads;
                    let length = match meter {
                        Some((meter, _)) => self.copy(pool, meter.together(LEAST_METERED), false),
                        None => self.read(pool),
                    };
                    moved += length;
                    if let Some((meter, now)) = meter {
                        meter.count(length as u64, now);
                    }
                    let direction = *self.direction();
                    if let Some(watch) = watch.as_deref_mut()
                        && direction.reads > before
                    {
                        watch.transferred(self.source, self.sink, direction.reads, direction.read_bytes);
                    }
                }
            }
        };
        self.channel.wait = match outcome {
            // Those that have waited longer come first, so that all have their part.
            TransferOutcome::Metered(_) => {
                Some(self.channel.wait.filter(|_| moved == 0).unwrap_or_else(|| pool.next_wait()))
            }
            TransferOutcome::Waits | TransferOutcome::Yields => None,
        };
        if self.direction().is_over() {
            self.channel.clear(pool);
        } else if self.channel.spliced && moved > 0 {
            self.channel.streak = if moved < WORTH_SPLICING { self.channel.streak + 1 } else { 0 };
            if self.channel.streak >= SMALL_TURNS {
                self.stop_splicing();
            }
        }
        outcome
    }

    fn read(&mut self, pool: &mut Pool) -> usize {
        if self.channel.spliced && !self.source.urgent {
            self.splice(pool)
        } else {
            self.copy(pool, READ_BYTES, pool.splices)
        }
    }

    /// Reads into the outbox, `most` bytes. After a few full reads in a row the direction is
    /// spliced, if it `may_splice`.
    fn copy(&mut self, pool: &mut Pool, most: usize, may_splice: bool) -> usize {
        let room = pool.outbox.room();
        let most = most.min(room.len());
        let length = match net::read(&self.source.socket, &mut room[..most]) {
            Ok(length) => length,
            Err(error) => return self.not_read(&error),
        };
        if length == 0 {
            self.source.readable = false;
            self.relay.ended(self.side, End::Clean);
            return 0;
        }
        let full = length == most;
        // A read of less than there was room for took all there was (epoll(7)), except the end of
        // the stream.
        self.source.readable = full || self.source.may_hold_more();
        if !self.channel.spliced {
            self.channel.streak = if full { (self.channel.streak + 1).min(FULL_READS) } else { 0 };
            if self.channel.streak == FULL_READS && may_splice {
                (self.channel.spliced, self.channel.streak) = (true, 0);
            }
        }
        self.direction().read(length);
        let place = pool.outbox.place(length);
        if !self.sink.writable {
            self.channel.hold(pool.take_buffer(place).into());
        } else if full {
            // More follows from the same source: it does not wait for others' messages.
            let outcome = net::write(&self.sink.socket, pool.outbox.bytes(place.clone()));
            self.channel.hold(Held::Outbox(place));
            self.written(outcome, pool);
        } else {
            pool.outbox.post(self.key, self.side, place.clone());
            self.channel.hold(Held::Outbox(place));
        }
        length
    }

    /// A message in the outbox was written, or as much of it as there was room for, or none.
    pub(crate) fn written(&mut self, outcome: io::Result<usize>, pool: &mut Pool) {
        let Some(place) = self.channel.posted() else { return };
        if self.direction().is_over() {
            // The sink was found to be gone after the read.
            return self.channel.clear(pool);
        }
        match outcome {
            Ok(taken) => {
                self.direction().wrote(taken);
                self.channel.took(taken, pool);
                self.sink.writable = taken == place.len();
            }
            Err(error) => self.not_written(&error, refusal(&error)),
        }
        if let Some(rest) = self.channel.posted() {
            // The outbox is empty after the round.
            self.channel.clear(pool);
            if !self.direction().is_over() {
                self.channel.hold(pool.take_buffer(rest).into());
            }
        }
    }

    fn splice(&mut self, pool: &mut Pool) -> usize {
        let Some(pipe) = pool.take_pipe() else {
            // No descriptor is left for a pipe: copying always works.
            self.stop_splicing();
            return 0;
        };
        // The pipe is empty: EAGAIN means that the socket is.
        match pipe.fill(&self.source.socket) {
            Ok(0) => {
                // The end of the stream, or urgent data before it, which a splice does not pass: a
                // read shows which.
                pool.give_pipe(pipe);
                self.stop_splicing();
                0
            }
            Ok(length) => {
                self.direction().read(length);
                // A spliced connection is registered anew, or polled, after each turn: a short
                // splice need not be followed by one that finds nothing.
                self.source.readable = length >= pipe.capacity() / 4 || self.source.ended;
                self.channel.hold(Held::Pipe { pipe, bytes: length });
                length
            }
            Err(error) => {
                pool.give_pipe(pipe);
                self.not_read(&error)
            }
        }
    }

    fn stop_splicing(&mut self) {
        (self.channel.spliced, self.channel.streak) = (false, 0);
    }

    fn write_held(&mut self, pool: &mut Pool) {
        let (outcome, whole) = match &self.channel.held {
            Held::Buffer { bytes, place } => (net::write(&self.sink.socket, &bytes[place.clone()]), place.len()),
            // A pipe is drained piece by piece: only EAGAIN says that the sink is full.
            Held::Pipe { pipe, bytes } => (pipe.drain(&self.sink.socket, *bytes), 0),
            Held::Nothing | Held::Outbox(_) => unreachable!("only what is held in a buffer or a pipe is written here"),
        };
        match outcome {
            Ok(taken) => {
                self.direction().wrote(taken);
                self.channel.took(taken, pool);
                self.sink.writable = taken >= whole;
            }
            Err(error) if matches!(self.channel.held, Held::Pipe { .. }) && self.lost_reset(&error) => {
                self.not_written(&error, Refusal::Reset);
            }
            Err(error) => self.not_written(&error, refusal(&error)),
        }
    }

    /// Whether the sink was reset, although the error does not say so. A splice sends piece by
    /// piece; it reports the pieces that were taken, and the error of the next one is used up
    /// (splice_to_socket in the kernel's splice.c), so that from then on the socket looks as if
    /// its peer had ended it cleanly.
    fn lost_reset(&mut self, error: &io::Error) -> bool {
        let read = self.relay.from(self.side.other()).read_bytes + u64::from(self.sink.header_bytes);
        self.sink.tcp
            && error.kind() == io::ErrorKind::BrokenPipe
            && net::end_has_arrived(&self.sink.socket, read).is_ok_and(|arrived| !arrived)
    }

    /// Returns 0, as nothing was read.
    fn not_read(&mut self, error: &io::Error) -> usize {
        (self.source.readable, self.source.urgent) = (false, false);
        if error.kind() != io::ErrorKind::WouldBlock {
            match failure(self.source, error) {
                Some(errno) => self.relay.failure = Some(errno),
                None => self.relay.ended(self.side, End::Reset),
            }
        }
        0
    }

    fn not_written(&mut self, error: &io::Error, refusal: Refusal) {
        self.sink.writable = false;
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        if let Some(errno) = failure(self.sink, error) {
            self.relay.failure = Some(errno);
            return;
        }
        self.relay.refused(self.side.other(), refusal);
        // What it sent before is read to its end, and no further edge will say that it is there.
        (self.sink.readable, self.sink.ended) = (true, true);
    }
}

/// The errno(3) of an error that is this machine's, as ENOMEM, and not the connection's. A TCP
/// connection that was reset or given up is over; a Unix socket has two errors about its peer
/// (unix(7)).
pub(crate) fn failure(endpoint: &Endpoint, error: &io::Error) -> Option<i32> {
    let is_connections = if endpoint.tcp {
        net::is_over(&endpoint.socket).is_ok_and(|over| over)
    } else {
        matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    error.raw_os_error().filter(|_| !is_connections)
}

/// What an error of a write, or of the connection, says of the peer.
pub(crate) fn refusal(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::BrokenPipe { Refusal::Closed } else { Refusal::Reset }
}

#[cfg(test)]
mod tests;
