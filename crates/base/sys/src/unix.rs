//! Unix sockets by path (unix(7)).

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Opens a non-blocking listener at `path`. A socket that a killed program has left behind is
/// replaced; anything else at that path is an error (EADDRINUSE). With a `mode` the socket has
/// those permissions before a client can connect.
pub fn listen(path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    listen_as(SocketType::STREAM, path, mode)
}

/// The same for connections of whole messages (`crate::passing`), which only this user may make.
pub fn listen_for_messages(path: &Path) -> io::Result<OwnedFd> {
    listen_as(SocketType::SEQPACKET, path, Some(0o600))
}

fn listen_as(kind: SocketType, path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket(kind)?;
    match net::bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_abandoned(path) => {
            std::fs::remove_file(path)?;
            net::bind(&socket, &address)?;
        }
        outcome => outcome?,
    }
    let permitted = mode.map_or(Ok(()), |mode| std::fs::set_permissions(path, Permissions::from_mode(mode)));
    let outcome = permitted.and_then(|()| Ok(net::listen(&socket, i32::MAX)?));
    if outcome.is_err() {
        Name::of(path).remove();
    }
    outcome.map(|()| socket)
}

/// A non-blocking socket that is connected, or an error: unlike TCP it is known at once.
/// `WouldBlock` where the listener's queue is full.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    connect_as(SocketType::STREAM, path)
}

/// The same for a connection of whole messages (`crate::passing`).
pub fn connect_for_messages(path: &Path) -> io::Result<OwnedFd> {
    connect_as(SocketType::SEQPACKET, path)
}

fn connect_as(kind: SocketType, path: &Path) -> io::Result<OwnedFd> {
    let socket = socket(kind)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Takes a connection that waits at a listener.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// The path at which a socket listens.
pub fn local_path(socket: impl AsFd) -> io::Result<PathBuf> {
    let address = SocketAddrUnix::try_from(net::getsockname(socket)?).ok();
    let path = address.as_ref().and_then(SocketAddrUnix::path_bytes);
    path.map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "not a Unix socket with a path"))
}

/// A file by which a socket is connected to, told from another one at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    path: PathBuf,
    /// Its device and inode. As long as the socket is open no other file has them.
    file: Option<(u64, u64)>,
}

impl Name {
    /// The file that is at `path` now.
    pub fn of(path: &Path) -> Name {
        let file = std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()));
        Name { path: path.to_owned(), file }
    }

    /// Removes the file, unless another one is there by now. To be called while the socket is open.
    pub fn remove(&self) {
        if self.is_there() {
            // It may be gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Gives the file these permissions, unless another one is there by now. Returns which it had.
    pub fn set_mode(&self, mode: u32) -> io::Result<Option<u32>> {
        if !self.is_there() {
            return Ok(None);
        }
        let former = std::fs::symlink_metadata(&self.path)?.mode() & 0o7777;
        std::fs::set_permissions(&self.path, Permissions::from_mode(mode))?;
        Ok(Some(former))
    }

    fn is_there(&self) -> bool {
        self.file.is_some() && *self == Name::of(&self.path)
    }
}

fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
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
