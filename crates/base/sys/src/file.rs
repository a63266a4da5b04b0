//! Files beneath a root, and their way into a socket (openat2(2), sendfile(2)).
//!
//! The root is opened once, and every path is resolved beneath it by the kernel itself
//! (RESOLVE_BENEATH): neither `..` nor a symbolic link nor a rename at the wrong moment leads out,
//! as no string is ever compared.

use std::fs::Metadata;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A rename or mount anywhere on the machine may keep the kernel from knowing that a `..` in a
/// symbolic link stays beneath the root: EAGAIN, and to be tried again (openat2(2)). An attempt
/// takes microseconds, so that a few come to an end between two renames.
const ATTEMPTS: usize = 100;

/// A folder whose files can be opened by the paths beneath it.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A regular file, with its length and time as it was opened.
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

/// Opens a file to add to, and makes it if it is not there. A FIFO that nobody reads is an error
/// (ENXIO) instead of a wait (fifo(7)); later writes wait as usual.
pub fn append(path: &Path) -> io::Result<std::fs::File> {
    open_to_write(path, OFlags::APPEND)
}

/// Opens an empty file to write to: makes it, or empties the one that is there. A FIFO is met as in
/// [`append`].
pub fn create(path: &Path) -> io::Result<std::fs::File> {
    open_to_write(path, OFlags::TRUNC)
}

fn open_to_write(path: &Path, how: OFlags) -> io::Result<std::fs::File> {
    let flags = OFlags::WRONLY | how | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let descriptor = fs::open(path, flags, Mode::from_raw_mode(0o666))?;
    let flags = fs::fcntl_getfl(&descriptor)?;
    fs::fcntl_setfl(&descriptor, flags.difference(OFlags::NONBLOCK))?;
    Ok(descriptor.into())
}

/// Whether an error of [`Root::resolve`] says that the path names nothing that can be read: it may
/// lead out of the root, or to a socket or a device that is not there.
pub fn is_absent(error: &io::Error) -> bool {
    let absent = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EXDEV, libc::EINVAL, libc::ENXIO, libc::ENODEV];
    error.raw_os_error().is_some_and(|number| absent.contains(&number))
}

/// The path of what this process writes to as its standard output (proc(5)).
pub const STDOUT: &str = "/dev/stdout";

/// Whether two paths lead to one regular file or pipe: two records in it would lie over each other,
/// or mix. A device takes what it is given.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let keeps = |file: &Metadata| file.is_file() || file.file_type().is_fifo();
    let place = |path| std::fs::metadata(path).ok().filter(keeps).map(|file| (file.dev(), file.ino()));
    place(one).is_some() && place(one) == place(other)
}

/// What to do about an error of [`append`] or [`create`], or of writing to what they return.
pub fn write_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENXIO) => "this FIFO has no reader: start its reader first",
        Some(libc::EPIPE) => "keep its reader open until the end",
        Some(libc::ENOSPC | libc::EDQUOT) => "make room on its disk, or name a file on another one",
        Some(_) => "name a file in a folder that you can write to",
        None => "name another file",
    }
}

