//! What a server does with the bytes of one connection, apart from how it moves them.
//!
//! A service is handed bytes and answers with chunks to send and a next step. It has no descriptor, clock or system call; a model
//! (`crate::model`) moves the bytes. So one service runs under every model, and is tested without a socket.

mod echo;

use std::ops::Range;

pub use echo::Echo;

/// Something to send. It borrows where it can, so that an echo copies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A range of the input that was just handed in.
    Input(Range<usize>),
}

/// The server's side of one connection. Each connection has a clone of the server's prototype.
pub trait Service: Clone + Send + Sync + 'static {
    /// Takes `input`, the bytes of one read (never none), and appends what to send to `output`.
    fn receive(&mut self, input: &[u8], output: &mut Vec<Chunk>);
}
