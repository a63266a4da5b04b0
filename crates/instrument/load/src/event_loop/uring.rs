//! io_uring(7): one call submits requests for all connections and returns their completions.
//!
//! The rule: a buffer or socket of a request belongs to the kernel until the request completes. So
//! a slot of the ring's table is used again only once nothing is outstanding on it and its close
//! has completed. Bytes to send are copied to memory of the request: the kernel may still read them
//! when the connection is given up, and the copy costs little beside the send. Bytes that arrive
//! are read where the kernel put them, and their buffer goes back before the next report.

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

/// Bytes of one send; the rest of a longer message follows when it has completed.
const SEND_BYTES: usize = 256 * 1024;
/// errno(3): no slot of the ring's table is free.
const ENFILE: i32 = 23;
/// Slots for sockets that close, where there are few connections.
const CLOSING_PLACES: usize = 256;
/// Memory of completed sends that is kept for the next ones: as many buffers as requests are
/// submitted at once, each of at most this capacity.
const FREE_BUFFERS: usize = SUBMISSIONS as usize;
const FREE_BUFFER_BYTES: usize = 8 * 1024;
/// Requests that fit before they must be submitted.
const SUBMISSIONS: u32 = 1024;

/// Sockets of one ring.
pub(crate) struct Uring {
    ring: Ring,
    wake: OwnedFd,
    /// By slot of the ring's table.
    slots: Vec<SlotState>,
    free_slots: Vec<u32>,
    room: usize,
    /// What was reported last, and whether it was read.
    arrived: Option<Content>,
    unread: bool,
    /// The end of the stream follows the bytes that were reported last.
    ends: bool,
    /// The next completion, already taken from the ring and not yet handled.
    peeked: Option<Completion>,
    /// Whether everything that the last wait brought was reported.
    drained: bool,
    /// Whether it brought anything.
    brought: bool,
    /// Slots whose receive ended because no buffer was free.
    awaiting_buffer: VecDeque<Slot>,
    free_buffers: Vec<Vec<u8>>,
    /// Bytes sent since the last call of `take_sent`.
    sent: usize,
    /// Sends outstanding on sockets that are to be closed.
    ending: usize,
    /// The ring refused a request: the next wait returns the error.
    broken: Option<io::Error>,
}

/// What a report was of.
enum Content {
    Bytes(Buffer),
    End,
    /// errno(3).
    Error(i32),
}

/// What is under way on the socket of a slot.
struct SlotState {
    key: u64,
    connecting: bool,
    receiving: bool,
    sending: bool,
    /// A write found a send outstanding, and waits for its end.
    blocked: bool,
    /// To be closed once nothing is outstanding.
    closing: bool,
    /// The error of the connect, or of the last send that failed.
    outcome: Option<io::Error>,
}

impl SlotState {
    fn new(key: u64) -> SlotState {
        SlotState {
            key,
            connecting: true,
            receiving: false,
            sending: false,
            blocked: false,
            closing: false,
            outcome: None,
        }
    }
}

impl Uring {
    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.broken.get_or_insert(error);
        }
    }

    fn state(&mut self, slot: Slot) -> &mut SlotState {
        &mut self.slots[slot.index()]
    }

    fn recycle(&mut self) {
        self.ends = false;
        self.unread = false;
        if let Some(Content::Bytes(buffer)) = self.arrived.take() {
            self.ring.recycle(buffer);
        }
    }

    fn arm(&mut self, slot: Slot) {
        self.state(slot).receiving = true;
        let outcome = self.ring.receive(slot);
        self.note(outcome);
    }
}

impl Sockets for Uring {
    const DEFERS: bool = true;
    const SLEEPS: bool = false;

    type Socket = Slot;

    fn room(descriptors: usize) -> usize {
        // A ring's table may have as many slots as there may be descriptors (io_uring/rsrc.c,
        // io_sqe_files_register), and half of them may be closing.
        descriptors / 2
    }

    fn new(connections: usize, wake: BorrowedFd<'_>, _stamped: bool) -> io::Result<Uring> {
        // As many may be closing as are open. A server that resets connections at once makes more:
        // one is lost again before the socket that it had before has closed.
        let room = (4 * connections + CLOSING_PLACES).min(descriptor::limit()).max(2 * connections);
        let mut ring = Ring::new(Sizes {
            submissions: SUBMISSIONS,
            completions: 4096,
            slots: u32::try_from(room).unwrap_or(u32::MAX),
            // An answer is read in the pass in which it is reported, so these suffice for the
            // answers of one pass.
            buffers: 512,
            buffer_bytes: 8192,
            accepts: 0,
        })?;
        ring.watch(wake)?;
        Ok(Uring {
            ring,
            wake: wake.try_clone_to_owned()?,
            slots: Vec::new(),
            free_slots: Vec::new(),
            room,
            arrived: None,
            unread: false,
            ends: false,
            peeked: None,
            drained: true,
            brought: false,
            awaiting_buffer: VecDeque::new(),
            free_buffers: Vec::new(),
            sent: 0,
            ending: 0,
            broken: None,
        })
    }

