//! An Ethernet frame as a TAP device hands it over, and the buffers it is kept in.

use plimsoll_sys::tap::HEADER_BYTES;

use crate::queue::Wire;

/// Longest frame: a segment of 64 KiB with its Ethernet and VLAN headers.
pub const FRAME_BYTES: usize = 65_536 + 18;

/// Most frames fit in this; larger ones have buffers of their own, so that a small frame does not hold 64 KiB.
const SMALL_BYTES: usize = 2048;

/// How many buffers of a kind are kept for reuse.
const SPARE: usize = 4096;

/// A frame, with what the kernel left undone in it (`struct virtio_net_hdr`).
#[derive(Debug)]
pub struct Frame {
    /// The header of the TAP device, handed on as it came.
    pub header: [u8; HEADER_BYTES],
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// A hardware address.
pub type Address = [u8; 6];

impl Frame {
    /// The hardware addresses of receiver and sender, or `None` where the frame is too short to be one.
    pub fn addresses(&self) -> Option<(Address, Address)> {
        let (receiver, rest) = self.bytes.split_first_chunk()?;
        Some((*receiver, *rest.first_chunk()?))
    }

    /// What the frame is on the wire. A large segment is cut into packets of `gso_size` bytes of payload, each with the headers of all.
    pub fn wire(&self) -> Wire {
        let length = self.bytes.len() as u64;
        let field = |at: usize| usize::from(u16::from_ne_bytes([self.header[at], self.header[at + 1]]));
        let (kind, payload_bytes, tcp) = (self.header[1], field(4), field(6));
        // A segment always has its checksum to be made, so `csum_start` (at 6) is where its TCP header begins; the high half of that header's
        // byte 12 is its length in words (RFC 9293, section 3.1).
        let words = self.bytes.get(tcp + 12).map_or(0, |byte| byte >> 4);
        let headers = (tcp + usize::from(words) * 4) as u64;
        if kind == 0 || payload_bytes == 0 || headers >= length {
            return Wire { bytes: length, packets: 1 };
        }
        let packets = (length - headers).div_ceil(payload_bytes as u64);
        Wire { bytes: length + (packets - 1) * headers, packets: packets as u32 }
    }
}

/// Buffers of frames gone by, for the next ones.
#[derive(Debug, Default)]
pub struct Buffers {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Buffers {
    /// A frame with a copy of these bytes.
    pub fn frame(&mut self, header: [u8; HEADER_BYTES], bytes: &[u8]) -> Frame {
        let (spare, capacity) =
            if bytes.len() <= SMALL_BYTES { (&mut self.small, SMALL_BYTES) } else { (&mut self.large, FRAME_BYTES) };
        let mut buffer = spare.pop().unwrap_or_else(|| Vec::with_capacity(capacity));
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Frame { header, bytes: buffer }
    }

    /// Takes back the buffer of a frame that is no longer needed.
    pub fn recycle(&mut self, frame: Frame) {
        let spare = if frame.bytes.capacity() < FRAME_BYTES { &mut self.small } else { &mut self.large };
        if spare.len() < SPARE {
            spare.push(frame.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 and TCP headers without options: 14 + 20 + 20 bytes.
    fn segment(payload: usize, gso_size: u16) -> Frame {
        let mut bytes = vec![0; 54 + payload];
        bytes[34 + 12] = 5 << 4;
        let mut header = [0; HEADER_BYTES];
        header[1] = u8::from(gso_size > 0);
        header[4..6].copy_from_slice(&gso_size.to_ne_bytes());
        header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        Frame { header, bytes }
    }

    #[test]
    fn a_large_segment_counts_as_the_packets_it_would_be_cut_into() {
        for (payload, gso_size, packets, bytes) in [
            (1460, 0, 1, 1514),
            (1460, 1460, 1, 1514),
            (1461, 1460, 2, 1514 + 55),
            (2920, 1460, 2, 2 * 1514),
            (64_240, 1460, 44, 44 * 1514),
        ] {
            assert_eq!(segment(payload, gso_size).wire(), Wire { bytes, packets }, "{payload} by {gso_size}");
        }
    }

    #[test]
    fn a_header_that_lies_about_a_segment_is_charged_as_one_packet() {
        let mut frame = segment(0, 1460);
        assert_eq!(frame.wire(), Wire { bytes: 54, packets: 1 });
        frame.header[6..8].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(frame.wire(), Wire { bytes: 54, packets: 1 });
        frame.bytes.clear();
        assert_eq!(frame.wire(), Wire { bytes: 0, packets: 1 });
        assert_eq!(frame.addresses(), None);
    }
}
