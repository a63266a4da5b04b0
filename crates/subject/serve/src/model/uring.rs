//! io_uring(7), Linux 5.1 (2019): the kernel is told what to do, not asked what can be done, and reports what has been done, many with one call.
//!
//! The rule: whatever is lent to the kernel (a buffer, a socket) is the kernel's until the completion that gives it back, however the connection
//! fares meanwhile. A connection is closed only when its last request has completed, so its slot is never another's while something is still to come.
//!
//! The classic mistakes are to lose a buffer (every path gives it back), a completion (each is matched, errors too), or the re-arm of a request that said it would not go on
//! (`more`); and to let a peer that does not read keep the buffers that everybody needs. Here a send from the pool never waits: what there
//! is no room for moves to the connection's own memory, and its receive is cancelled until that is sent. Another is to assume that it always wins: it saves
//! calls, and does more behind each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use plimsoll_reactor::crew::{Phase, Seat};
use plimsoll_reactor::numbered::Numbered;
use plimsoll_sys::descriptor;
use plimsoll_sys::ring::{self, Buffer, Completion, Patience, Payload, Ring, Sizes, Slot};

use crate::ledger::Ledger;
use crate::service::{Chunk, Service};
use crate::totals::{Exchange, Totals};

/// A connection whose unsent bytes reach this is not received from until they are sent.
const UNSENT_BYTES: usize = 64 * 1024;
/// After this, accepting is tried again when the kernel refused it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sizes of a table's ring. A buffer takes a message of 4,000 bytes in one piece, and is back with the same turn of the loop, so there need to be as
/// many as connections have bytes in flight at one moment. A worker's further tables have mostly idle connections, whose memory counts more: there buffers
/// weigh 26 bytes a slot.
pub(crate) fn sizes(table: usize) -> Sizes {
    // A table of direct descriptors may have as many as an ordinary one (io_uring/rsrc.c, io_sqe_files_register).
    let slots = u32::try_from(descriptor::limit()).unwrap_or(u32::MAX).min(1 << 15);
    let buffers = if table == 0 { 512 } else { 128 };
    Sizes { submissions: 256, completions: 2048, slots, buffers, buffer_bytes: 4096, accepts: 32 }
}

/// Serves connections from `listeners` until the crew stops.
pub(crate) fn run<P: Service>(
    seat: &Seat,
    listeners: &[OwnedFd],
    prototype: &P,
    ledger: &Ledger,
    sizes: Sizes,
) -> io::Result<Totals> {
    let mut ring = Ring::new(sizes)?;
    ring.watch(seat.wake().as_fd())?;
    let mut table = Table {
        seat,
        listeners,
        prototype,
        ledger,
        ring,
        connections: Numbered::default(),
        open: 0,
        capacity: sizes.slots as usize,
        output: Vec::new(),
        hungry: Vec::new(),
        accepting: false,
        paused_until: None,
        draining: false,
        next_listener: 0,
        totals: Totals::default(),
    };
    table.serve()?;
    Ok(table.totals)
}

struct Connection<P> {
    slot: Slot,
    peer: SocketAddr,
    service: P,
    exchange: Exchange,
    receive: Receive,
    /// A send is outstanding.
    sending: bool,
    life: Life,
    /// What waits for the outstanding send to complete.
    unsent: Vec<u8>,
}

/// How a connection's receive stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    /// Outstanding.
    Armed,
    /// Outstanding, and told to end.
    Ending,
    /// Not outstanding.
    Off,
    /// Not outstanding: it ended as no buffer was free, and stands on the list of those that wait for one.
    Hungry,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// Bytes go both ways.
    Open,
    /// The peer has ended its half: what is unsent still goes out.
    Ended,
    /// The connection failed: nothing moves any more.
    Failed,
}

struct Table<'a, P> {
    seat: &'a Seat,
    listeners: &'a [OwnedFd],
    prototype: &'a P,
    ledger: &'a Ledger,
    ring: Ring,
    /// By slot.
    connections: Numbered<Connection<P>>,
    /// Slots taken, from the accept until the close has completed.
    open: usize,
    capacity: usize,
    output: Vec<Chunk>,
    /// Connections whose receive ended for want of a buffer.
    hungry: Vec<Slot>,
    /// Accepts are kept waiting.
    accepting: bool,
    paused_until: Option<Instant>,
    draining: bool,
    next_listener: usize,
    totals: Totals,
}

