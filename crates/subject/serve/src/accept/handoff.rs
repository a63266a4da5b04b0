//! One acceptor for all workers: each connection goes to the one that has fewest.
//!
//! Workers have descriptor tables of their own, so a connection crosses as a message with its descriptor (SCM_RIGHTS), in whose place a new number stands
//! on the other side. The message is one whole, so a connection arrives with its address or not at all, and in the order of accepting.
//!
//! The rule: the acceptor never waits for a worker. A worker whose pair is full gets nothing more; if all are full, the one connection in hand waits until one is not, and what is
//! queued at the listeners waits there. A table that is full takes no message (it would lose the descriptor): it says so, and another table of the worker does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net, passing};

use crate::ledger::Ledger;
use crate::totals::Totals;

/// Accepted in a row before signals and workers are heard again.
const BATCH: usize = 64;
/// After this, what failed is tried again: whatever was short may be free by then.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections each worker has, those on their way included.
pub(crate) type Loads = Arc<[AtomicU64]>;

/// The acceptor's side.
pub(crate) struct Handoff {
    listeners: Vec<OwnedFd>,
    /// By worker.
    ends: Vec<OwnedFd>,
    loads: Loads,
    in_hand: Option<(OwnedFd, SocketAddr)>,
    paused_until: Option<Instant>,
    totals: Totals,
}

impl Handoff {
    /// An acceptor for so many workers, and by worker the end that it hands to.
    pub(crate) fn new(listeners: Vec<OwnedFd>, workers: usize) -> io::Result<(Handoff, Vec<Vec<OwnedFd>>)> {
        let pairs = (0..workers).map(|_| passing::pair()).collect::<io::Result<Vec<_>>>()?;
        let (ends, taken): (Vec<_>, Vec<_>) = pairs.into_iter().map(|(near, far)| (near, vec![far])).unzip();
        let loads = (0..workers).map(|_| AtomicU64::new(0)).collect();
        let totals = Totals::default();
        Ok((Handoff { listeners, ends, loads, in_hand: None, paused_until: None, totals }, taken))
    }

    pub(crate) fn loads(&self) -> Loads {
        Arc::clone(&self.loads)
    }

    /// What to wait for: connections, or where one is in hand, a worker that can take it.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let (waited_for, interest) = match (&self.in_hand, self.paused_until) {
            (Some(_), _) => (&self.ends[..], Interest::WRITE),
            (None, None) => (&self.listeners[..], Interest::READ),
            (None, Some(_)) => (&[][..], Interest::READ),
        };
        waited_for.iter().map(move |descriptor| Place::new(descriptor.as_raw_fd(), interest))
    }

    /// Until when nothing is accepted, if it is not.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Hands on as much as there is, and as workers take.
    pub(crate) fn accept(&mut self, ledger: &Ledger) {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.paused_until = None;
        if let Some((socket, peer)) = self.in_hand.take() {
            self.hand_over(socket, peer, ledger);
        }
        for listener in 0..self.listeners.len() {
            for _ in 0..BATCH {
                if self.in_hand.is_some() || self.paused_until.is_some() {
                    return;
                }
                if !ledger.admit() {
                    return self.pause();
                }
                match net::accept(&self.listeners[listener], net::Mode::Nonblocking) {
                    Ok((socket, peer)) => self.hand_over(socket, peer, ledger),
                    Err(error) => {
                        ledger.withdraw();
                        if error.kind() == io::ErrorKind::WouldBlock {
                            break;
                        }
                        self.totals.count_io_error(&error);
                        if descriptor::is_exhaustion(&error) {
                            self.pause();
                        }
                    }
                }
            }
        }
    }

    /// Stops accepting; what workers have been handed is theirs.
    pub(crate) fn close(&mut self, ledger: &Ledger) -> &Totals {
        self.listeners.iter().for_each(net::stop_listening);
        self.listeners.clear();
        if self.in_hand.take().is_some() {
            ledger.withdraw();
        }
        &self.totals
    }

    /// The one with the fewest comes first, and is passed over only where it takes nothing more.
    fn hand_over(&mut self, socket: OwnedFd, peer: SocketAddr, ledger: &Ledger) {
        let mut refused = 0_u64;
        let load = |worker: &usize| self.loads[*worker].load(Ordering::Relaxed);
        // A bit a worker that has refused: past 64 of them, those are not asked after the first has.
        while let Some(worker) =
            (0..self.ends.len()).filter(|worker| refused >> worker.min(&63) & 1 == 0).min_by_key(load)
        {
            match passing::send(&self.ends[worker], &encode(peer), &[socket.as_fd()]) {
                Ok(()) => {
                    self.loads[worker].fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(error) if is_full(&error) => refused |= 1 << worker.min(63),
                Err(error) => {
                    self.totals.count_io_error(&error);
                    ledger.withdraw();
                    return;
                }
            }
        }
        self.in_hand = Some((socket, peer));
    }

    fn pause(&mut self) {
        self.paused_until = Some(Instant::now() + PAUSE);
    }
}

