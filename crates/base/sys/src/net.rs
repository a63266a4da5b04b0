//! TCP sockets (tcp(7), socket(7), ip(7)).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Whether the calls on a socket wait or return `WouldBlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Calls wait.
    Blocking,
    /// Calls return at once.
    Nonblocking,
}

impl Mode {
    fn flags(self) -> SocketFlags {
        match self {
            Mode::Blocking => SocketFlags::CLOEXEC,
            Mode::Nonblocking => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        }
    }
}

/// Whether several listeners may share an address, the kernel spreading connections over them by a
/// hash (SO_REUSEPORT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// This listener alone.
    Alone,
    /// Every listener of the same user that asks for it.
    ReusePort,
}

/// Opens a non-blocking listener, whose connections send small messages at once (TCP_NODELAY). An
/// IPv6 listener takes IPv6 only, so that `*:PORT` may open one of each. The backlog is what the
/// machine allows (the kernel lowers it to net.core.somaxconn).
pub fn listen(address: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let socket = net::socket_with(family(address.ip()), SocketType::STREAM, Mode::Nonblocking.flags(), None)?;
    // A restarted server must not wait for the TIME_WAIT of its predecessor's connections.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if sharing == Sharing::ReusePort {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted sockets inherit it (Linux): small messages go out at once, without a call a
    // connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, i32::MAX)?;
    Ok(socket)
}

/// Stops a listener for every descriptor that names it, in any table: what waits in its queue is
/// reset, and further connects are refused.
pub fn stop_listening(listener: impl AsFd) {
    let _ = net::shutdown(listener, net::Shutdown::Read);
}

/// Takes a connection from the listener's queue; `WouldBlock` where that is empty.
pub fn accept(listener: impl AsFd, mode: Mode) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, peer) = take_queued(&listener, mode)?;
    let peer = peer.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the listener is not a TCP socket"))?;
    Ok((socket, peer))
}

/// Takes a non-blocking connection from the queue of a listener, TCP or Unix; `WouldBlock` where
/// that is empty. The peer's address is known for TCP only. A TCP connection takes over what was
/// set on its listener: see [`prepare`].
pub fn accept_prepared(listener: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    take_queued(&listener, Mode::Nonblocking)
}

/// accept4(2) makes a descriptor and a socket before it looks at the queue (do_accept in the
/// kernel's socket.c): of an empty queue poll(2) tells in a tenth of the time. Every loop accepts
/// until a queue is empty.
fn take_queued(listener: impl AsFd, mode: Mode) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    if polled(&listener, PollFlags::IN)?.is_empty() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let (socket, peer) = rustix::io::retry_on_intr(|| net::acceptfrom_with(&listener, mode.flags()))?;
    Ok((socket, peer.and_then(|peer| SocketAddr::try_from(peer).ok())))
}

/// Whether a socket has something that was not read: bytes, urgent ones too, or the end of the
/// stream.
pub fn has_unread(socket: impl AsFd) -> bool {
    let any = PollFlags::IN | PollFlags::PRI;
    polled(socket, any).is_ok_and(|found| found.intersects(any))
}

/// What poll(2) says of a socket now: of `interest`, and of errors and ends always.
fn polled(socket: impl AsFd, interest: PollFlags) -> io::Result<PollFlags> {
    let mut polled = [PollFd::new(&socket, interest)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&at_once)))?;
    Ok(polled[0].revents())
}

/// Has a TCP connection send small messages at once (TCP_NODELAY), read urgent data in its place in
/// the stream (SO_OOBINLINE), and notice that its peer has vanished: after `silence` without a byte
/// the kernel sends probes (SO_KEEPALIVE, TCP_KEEPIDLE). Connections accepted at a listener have
/// the listener's settings, at no cost for each (Linux copies the listener's socket).
pub fn prepare(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_oobinline(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(sockopt::set_tcp_keepidle(&socket, silence)?)
}

/// How many bytes the kernel holds for this connection that its peer has not acknowledged
/// (SIOCOUTQ, tcp(7)); for a Unix socket, that it has not read.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    let mut count: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int, whose address is given and
    // lives for the call.
    let outcome = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if outcome == 0 { Ok(count.unsigned_abs() as usize) } else { Err(io::Error::last_os_error()) }
}

