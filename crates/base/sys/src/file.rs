//! Files beneath a root, and their way into a socket (openat2(2), sendfile(2)).
//!
//! The root is opened once, and every path is resolved beneath it by the kernel itself (RESOLVE_BENEATH): neither `..` nor a symbolic link nor a
//! rename at the wrong moment leads out, as no string is ever compared.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};

/// A folder whose files can be opened by the paths beneath it.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A regular file, and how it stood when it was opened.
#[derive(Debug)]
pub struct File {
    descriptor: OwnedFd,
    /// Bytes in it.
    pub length: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// What a path names.
#[derive(Debug)]
pub enum Found {
    /// A regular file, open for reading.
    File(File),
    /// A folder.
    Folder,
    /// Something that is not read like a file: a device, a pipe, a socket.
    Special,
}

impl Root {
    /// Opens a folder.
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root(fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens what a relative path names beneath the root. A path that leads out of it is an error (EXDEV), as is one with a NUL in it (EINVAL).
    ///
    /// NONBLOCK: a pipe without a writer must not make the caller wait; for a regular file it has no meaning.
    pub fn resolve(&self, path: &[u8]) -> io::Result<Found> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let descriptor = rustix::io::retry_on_intr(|| fs::openat2(&self.0, path, flags, Mode::empty(), beneath))?;
        let status = fs::fstat(&descriptor)?;
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Found::File(File {
                descriptor,
                length: status.st_size.unsigned_abs(),
                modified: (status.st_mtime, status.st_mtime_nsec as u32),
            }),
            FileType::Directory => Found::Folder,
            _ => Found::Special,
        })
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl File {
    /// Moves at most `length` bytes from `offset` on into a socket, without their passing through this process; returns how many. 0 is the end of
    /// the file.
    pub fn send(&self, socket: impl AsFd, offset: u64, length: usize) -> io::Result<usize> {
        let mut offset = offset;
        Ok(rustix::io::retry_on_intr(|| fs::sendfile(&socket, &self.descriptor, Some(&mut offset), length))?)
    }

    /// Reads from `offset` on until `buffer` is full, or as far as the file goes; returns how many bytes.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            let rest = &mut buffer[read..];
            match rustix::io::retry_on_intr(|| rustix::io::pread(&self.descriptor, &mut *rest, offset + read as u64))? {
                0 => break,
                length => read += length,
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = std::env::temp_dir().join(format!("plimsoll-root-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("root/inner")).expect("a folder");
        std::fs::write(folder.join("secret"), "secret").expect("a file");
        std::fs::write(folder.join("root/inner/file"), "open").expect("a file");
        symlink("../secret", folder.join("root/out")).expect("a link");
        symlink("/etc/passwd", folder.join("root/absolute")).expect("a link");
        symlink("inner/file", folder.join("root/within")).expect("a link");
        let root = Root::open(&folder.join("root")).expect("it was just made");
        for path in ["../secret", "inner/../../secret", "out", "absolute", "/etc/passwd", "inner/file\0"] {
            assert!(root.resolve(path.as_bytes()).is_err(), "{path}");
        }
        for path in ["inner/file", "inner/../inner/file", "within"] {
            let Ok(Found::File(file)) = root.resolve(path.as_bytes()) else { panic!("{path}") };
            let mut bytes = [0; 8];
            assert_eq!((file.length, file.read_at(&mut bytes, 1).expect("it is readable")), (4, 3));
            assert_eq!(&bytes[..3], b"pen");
        }
        assert!(matches!(root.resolve(b"inner"), Ok(Found::Folder)));
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}