/// The pair is full, or the user has as many descriptors on their way as it may (unix(7), ETOOMANYREFS).
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || descriptor::is_exhaustion(error)
        || descriptor::is_too_many_passed(error)
}

/// Takes a connection that was handed over.
pub(super) fn take(end: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    descriptor::check_room(end)?;
    let (mut message, mut descriptors) = ([0; MESSAGE_BYTES], Vec::with_capacity(1));
    let length = passing::receive(end, &mut message, &mut descriptors)?;
    match descriptors.pop() {
        Some(socket) if length == MESSAGE_BYTES => Ok((socket, decode(message))),
        // The acceptor has gone, and with it whatever could come.
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// One of a worker's connections is over.
pub(super) fn left(load: &AtomicU64) {
    load.fetch_sub(1, Ordering::Relaxed);
}

/// Six or four, an address of sixteen bytes, and a port.
const MESSAGE_BYTES: usize = 19;

fn encode(peer: SocketAddr) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    match peer.ip() {
        IpAddr::V4(address) => {
            message[0] = 4;
            message[1..5].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            message[0] = 6;
            message[1..17].copy_from_slice(&address.octets());
        }
    }
    message[17..].copy_from_slice(&peer.port().to_be_bytes());
    message
}

fn decode(message: [u8; MESSAGE_BYTES]) -> SocketAddr {
    let octets: [u8; 16] = message[1..17].try_into().expect("sixteen bytes");
    let address = match message[0] {
        4 => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
        _ => IpAddr::V6(Ipv6Addr::from(octets)),
    };
    SocketAddr::new(address, u16::from_be_bytes([message[17], message[18]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_sys::net::Sharing;
    use std::net::TcpStream;

    #[test]
    fn an_address_survives_the_message() {
        for address in ["127.0.0.1:80", "[2001:db8::1]:65535"] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(decode(encode(address)), address);
        }
    }

    #[test]
    fn every_connection_arrives_whole_and_in_order_at_the_least_loaded_and_a_full_worker_blocks_nobody() {
        const COUNT: usize = 700;
        let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0)), Sharing::Alone).expect("a free port");
        let address = net::local_address(&listener).expect("bound");
        let ledger = Ledger::new(None, None, u64::MAX, Box::new(|_| {}));
        let (mut handoff, ends) = Handoff::new(vec![listener], 2).expect("two pairs");
        let mut clients = Vec::new();
        for _ in 0..COUNT {
            clients.push(TcpStream::connect(address).expect("it listens"));
            handoff.accept(&ledger);
        }
        let ports: Vec<u16> = clients.iter().map(|client| client.local_addr().expect("connected").port()).collect();
        // Nobody has taken any, so sooner or later both are full, and one connection is in hand.
        assert!(handoff.in_hand.is_some(), "a bound that {COUNT} connections do not reach");
        let loads: Vec<u64> = handoff.loads.iter().map(|load| load.load(Ordering::Relaxed)).collect();
        assert!(loads[0].abs_diff(loads[1]) <= 1 && loads[0] > 10, "{loads:?}");
        let (mut seen, mut idle) = ([Vec::new(), Vec::new()], 0);
        while idle < 3 {
            idle += 1;
            for (worker, end) in ends.iter().enumerate() {
                while let Ok((socket, peer)) = take(&end[0]) {
                    idle = 0;
                    let real = plimsoll_sys::net::peer_address(&socket).expect("it is connected");
                    assert_eq!(peer, real, "the address came with its connection");
                    seen[worker].push(ports.iter().position(|port| *port == peer.port()).expect("one of ours"));
                }
            }
            handoff.accept(&ledger);
        }
        assert!(seen.iter().all(|order| order.is_sorted()));
        assert_eq!(seen[0].len() + seen[1].len(), COUNT);
    }
}
