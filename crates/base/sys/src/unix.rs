//! Unix sockets by path (unix(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Opens a non-blocking listener at `path`. A socket that nobody listens at any more, left behind
/// by a program that was killed, is replaced; anything else at that path is an error (EADDRINUSE).
/// With a `mode` the socket has those permissions, before anybody can connect.
pub fn listen(path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = stream()?;
    match net::bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_abandoned(path) => {
            std::fs::remove_file(path)?;
            net::bind(&socket, &address)?;
        }
        outcome => outcome?,
    }
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    net::listen(&socket, i32::MAX)?;
    Ok(socket)
}

/// A non-blocking socket that is connected, or an error: unlike TCP it is known at once.
/// `WouldBlock` where the listener's queue is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream()?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn is_abandoned(path: &Path) -> bool {
    // A connect to an ordinary file is refused too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_socket_is_replaced_and_a_living_one_is_not() {
        let path = std::env::temp_dir().join(format!("plimsoll-unix-{}", std::process::id()));
        let first = listen(&path, None).expect("a new path");
        assert_eq!(listen(&path, None).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let second = listen(&path, None).expect("nobody listens there");
        drop(second);
        std::fs::remove_file(&path).expect("the socket is there");
        std::fs::write(&path, "a file").expect("the folder can be written to");
        assert_eq!(listen(&path, None).expect_err("not a socket").kind(), io::ErrorKind::AddrInUse);
        std::fs::remove_file(&path).expect("the file is there");
    }
}