/// Whether the peer's end of the stream (FIN) has arrived at a TCP socket of which `read` bytes
/// were read, however many more wait. A clean end, and a reset whose error another call has used
/// up, read alike: this distinguishes them. From TCP_INFO's tcpi_bytes_received, which counts the
/// end as a byte (tcp_rcv_nxt_update in the kernel's tcp_input.c), and SIOCINQ, which does not
/// (tcp(7)).
pub fn end_has_arrived(socket: impl AsFd, read: u64) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    /// The 17th eight bytes.
    const BYTES_RECEIVED: usize = 16;
    let info: [u64; BYTES_RECEIVED + 1] = tcp_info(&socket)?;
    let socket = socket.as_fd().as_raw_fd();
    let mut unread: libc::c_int = 0;
    // SAFETY: SIOCINQ (the same number as FIONREAD) writes one int, whose address is given and
    // lives for the call.
    let outcome = unsafe { libc::ioctl(socket, libc::FIONREAD, &raw mut unread) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info[BYTES_RECEIVED] > read + u64::from(unread.unsigned_abs()))
}

/// Whether a packet has ever come to a TCP socket before one that precedes it in the stream
/// (TCP_INFO's tcpi_rcv_ooopack, since Linux 5.4).
pub fn has_reordered(socket: impl AsFd) -> io::Result<bool> {
    /// The 57th four bytes, which are the first of the 29th eight.
    const OUT_OF_ORDER: usize = 28;
    let info: [u64; OUT_OF_ORDER + 1] = tcp_info(socket)?;
    Ok(info[OUT_OF_ORDER].to_ne_bytes()[..4] != [0; 4])
}

/// The beginning of the kernel's struct tcp_info (include/uapi/linux/tcp.h); zero where the kernel
/// has less.
fn tcp_info<const WORDS: usize>(socket: impl AsFd) -> io::Result<[u64; WORDS]> {
    use std::os::fd::AsRawFd;
    let mut info = [0_u64; WORDS];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is what `info` has, and the length,
    // whose address is given; both live for the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if outcome == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// A socket that has begun to connect. Its outcome is known when it becomes writable: see
/// [`take_connect_outcome`].
///
/// With a `source` the port is chosen at connect and may be shared between destinations
/// (IP_BIND_ADDRESS_NO_PORT, ip(7)): a plain bind would use each port once for the whole machine.
pub fn connect(destination: SocketAddr, source: Option<IpAddr>, mode: Mode) -> io::Result<OwnedFd> {
    let socket = unconnected(destination, source, mode)?;
    match net::connect(&socket, &destination) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// A socket to connect to `destination` with, from `source` where that is given, that has not begun
/// to.
pub fn unconnected(destination: SocketAddr, source: Option<IpAddr>, mode: Mode) -> io::Result<OwnedFd> {
    let socket = net::socket_with(family(destination.ip()), SocketType::STREAM, mode.flags(), None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(source) = source {
        bind_address_no_port(&socket)?;
        net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    Ok(socket)
}

/// Whether an error means that this kernel has no such family of addresses, as IPv6 where it is
/// switched off (EAFNOSUPPORT).
pub fn is_without_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// The error of an attempt to connect that took too long (ETIMEDOUT).
pub fn timed_out() -> io::Error {
    io::Error::from_raw_os_error(libc::ETIMEDOUT)
}

/// The error that ended a connection or an attempt at one, collected once (SO_ERROR).
pub fn take_error(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}

/// The outcome of an attempt to connect that has ended, collected once.
pub fn take_connect_outcome(socket: impl AsFd) -> io::Result<()> {
    take_error(&socket)?;
    refuse_itself(socket)
}

/// A blocking connect that ends after `timeout`.
pub fn connect_within(destination: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(destination, timeout)?;
    refuse_itself(&stream)?;
    Ok(stream)
}

/// Refuses a socket that is connected to itself (ECONNREFUSED), as the kernel does where nobody
/// listens. For a connect to a port of this machine the kernel may choose that very port as the
/// source. If nobody listens there, the socket receives its own SYN and accepts it (simultaneous
/// open, RFC 9293, section 3.5).
///
/// The close of such a socket is a reset: TIME_WAIT would keep the server from its port.
pub fn refuse_itself(socket: impl AsFd) -> io::Result<()> {
    // A connection that has ended already has no peer address (ENOTCONN): there was a peer.
    let (Ok(own), Ok(Some(peer))) = (net::getsockname(&socket), net::getpeername(&socket)) else { return Ok(()) };
    // Both ends of a Unix connection may be without an address.
    if own != peer || SocketAddr::try_from(peer).is_err() {
        return Ok(());
    }
    reset_on_close(socket)?;
    Err(io::Error::from_raw_os_error(libc::ECONNREFUSED))
}

/// Whether a connection has ended in both directions: nothing can be sent or will arrive any more
/// (POLLHUP, poll(2)).
pub fn is_over(socket: impl AsFd) -> io::Result<bool> {
    Ok(polled(socket, PollFlags::empty())?.contains(PollFlags::HUP))
}

/// The address that a socket is bound to.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(net::getsockname(socket)?)
        .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "not an IP socket"))
}

/// Whether an IPv6 listener takes connections over IPv4 too.
pub fn is_dual_stack(listener: impl AsFd) -> bool {
    sockopt::ipv6_v6only(listener).is_ok_and(|only| !only)
}

/// Reads what has arrived; 0 is the end of the stream.
pub fn read(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| net::recv(&socket, &mut *buffer, net::RecvFlags::empty()))?.0)
}

