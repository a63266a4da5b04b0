//! The header of the PROXY protocol: for whom a proxy has connected, before the first byte of the
//! stream (haproxy's proxy-protocol.txt, sections 2.1 and 2.2). Pure: bytes to and from addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::table::ProxyVersion;

/// Who has connected, and to which address.
pub(crate) type Addresses = (SocketAddr, SocketAddr);

/// The first bytes of every binary header.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line, with its end.
const LONGEST_LINE: usize = 107;

/// What the first bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The beginning of a header.
    Incomplete,
    /// A header of so many bytes. It has no addresses where the proxy speaks for itself, or for no
    /// TCP connection.
    Header { addresses: Option<Addresses>, length: usize },
    /// No header.
    Invalid,
}

/// A header with the addresses of the client's connection; without addresses, a header that says
/// that they are unknown.
pub(crate) fn write(version: ProxyVersion, addresses: Option<Addresses>) -> Vec<u8> {
    let addresses = addresses.map(|(source, destination)| (canonical(source), canonical(destination)));
    match version {
        ProxyVersion::V1 => match addresses {
            Some((source, destination)) if source.is_ipv4() == destination.is_ipv4() => {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                let (from, to) = (source.ip(), destination.ip());
                format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes()
            }
            _ => b"PROXY UNKNOWN\r\n".to_vec(),
        },
        ProxyVersion::V2 => {
            let mut header = SIGNATURE.to_vec();
            let mut body = Vec::new();
            // Version 2 with the command PROXY or LOCAL; then the family with the transport STREAM.
            let (command, family) = match addresses {
                Some((SocketAddr::V4(source), SocketAddr::V4(destination))) => {
                    body.extend(source.ip().octets());
                    body.extend(destination.ip().octets());
                    (0x21, 0x11)
                }
                Some((SocketAddr::V6(source), SocketAddr::V6(destination))) => {
                    body.extend(source.ip().octets());
                    body.extend(destination.ip().octets());
                    (0x21, 0x21)
                }
                _ => (0x20, 0x00),
            };
            if let Some((source, destination)) = addresses.filter(|_| family != 0) {
                body.extend(source.port().to_be_bytes());
                body.extend(destination.port().to_be_bytes());
            }
            header.extend([command, family]);
            header.extend((body.len() as u16).to_be_bytes());
            header.extend(body);
            header
        }
    }
}

/// Reads the header at the beginning of a stream.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(found, wanted)| found == wanted);
    if begins(&SIGNATURE) {
        parse_binary(bytes)
    } else if begins(b"PROXY ") {
        parse_line(bytes)
    } else {
        Parsed::Invalid
    }
}

fn parse_line(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.windows(2).take(LONGEST_LINE - 1).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < LONGEST_LINE { Parsed::Incomplete } else { Parsed::Invalid };
    };
    let length = end + 2;
    let Ok(line) = std::str::from_utf8(&bytes[..end]) else { return Parsed::Invalid };
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Parsed::Header { addresses: None, length },
        ["PROXY", family @ ("TCP4" | "TCP6"), source, destination, source_port, destination_port] => {
            let address = |ip: &str, port: &str| {
                let ip = if family == "TCP4" {
                    IpAddr::V4(ip.parse::<Ipv4Addr>().ok()?)
                } else {
                    IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?)
                };
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                Some(SocketAddr::new(ip, port.parse().ok().filter(|_| digits)?))
            };
            match (address(source, source_port), address(destination, destination_port)) {
                (Some(source), Some(destination)) => {
                    Parsed::Header { addresses: Some((canonical(source), canonical(destination))), length }
                }
                _ => Parsed::Invalid,
            }
        }
        _ => Parsed::Invalid,
    }
}

fn parse_binary(bytes: &[u8]) -> Parsed {
    let Some((head, rest)) = bytes.split_at_checked(16) else { return Parsed::Incomplete };
    let body_length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    let Some(body) = rest.get(..body_length) else { return Parsed::Incomplete };
    let length = 16 + body_length;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let addresses = match (head[12], head[13]) {
        (0x20, _) => None,
        (0x21, 0x11) if body.len() >= 12 => {
            let ip = |at: usize| Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
            Some((SocketAddr::from((ip(0), port(8))), SocketAddr::from((ip(4), port(10)))))
        }
        (0x21, 0x21) if body.len() >= 36 => {
            let ip = |at: usize| <[u8; 16]>::try_from(&body[at..at + 16]).map(Ipv6Addr::from).ok();
            let (Some(source), Some(destination)) = (ip(0), ip(16)) else { return Parsed::Invalid };
            Some((SocketAddr::from((source, port(32))), SocketAddr::from((destination, port(34)))))
        }
        (0x21, 0x11 | 0x21) => return Parsed::Invalid,
        // Another family or transport: its addresses are skipped, as the specification asks.
        (0x21, _) => None,
        _ => return Parsed::Invalid,
    };
    let addresses = addresses.map(|(source, destination)| (canonical(source), canonical(destination)));
    Parsed::Header { addresses, length }
}

