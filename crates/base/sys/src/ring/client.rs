//! What a client needs of a ring: sockets of its own making in the ring's table, and connects.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use io_uring::opcode;
use io_uring::types::Fixed;
use rustix::net::SocketAddrAny;

use super::{Kind, Ring, Slot};
use crate::net;

/// A connect that is under way.
pub(super) struct Connecting {
    /// Boxed, so that it stays at the address that the kernel reads.
    destination: Box<SocketAddrAny>,
    /// The socket under a number of the thread's table: the ring cannot ask for its addresses.
    /// `None` once nobody asks for the outcome.
    socket: Option<OwnedFd>,
}

impl Connecting {
    /// The outcome of a connect which the kernel has reported as successful.
    pub(super) fn outcome(self) -> io::Result<()> {
        self.socket.map_or(Ok(()), net::refuse_itself)
    }
}

impl Ring {
    /// Puts a socket into the ring's table at once, to a place below [`super::Sizes::slots`] where
    /// none is. Such places must not be mixed with those that the kernel chooses.
    pub fn adopt_at(&mut self, place: u32, socket: impl AsFd) -> io::Result<Slot> {
        let installed = self.uring.submitter().register_files_update(place, &[socket.as_fd().as_raw_fd()])?;
        if installed == 1 { Ok(Slot(place)) } else { Err(io::ErrorKind::QuotaExceeded.into()) }
    }

    /// Connects an adopted socket, one made to block: the kernel would not wait for the outcome on
    /// another. Its descriptor is closed when the connect ends or is cancelled.
    pub fn connect(&mut self, slot: Slot, socket: OwnedFd, address: SocketAddr) -> io::Result<()> {
        if self.connecting.len() <= slot.index() {
            self.connecting.resize_with(slot.index() + 1, || None);
        }
        let connecting = Connecting { destination: Box::new(SocketAddrAny::from(address)), socket: Some(socket) };
        let address = &*self.connecting[slot.index()].insert(connecting).destination;
        let request = opcode::Connect::new(Fixed(slot.0), address.as_ptr().cast(), address.addr_len()).build();
        self.push(request.user_data(Kind::Connect.tag(slot.0)))
    }

