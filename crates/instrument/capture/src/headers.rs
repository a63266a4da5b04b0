//! The TCP segment in an Ethernet frame, whole or cut short by a snap length.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxNetSlice, LaxSlicedPacket, TcpHeader, TcpHeaderSlice};

/// What the headers of a TCP segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it comes from.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// Its sequence number.
    pub sequence: u32,
    /// Its acknowledgement number.
    pub acknowledgement: u32,
    /// Its window as it is in the header, not scaled.
    pub window: u16,
    /// Bytes of payload, those that were cut off included.
    pub length: u32,
    /// SYN.
    pub syn: bool,
    /// ACK.
    pub ack: bool,
    /// FIN.
    pub fin: bool,
    /// RST.
    pub rst: bool,
    /// PSH.
    pub psh: bool,
    /// URG.
    pub urg: bool,
    /// ECE (RFC 3168, section 6.1).
    pub ece: bool,
    /// CWR (the same).
    pub cwr: bool,
}

/// What a frame is to the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Tcp(Segment),
    /// Not TCP.
    Other,
    /// TCP, but cut short within the 20 bytes that every header has.
    CutOff,
    /// TCP, but malformed, or the first of several fragments.
    Unreadable,
}

/// The byte of a TCP header whose high half is the header's length in words (RFC 9293, section
/// 3.1).
const DATA_OFFSET: usize = 12;

/// Reads the headers of a frame of `length` bytes, of which `bytes` were captured.
pub fn read(bytes: &[u8], length: u32) -> Content {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(bytes) else { return Content::Other };
    let (from, to, ip_end) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let end = match usize::from(header.total_len()) {
                // A segment past 64 KiB, which no header can state: the frame's length does.
                0 => length as usize,
                total => offset(bytes, header.slice()) + total,
            };
            (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()), end)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let end = match usize::from(header.payload_length()) {
                0 => length as usize,
                payload => offset(bytes, header.slice()) + header.slice().len() + payload,
            };
            (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()), end)
        }
        _ => return Content::Other,
    };
    let Some(ip) = packet.ip_payload().filter(|ip| ip.ip_number == IpNumber::TCP) else { return Content::Other };
    if ip.fragmented {
        return if is_behind_first_fragment(&packet) { Content::Other } else { Content::Unreadable };
    }
    // A header may state more than the frame has: the rest did not pass.
    let (start, end) = (offset(bytes, ip.payload), ip_end.min(length as usize));
    let Some(mut header) = ip.payload.first_chunk::<{ TcpHeader::MIN_LEN }>().copied() else {
        return if start + TcpHeader::MIN_LEN <= end { Content::CutOff } else { Content::Unreadable };
    };
    let header_length = usize::from(header[DATA_OFFSET] >> 4) * 4;
    if header_length < TcpHeader::MIN_LEN || start + header_length > end {
        return Content::Unreadable;
    }
    // No figure needs the options, which may be cut off: the header is read as one without.
    header[DATA_OFFSET] = (TcpHeader::MIN_LEN as u8 / 4) << 4;
    let tcp = TcpHeaderSlice::from_slice(&header).expect("20 bytes hold a header without options");
    Content::Tcp(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledgement: tcp.acknowledgment_number(),
        window: tcp.window_size(),
        length: (end - start - header_length) as u32,
        syn: tcp.syn(),
        ack: tcp.ack(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        psh: tcp.psh(),
        urg: tcp.urg(),
        ece: tcp.ece(),
        cwr: tcp.cwr(),
    })
}

/// Whether a fragment is not the first of its packet, and so has no TCP header.
fn is_behind_first_fragment(packet: &LaxSlicedPacket<'_>) -> bool {
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => ip.header().fragments_offset().value() > 0,
        Some(LaxNetSlice::Ipv6(ip)) => ip.extensions().clone().into_iter().any(|extension| match extension {
            Ipv6ExtensionSlice::Fragment(header) => header.fragment_offset().value() > 0,
            _ => false,
        }),
        _ => false,
    }
}