/// Reads what has arrived, and does not wait on a blocking socket either (MSG_DONTWAIT, recv(2)).
pub fn read_at_once(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| net::recv(&socket, &mut *buffer, net::RecvFlags::DONTWAIT))?.0)
}

/// Reads what has arrived and leaves it there (MSG_PEEK, recv(2)); 0 is the end of the stream.
pub fn peek(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| net::recv(&socket, &mut *buffer, net::RecvFlags::PEEK))?.0)
}

/// Writes what there is room for. A closed peer is an error (EPIPE), never a signal.
pub fn write(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| net::send(&socket, bytes, net::SendFlags::NOSIGNAL))?)
}

/// Writes one byte as urgent data (MSG_OOB, tcp(7)).
pub fn write_urgent(socket: impl AsFd, byte: u8) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| net::send(&socket, &[byte], net::SendFlags::NOSIGNAL | net::SendFlags::OOB))?)
}

/// Has a connection that ends with what is sent next keep its last bytes for the packet of its end,
/// where they do not fill a packet (TCP_CORK, tcp(7)). Closing sends them, or ending the writing
/// half; the kernel keeps them for 200 ms at most.
pub fn hold_last_packet(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(socket, true)?)
}

/// Whether more follows at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// These are the last bytes for now: they go out.
    Nothing,
    /// The kernel may hold back a last part that fills no packet, until the rest comes (MSG_MORE,
    /// send(2)).
    More,
}

/// Writes what there is room for of several parts, in their order, with one call.
pub fn write_parts(socket: impl AsFd, parts: &[IoSlice<'_>], follows: Follows) -> io::Result<usize> {
    let mut flags = net::SendFlags::NOSIGNAL;
    flags.set(net::SendFlags::MORE, follows == Follows::More);
    Ok(rustix::io::retry_on_intr(|| match parts {
        [part] => net::send(&socket, part, flags),
        parts => net::sendmsg(&socket, parts, &mut net::SendAncillaryBuffer::default(), flags),
    })?)
}

/// Which half of a connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Nothing more is read: a blocked read returns, first what has arrived, then the end of the
    /// stream.
    Read,
    /// Nothing more is written: the peer reads the end of the stream after the last byte.
    Write,
    /// Both.
    Both,
}

/// Ends one half of a connection, or both. A connection that the peer has ended already is no
/// error.
pub fn shutdown(socket: impl AsFd, half: Half) {
    let how = match half {
        Half::Read => net::Shutdown::Read,
        Half::Write => net::Shutdown::Write,
        Half::Both => net::Shutdown::Both,
    };
    let _ = net::shutdown(socket, how);
}

/// Makes the close of this connection a reset (SO_LINGER of 0, socket(7)): unsent bytes are
/// dropped, no TIME_WAIT is left.
pub fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Bounds how long a blocking write waits (SO_SNDTIMEO); past it the call returns what it has
/// written, or `WouldBlock`.
pub fn set_send_timeout(socket: impl AsFd, timeout: Option<Duration>) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout)?)
}

/// Bounds how long a blocking read waits (SO_RCVTIMEO); past it the call returns `WouldBlock`.
pub fn set_receive_timeout(socket: impl AsFd, timeout: Option<Duration>) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout)?)
}

/// Makes reads and writes that begin from now on wait for a tick of the kernel's clock at most,
/// then return `WouldBlock`. A call that waits already goes on until a signal interrupts it, and
/// begins anew. Unlike the end of a half, this changes nothing for the peer: a socket both of whose
/// halves are ended answers every byte with a reset (tcp_rcv_state_process in the kernel's
/// tcp_input.c). Async-signal-safe: it makes two system calls.
pub fn end_waits(socket: impl AsFd, half: Half) {
    /// None at all would mean for ever.
    const TICK: Option<Duration> = Some(Duration::from_millis(1));
    // Both can only fail where the connection is no more.
    if half != Half::Write {
        let _ = set_receive_timeout(&socket, TICK);
    }
    if half != Half::Read {
        let _ = set_send_timeout(&socket, TICK);
    }
}

