//! The buffers and pipes of one event loop. A channel takes one while bytes wait in it and gives it
//! back; a few of each are kept for the next. The pool counts what is out: at the end of the loop
//! nothing may be.

use std::io;
use std::num::NonZeroU32;
use std::ops::Range;

use plimsoll_sys::pipe::Pipe;

use crate::outbox::{Outbox, READ_BYTES};

/// What a pipe is to hold: splice costs half as much by the byte with 1 MiB as with the default 64
/// KiB.
const PIPE_BYTES: usize = 1024 * 1024;
/// A smaller pipe takes more calls than copying: it is not worth its two descriptors.
const LEAST_PIPE_BYTES: usize = 64 * 1024;
/// Kept for the next, of each; beyond that they are given back to the system.
const KEPT: usize = 16;

/// See the head of this file.
pub(crate) struct Pool {
    /// Every connection of the loop reads into it.
    pub(crate) outbox: Outbox,
    /// Whether directions may be moved through pipes at all.
    pub(crate) splices: bool,
    buffers: Vec<Box<[u8]>>,
    /// Buffers that channels hold.
    buffers_out: u64,
    pipes: Vec<Pipe>,
    /// Pipes that exist, and the most there may be, as each takes two descriptors from the
    /// connections.
    pipe_count: usize,
    most_pipes: usize,
    /// Pipes that the kernel made smaller than was wanted, as this user has too many pages in
    /// pipes.
    pub(crate) pipes_shrunk: u64,
    /// Times that a direction was copied as no pipe could be had.
    pub(crate) pipes_missed: u64,
    /// Which direction began last to wait for its rule's bandwidth.
    last_wait: NonZeroU32,
}

impl Pool {
    pub(crate) fn new(splices: bool, most_pipes: usize) -> Pool {
        Pool {
            outbox: Outbox::new(),
            splices,
            buffers: Vec::new(),
            buffers_out: 0,
            pipes: Vec::new(),
            pipe_count: 0,
            most_pipes,
            pipes_shrunk: 0,
            pipes_missed: 0,
            last_wait: NonZeroU32::MIN,
        }
    }

    /// A number for a direction that begins to wait for its rule's bandwidth.
    pub(crate) fn next_wait(&mut self) -> NonZeroU32 {
        // There are far fewer directions than numbers, so that those that wait have different ones.
        self.last_wait = self.last_wait.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.last_wait
    }

    /// How many have begun to wait since the one with this number.
    pub(crate) fn waits_since(&self, wait: NonZeroU32) -> u32 {
        self.last_wait.get().wrapping_sub(wait.get())
    }

    /// A buffer that begins with what is at a place of the outbox, and how many bytes that are.
    pub(crate) fn take_buffer(&mut self, place: Range<usize>) -> (Box<[u8]>, usize) {
        let mut buffer = self.buffers.pop().unwrap_or_else(|| vec![0; READ_BYTES].into_boxed_slice());
        self.buffers_out += 1;
        let bytes = self.outbox.bytes(place);
        buffer[..bytes.len()].copy_from_slice(bytes);
        (buffer, bytes.len())
    }

    pub(crate) fn give_buffer(&mut self, buffer: Box<[u8]>) {
        self.buffers_out -= 1;
        if self.buffers.len() < KEPT {
            self.buffers.push(buffer);
        }
    }

    /// An empty pipe, or none where there are too many or the system has none.
    pub(crate) fn take_pipe(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.pipes.pop() {
            return Some(pipe);
        }
        match if self.pipe_count < self.most_pipes { self.make_pipe() } else { Ok(None) } {
            Ok(Some(pipe)) => Some(pipe),
            Ok(None) | Err(_) => {
                self.pipes_missed += 1;
                None
            }
        }
    }

    fn make_pipe(&mut self) -> io::Result<Option<Pipe>> {
        let pipe = Pipe::new(PIPE_BYTES)?;
        if pipe.capacity() < PIPE_BYTES {
            self.pipes_shrunk += 1;
        }
        if pipe.capacity() < LEAST_PIPE_BYTES {
            return Ok(None);
        }
        self.pipe_count += 1;
        Ok(Some(pipe))
    }

    /// Takes back an empty pipe.
    pub(crate) fn give_pipe(&mut self, pipe: Pipe) {
        if self.pipes.len() < KEPT { self.pipes.push(pipe) } else { self.discard_pipe(pipe) }
    }

    /// Closes a pipe, with what is in it.
    pub(crate) fn discard_pipe(&mut self, pipe: Pipe) {
        self.pipe_count -= 1;
        drop(pipe);
    }

    /// Pipes that channels hold.
    pub(crate) fn pipes_out(&self) -> u64 {
        (self.pipe_count - self.pipes.len()) as u64
    }

    /// Buffers that channels hold.
    pub(crate) fn buffers_out(&self) -> u64 {
        self.buffers_out
    }
}