    fn has_place(&self) -> bool {
        !self.free_slots.is_empty() || self.slots.len() < self.room
    }

    fn connect(&mut self, key: Key, target: SocketAddr, source: Option<IpAddr>) -> io::Result<Slot> {
        let index = match self.free_slots.pop() {
            Some(index) => index,
            None if self.slots.len() < self.room => self.slots.len() as u32,
            None => return Err(io::Error::from_raw_os_error(ENFILE)),
        };
        let adopted = net::unconnected(target, source, Mode::Blocking)
            .and_then(|socket| Ok((self.ring.adopt_at(index, &socket)?, socket)));
        let new = index as usize == self.slots.len();
        let (slot, socket) = adopted.inspect_err(|_| {
            if !new {
                self.free_slots.push(index)
            }
        })?;
        if new {
            self.slots.push(SlotState::new(key.to_raw()));
        } else {
            self.slots[index as usize] = SlotState::new(key.to_raw());
        }
        let outcome = self.ring.connect(slot, socket, target);
        self.note(outcome);
        Ok(slot)
    }

    fn connected(&mut self, socket: &Slot) -> io::Result<()> {
        match self.state(*socket).outcome.take() {
            Some(error) => Err(error),
            None => {
                self.arm(*socket);
                Ok(())
            }
        }
    }

    fn write(&mut self, socket: &Slot, bytes: &[u8]) -> io::Result<usize> {
        let state = self.state(*socket);
        if let Some(error) = state.outcome.take() {
            return Err(error);
        }
        if state.sending {
            state.blocked = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.sending = true;
        let count = bytes.len().min(SEND_BYTES);
        state.blocked = count < bytes.len();
        let mut copy = self.free_buffers.pop().unwrap_or_default();
        copy.extend_from_slice(&bytes[..count]);
        let outcome = self.ring.send(*socket, Payload::Owned(copy, 0), SendMode::Some);
        self.note(outcome);
        Ok(count)
    }

    fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    fn has_sent_all(&self) -> bool {
        self.ending == 0
    }

    fn read(&mut self, socket: &Slot) -> io::Result<Arrival<'_>> {
        // The loop reads what was last reported, from the socket of that report.
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
        let state = self.state(socket);
        state.closing = true;
        let (connecting, receiving, sending) = (state.connecting, state.receiving, state.sending);
        if connecting {
            let outcome = self.ring.cancel_connect(socket);
            self.note(outcome);
        }
        if receiving {
            let outcome = self.ring.cancel_receive(socket);
            self.note(outcome);
        }
        if sending {
            self.ending += 1;
            let outcome = self.ring.end_both(socket);
            self.note(outcome);
        }
        self.close_if_idle(socket);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.recycle();
        self.brought = false;
        for _ in 0..self.awaiting_buffer.len() {
            let Some(slot) = self.awaiting_buffer.pop_front() else { break };
            // The slot may have another socket meanwhile, which starts its own receive.
            let state = self.state(slot);
            if !(state.closing || state.connecting || state.receiving) {
                self.arm(slot);
            }
        }
        match self.broken.take() {
            Some(error) => Err(error),
            // The ring waits for new completions, even while earlier ones are not yet reported.
            None => self.ring.wait(if self.drained { timeout } else { Some(Duration::ZERO) }),
        }
    }

    fn was_interrupted(&self) -> bool {
        self.ring.was_interrupted()
    }

    fn may_have_left(&self) -> bool {
        // It brings a part of what is there (io_uring/io_uring.h, IO_LOCAL_TW_DEFAULT_MAX), of
        // which all may be completions that are not reported.
        self.was_interrupted() || self.brought
    }

    fn sleep(&mut self, _wake: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
        self.wait(Some(time))
    }

    fn report(&mut self) -> Option<Ready> {
        loop {
            self.recycle();
            let completion = self.peeked.take().or_else(|| self.ring.next_completion());
            self.drained = completion.is_none();
            let completion = completion?;
            self.brought = true;
            if let Some(ready) = self.take(completion) {
                return Some(ready);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::AsFd;

    use plimsoll_sys::event::Event;

    use super::*;

    const LONGEST: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn a_wait_that_brought_only_what_is_not_reported_may_have_left_answers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let wake = Event::new().expect("an event");
        let mut sockets = Uring::new(1, wake.as_fd(), false).expect("a ring");
        let target = listener.local_addr().expect("it is bound");
        let slot = sockets.connect(Key::from_raw(7), target, None).expect("a place");
        sockets.wait(LONGEST).expect("a wait");
        assert!(sockets.report().is_some_and(|ready| ready.writable) && sockets.report().is_none());
        sockets.connected(&slot).expect("it is up");
        assert_eq!(sockets.write(&slot, b"request").expect("there is room"), 7);
        sockets.wait(LONGEST).expect("a wait");
        assert!(sockets.report().is_none(), "a send is not reported");
        assert_eq!(sockets.take_sent(), 7);
        assert!(sockets.may_have_left());
        sockets.wait(Some(Duration::ZERO)).expect("a wait");
        assert!(sockets.report().is_none() && !sockets.may_have_left());
    }
}
