//! An Ethernet frame as a TAP device hands it over, and the buffers it is kept in.

use plimsoll_sys::tap::HEADER_BYTES;

use crate::queue::WireSize;

/// Longest frame: a segment of 64 KiB with its Ethernet and VLAN headers.
pub const FRAME_BYTES: usize = 65_536 + 18;

/// Sizes of buffers, so that a small frame does not hold 64 KiB: for ordinary frames, for jumbo
/// frames and segments of a few packets, and for all.
const BUFFER_BYTES: [usize; 3] = [2048, 16_384, FRAME_BYTES];

/// How many buffers of a size are kept for reuse.
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
    /// The hardware addresses of receiver and sender, or `None` where the frame is too short to be
    /// one.
    pub fn addresses(&self) -> Option<(Address, Address)> {
        let (receiver, rest) = self.bytes.split_first_chunk()?;
        Some((*receiver, *rest.first_chunk()?))
    }

    /// What the frame is on the wire. A large segment is cut into packets of `gso_size` bytes of
    /// payload, each with the headers of all.
    pub fn wire_size(&self) -> WireSize {
        let length = self.bytes.len() as u64;
        self.segment().map_or(WireSize { bytes: length, packets: 1 }, |segment| {
            let headers = segment.headers as u64;
            let packets = (length - headers).div_ceil(segment.payload as u64);
            WireSize { bytes: length + (packets - 1) * headers, packets: packets as u32 }
        })
    }

    /// Cuts a large segment after its first `packets`, and returns what came after them on the
    /// wire. `None` where nothing is to be cut, nothing would be left, or the headers are none
    /// that can be rewritten.
    pub fn shorten(&mut self, packets: u32) -> Option<WireSize> {
        let whole = self.wire_size();
        if packets == 0 || packets >= whole.packets {
            return None;
        }
        let segment = self.segment()?;
        let kept = segment.headers + packets as usize * segment.payload;
        if !self.relabel(&segment, kept) {
            return None;
        }
        self.bytes.truncate(kept);
        if packets == 1 {
            // A packet of one segment is an ordinary one, whose checksum alone is still to be made.
            self.header[1] = 0;
            self.header[4..6].fill(0);
        }
        let left = self.wire_size();
        Some(WireSize { bytes: whole.bytes - left.bytes, packets: whole.packets - left.packets })
    }

    /// Where the parts of a large segment are; `None` for any other frame, and where the header
    /// lies.
    fn segment(&self) -> Option<Segment> {
        let field = |at: usize| usize::from(u16::from_ne_bytes([self.header[at], self.header[at + 1]]));
        let (kind, payload, tcp) = (self.header[1], field(4), field(6));
        // A segment always has its checksum to be made, so `csum_start` (at 6) is where its TCP
        // header begins; the high half of that header's byte 12 is its length in words (RFC 9293,
        // section
        // 3.1).
        let words = self.bytes.get(tcp + 12).map_or(0, |byte| byte >> 4);
        let headers = tcp + usize::from(words) * 4;
        (kind != 0 && payload != 0 && headers < self.bytes.len()).then_some(Segment { tcp, headers, payload })
    }

    /// Writes into the headers that the frame has `kept` bytes; whether they are headers that it
    /// can be written into.
    fn relabel(&mut self, segment: &Segment, kept: usize) -> bool {
        let Some(ip) = self.network_header() else { return false };
        // An IPv6 header has 40 bytes, and states how much comes after it (RFC 8200, section 3).
        let is_ipv4 = self.word(ip - 2) == IPV4;
        let (least, place, counted_from) = if is_ipv4 { (20, ip + 2, ip) } else { (40, ip + 4, ip + 40) };
        let whole = self.bytes.len() - segment.tcp;
        let is_sound = ip + least <= segment.tcp && segment.tcp + 20 <= segment.headers;
        let (true, Ok(before)) = (is_sound, u16::try_from(whole)) else { return false };
        let (length, after) = ((kept - counted_from) as u16, (kept - segment.tcp) as u16);
        if is_ipv4 {
            let checksum = adjusted_checksum(self.word(ip + 10), self.word(place), length);
            self.put(ip + 10, checksum);
        }
        self.put(place, length);
        // This field holds the sum over the pseudo-header alone, uncomplemented. The device
        // completes it (CHECKSUM_PARTIAL, linux/skbuff.h).
        let sum = !adjusted_checksum(!self.word(segment.tcp + 16), before, after);
        self.put(segment.tcp + 16, sum);
        // FIN and PSH are the last packet's, which is not among those kept.
        self.bytes[segment.tcp + 13] &= !(TCP_FIN | TCP_PSH);
        true
    }

    /// Where the IP header begins, after any VLAN tags.
    fn network_header(&self) -> Option<usize> {
        let mut at = 12;
        while at + 2 <= self.bytes.len() {
            match self.word(at) {
                VLAN | VLAN_OUTER => at += 4,
                IPV4 | IPV6 => return Some(at + 2),
                _ => return None,
            }
        }
        None
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put(&mut self, at: usize, word: u16) {
        self.bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }
}