/// An IPv4 address mapped into IPv6 as the IPv4 address that it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(source: &str, destination: &str) -> Option<Addresses> {
        Some((source.parse().expect(source), destination.parse().expect(destination)))
    }

    #[test]
    fn headers_are_written_as_the_specification_shows_them() {
        let (v4, v6) = (addresses("192.0.2.1:56324", "192.0.2.2:443"), addresses("[2001:db8::1]:1", "[::1]:2"));
        assert_eq!(write(ProxyVersion::V1, v4), b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n");
        assert_eq!(write(ProxyVersion::V1, v6), b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n");
        assert_eq!(write(ProxyVersion::V1, None), b"PROXY UNKNOWN\r\n");
        assert_eq!(write(ProxyVersion::V1, addresses("192.0.2.1:1", "[::1]:2")), b"PROXY UNKNOWN\r\n");
        let mut want = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02".to_vec();
        want.extend([0xdc, 0x04, 0x01, 0xbb]);
        assert_eq!(write(ProxyVersion::V2, v4), want);
        assert_eq!(write(ProxyVersion::V2, None), b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
    }

    #[test]
    fn what_is_written_is_read_whole_and_every_beginning_of_it_is_incomplete() {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for who in [addresses("192.0.2.1:1", "192.0.2.2:65535"), addresses("[2001:db8::1]:1", "[::1]:2"), None] {
                let header = write(version, who);
                for end in 0..header.len() {
                    assert_eq!(parse(&header[..end]), Parsed::Incomplete, "{end} bytes of {header:?}");
                }
                let length = header.len();
                let stream = [&header[..], b"and more"].concat();
                assert_eq!(parse(&stream), Parsed::Header { addresses: who, length });
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 65536\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            b"PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x00",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x04\x7f\x00\x00\x01",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x04\x7f\x00\x00\x01",
            &long,
        ] {
            assert_eq!(parse(bytes), Parsed::Invalid, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_line_has_at_most_107_bytes_with_its_end() {
        let line = |length: usize| format!("PROXY UNKNOWN {}", "x".repeat(length - 14));
        let header = line(LONGEST_LINE - 2) + "\r\n";
        assert_eq!(parse(header.as_bytes()), Parsed::Header { addresses: None, length: LONGEST_LINE });
        assert_eq!(parse((line(LONGEST_LINE - 1) + "\r\n").as_bytes()), Parsed::Invalid);
        // Of a line without its end that is known once it is as long.
        assert_eq!(parse(line(LONGEST_LINE - 1).as_bytes()), Parsed::Incomplete);
        assert_eq!(parse(line(LONGEST_LINE).as_bytes()), Parsed::Invalid);
    }

    #[test]
    fn addresses_of_another_kind_than_tcps_are_skipped() {
        let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x31\x00\x02ab";
        assert_eq!(parse(header), Parsed::Header { addresses: None, length: header.len() });
    }

    #[test]
    fn a_binary_header_may_carry_more_than_addresses() {
        let mut header = write(ProxyVersion::V2, addresses("192.0.2.1:1", "192.0.2.2:2"));
        header[15] += 3;
        header.extend([0x04, 0x00, 0x00]);
        let who = addresses("192.0.2.1:1", "192.0.2.2:2");
        assert_eq!(parse(&header), Parsed::Header { addresses: who, length: header.len() });
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_a_length_is_within_them(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            line in any::<bool>(),
        ) {
            let start: &[u8] = if line { b"PROXY TCP4 " } else { &SIGNATURE };
            for stream in [bytes.clone(), [start, &bytes].concat()] {
                if let Parsed::Header { length, .. } = parse(&stream) {
                    prop_assert!(length <= stream.len());
                }
            }
        }
    }
}
