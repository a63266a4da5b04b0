//! The TCP segment in an Ethernet frame, whole or cut short by a snap length.

use std::net::{IpAddr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

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
    /// Its window as it stands in the header, not scaled.
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
    /// TCP, but cut short before the end of its header, or malformed.
    Unreadable,
}

/// Reads the headers of a frame of `length` bytes, of which `bytes` were captured.
pub fn read(bytes: &[u8], length: u32) -> Content {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(bytes) else { return Content::Other };
    let (from, to, ip_end) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let end = match usize::from(header.total_len()) {
                // A segment past 64 KiB, which no header can tell: the frame does.
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
    let tcp = match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => tcp,
        Some(_) => return Content::Other,
        None => return unread(&packet),
    };
    let payload_start = offset(bytes, tcp.slice()) + tcp.header_slice().len();
    let Some(payload) = ip_end.checked_sub(payload_start) else { return Content::Unreadable };
    Content::Tcp(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledgement: tcp.acknowledgment_number(),
        window: tcp.window_size(),
        length: payload as u32,
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

/// Whether a packet without a readable transport header should have had one of TCP. A fragment but
/// the first has none.
fn unread(packet: &LaxSlicedPacket<'_>) -> Content {
    match packet.ip_payload() {
        Some(payload) if payload.ip_number == etherparse::IpNumber::TCP && !payload.fragmented => Content::Unreadable,
        _ => Content::Other,
    }
}

/// Where a part of `bytes` begins in it.
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - bytes.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn frame(v6: bool, payload: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 { link.ipv6([1; 16], [2; 16], 64) } else { link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let tcp = ip.tcp(4000, 80, 7, 512).ack(9).psh();
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
            assert_eq!(read(&whole[..headers - 1], whole.len() as u32), Content::Unreadable);
            let mut padded = frame(v6, &[]);
            padded.resize(80, 0);
            let Content::Tcp(segment) = read(&padded, 80) else { panic!("a padded segment") };
            assert_eq!(segment.length, 0);
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
