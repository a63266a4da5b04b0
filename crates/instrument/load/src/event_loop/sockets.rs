//! The interface between an event loop and the kernel's ways to move bytes. Engines differ only
//! behind it: the loop alone decides what a request is, when it is due and how it is counted.
//!
//! The rule: an engine reports what has happened to a socket under its connection's key, and moves
//! bytes when the loop calls it. It must not interpret the bytes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use plimsoll_reactor::slab::Key;
use plimsoll_sys::readiness::Ready;

/// The key under which the loop's own wake-up is reported.
pub(crate) const WAKE: u64 = Key::RESERVED;

/// Events reported between two waits. The last of them is stamped after all before it were handled,
/// so their number bounds how late a stamp may be.
pub(crate) const EVENT_BATCH: usize = 64;

/// What has arrived at a socket.
pub(crate) struct Arrival<'a> {
    /// The bytes; none is the end of the stream.
    pub(crate) bytes: &'a [u8],
    /// Whether more may lie there already, of which nothing will be reported.
    pub(crate) more: bool,
    /// When the last of them came, since 1970, where the kernel noted it.
    pub(crate) at: Option<Duration>,
}

/// The sockets of one event loop.
pub(crate) trait Sockets: Sized {
    /// Whether connects and sends go to the kernel with the next wait or [`Sockets::submit`], not
    /// at once.
    const DEFERS: bool;

    /// A connection's socket, until it is given back to [`Sockets::close`].
    type Socket: Send;

    /// How many sockets there is room for at once where so many descriptors may be open.
    fn room(descriptors: usize) -> usize;

    /// Whether [`Sockets::sleep`] waits without being woken by what arrives.
    const SLEEPS: bool;

    /// Room for this many sockets at once; `wake` is reported under [`WAKE`] when it is raised.
    /// `stamped` asks for the instants at which bytes arrive, which an engine may not have.
    fn new(connections: usize, wake: BorrowedFd<'_>, stamped: bool) -> io::Result<Self>;

    /// Whether there is room for another socket now. Where there is none, sockets that are being
    /// closed make room by the time that a wait returns.
    fn has_place(&self) -> bool;

    /// Begins to connect. Once the outcome is known the socket is reported writable or ended.
    fn connect(&mut self, key: Key, target: SocketAddr, source: Option<IpAddr>) -> io::Result<Self::Socket>;

    /// How the connect that was reported came out.
    fn connected(&mut self, socket: &Self::Socket) -> io::Result<()>;

    /// Sends what there is room for, and says how much of it that was. Where it was not all, or
    /// nothing (`WouldBlock`), the socket is reported writable once there is more room.
    fn write(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Bytes sent since the last call. What was taken to be sent counts once the kernel has it.
    fn take_sent(&mut self) -> usize;

    /// Whether nothing is left of what was taken to be sent on sockets that were closed: it is
    /// sent, or will never be. What is under way on another socket is left of a request under way,
    /// or of one that was answered early, and may be so for as long as the server does not read.
    fn has_sent_all(&self) -> bool;

    /// What has arrived, or `WouldBlock`; more than that is reported.
    fn read(&mut self, socket: &Self::Socket) -> io::Result<Arrival<'_>>;

    /// Closes a socket; nothing more is reported of it.
    fn close(&mut self, socket: Self::Socket);

    /// Does what was asked for and needs no waiting, while no other table of the worker runs.
    fn submit(&mut self) -> io::Result<()>;

    /// Waits until there is something to report, or the time is over.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Whether the last wait was interrupted, so that it need not have brought what had come.
    fn was_interrupted(&self) -> bool;

    /// Whether more may have come before the last wait than it brought. One that is interrupted
    /// brings nothing (signal(7), on SIGCONT).
    fn may_have_left(&self) -> bool;

    /// Waits until the time is over or `wake` is raised, whatever arrives; what has arrived is then
    /// reported.
    fn sleep(&mut self, wake: BorrowedFd<'_>, time: Duration) -> io::Result<()>;

    /// The next thing to report of what the last wait brought. `ended` says that the end of the
    /// stream is there already, behind the bytes.
    fn report(&mut self) -> Option<Ready>;
}