/// A large segment of TCP, in bytes from the frame's beginning.
struct Segment {
    /// Where its TCP header begins.
    tcp: usize,
    /// How long all its headers are.
    headers: usize,
    /// Payload of each packet but the last.
    payload: usize,
}

/// Flags of a TCP header (RFC 9293, section 3.1).
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;

/// Ethernet types (linux/if_ether.h).
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const VLAN_OUTER: u16 = 0x88a8;

/// A checksum after one of the words under it has changed (RFC 1624, equation 3).
fn adjusted_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Buffers of frames gone by, for the next ones.
#[derive(Debug, Default)]
pub struct Buffers([Vec<Vec<u8>>; BUFFER_BYTES.len()]);

impl Buffers {
    /// A frame with a copy of these bytes.
    pub fn frame(&mut self, header: [u8; HEADER_BYTES], bytes: &[u8]) -> Frame {
        // One beyond all sizes has a buffer of its own.
        let size = BUFFER_BYTES.iter().position(|size| bytes.len() <= *size);
        let spare = size.and_then(|size| self.0[size].pop());
        let capacity = size.map_or(bytes.len(), |size| BUFFER_BYTES[size]);
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(capacity));
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Frame { header, bytes: buffer }
    }

    /// Takes back the buffer of a frame that is no longer needed.
    pub fn recycle(&mut self, frame: Frame) {
        let largest = BUFFER_BYTES.iter().rposition(|size| *size <= frame.bytes.capacity());
        if let Some(spare) = largest.map(|size| &mut self.0[size]).filter(|spare| spare.len() < SPARE) {
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
            assert_eq!(segment(payload, gso_size).wire_size(), WireSize { bytes, packets }, "{payload} by {gso_size}");
        }
    }

    /// The ones' complement sum of a header (RFC 1071).
    fn sum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        ((folded & 0xffff) + (folded >> 16)) as u16
    }

    /// The sum over a pseudo-header, with a TCP length below 64 KiB (RFC 9293, section 3.1; RFC
    /// 8200, section 8.1).
    fn pseudo(addresses: &[u8], length: usize) -> u16 {
        let mut bytes = addresses.to_vec();
        bytes.extend([0, 6]);
        bytes.extend((length as u16).to_be_bytes());
        sum(&bytes)
    }

    /// A segment as a kernel hands it over, and where its IP header and its addresses are.
    fn sent(kind: u16, payload: usize) -> (Frame, usize, std::ops::Range<usize>) {
        let (ip, header, addresses) = if kind == IPV4 { (14, 20, 26..34) } else { (18, 40, 26..58) };
        let tcp = ip + header;
        let mut frame = Frame { header: [1, 1, 0, 0, 0, 0, 0, 0, 16, 0], bytes: vec![0; tcp + 20 + payload] };
        frame.header[4..6].copy_from_slice(&1000_u16.to_ne_bytes());
        frame.header[6..8].copy_from_slice(&(tcp as u16).to_ne_bytes());
        for (place, byte) in frame.bytes.iter_mut().enumerate() {
            *byte = (place * 7 % 251) as u8;
        }
        let length = frame.bytes.len();
        if kind == IPV4 {
            frame.put(12, IPV4);
            frame.bytes[ip] = 0x45;
            frame.put(ip + 2, (length - ip) as u16);
            frame.put(ip + 10, 0);
            let checksum = !sum(&frame.bytes[ip..tcp]);
            frame.put(ip + 10, checksum);
        } else {
            frame.put(12, VLAN);
            frame.put(16, IPV6);
            frame.bytes[ip] = 0x60;
            frame.put(ip + 4, (length - ip - 40) as u16);
        }
        frame.bytes[tcp + 12] = 5 << 4;
        frame.bytes[tcp + 13] = 0x19;
        let partial = pseudo(&frame.bytes[addresses.clone()], length - tcp);
        frame.put(tcp + 16, partial);
        (frame, ip, addresses)
    }

    #[test]
    fn a_segment_that_is_cut_short_is_a_whole_one_of_its_first_packets() {
        for (kind, packets) in [(IPV4, 1), (IPV4, 2), (IPV4, 9), (IPV6, 1), (IPV6, 5)] {
            let (mut frame, ip, addresses) = sent(kind, 9500);
            let (whole, original, tcp) =
                (frame.wire_size(), frame.bytes.clone(), frame.segment().expect("a segment").tcp);
            let rest = frame.shorten(packets).expect("it is cut");
            assert_eq!(frame.wire_size().packets, packets);
            assert_eq!(frame.wire_size().bytes + rest.bytes, whole.bytes);
            assert_eq!(rest.packets, 10 - packets);
            let payload = &frame.bytes[tcp + 20..];
            assert_eq!(payload, &original[tcp + 20..tcp + 20 + 1000 * packets as usize]);
            if kind == IPV4 {
                assert_eq!(usize::from(frame.word(ip + 2)), frame.bytes.len() - ip);
                assert_eq!(sum(&frame.bytes[ip..tcp]), 0xffff, "the header's checksum is right");
            } else {
                assert_eq!(usize::from(frame.word(ip + 4)), frame.bytes.len() - ip - 40);
            }
            assert_eq!(frame.word(tcp + 16), pseudo(&frame.bytes[addresses], frame.bytes.len() - tcp));
            assert_eq!(frame.bytes[tcp + 13], 0x10, "neither FIN nor PSH, which come last");
            assert_eq!(frame.header[1] == 0, packets == 1, "one packet alone is not a segment");
        }
    }

    #[test]
    fn what_cannot_be_cut_stays_as_it_is() {
        let (mut frame, ip, _) = sent(IPV4, 9500);
        for packets in [0, 10, u32::MAX] {
            assert_eq!(frame.shorten(packets), None);
        }
        // Neither IPv4 nor IPv6; and headers that would lie upon one another.
        for (place, word) in [(12, 0x0806), (12, VLAN)] {
            let (mut other, _, _) = sent(IPV4, 9500);
            other.put(place, word);
            let bytes = other.bytes.clone();
            assert_eq!((other.shorten(3), &other.bytes), (None, &bytes));
        }
        frame.header[6..8].copy_from_slice(&(ip as u16 + 4).to_ne_bytes());
        assert_eq!(frame.shorten(3), None);
        assert_eq!(segment(64_240, 1460).shorten(3), None, "zeros are no headers");
    }

    #[test]
    fn a_header_that_lies_about_a_segment_is_charged_as_one_packet() {
        let mut frame = segment(0, 1460);
        assert_eq!(frame.wire_size(), WireSize { bytes: 54, packets: 1 });
        frame.header[6..8].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(frame.wire_size(), WireSize { bytes: 54, packets: 1 });
        frame.bytes.clear();
        assert_eq!(frame.wire_size(), WireSize { bytes: 0, packets: 1 });
        assert_eq!(frame.addresses(), None);
    }
}
