//! TAP devices (Documentation/networking/tuntap.rst of the kernel): Ethernet frames of a network
//! interface, read and written by a process.
//!
//! The device goes away with its descriptor, however the process ends, and so does its interface,
//! in whichever namespace it is.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes before each frame (`struct virtio_net_hdr`, linux/virtio_net.h): what checksum is still to
/// be made, and how a large segment is to be cut.
pub const HEADER_BYTES: usize = 10;

/// Longest interface name (IFNAMSIZ, with its closing zero).
pub const NAME_BYTES: usize = libc::IFNAMSIZ - 1;

/// What the kernel may leave undone in the frames that it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums: the receiver of the frame learns that it was never on a wire.
    Checksum,
    /// Checksums, and the cutting of TCP segments of up to 64 KiB.
    Segmentation,
}

/// The ioctl that opens the network namespace of a device (linux/if_tun.h: `_IO('T', 227)`, which
/// `libc` lacks).
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;

/// A TAP device. Reads and writes return `WouldBlock` rather than wait.
#[derive(Debug)]
pub struct Tap {
    file: File,
    counters: Option<Counters>,
}

/// What the kernel counts of the interfaces of a namespace.
#[derive(Debug)]
struct Counters {
    /// The namespace's device and inode.
    namespace: (u64, u64),
    /// `/proc/net/dev` as it reads in that namespace (proc_net_dev(5)).
    file: File,
}

impl Tap {
    /// Makes the interface `name`, or takes over a persistent one that no process holds. Needs
    /// CAP_NET_ADMIN in the namespace, or to be the interface's owner.
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
        Ok(Tap { file, counters: None })
    }

    /// Reads one frame that a process behind the interface has sent; returns the frame's length.
    pub fn receive(&self, header: &mut [u8; HEADER_BYTES], frame: &mut [u8]) -> io::Result<usize> {
        let count = (&self.file).read_vectored(&mut [IoSliceMut::new(header), IoSliceMut::new(frame)])?;
        count.checked_sub(HEADER_BYTES).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    /// Hands one frame to the interface, as if it had come by wire. While the interface is down
    /// this is an error (EIO).
    pub fn send(&self, header: &[u8; HEADER_BYTES], frame: &[u8]) -> io::Result<()> {
        (&self.file).write_vectored(&[IoSlice::new(header), IoSlice::new(frame)]).map(|_| ())
    }

    /// How many frames the kernel has dropped because the process had not read the earlier ones
    /// (`tx_dropped`), in whichever namespace the interface is. Needs CAP_NET_ADMIN and
    /// CAP_SYS_ADMIN over that namespace.
    pub fn transmit_drops(&mut self) -> io::Result<u64> {
        let namespace = self.namespace()?;
        let status = rustix::fs::fstat(&namespace)?;
        let is_there = |counters: &Counters| counters.namespace == (status.st_dev, status.st_ino);
        if !self.counters.as_ref().is_some_and(is_there) {
            let file = open_in(namespace)?;
            self.counters = Some(Counters { namespace: (status.st_dev, status.st_ino), file });
        }
        let name = self.name()?;
        let mut table = String::new();
        if let Some(Counters { file, .. }) = &mut self.counters {
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut table)?;
        }
        transmit_drops_in(&table, &name)
            .ok_or_else(|| io::Error::other(format!("/proc/net/dev has no counters of `{name}`")))
    }

    /// The network namespace that the interface is in.
    fn namespace(&self) -> io::Result<OwnedFd> {
        // SAFETY: TUNGETDEVNETNS takes no argument, and returns a new descriptor or an error.
        let descriptor = unsafe { libc::ioctl(self.file.as_raw_fd(), TUNGETDEVNETNS) };
        check(descriptor)?;
        // SAFETY: the descriptor is new (above), and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// The interface's name, which may have changed since it was made.
    fn name(&self) -> io::Result<String> {
        // SAFETY: an all-zero `ifreq` is a valid one.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: TUNGETIFF writes one `ifreq`, which lives for the call.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
        let bytes: Vec<u8> = request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

/// Opens `/proc/net/dev` of a namespace: in a thread, as a thread enters a namespace alone
/// (setns(2)), and the file stays with the namespace in which it was opened.
fn open_in(namespace: OwnedFd) -> io::Result<File> {
    let opened = std::thread::Builder::new().name("namespace".to_owned()).spawn(move || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))?;
        File::open("/proc/thread-self/net/dev")
    })?;
    opened.join().map_err(|_| io::Error::other("the thread that enters the namespace panicked"))?
}

/// The twelfth number of the interface's row: the fourth of what it transmitted (proc_net_dev(5)).
fn transmit_drops_in(table: &str, name: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    row.split_ascii_whitespace().nth(11)?.parse().ok()
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_an_interface_are_in_its_own_row() {
        let table = "Inter-|   Receive                            |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n\
              tap1:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16\n\
             tap12:123456789012       2    3    4    5     6          7         8        9      10   11 4001   13    14      15         16\n";
        assert_eq!(transmit_drops_in(table, "tap1"), Some(12));
        assert_eq!(transmit_drops_in(table, "tap12"), Some(4001));
        assert_eq!(transmit_drops_in(table, "tap"), None);
    }
}