/// Where a part of `bytes` begins in it.
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - bytes.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    use super::*;

    fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
        frame_with(v6, &[], payload)
    }

    fn frame_with(v6: bool, options: &[TcpOptionElement], payload: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { link.ipv6([1; 16], [2; 16], 64) } else { link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let tcp = ip.tcp(4000, 80, 7, 512).ack(9).psh().options(options).expect("they fit");
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, payload).expect("a vector can be written to");
        bytes
    }

    #[test]
    fn the_payload_counts_whole_though_it_was_cut_off_and_padding_does_not_count() {
        for v6 in [false, true] {
            let whole = frame(v6, &[0; 1000]);
            let headers = whole.len() - 1000;
            for kept in [headers, headers + 1, whole.len()] {
                let Content::Tcp(segment) = read(&whole[..kept], whole.len() as u32) else { panic!("{kept} bytes") };
                assert_eq!((segment.length, segment.sequence, segment.acknowledgement), (1000, 7, 9));
                assert!(segment.ack && !segment.syn && !segment.fin && !segment.rst);
            }
            assert_eq!(read(&whole[..headers - 1], whole.len() as u32), Content::CutOff);
            let mut padded = frame(v6, &[]);
            padded.resize(80, 0);
            let Content::Tcp(segment) = read(&padded, 80) else { panic!("a padded segment") };
            assert_eq!(segment.length, 0);
        }
    }

    #[test]
    fn options_of_tcp_may_be_cut_off() {
        for v6 in [false, true] {
            let whole = frame_with(v6, &[TcpOptionElement::Timestamp(1, 2), TcpOptionElement::Noop], &[0; 1000]);
            let (length, fixed_end) = (whole.len() as u32, if v6 { 74 } else { 54 });
            let Content::Tcp(segment) = read(&whole, length) else { panic!("a segment") };
            assert_eq!((segment.length, segment.sequence, segment.psh), (1000, 7, true));
            for kept in fixed_end..whole.len() {
                assert_eq!(read(&whole[..kept], length), Content::Tcp(segment), "{kept} bytes");
            }
            assert_eq!(read(&whole[..fixed_end - 1], length), Content::CutOff);
        }
    }

    #[test]
    fn a_header_that_its_frame_has_no_room_for_is_malformed_however_much_was_kept() {
        for v6 in [false, true] {
            let mut bytes = frame(v6, &[]);
            let length = bytes.len() as u32;
            let offset = bytes.len() - 20 + 12;
            for words in [0, 4, 6, 15] {
                bytes[offset] = words << 4;
                assert_eq!(read(&bytes, length), Content::Unreadable, "{words} words");
            }
            assert_eq!(read(&bytes[..bytes.len() - 1], length - 1), Content::Unreadable, "a frame too short");
        }
    }

    #[test]
    fn what_is_not_tcp_is_another_thing() {
        let mut udp = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut udp, b"x").expect("a vector can be written to");
        assert_eq!(read(&udp, udp.len() as u32), Content::Other);
        assert_eq!(read(&[], 0), Content::Other);
        assert_eq!(read(&[0xff; 60], 60), Content::Other);
    }

    #[test]
    fn tcp_in_fragments_is_unreadable_once() {
        let whole = frame(false, &[0; 1000]);
        for (place, flags_and_offset, content) in [
            ("first", 0x2000_u16, Content::Unreadable),
            ("second", 0x2000 | 60, Content::Other),
            ("last", 120, Content::Other),
        ] {
            let mut fragment = whole.clone();
            fragment[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
            assert_eq!(read(&fragment, fragment.len() as u32), content, "the {place} fragment");
        }
        for (place, offset_and_more, content) in
            [("first", 1_u16, Content::Unreadable), ("last", 60 << 3, Content::Other)]
        {
            let mut fragment = frame(true, &[0; 1000]);
            // A fragment header (RFC 8200, section 4.5) of TCP after the header of IPv6.
            fragment[20] = 44;
            let length = u16::from_be_bytes([fragment[18], fragment[19]]) + 8;
            fragment[18..20].copy_from_slice(&length.to_be_bytes());
            let [high, low] = offset_and_more.to_be_bytes();
            fragment.splice(54..54, [6, 0, high, low, 0, 0, 0, 9]);
            assert_eq!(read(&fragment, fragment.len() as u32), content, "the {place} fragment of IPv6");
        }
    }

    #[test]
    fn a_segment_ends_with_its_frame_whatever_its_ip_header_says() {
        for (v6, place) in [(false, 16), (true, 18)] {
            let mut bytes = frame(v6, &[0; 10]);
            bytes[place..place + 2].copy_from_slice(&1500_u16.to_be_bytes());
            let Content::Tcp(segment) = read(&bytes, bytes.len() as u32) else { panic!("a segment") };
            assert_eq!(segment.length, 10);
        }
    }

    #[test]
    fn a_segment_past_64_kib_is_as_long_as_its_frame() {
        for (v6, place) in [(false, 16), (true, 18)] {
            let mut bytes = frame(v6, &[0; 10]);
            bytes[place..place + 2].fill(0);
            let headers = bytes.len() as u32 - 10;
            let Content::Tcp(segment) = read(&bytes, headers + 200_000) else { panic!("a segment") };
            assert_eq!(segment.length, 200_000);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length: u32) {
            let _ = read(&bytes, length);
        }

        #[test]
        fn no_damage_to_a_segment_panics(at in 0_usize..54, value: u8, kept in 0_usize..100, v6: bool) {
            let mut bytes = frame(v6, &[0; 46]);
            bytes[at] = value;
            bytes.truncate(kept);
            let _ = read(&bytes, 120);
        }
    }
}