impl Root {
    /// Opens a folder.
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root(fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens what a relative path names beneath the root. A path that leads out of it is an error
    /// (EXDEV), as is one with a NUL in it (EINVAL).
    ///
    /// NONBLOCK: a pipe without a writer must not make the caller wait; for a regular file it has
    /// no meaning.
    pub fn resolve(&self, path: &[u8]) -> io::Result<Found> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::io::retry_on_intr(|| fs::openat2(&self.0, path, flags, Mode::empty(), beneath));
        let mut attempts = std::iter::repeat_with(open).take(ATTEMPTS);
        let descriptor = match attempts.find(|opened| !matches!(opened, Err(Errno::AGAIN))) {
            Some(Err(Errno::NOSYS)) => self.walk(path, flags)?,
            opened => opened.unwrap_or(Err(Errno::AGAIN))?,
        };
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

    /// The same where something between here and the kernel does not know openat2, as Valgrind
    /// before 3.22 and some sandboxes: a step a name, and no symbolic link is followed at all.
    fn walk(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut folder: Option<OwnedFd> = None;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").peekable();
        while let Some(name) = names.next() {
            if name == b".." {
                return Err(Errno::XDEV);
            }
            let last = names.peek().is_none();
            let flags = if last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
            let from = folder.as_ref().unwrap_or(&self.0);
            let next = rustix::io::retry_on_intr(|| fs::openat(from, name, flags | OFlags::NOFOLLOW, Mode::empty()))?;
            if last {
                return Ok(next);
            }
            folder = Some(next);
        }
        Err(Errno::NOENT)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl File {
    /// Moves at most `length` bytes from `offset` on into a socket, without their passing through
    /// this process; returns how many. 0 is the end of the file.
    pub fn send(&self, socket: impl AsFd, offset: u64, length: usize) -> io::Result<usize> {
        let mut offset = offset;
        Ok(rustix::io::retry_on_intr(|| fs::sendfile(&socket, &self.descriptor, Some(&mut offset), length))?)
    }

    /// Appends at most `length` bytes from `offset` on, or as far as the file goes; returns how
    /// many.
    pub fn read_at(&self, bytes: &mut Vec<u8>, offset: u64, length: usize) -> io::Result<usize> {
        let start = bytes.len();
        bytes.reserve(length);
        while bytes.len() - start < length {
            let offset = offset + (bytes.len() - start) as u64;
            // Into memory that need not be cleared first. It may be more than was asked for.
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::pread(&self.descriptor, rustix::buffer::spare_capacity(bytes), offset)
            })?;
            if read == 0 {
                break;
            }
        }
        bytes.truncate(start + length);
        Ok(bytes.len() - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = std::env::temp_dir().join(format!("plimsoll-root-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("root/inner")).expect("a folder");
        std::fs::write(folder.join("secret"), "secret").expect("a file");
        std::fs::write(folder.join("root/inner/file"), "open").expect("a file");
        symlink("../secret", folder.join("root/out")).expect("a link");
        symlink("/etc/passwd", folder.join("root/absolute")).expect("a link");
        symlink("inner/file", folder.join("root/within")).expect("a link");
        // They begin outside, wherever they lead.
        symlink(folder.join("root/inner/file"), folder.join("root/back")).expect("a link");
        symlink("/inner/file", folder.join("root/from_root")).expect("a link");
        let root = Root::open(&folder.join("root")).expect("it was just made");
        for path in [
            "../secret",
            "inner/../../secret",
            "out",
            "absolute",
            "back",
            "from_root",
            "/etc/passwd",
            "/inner/file",
            "inner/file\0",
        ] {
            let error = root.resolve(path.as_bytes()).expect_err(path);
            assert!(is_absent(&error), "{path}: {error}");
        }
        for path in ["../secret", "inner/../../secret", "out", "absolute", "within", "inner/file\0", "", "none/file"] {
            assert!(root.walk(path.as_bytes(), OFlags::RDONLY).is_err(), "{path}");
        }
        assert!(root.walk(b"./inner//file", OFlags::RDONLY).is_ok());
        for path in ["inner/file", "inner/../inner/file", "within"] {
            let Ok(Found::File(file)) = root.resolve(path.as_bytes()) else { panic!("{path}") };
            let mut bytes = b"-".to_vec();
            assert_eq!((file.length, file.read_at(&mut bytes, 1, 8).expect("it is readable")), (4, 3));
            assert_eq!(bytes, b"-pen");
            assert_eq!(file.read_at(&mut bytes, 0, 2).expect("it is readable"), 2);
            assert_eq!(bytes, b"-penop");
        }
        assert!(matches!(root.resolve(b"inner"), Ok(Found::Folder)));
        std::fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn renames_elsewhere_hide_no_file_behind_a_link_that_leads_up() {
        let folder = std::env::temp_dir().join(format!("plimsoll-renames-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("root/inner")).expect("a folder");
        std::fs::write(folder.join("root/file"), "here").expect("a file");
        symlink("../file", folder.join("root/inner/link")).expect("a link");
        let root = Root::open(&folder.join("root")).expect("it was just made");
        let (names, is_over) = (["one", "two"].map(|name| folder.join(name)), AtomicBool::new(false));
        std::fs::write(&names[0], "elsewhere").expect("a file");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::fs::rename(&names[0], &names[1]).expect("it is there");
                    std::fs::rename(&names[1], &names[0]).expect("it is there");
                }
            });
            let hidden = (0..20_000).find_map(|_| root.resolve(b"inner/link").err());
            is_over.store(true, Ordering::Relaxed);
            assert!(hidden.is_none(), "{hidden:?}");
        });
        std::fs::remove_dir_all(folder).expect("it is ours");
    }
}
