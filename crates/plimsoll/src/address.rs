//! The addresses of `HOST:PORT`, as people write it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses of `HOST:PORT`, with an IPv6 address in brackets. A link-local address has its
/// interface, as in `[fe80::1%eth0]:80` (RFC 4007, section 11).
pub(crate) fn resolve(text: &str) -> io::Result<Vec<SocketAddr>> {
    let in_brackets = text.strip_prefix('[').and_then(|text| text.rsplit_once("]:"));
    let found: Vec<SocketAddr> = match in_brackets {
        // getaddrinfo(3) knows interfaces by name, and no brackets.
        Some((host, port)) if host.contains('%') => {
            let port: u16 = port.parse().map_err(|_| io::Error::other(format!("`{port}` is not a port")))?;
            (host, port).to_socket_addrs()?.collect()
        }
        _ => text.to_socket_addrs()?.collect(),
    };
    usable(found)
}

/// Those of the addresses that can be used: a link-local address without its interface cannot. A
/// name may have others too.
fn usable(found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let lacks_interface = |address: &SocketAddr| match address {
        SocketAddr::V6(address) => address.ip().is_unicast_link_local() && address.scope_id() == 0,
        SocketAddr::V4(_) => false,
    };
    let (unusable, usable): (Vec<SocketAddr>, Vec<SocketAddr>) = found.into_iter().partition(lacks_interface);
    match unusable.first().filter(|_| usable.is_empty()) {
        Some(address) => {
            let (host, port) = (address.ip(), address.port());
            let why = format!("an address of one link alone goes with its interface, such as [{host}%eth0]:{port}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        None => Ok(usable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_one_link_without_its_interface_is_left_out_where_the_name_has_others() {
        let [local, other] = ["[fe80::1]:80", "192.0.2.1:80"].map(|text| text.parse().expect("it is an address"));
        assert_eq!(usable(vec![local, other]).expect("one can be used"), [other]);
        assert!(usable(vec![local]).is_err());
    }

    #[test]
    fn an_address_of_one_link_goes_with_its_interface_by_name_or_by_number() {
        for text in ["[fe80::1%lo]:80", "[fe80::1%1]:80"] {
            let found = resolve(text).expect(text);
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[fe80::1%1]:80"], "{text}");
        }
        let refused = |text: &str| resolve(text).expect_err(text).to_string();
        assert!(refused("[fe80::1]:80").contains("goes with its interface, such as [fe80::1%eth0]:80"));
        assert!(refused("[fe80::1%lo]:x").contains("`x` is not a port"));
        assert_eq!(resolve("[::1]:80").expect("it is an address"), [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80))]);
    }
}
