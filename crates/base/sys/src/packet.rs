//! Packets of an interface, copied by the kernel into memory that it shares (packet(7);
//! Documentation/networking/packet_mmap.rst, TPACKET_V3).
//!
//! The ring is made of blocks. The kernel fills one, hands it over by a word in its head, and goes
//! on with the next; when all are ours it drops, and counts. A block is handed back when its
//! packets have been seen.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const BLOCK_BYTES: usize = 1 << 20;
/// 32 MiB in all: a tenth of a second at 2.5 Gbit/s of whole packets.
const BLOCKS: usize = 32;
/// The kernel requires one. This version uses it in its own arithmetic alone: packets lie as close
/// as their lengths allow.
const FRAME_BYTES: usize = 2048;
/// A block that is not full is handed over after this long.
const RETIRE: Duration = Duration::from_millis(20);

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When the kernel saw it, since 1970.
    pub time: Duration,
    /// Its bytes, cut to the snap length.
    pub bytes: &'a [u8],
    /// How long it was before it was cut.
    pub length: u32,
}

/// A VLAN tag as it is in a frame: its Ethernet type and its number (IEEE 802.1Q).
type Tag = [u8; 4];

/// The length of a frame's hardware addresses; the VLAN tag follows them.
const ADDRESSES_BYTES: usize = 12;

impl<'a> Packet<'a> {
    /// The packet with a VLAN tag in its place, cut to `snap` bytes again.
    fn with_tag(self, tag: Tag, snap: usize, buffer: &'a mut Vec<u8>) -> Packet<'a> {
        let Some((addresses, rest)) = self.bytes.split_at_checked(ADDRESSES_BYTES) else { return self };
        buffer.clear();
        buffer.extend_from_slice(addresses);
        buffer.extend_from_slice(&tag);
        buffer.extend_from_slice(rest);
        buffer.truncate(snap);
        Packet { bytes: buffer, length: self.length + tag.len() as u32, ..self }
    }
}

/// What the kernel counted since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that came, the dropped ones included.
    pub packets: u64,
    /// Packets that found the ring full.
    pub drops: u64,
}

/// The packets of one interface, from the moment it was opened.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    next: usize,
    snap: usize,
    /// A packet whose VLAN tag is put back.
    tagged: Vec<u8>,
}

impl Ring {
    /// Begins to capture the packets of an Ethernet-like interface, each cut to `snap` bytes. On
    /// the loopback interface each packet passes twice, and is captured on its way in alone. Needs
    /// CAP_NET_RAW.
    pub fn open(interface: &str, snap: u32) -> io::Result<Ring> {
        // No protocol until it is bound: packets of other interfaces must not come in meanwhile.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let (index, hardware) = describe(&socket, interface)?;
        if hardware != libc::ARPHRD_ETHER && hardware != libc::ARPHRD_LOOPBACK {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the interface does not carry Ethernet frames"));
        }
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        filter(&socket, snap, hardware == libc::ARPHRD_LOOPBACK)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as libc::c_uint,
            tp_block_nr: BLOCKS as libc::c_uint,
            tp_frame_size: FRAME_BYTES as libc::c_uint,
            tp_frame_nr: (BLOCK_BYTES / FRAME_BYTES * BLOCKS) as libc::c_uint,
            tp_retire_blk_tov: RETIRE.as_millis() as libc::c_uint,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice; it is unmapped when the
        // ring is dropped, and nothing borrowed from it outlives that.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                BLOCK_BYTES * BLOCKS,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &socket,
                0,
            )
        }?;
        let memory =
            NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("the ring was mapped at no address"))?;
        let ring = Ring { socket, memory, next: 0, snap: snap as usize, tagged: Vec::new() };
        ring.bind(index)?;
        Ok(ring)
    }

    /// Shows `see` the packets of the next block that the kernel has handed over, if there is one.
    /// Where there is none the descriptor becomes readable with the next.
    pub fn take_block(&mut self, mut see: impl FnMut(Packet<'_>)) -> bool {
        // SAFETY: `next` is below BLOCKS, so the block lies within the mapping, which is
        // page-aligned and lives as long as `self`. Its status word is shared with the kernel and
        // only touched atomically.
        let (block, status) = unsafe {
            let block = self.memory.as_ptr().add(self.next * BLOCK_BYTES);
            let head = block.cast::<libc::tpacket_block_desc>();
            (block, AtomicU32::from_ptr(&raw mut (*head).hdr.bh1.block_status))
        };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel has handed this block over (its status, read with Acquire), and writes
        // nothing to it until it is handed back below.
        let bytes = unsafe { std::slice::from_raw_parts(block, BLOCK_BYTES) };
        for (packet, tag) in Packets::of(bytes) {
            see(match tag {
                None => packet,
                Some(tag) => packet.with_tag(tag, self.snap, &mut self.tagged),
            });
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % BLOCKS;
        true
    }

    /// What the kernel has counted since this was last asked.
    pub fn statistics(&self) -> io::Result<Statistics> {
        // SAFETY: all-zero counters are valid ones.
        let mut counted: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&counted) as libc::socklen_t;
        // SAFETY: the counters and their length live for the call, and the length is theirs.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            )
        })?;
        Ok(Statistics { packets: u64::from(counted.tp_packets), drops: u64::from(counted.tp_drops) })
    }

    /// The error that ended the capture, if any: the interface went down or away.
    pub fn take_error(&self) -> io::Result<()> {
        crate::net::take_error(&self.socket)
    }

    fn bind(&self, index: libc::c_int) -> io::Result<()> {
        // SAFETY: an all-zero address is a valid one.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        // SAFETY: the address lives for the call, and the length is its own.
        check(unsafe {
            libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
        })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing borrows from it
        // any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), BLOCK_BYTES * BLOCKS) };
    }
}

