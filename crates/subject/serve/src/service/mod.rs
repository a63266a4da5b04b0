//! What a server does with the bytes of one connection, apart from how it moves them.
//!
//! A service takes bytes and returns chunks to send, how much input it has taken, what happens
//! next, and until when. It has no descriptor, clock or system call: a [`ServiceContext`] gives it
//! the time and opens files by their path. The driver sends, burns CPU time and closes. So one
//! service runs under every model, and is tested without a socket.

mod cached_time;
mod echo;
mod http;

use std::ops::Range;
use std::time::{Duration, Instant};

pub use cached_time::CachedTime;
pub use echo::{Boundary, Echo, Settings as EchoSettings};
pub use http::{Http, Settings as HttpSettings, Version as HttpVersion};

/// Something to send. It borrows where it can, so that an echo copies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A range of the input that was just handed in.
    Input(Range<usize>),
    /// A range of [`Output::bytes`].
    Written(Range<usize>),
    /// The same bytes for every connection.
    Static(&'static [u8]),
    /// A part of the file that was found last. Nothing may follow it in the same turn.
    File {
        /// Where it begins.
        offset: u64,
        /// How many bytes; never none.
        length: u64,
    },
    /// A pattern over and over, cut off after `length` bytes; never none. Nothing may follow it in
    /// the same turn.
    Repeated {
        /// The pattern.
        pattern: &'static [u8],
        /// Where in the endless repetition to begin.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// What a turn produces. Every connection of a loop uses the same, so that nothing is allocated for
/// one.
#[derive(Debug, Default)]
pub struct Output {
    /// To send, in this order.
    pub chunks: Vec<Chunk>,
    /// What [`Chunk::Written`] means.
    pub bytes: Vec<u8>,
    /// CPU time to burn before anything is sent, to be costly on purpose.
    pub burn: Duration,
    /// The end of the stream follows at once: the last bytes need no packet of their own.
    pub ends: bool,
}

impl Output {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.bytes.clear();
        self.burn = Duration::ZERO;
        self.ends = false;
    }
}

/// What happens next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// More bytes are needed, by then at the latest where there is an instant.
    Receive(Option<Instant>),
    /// Send, and come back with the rest of the input, even if that is nothing.
    Send,
    /// Send, and close.
    Close,
    /// Send, end the writing half, and read on for a moment: the peer may still be sending, and
    /// closing on unread bytes resets the connection, which destroys an answer on its way (RFC
    /// 9112, section 9.6).
    Linger,
}

/// What a service made of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processed {
    /// Bytes of the input that are done with. The driver keeps the rest, and hands it in again in
    /// front of what arrives next.
    pub consumed: usize,
    /// Requests begun to be answered.
    pub requests: u64,
    /// What happens next.
    pub next: NextStep,
}

/// What a service can ask.
pub trait ServiceContext {
    /// The time.
    fn time(&self) -> &CachedTime;

    /// Opens a file by its path beneath the root, for a [`Chunk::File`].
    fn resolve(&mut self, path: &[u8]) -> Result<Found, NotFound>;
}

/// A file that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub length: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is none of that name, or it is outside of the root.
    Absent,
    /// It is a folder.
    Folder,
    /// It is not for this server to read.
    Forbidden,
    /// The path is longer than the file system takes.
    TooLong,
    /// This machine cannot tell: descriptors are short, or the file system has failed.
    Unavailable,
}

/// The server's side of one connection. Each connection has a clone of the server's prototype.
pub trait Service: Clone + Send + Sync + 'static {
    /// Whether it ever asks for the time or sets a limit. If not, no clock is read for it.
    fn is_timed(&self) -> bool;

    /// How long the peer may acknowledge nothing of what is being sent before the connection is
    /// given up.
    fn send_timeout(&self) -> Option<Duration>;

    /// The connection is open; returns until when something must arrive.
    fn opened(&mut self, context: &impl ServiceContext) -> Option<Instant>;

    /// Takes `input`: what it left of the last, and what has arrived since. Called when something
    /// has arrived, and after a [`NextStep::Send`].
    fn receive(&mut self, input: &[u8], context: &mut impl ServiceContext, output: &mut Output) -> Processed;

    /// The instant of [`NextStep::Receive`] has passed. `partial` is whether input waits for its
    /// rest. Returns whether to close or linger.
    fn expired(&mut self, partial: bool, context: &mut impl ServiceContext, output: &mut Output) -> NextStep;
}

#[cfg(test)]
mod tests_context;