impl<P: Service> Table<'_, P> {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.follow_turn()?;
            if !self.seat.is_alone() {
                // What is handed in is done in this call, so it is done with the baton; only the waiting is not.
                let _baton = self.seat.baton();
                self.ring.submit()?;
            }
            self.ring.wait(self.paused_until.map(|until| until.saturating_duration_since(Instant::now())))?;
            let _baton = self.seat.baton();
            while let Some(completion) = self.ring.next_completion() {
                self.take(completion)?;
            }
            self.feed_hungry()?;
            if self.paused_until.is_some_and(|until| Instant::now() >= until) {
                self.paused_until = None;
            }
            if self.draining && self.open == 0 && self.ring.accepts_waiting() == 0 {
                #[cfg(test)]
                assert_eq!(self.ring.free_buffers(), self.ring.buffers(), "every buffer came back");
                return Ok(());
            }
            if self.seat.phase() == Phase::Stop {
                for connection in self.connections.drain() {
                    self.ledger.closed(connection.peer, &connection.exchange, &mut self.totals);
                }
                return Ok(());
            }
        }
    }

    fn take(&mut self, completion: Completion) -> io::Result<()> {
        match completion {
            Completion::Woken { more } => {
                self.seat.wake().lower();
                if !more {
                    self.ring.watch(self.seat.wake().as_fd())?;
                }
                if self.seat.phase() == Phase::Drain && !self.draining {
                    self.drain()?;
                }
                Ok(())
            }
            Completion::Accepted(Ok((slot, peer))) => self.opened(slot, peer),
            Completion::Accepted(Err(error)) => {
                // A cancelled accept, and one whose listener was shut down, is what was wanted.
                if !ring::is_cancelled(&error) && self.seat.phase() == Phase::Run {
                    self.totals.count_io_error(&error);
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                }
                Ok(())
            }
            Completion::Received { slot, outcome, more } => self.received(slot, outcome, more),
            Completion::Sent { slot, outcome, payload } => self.sent(slot, outcome, payload),
            Completion::Closed(_) => {
                if self.open == self.capacity {
                    self.seat.report_room();
                }
                self.open -= 1;
                Ok(())
            }
        }
    }

    /// Keeps as many accepts waiting as there are places and free slots for, while it is this table's turn.
    fn follow_turn(&mut self) -> io::Result<()> {
        if self.seat.phase() != Phase::Run || !self.seat.accepts() || self.paused_until.is_some() {
            return if std::mem::take(&mut self.accepting) { self.ring.cancel_accepts() } else { Ok(()) };
        }
        self.accepting = true;
        if self.open == self.capacity {
            self.seat.report_full();
        }
        while self.open + self.ring.accepts_waiting() < self.capacity {
            let listener = &self.listeners[self.next_listener % self.listeners.len()];
            if !self.ring.accept(listener.as_fd())? {
                break;
            }
            self.next_listener += 1;
        }
        Ok(())
    }

    fn opened(&mut self, slot: Slot, peer: SocketAddr) -> io::Result<()> {
        self.open += 1;
        self.ledger.opened(&mut self.totals);
        let connection = Connection {
            slot,
            peer,
            service: self.prototype.clone(),
            exchange: Exchange::default(),
            receive: Receive::Armed,
            sending: false,
            life: Life::Open,
            unsent: Vec::new(),
        };
        self.connections.insert(slot.index(), connection);
        self.ring.receive(slot)?;
        if self.draining { self.ring.end_reading(slot) } else { Ok(()) }
    }

    fn received(&mut self, slot: Slot, outcome: io::Result<Option<Buffer>>, more: bool) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if !more {
            connection.receive = Receive::Off;
        }
        match outcome {
            Ok(Some(buffer)) => self.serve_buffer(slot, buffer)?,
            Ok(None) => connection.life = connection.life.max(Life::Ended),
            Err(error) if ring::is_out_of_buffers(&error) => {
                connection.receive = Receive::Hungry;
                self.hungry.push(slot);
            }
            Err(error) if ring::is_cancelled(&error) => {}
            Err(error) => {
                self.totals.count_io_error(&error);
                connection.life = Life::Failed;
            }
        }
        self.go_on(slot)
    }

    /// Has the service answer what is in `buffer`: from the buffer itself where nothing is being sent, or else from the connection's memory later.
    fn serve_buffer(&mut self, slot: Slot, buffer: Buffer) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.exchange.requests += 1;
        connection.exchange.bytes_received += buffer.len() as u64;
        connection.service.receive(self.ring.bytes(&buffer), &mut self.output);
        if let [Chunk::Input(range)] = self.output.as_slice()
            && !connection.sending
            && connection.life != Life::Failed
        {
            let range = range.clone();
            self.output.clear();
            connection.sending = true;
            return self.ring.send(slot, Payload::Received(buffer, range), Patience::None);
        }
        for Chunk::Input(range) in self.output.drain(..) {
            connection.unsent.extend_from_slice(&self.ring.bytes(&buffer)[range]);
        }
        self.ring.recycle(buffer);
        Ok(())
    }

    fn sent(&mut self, slot: Slot, outcome: io::Result<usize>, payload: Payload) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.sending = false;
        let sent = match outcome {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                self.totals.count_io_error(&error);
                connection.life = Life::Failed;
                0
            }
        };
        connection.exchange.bytes_sent += sent as u64;
        let (mut rest, from) = match payload {
            Payload::Received(buffer, range) => {
                let rest = self.ring.bytes(&buffer)[range.start + sent..range.end].to_vec();
                self.ring.recycle(buffer);
                (rest, 0)
            }
            Payload::Owned(bytes, from) => (bytes, from + sent),
        };
        if from < rest.len() && connection.life != Life::Failed {
            rest.append(&mut connection.unsent);
            connection.sending = true;
            return self.ring.send(slot, Payload::Owned(rest, from), Patience::All);
        }
        self.go_on(slot)
    }

    /// Starts or ends whatever the connection's state asks for, now that something of it has changed.
    fn go_on(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if !connection.sending && !connection.unsent.is_empty() && connection.life != Life::Failed {
            connection.sending = true;
            let bytes = std::mem::take(&mut connection.unsent);
            return self.ring.send(slot, Payload::Owned(bytes, 0), Patience::All);
        }
        let unwanted = connection.life == Life::Failed || connection.unsent.len() >= UNSENT_BYTES;
        match (connection.life, connection.receive) {
            (_, Receive::Armed) if unwanted => {
                connection.receive = Receive::Ending;
                self.ring.cancel_receive(slot)
            }
            (Life::Open, Receive::Off) if !connection.sending => {
                connection.receive = Receive::Armed;
                self.ring.receive(slot)
            }
            (Life::Ended | Life::Failed, Receive::Off | Receive::Hungry) if !connection.sending => self.close(slot),
            _ => Ok(()),
        }
    }

    /// Lets as many connections receive again as there are buffers.
    fn feed_hungry(&mut self) -> io::Result<()> {
        for _ in 0..self.hungry.len().min(self.ring.free_buffers()) {
            let slot = self.hungry.swap_remove(0);
            // It may have been closed, or its slot be another's, since it was put on the list.
            if let Some(connection) = self.connections.get_mut(slot.index())
                && connection.receive == Receive::Hungry
            {
                connection.receive = Receive::Off;
                self.go_on(slot)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.remove(slot.index()).expect(OUTSTANDING);
        self.ledger.closed(connection.peer, &connection.exchange, &mut self.totals);
        self.ring.close(slot)
    }

    /// Has each connection end when it has answered what has arrived.
    fn drain(&mut self) -> io::Result<()> {
        self.draining = true;
        for connection in self.connections.values() {
            self.ring.end_reading(connection.slot)?;
        }
        Ok(())
    }
}

/// Why a completion always finds its connection.
const OUTSTANDING: &str = "a connection is there until its last request has completed";

#[cfg(test)]
mod tests;
