//! When bytes arrived at a socket, by the kernel's own clock
//! (Documentation/networking/timestamping.rst).
//!
//! A program that reads late learns all the same when the bytes came. The time is that of the last
//! packet whose bytes were read (tcp_recv_timestamp in the kernel's net/ipv4/tcp.c).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Has the kernel note the arrival of each packet of this socket (SO_TIMESTAMPING, in software).
pub fn stamp_arrivals(socket: impl AsFd) -> io::Result<()> {
    let flags: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the kernel reads one int, whose address and size are given and which lives for the
    // call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of_val(&flags) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads what has arrived, and when the last of it did, since 1970; 0 bytes are the end of the
/// stream. There is no time where the kernel noted none.
pub fn read_stamped(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    /// Eight-byte words for one control message: its header and three `timespec`s, of which the
    /// first is the software's.
    const CONTROL_WORDS: usize = 16;
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: msghdr is plain data, for which zero bytes are a valid value (no address, no parts).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let count = loop {
        // SAFETY: the message names one part and one control buffer, with their sizes; both live
        // for the call.
        let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
        if count >= 0 {
            break count as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    Ok((count, arrival(&message)))
}

fn arrival(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled the control buffer that the message names, which is aligned for
    // a header and alive, and has set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: it is not null, so it names a whole header within the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SO_TIMESTAMPING {
            // SAFETY: a message of this kind holds three timespecs, of which the first is read,
            // wherever it lies.
            let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            let noted = time.tv_sec != 0 || time.tv_nsec != 0;
            return noted.then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32));
        }
        // SAFETY: the header lies within the message's control buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::SystemTime;

    #[test]
    fn bytes_that_are_read_late_have_the_time_at_which_they_came() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (receiver, _) = listener.accept().expect("it connected");
        stamp_arrivals(&receiver).expect("the kernel knows SO_TIMESTAMPING");
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let mut buffer = [0; 64];
        // The kernel begins to note arrivals a moment after the first socket asks for it
        // (netstamp_work).
        let stamped = (0..1000).find_map(|_| {
            let before = now();
            sender.write_all(b"in time").expect("it reads");
            let mut peek = [0; 7];
            while receiver.peek(&mut peek).expect("it is connected") < 7 {}
            let came = now();
            std::thread::sleep(Duration::from_millis(5));
            let (count, at) = read_stamped(&receiver, &mut buffer).expect("bytes are there");
            assert_eq!(&buffer[..count], b"in time");
            at.map(|at| (before, at, came))
        });
        let (before, at, came) = stamped.expect("loopback packets are stamped");
        assert!(before <= at && at <= came, "{before:?} {at:?} {came:?}");
        drop(sender);
        assert_eq!(read_stamped(&receiver, &mut buffer).expect("the end").0, 0);
    }
}
