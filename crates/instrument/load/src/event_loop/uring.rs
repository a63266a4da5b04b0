//! io_uring(7): the kernel is told what to do and reports what it has done, all connections' with
//! one call a turn.
//!
//! The rule: what was lent to the kernel is its own until the completion that gives it back. So a
//! socket's place is given to another only when nothing is outstanding on it and its close has
//! completed, and bytes to send are copied into memory that is lent with them: a connection that is
//! given up must not take away what the kernel still reads, and the copy is little beside the send.
//! Bytes that arrive are looked at where they lie, and their buffer goes back with the next report.

mod completing;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::descriptor;
use plimsoll_sys::net::{self, Mode};
use plimsoll_sys::readiness::Ready;
use plimsoll_sys::ring::{Buffer, Completion, Payload, Ring, SendMode, Sizes, Slot};

use super::sockets::{Arrival, Sockets};

/// Bytes lent with one send; the rest of a longer message follows when they are sent.
const SEND_BYTES: usize = 256 * 1024;
/// errno(3): no place is left in the ring's table.
const ENFILE: i32 = 23;
/// Places for sockets that close, where there are few connections.
const SPARE_PLACES: usize = 256;
/// Lent memory that is kept for the next sends, as much of it as requests are handed in at once,
/// and how large it may be for that.
const SPARES: usize = SUBMISSIONS as usize;
const SPARE_BYTES: usize = 8 * 1024;
/// Requests that fit before they must be handed in.
const SUBMISSIONS: u32 = 1024;

/// Sockets of one ring.
pub(crate) struct Uring {
    ring: Ring,
    wake: OwnedFd,
    /// By place in the ring's table.
    lines: Vec<Line>,
    vacant: Vec<u32>,
    room: usize,
    /// What was reported last, and whether it was read.
    arrived: Option<Content>,
    unread: bool,
    /// The end of the stream stands behind what was reported last.
    ends: bool,
    /// Taken from the ring to see what comes next, and not looked at.
    ahead: Option<Completion>,
    /// Whether everything that the last wait brought was reported.
    drained: bool,
    /// Places whose receive ended for want of a buffer.
    hungry: VecDeque<Slot>,
    spares: Vec<Vec<u8>>,
    /// Bytes sent and not yet told; sends outstanding.
    sent: usize,
    sending: usize,
    /// The ring could not take a request: said with the next wait.
    broken: Option<io::Error>,
}

/// What a report was of.
enum Content {
    Bytes(Buffer),
    End,
    /// errno(3).
    Error(i32),
}

/// A place in the ring's table.
struct Line {
    key: u64,
    connecting: bool,
    receiving: bool,
    sending: bool,
    /// A write found a send outstanding, and wants to hear of its end.
    blocked: bool,
    /// To be closed once nothing is outstanding.
    closing: bool,
    /// How the connect, or the last send that failed, came out.
    outcome: Option<io::Error>,
}

impl Line {
    fn new(key: u64) -> Line {
        Line { key, connecting: true, receiving: false, sending: false, blocked: false, closing: false, outcome: None }
    }
}

impl Uring {
    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.broken.get_or_insert(error);
        }
    }

    fn line(&mut self, slot: Slot) -> &mut Line {
        &mut self.lines[slot.index()]
    }

    fn recycle(&mut self) {
        self.ends = false;
        self.unread = false;
        if let Some(Content::Bytes(buffer)) = self.arrived.take() {
            self.ring.recycle(buffer);
        }
    }

    fn arm(&mut self, slot: Slot) {
        self.line(slot).receiving = true;
        let outcome = self.ring.receive(slot);
        self.note(outcome);
    }
}

impl Sockets for Uring {
    const DEFERS: bool = true;
    const RESTS: bool = false;

    type Socket = Slot;

    fn room(descriptors: usize) -> usize {
        // A ring's table may have as many places as there may be descriptors (io_uring/rsrc.c,
        // io_sqe_files_register), and half of them may be closing.
        descriptors / 2
    }

    fn new(connections: usize, wake: BorrowedFd<'_>, _stamped: bool) -> io::Result<Uring> {
        // As many may be closing as are open. A server that resets connections at once makes more:
        // one is lost again before the socket that it had before has closed.
        let room = (4 * connections + SPARE_PLACES).min(descriptor::limit()).max(2 * connections);
        let mut ring = Ring::new(Sizes {
            submissions: SUBMISSIONS,
            completions: 4096,
            slots: u32::try_from(room).unwrap_or(u32::MAX),
            // A request's answer is looked at in the turn that it came in, so these are as many as
            // answers come in one.
            buffers: 512,
            buffer_bytes: 8192,
            accepts: 0,
        })?;
        ring.watch(wake)?;
        Ok(Uring {
            ring,
            wake: wake.try_clone_to_owned()?,
            lines: Vec::new(),
            vacant: Vec::new(),
            room,
            arrived: None,
            unread: false,
            ends: false,
            ahead: None,
            drained: true,
            hungry: VecDeque::new(),
            spares: Vec::new(),
            sent: 0,
            sending: 0,
            broken: None,
        })
    }

