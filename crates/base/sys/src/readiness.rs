//! The words that select, poll and epoll share: what a caller waits for, and what the kernel said.

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Bytes (or the end of the stream) can be read without blocking.
    pub read: bool,
    /// Bytes can be written without blocking.
    pub write: bool,
}

impl Interest {
    /// Wait for bytes to arrive.
    pub const READ: Interest = Interest { read: true, write: false };
    /// Wait for room to write.
    pub const WRITE: Interest = Interest { read: false, write: true };
    /// Wait for both.
    pub const BOTH: Interest = Interest { read: true, write: true };
}

/// One descriptor that the kernel reports ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The caller's name for the descriptor.
    pub key: u64,
    /// A read would not block: there are bytes, the end of the stream, or an error to collect.
    pub readable: bool,
    /// A write would not block, or would fail at once.
    pub writable: bool,
    /// The peer has ended its half, or the connection failed: reading on until the end of the
    /// stream or an error is sure to find it. Only edge-triggered epoll needs to know
    /// beforehand; select and poll leave it false.
    pub ended: bool,
}
