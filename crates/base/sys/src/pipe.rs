//! Pipes as a place for bytes on their way from one socket to another (pipe(7), splice(2)): they
//! are moved by page, and never copied into this process.
//!
//! The traps. EAGAIN from a splice means that the socket is empty *or* that the pipe is full: only
//! a caller that fills an empty pipe can tell. SPLICE_F_MORE holds small messages back for 200 ms
//! and is never given. A splice into a closed connection raises SIGPIPE, for which there is no
//! flag: the process must ignore it, as the Rust runtime has it do.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice};

/// A pipe that never blocks.
#[derive(Debug)]
pub struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// A pipe of `wanted` bytes, or of as many as this user may still have: without privilege the
    /// pages in pipes larger than the default are limited for each user (pipe(7),
    /// pipe-user-pages-soft and -hard), and so is one pipe (pipe-max-size). It is halved until the
    /// kernel agrees: see [`Pipe::capacity`].
    pub fn new(wanted: usize) -> io::Result<Pipe> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let given = fcntl_getpipe_size(&input)?;
        let mut wanted = wanted;
        while wanted > given && fcntl_setpipe_size(&input, wanted).is_err() {
            wanted /= 2;
        }
        let capacity = fcntl_getpipe_size(&input)?;
        Ok(Pipe { output, input, capacity })
    }

    /// How many bytes it holds when they come by whole pages; fewer in small pieces.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Moves bytes from a non-blocking socket into the pipe; 0 is the end of the stream.
    pub fn fill(&self, socket: impl AsFd) -> io::Result<usize> {
        splice_once(&socket, &self.input, self.capacity)
    }

    /// Moves at most `length` bytes from the pipe to a non-blocking socket. `length` must be no
    /// more than the pipe holds.
    pub fn drain(&self, socket: impl AsFd, length: usize) -> io::Result<usize> {
        splice_once(&self.output, &socket, length)
    }
}

fn splice_once(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::io::retry_on_intr(|| splice(&from, None, &to, None, length, flags))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_go_through_in_order_and_the_end_is_told_from_emptiness() {
        let (mut writer, source) = UnixStream::pair().expect("a pair of sockets");
        let (sink, mut reader) = UnixStream::pair().expect("a pair of sockets");
        source.set_nonblocking(true).expect("a socket takes it");
        sink.set_nonblocking(true).expect("a socket takes it");
        let pipe = Pipe::new(64 * 1024).expect("a pipe");
        assert_eq!(pipe.fill(&source).expect_err("nothing has arrived").kind(), io::ErrorKind::WouldBlock);
        writer.write_all(b"through the pipe").expect("the socket has room");
        assert_eq!(pipe.fill(&source).expect("bytes have arrived"), 16);
        assert_eq!(pipe.drain(&sink, 7).expect("there is room"), 7);
        assert_eq!(pipe.drain(&sink, 9).expect("there is room"), 9);
        drop(writer);
        assert_eq!(pipe.fill(&source).expect("the end is no error"), 0);
        drop(sink);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("the stream ends");
        assert_eq!(read, "through the pipe");
    }
}
