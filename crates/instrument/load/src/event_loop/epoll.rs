//! epoll(7): the kernel reports what can be done, and each connection's bytes are moved by a call
//! of their own.
//!
//! Edge-triggered: a connection is registered once for both directions, so a request costs a
//! receive, a send and its share of a wait. A read that did not fill the buffer has emptied the
//! socket and ends the turn, unless the end of the stream was reported with it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::epoll::{self, Trigger};
use plimsoll_sys::net::{self, Mode};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::{Interest, Ready};
use plimsoll_sys::timestamp;

use super::sockets::{Arrival, EVENT_BATCH, Sockets, WAKE};

/// Bytes taken a read. A full one is followed by another.
const READ_BYTES: usize = 64 * 1024;

/// Sockets of one epoll instance.
pub(crate) struct Epoll {
    instance: epoll::Epoll,
    /// What the last wait brought, and how much of it was reported.
    ready: Vec<Ready>,
    reported: usize,
    buffer: Box<[u8]>,
    sent: usize,
    /// Whether the kernel notes when bytes arrive, and its times are taken.
    stamped: bool,
    /// Whether a connection leaves this machine, so that packets may come in another order than
    /// they were sent in.
    may_reorder: bool,
}

impl Sockets for Epoll {
    const DEFERS: bool = false;
    const SLEEPS: bool = true;

    type Socket = OwnedFd;

    fn room(descriptors: usize) -> usize {
        descriptors
    }

    fn new(_connections: usize, wake: BorrowedFd<'_>, stamped: bool) -> io::Result<Epoll> {
        let instance = epoll::Epoll::new(EVENT_BATCH)?;
        instance.add(wake, WAKE, Interest::READ, Trigger::Level)?;
        let ready = Vec::with_capacity(EVENT_BATCH);
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Ok(Epoll { instance, ready, reported: 0, buffer, sent: 0, stamped, may_reorder: false })
    }

    fn has_place(&self) -> bool {
        // A closed descriptor is free at once, and connect(2) says where none is left.
        true
    }

    fn connect(&mut self, key: Key, target: SocketAddr, source: Option<IpAddr>) -> io::Result<OwnedFd> {
        let socket = net::connect(target, source, Mode::Nonblocking)?;
        if self.stamped {
            // A kernel that notes no times leaves it to the generator: `receive_lag` then says how
            // far they may be off.
            let _ = timestamp::stamp_arrivals(&socket);
            self.may_reorder |= !target.ip().is_loopback();
        }
        self.instance.add(&socket, key.to_raw(), Interest::BOTH, Trigger::Edge)?;
        Ok(socket)
    }

    fn connected(&mut self, socket: &OwnedFd) -> io::Result<()> {
        net::take_connect_outcome(socket)
    }

    fn write(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        net::write(socket, bytes).inspect(|count| self.sent += count)
    }

    fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    fn has_sent_all(&self) -> bool {
        true
    }

    fn read(&mut self, socket: &OwnedFd) -> io::Result<Arrival<'_>> {
        let (count, mut at) = if self.stamped {
            timestamp::read_stamped(socket, &mut self.buffer)?
        } else {
            (net::read(socket, &mut self.buffer)?, None)
        };
        // The time is that of the last bytes, which may have waited for some before them: those of
        // a packet that was lost come a round trip later. From then on the generator takes the time
        // itself, and is woken for it.
        if at.is_some() && self.may_reorder && net::has_reordered(socket).unwrap_or(true) {
            (self.stamped, at) = (false, None);
        }
        Ok(Arrival { bytes: &self.buffer[..count], more: count == self.buffer.len(), at })
    }

    fn close(&mut self, socket: OwnedFd) {
        // Its entry goes with it: the descriptor was never duplicated.
        drop(socket);
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ready.clear();
        self.reported = 0;
        self.ready.extend(self.instance.wait(timeout)?);
        Ok(())
    }

    fn was_interrupted(&self) -> bool {
        self.instance.was_interrupted()
    }

    fn may_have_left(&self) -> bool {
        self.was_interrupted() || self.ready.len() == EVENT_BATCH
    }

    fn sleep(&mut self, wake: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
        poll::wait(&mut [Place::new(wake.as_raw_fd(), Interest::READ)], Some(time))?;
        self.wait(Some(Duration::ZERO))
    }

    fn report(&mut self) -> Option<Ready> {
        let ready = self.ready.get(self.reported).copied();
        self.reported += 1;
        ready
    }
}
