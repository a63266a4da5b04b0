//! A listening address with a socket for all workers, or one for each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use plimsoll_sys::descriptor;
use plimsoll_sys::net::{self, Sharing};

/// Opens `sets` listeners at an address, and says where they are: port 0 has become another, the
/// same for all of them.
pub fn open(mut address: SocketAddr, sets: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    let sharing = if sets > 1 { Sharing::ReusePort } else { Sharing::Alone };
    if sharing == Sharing::ReusePort && address.port() != 0 {
        // Shared ports are shared with strangers too: another program there would take half of the
        // connections, unnoticed.
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

/// What the kernel said of an address that cannot be listened on, and what to do.
pub fn remedy(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop what listens there (`ss -ltnp` names it), or choose another port; 0 picks a free one"
        }
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine (`ip address` lists them)",
        io::ErrorKind::PermissionDenied => "choose a port of 1024 or more, or run as root",
        _ if descriptor::is_full_table(error) => "raise `ulimit -n`, or listen on fewer ports",
        _ => "choose another address",
    };
    format!("{error}; {remedy}")
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

    #[test]
    fn one_listener_shares_its_port_with_nobody() {
        let (address, _sockets) = open(SocketAddr::from(([127, 0, 0, 1], 0)), 1).expect("a free port");
        let why = net::listen(address, Sharing::ReusePort).expect_err("it is not shared").kind();
        assert_eq!(why, io::ErrorKind::AddrInUse);
    }

    #[test]
    fn what_to_do_follows_what_the_kernel_said() {
        // EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE, EINVAL
        for (number, word) in
            [(98, "another port"), (99, "ip address"), (13, "1024"), (24, "ulimit -n"), (22, "choose another address")]
        {
            let error = io::Error::from_raw_os_error(number);
            let said = remedy(&error);
            assert!(said.starts_with(&error.to_string()) && said.contains(word), "{said}");
        }
    }
}