/// Bounds the bytes that wait here to be read (SO_RCVBUF, socket(7); the kernel doubles it for its
/// own needs), and with them what a peer may send ahead.
pub fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes)?)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn bind_address_no_port(socket: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    // SAFETY: the option takes an int, whose address and size are given and live for the call. It
    // serves IPv6 sockets as well (ip(7), net/ipv4/ip_sockglue.c: SOL_IP options reach every inet
    // socket).
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};

    #[test]
    fn a_listener_says_whether_its_queue_is_empty_or_it_has_ended() {
        let listener = listen("127.0.0.1:0".parse().expect("an address"), Sharing::Alone).expect("a free port");
        let why = || accept_prepared(&listener).map(|_| ()).expect_err("no connection waits").kind();
        assert_eq!(why(), io::ErrorKind::WouldBlock);
        let address = local_address(&listener).expect("it is bound");
        let clients = [(); 2].map(|()| TcpStream::connect(address).expect("it listens"));
        let accepted = accept(&listener, Mode::Blocking).expect("one waits");
        assert_eq!(accepted.1, clients[0].local_addr().expect("it is connected"));
        accept_prepared(&listener).expect("another waits");
        assert_eq!(why(), io::ErrorKind::WouldBlock);
        stop_listening(&listener);
        assert_eq!(why(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_socket_that_is_connected_to_itself_was_refused() {
        let bound = |address: SocketAddr| -> OwnedFd {
            let socket = unconnected(address, None, Mode::Blocking).expect("a socket");
            net::bind(&socket, &address).expect("the port is free");
            socket
        };
        let socket = bound("127.0.0.77:0".parse().expect("an address"));
        let own = local_address(&socket).expect("it is bound");
        net::connect(&socket, &own).expect("the kernel connects it");
        let error = take_connect_outcome(&socket).expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        drop(socket);
        // A connection in TIME_WAIT would keep the port.
        drop(bound(own));
    }

    #[test]
    fn a_connection_to_a_listener_is_not_refused_even_where_it_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = connect_within(&address, Duration::from_secs(60)).expect("it listens");
        take_connect_outcome(&stream).expect("it is connected");
        reset_on_close(&stream).expect("it is open");
        drop(stream);
        let (accepted, _) = listener.accept().expect("a connection");
        let mut places = [PollFd::new(&accepted, PollFlags::IN)];
        poll(&mut places, None).expect("the reset arrives");
        refuse_itself(&accepted).expect("it was another socket's");
    }

    #[test]
    fn a_last_packet_that_is_held_goes_out_with_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        for ends in [|socket: OwnedFd| drop(socket), |socket: OwnedFd| shutdown(&socket, Half::Write)] {
            let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let socket = OwnedFd::from(listener.accept().expect("a connection").0);
            hold_last_packet(&socket).expect("a TCP socket");
            write(&socket, b"the last bytes").expect("there is room");
            ends(socket);
            let mut read = Vec::new();
            client.read_to_end(&mut read).expect("the end is no error");
            assert_eq!(read, b"the last bytes");
        }
    }

    #[test]
    fn the_end_of_a_stream_is_known_to_have_arrived_before_and_after_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let pair = || {
            let connected = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            (connected, listener.accept().expect("a connection").0)
        };
        let arrived = |near: &TcpStream, read| end_has_arrived(near, read).expect("a TCP socket");
        let ((connected, its_far), (far_connected, accepted)) = (pair(), pair());
        for (mut near, mut far) in [(connected, its_far), (accepted, far_connected)] {
            assert!(!arrived(&near, 0));
            far.write_all(b"twelve bytes").expect("there is room");
            near.read_exact(&mut [0; 5]).expect("they arrive");
            assert!(!arrived(&near, 5), "seven bytes wait, and no end");
            assert!(!has_reordered(&near).expect("a TCP socket"), "one packet came");
            far.shutdown(Shutdown::Write).expect("connected");
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while !arrived(&near, 5) {
                assert!(std::time::Instant::now() < deadline, "the end does not arrive");
                std::thread::yield_now();
            }
            let mut rest = Vec::new();
            near.read_to_end(&mut rest).expect("the end is no error");
            assert_eq!(rest, b"e bytes");
            assert!(arrived(&near, 12));
        }
    }
}
