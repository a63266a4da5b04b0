//! What one direction holds between two turns, and where it is: in the outbox of the event loop,
//! from which small messages of all connections go out together; in a buffer, where the sink did
//! not take it; or in a pipe. A channel that holds no byte holds no buffer and no pipe.

use std::num::NonZeroU32;
use std::ops::Range;

use plimsoll_sys::pipe::Pipe;

use crate::pool::Pool;

/// What was read and not yet written, and where it is.
#[derive(Debug, Default)]
pub(super) enum Held {
    #[default]
    Nothing,
    /// It goes out with the messages of other connections when the round is over.
    Outbox(Range<usize>),
    Buffer {
        bytes: Box<[u8]>,
        place: Range<usize>,
    },
    Pipe {
        pipe: Pipe,
        bytes: usize,
    },
}

impl Held {
    pub(super) fn length(&self) -> usize {
        match self {
            Held::Nothing => 0,
            Held::Outbox(place) | Held::Buffer { place, .. } => place.len(),
            Held::Pipe { bytes, .. } => *bytes,
        }
    }
}

/// What one direction of one connection holds between turns.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(super) held: Held,
    /// Through a pipe, or by copying.
    pub(super) spliced: bool,
    /// While copying, full reads in a row; while splicing, turns in a row that brought little.
    pub(super) streak: u8,
    /// While it waits for its rule's bandwidth, its number among those that do (`pool.rs`).
    pub(crate) wait: Option<NonZeroU32>,
}

impl Channel {
    /// Whether it goes through a pipe.
    pub(crate) fn is_spliced(&self) -> bool {
        self.spliced
    }

    /// Where in the outbox its message is, if it is there.
    pub(crate) fn posted(&self) -> Option<Range<usize>> {
        match &self.held {
            Held::Outbox(place) => Some(place.clone()),
            _ => None,
        }
    }

    /// Whether it holds bytes that its sink has not taken.
    pub(crate) fn is_holding(&self) -> bool {
        self.held.length() > 0
    }

    /// Holds what was read, when it held nothing.
    pub(super) fn hold(&mut self, held: Held) {
        debug_assert!(matches!(self.held, Held::Nothing), "a direction reads only when it holds nothing");
        self.held = held;
    }

    /// Drops what it holds, and gives back where it was.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        match std::mem::take(&mut self.held) {
            Held::Nothing | Held::Outbox(_) => {}
            Held::Buffer { bytes, .. } => pool.give_buffer(bytes),
            Held::Pipe { pipe, bytes: 0 } => pool.give_pipe(pipe),
            // Its bytes must not reach another connection.
            Held::Pipe { pipe, .. } => pool.discard_pipe(pipe),
        }
    }

    /// The sink has taken this many of the held bytes.
    pub(super) fn took(&mut self, taken: usize, pool: &mut Pool) {
        match &mut self.held {
            Held::Nothing => debug_assert_eq!(taken, 0),
            Held::Outbox(place) | Held::Buffer { place, .. } => place.start += taken,
            Held::Pipe { bytes, .. } => *bytes -= taken,
        }
        if self.held.length() == 0 {
            self.clear(pool);
        }
    }
}

impl From<(Box<[u8]>, usize)> for Held {
    fn from((bytes, length): (Box<[u8]>, usize)) -> Held {
        Held::Buffer { bytes, place: 0..length }
    }
}
