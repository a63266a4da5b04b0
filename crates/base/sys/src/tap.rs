//! TAP devices (Documentation/networking/tuntap.rst of the kernel): Ethernet frames of a network interface, read and written by a process.
//!
//! The device goes away with its descriptor, however the process ends, and so does its interface, in whichever namespace that has come to stand.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Bytes before each frame (`struct virtio_net_hdr`, linux/virtio_net.h): what checksum is still to be made, and how a large segment is to be cut.
pub const HEADER_BYTES: usize = 10;

/// Longest interface name (IFNAMSIZ, with its closing zero).
pub const NAME_BYTES: usize = libc::IFNAMSIZ - 1;

/// What the kernel may leave undone in the frames that it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums: whoever receives the frame is told that it was never on a wire.
    Checksum,
    /// Checksums, and the cutting of TCP segments of up to 64 KiB.
    Segmentation,
}

/// A TAP device. Reads and writes return `WouldBlock` rather than wait.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes the interface `name`, or takes over a persistent one that nobody holds. Needs CAP_NET_ADMIN in the namespace, or to be that one's owner.
    pub fn open(name: &str, offload: Offload) -> io::Result<Tap> {
        // SAFETY: an all-zero `ifreq` is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface's name has 1 to 15 bytes"));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        let file = File::from(rustix::fs::open(
            "/dev/net/tun",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?);
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives for the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let undone = match offload {
            Offload::Checksum => libc::TUN_F_CSUM,
            Offload::Segmentation => libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6,
        };
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(undone)) })?;
        Ok(Tap(file))
    }

    /// Reads one frame that a process behind the interface has sent; returns the frame's length.
    pub fn receive(&self, header: &mut [u8; HEADER_BYTES], frame: &mut [u8]) -> io::Result<usize> {
        let count = (&self.0).read_vectored(&mut [IoSliceMut::new(header), IoSliceMut::new(frame)])?;
        count.checked_sub(HEADER_BYTES).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    /// Hands one frame to the interface, as if it had come by wire. While the interface is down this is an error (EIO).
    pub fn send(&self, header: &[u8; HEADER_BYTES], frame: &[u8]) -> io::Result<()> {
        (&self.0).write_vectored(&[IoSlice::new(header), IoSlice::new(frame)]).map(|_| ())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
