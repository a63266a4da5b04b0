//! A listening address with a socket for all workers, or one for each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use plimsoll_sys::net::{self, Sharing};

/// Opens `sets` listeners at an address, and says where they are: port 0 has become another, the same for all of them.
pub fn open(mut address: SocketAddr, sets: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    let sharing = if sets > 1 { Sharing::ReusePort } else { Sharing::Alone };
    if sharing == Sharing::ReusePort && address.port() != 0 {
        // Shared ports are shared with strangers too: another program there would take half of the connections, unnoticed.
        net::listen(address, Sharing::Alone)?;
    }
    let mut sockets = Vec::with_capacity(sets);
    for _ in 0..sets {
        let socket = net::listen(address, sharing)?;
        address = net::local_address(&socket)?;
        sockets.push(socket);
    }
    Ok((address, sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_share_one_port_and_a_port_that_is_taken_is_not_shared_with_strangers() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, sockets) = open(any, 3).expect("a free port");
        assert_eq!(sockets.len(), 3);
        for socket in &sockets {
            assert_eq!(net::local_address(socket).expect("it is bound"), address);
        }
        assert_eq!(open(address, 2).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
    }
}