    /// Ends a connect that is under way.
    pub fn cancel_connect(&mut self, slot: Slot) -> io::Result<()> {
        if let Some(Some(connecting)) = self.connecting.get_mut(slot.index()) {
            connecting.socket = None;
        }
        self.cancel(Kind::Connect.tag(slot.0))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::super::tests::next;
    use super::super::{Completion, Payload, SendMode, Sizes};
    use super::*;

    const SIZES: Sizes =
        Sizes { submissions: 8, completions: 64, slots: 8, buffers: 8, buffer_bytes: 1024, accepts: 0 };

    fn connect(ring: &mut Ring, place: u32, address: SocketAddr) -> (Slot, io::Result<()>) {
        let socket = net::unconnected(address, None, net::Mode::Blocking).expect("a socket");
        connect_socket(ring, place, socket, address)
    }

    fn connect_socket(ring: &mut Ring, place: u32, socket: OwnedFd, address: SocketAddr) -> (Slot, io::Result<()>) {
        let slot = ring.adopt_at(place, &socket).expect("a place");
        ring.connect(slot, socket, address).expect("it is handed in");
        match next(ring) {
            Completion::Connected { slot: at, outcome } if at == slot => (slot, outcome),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_connected_socket_sends_receives_and_is_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut ring = Ring::new(SIZES).expect("a ring");
        let (slot, outcome) = connect(&mut ring, 3, listener.local_addr().expect("it is bound"));
        outcome.expect("somebody listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        ring.receive(slot).expect("it is handed in");
        ring.send(slot, Payload::Owned(b"hello".to_vec(), 0), SendMode::All).expect("it is handed in");
        assert!(matches!(next(&mut ring), Completion::Sent { outcome: Ok(5), .. }));
        let mut heard = [0; 5];
        peer.read_exact(&mut heard).expect("it was sent");
        peer.write_all(&heard).expect("the ring receives");
        let Completion::Received { outcome: Ok(Some(buffer)), .. } = next(&mut ring) else { panic!("no bytes") };
        assert_eq!(ring.bytes(&buffer), b"hello");
        ring.recycle(buffer);
        ring.cancel_receive(slot).expect("it is handed in");
        assert!(matches!(next(&mut ring), Completion::Received { more: false, .. }));
        ring.close(slot).expect("it is handed in");
        assert!(matches!(next(&mut ring), Completion::Closed(at) if at == slot));
        assert_eq!(peer.read(&mut heard).expect("the end"), 0);
    }

    #[test]
    fn the_end_of_a_half_never_reaches_the_next_socket_in_its_place() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut ring = Ring::new(SIZES).expect("a ring");
        for _ in 0..500 {
            let (slot, outcome) = connect(&mut ring, 3, listener.local_addr().expect("it is bound"));
            outcome.expect("somebody listens");
            let (_peer, _) = listener.accept().expect("a connection");
            ring.send(slot, Payload::Owned(b"hello".to_vec(), 0), SendMode::All).expect("it is handed in");
            let sent = next(&mut ring);
            assert!(matches!(sent, Completion::Sent { outcome: Ok(5), .. }), "{sent:?}");
            ring.end_writing(slot).expect("it is handed in");
            ring.close(slot).expect("it is handed in");
            assert!(matches!(next(&mut ring), Completion::Closed(at) if at == slot));
        }
    }

    #[test]
    fn nothing_is_unacknowledged_only_once_the_peer_has_the_end_too() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut ring = Ring::new(SIZES).expect("a ring");
        for _ in 0..50 {
            let (slot, outcome) = connect(&mut ring, 3, listener.local_addr().expect("it is bound"));
            outcome.expect("somebody listens");
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.set_nonblocking(true).expect("a mode can be set");
            ring.end_writing(slot).expect("it is handed in");
            loop {
                ring.ask_unacknowledged(slot).expect("it is handed in");
                match next(&mut ring) {
                    Completion::Unacknowledged { outcome: Ok(0), .. } => break,
                    // The end alone, which the peer acknowledges within a moment.
                    Completion::Unacknowledged { outcome: Ok(1), .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(peer.read(&mut [0]).expect("the end is there"), 0);
            ring.close(slot).expect("it is handed in");
            assert!(matches!(next(&mut ring), Completion::Closed(at) if at == slot));
        }
    }

    #[test]
    fn what_the_kernel_took_of_a_send_that_waits_is_told_when_all_requests_end() {
        const LENGTH: usize = 64 << 20;
        for is_reset in [false, true] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let mut ring = Ring::new(SIZES).expect("a ring");
            let (slot, outcome) = connect(&mut ring, 3, listener.local_addr().expect("it is bound"));
            outcome.expect("somebody listens");
            let (mut peer, _) = listener.accept().expect("a connection");
            ring.send(slot, Payload::Owned(vec![7; LENGTH], 0), SendMode::All).expect("it is handed in");
            // The peer takes a part, and no more than that.
            ring.submit().expect("it is handed in");
            if is_reset {
                ring.reset(slot).expect("it is handed in");
            }
            let mut taken = 0;
            ring.end_all(|at, count| {
                assert_eq!(at, slot);
                taken += count;
            })
            .expect("all requests end");
            drop(ring);
            assert!(taken > 0 && taken < LENGTH, "{taken}");
            let mut read = Vec::new();
            let end = peer.read_to_end(&mut read).map_err(|error| error.kind());
            let expected = if is_reset { Err(io::ErrorKind::ConnectionReset) } else { Ok(taken) };
            assert_eq!(end, expected);
        }
    }

    #[test]
    fn a_refused_connect_says_so() {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|gone| gone.local_addr());
        let mut ring = Ring::new(SIZES).expect("a ring");
        let (_, outcome) = connect(&mut ring, 0, address.expect("a port"));
        assert_eq!(outcome.expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_connect_of_a_socket_to_itself_is_refused() {
        let own = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 77), 0));
        let socket = net::unconnected(own, None, net::Mode::Blocking).expect("a socket");
        rustix::net::bind(&socket, &own).expect("a free port");
        let own = net::local_address(&socket).expect("it is bound");
        let mut ring = Ring::new(SIZES).expect("a ring");
        let (slot, outcome) = connect_socket(&mut ring, 0, socket, own);
        assert_eq!(outcome.expect_err("nobody listens").kind(), io::ErrorKind::ConnectionRefused);
        ring.close(slot).expect("it is handed in");
        assert!(matches!(next(&mut ring), Completion::Closed(at) if at == slot));
    }
}