// SAFETY: the ring owns its mapping, and is used through `&mut self` alone; no thread has a claim
// on it.
unsafe impl Send for Ring {}

/// The packets of a block, one after another.
struct Packets<'a> {
    block: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Packets<'a> {
    fn of(block: &'a [u8]) -> Packets<'a> {
        // SAFETY: a block is longer than its head, which holds numbers only; it may be copied from
        // any place.
        let head: libc::tpacket_block_desc =
            unsafe { block.as_ptr().cast::<libc::tpacket_block_desc>().read_unaligned() };
        // SAFETY: every member of this union is numbers.
        let head = unsafe { head.hdr.bh1 };
        Packets { block, at: head.offset_to_first_pkt as usize, left: head.num_pkts }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = (Packet<'a>, Option<Tag>);

    fn next(&mut self) -> Option<(Packet<'a>, Option<Tag>)> {
        self.left = self.left.checked_sub(1)?;
        let head: libc::tpacket3_hdr = number_struct(self.block.get(self.at..)?)?;
        let start = self.at + usize::from(head.tp_mac);
        let bytes = self.block.get(start..start + head.tp_snaplen as usize)?;
        // The last packet of a block has no next.
        self.at += head.tp_next_offset as usize;
        let time = Duration::new(u64::from(head.tp_sec), head.tp_nsec);
        Some((Packet { time, bytes, length: head.tp_len }, tag_of(&head)))
    }
}

/// The outermost VLAN tag of a packet, which the kernel takes out of it before it is captured
/// (skb_vlan_untag in net/core/skbuff.c).
fn tag_of(head: &libc::tpacket3_hdr) -> Option<Tag> {
    let has = |status| head.tp_status & status != 0;
    let kind = if has(libc::TP_STATUS_VLAN_TPID_VALID) { head.hv1.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let [number_high, number_low] = (head.hv1.tp_vlan_tci as u16).to_be_bytes();
    let [kind_high, kind_low] = kind.to_be_bytes();
    has(libc::TP_STATUS_VLAN_VALID).then_some([kind_high, kind_low, number_high, number_low])
}

/// Structures of the kernel that are numbers all through, so that any bytes are a valid one.
trait Numbers: Copy {}
impl Numbers for libc::tpacket3_hdr {}

fn number_struct<T: Numbers>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: there are enough bytes (checked above), any bytes are a valid `T` (the trait), and
    // the read asks for no alignment.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The interface's number and its kind of hardware (netdevice(7)).
fn describe(socket: &OwnedFd, interface: &str) -> io::Result<(libc::c_int, u16)> {
    if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: an all-zero `ifreq` is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: both calls read the name from one `ifreq` and write their answer to it; the answer is
    // read as what the call has written.
    unsafe {
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request))?;
        let index = request.ifr_ifru.ifru_ifindex;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request))?;
        Ok((index, request.ifr_ifru.ifru_hwaddr.sa_family))
    }
}

/// Lets the kernel copy no more than `snap` bytes of each packet, and with `only_incoming` none of
/// the packets that go out (Documentation/networking/filter.rst). What a filter leaves out takes no
/// room in the ring, and is not among the drops.
fn filter(socket: &OwnedFd, snap: u32, only_incoming: bool) -> io::Result<()> {
    let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let accept = step(libc::BPF_RET | libc::BPF_K, 0, snap);
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut incoming = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, packet_type),
        // Over the next instruction where the packet does not go out.
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::from(libc::PACKET_OUTGOING)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
        accept,
    ];
    let steps = if only_incoming { &mut incoming[..] } else { &mut incoming[3..] };
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    set_at(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

fn set_at<T>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value lives for the call, and the length is its own; what it points to (a
    // filter's instruction) lives in the caller's frame.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