    fn has_place(&self) -> bool {
        !self.vacant.is_empty() || self.lines.len() < self.room
    }

    fn connect(&mut self, key: Key, target: SocketAddr, source: Option<IpAddr>) -> io::Result<Slot> {
        let place = match self.vacant.pop() {
            Some(place) => place,
            None if self.lines.len() < self.room => self.lines.len() as u32,
            None => return Err(io::Error::from_raw_os_error(ENFILE)),
        };
        let slot =
            net::unconnected(target, source, Mode::Blocking).and_then(|socket| self.ring.adopt_at(place, socket));
        let new = place as usize == self.lines.len();
        let slot = slot.inspect_err(|_| {
            if !new {
                self.vacant.push(place)
            }
        })?;
        if new {
            self.lines.push(Line::new(key.to_raw()));
        } else {
            self.lines[place as usize] = Line::new(key.to_raw());
        }
        let outcome = self.ring.connect(slot, target);
        self.note(outcome);
        Ok(slot)
    }

    fn connected(&mut self, socket: &Slot) -> io::Result<()> {
        match self.line(*socket).outcome.take() {
            Some(error) => Err(error),
            None => {
                self.arm(*socket);
                Ok(())
            }
        }
    }

    fn write(&mut self, socket: &Slot, bytes: &[u8]) -> io::Result<usize> {
        let line = self.line(*socket);
        if let Some(error) = line.outcome.take() {
            return Err(error);
        }
        if line.sending {
            line.blocked = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        line.sending = true;
        let count = bytes.len().min(SEND_BYTES);
        line.blocked = count < bytes.len();
        self.sending += 1;
        let mut lent = self.spares.pop().unwrap_or_default();
        lent.extend_from_slice(&bytes[..count]);
        let outcome = self.ring.send(*socket, Payload::Owned(lent, 0), SendMode::All);
        self.note(outcome);
        Ok(count)
    }

    fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    fn has_sent_all(&self) -> bool {
        self.sending == 0
    }

    fn read(&mut self, socket: &Slot) -> io::Result<Arrival<'_>> {
        // The loop reads what was reported, of the socket that it was reported of.
        if !std::mem::take(&mut self.unread) {
            let ends = std::mem::take(&mut self.ends);
            return if ends { self.end(*socket) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        match &self.arrived {
            Some(Content::Bytes(buffer)) => Ok(Arrival { bytes: self.ring.bytes(buffer), more: false, at: None }),
            Some(Content::Error(number)) => Err(io::Error::from_raw_os_error(*number)),
            Some(Content::End) | None => self.end(*socket),
        }
    }

    fn close(&mut self, socket: Slot) {
        let line = self.line(socket);
        line.closing = true;
        let (connecting, receiving, sending) = (line.connecting, line.receiving, line.sending);
        if connecting {
            let outcome = self.ring.cancel_connect(socket);
            self.note(outcome);
        }
        if receiving {
            let outcome = self.ring.cancel_receive(socket);
            self.note(outcome);
        }
        if sending {
            let outcome = self.ring.end_both(socket);
            self.note(outcome);
        }
        self.go_on_closing(socket);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.recycle();
        for _ in 0..self.hungry.len() {
            let Some(slot) = self.hungry.pop_front() else { break };
            // Its place may have been given to another meanwhile, which asks for itself.
            let line = self.line(slot);
            if !(line.closing || line.connecting || line.receiving) {
                self.arm(slot);
            }
        }
        match self.broken.take() {
            Some(error) => Err(error),
            // The ring waits for something new, whatever of the old was not reported yet.
            None => self.ring.wait(if self.drained { timeout } else { Some(Duration::ZERO) }),
        }
    }

    fn rest(&mut self, _wake: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
        self.wait(Some(time))
    }

    fn report(&mut self) -> Option<Ready> {
        loop {
            self.recycle();
            let completion = self.ahead.take().or_else(|| self.ring.next_completion());
            self.drained = completion.is_none();
            let completion = completion?;
            if let Some(ready) = self.take(completion) {
                return Some(ready);
            }
        }
    }
}
