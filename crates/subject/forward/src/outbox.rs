//! What an event loop has read in this round and not sent yet.
//!
//! Small messages of all its connections are read one behind the other into the same memory, and go
//! out together when the round is over, or when there is no room for more. What a sink does not
//! take then is kept in a buffer of its direction's own, so that nothing stays here between rounds.

use std::ops::Range;

use plimsoll_reactor::slab::Key;

use crate::relay::Side;

/// What one read takes at most while copying: as much as a default receive window usually holds.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Room for four of the largest reads, and for more small ones than go out together.
const BYTES: usize = 4 * READ_BYTES;
/// Most messages that are sent together; a power of two, as the ring requires. Beyond that, sharing
/// a call saves little, and the first message waits while the others are read.
pub(crate) const MESSAGES: usize = 128;
/// Messages share no line of the CPU's cache.
const ALIGNMENT: usize = 64;

/// Whose message it is: a connection's, from this side. Its channel has its place in the outbox
/// (`transfer.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) key: Key,
    pub(crate) from: Side,
}

/// See the head of this file.
pub(crate) struct Outbox {
    bytes: Box<[u8]>,
    end: usize,
    messages: Vec<Message>,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox { bytes: vec![0; BYTES].into_boxed_slice(), end: 0, messages: Vec::with_capacity(MESSAGES) }
    }

    /// Whether there is too little room for another connection's turn, in which both directions may
    /// read.
    pub(crate) fn is_full(&self) -> bool {
        self.end + 2 * READ_BYTES > BYTES || self.messages.len() + 2 > MESSAGES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Where to read into: [`READ_BYTES`] bytes.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..self.end + READ_BYTES]
    }

    /// Where the first `length` bytes of [`Outbox::room`] are.
    pub(crate) fn place(&self, length: usize) -> Range<usize> {
        self.end..self.end + length
    }

    /// What is at a place.
    pub(crate) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }

    /// What was read last, at `place`, goes out with the round.
    pub(crate) fn post(&mut self, key: Key, from: Side, place: Range<usize>) {
        self.end = place.end.next_multiple_of(ALIGNMENT);
        self.messages.push(Message { key, from });
    }

    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Drops the messages that are not to go out any more.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Message) -> bool) {
        self.messages.retain(keep);
    }

    /// Everything has gone out.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.end = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_reactor::slab::Slab;

    #[test]
    fn a_turn_that_begins_before_it_is_full_has_room_for_both_directions() {
        // Either the messages are as many as go out together, or less than a turn's room is left.
        for (length, count) in [(1, MESSAGES), (255, MESSAGES), (4000, 34), (READ_BYTES, 4)] {
            let (mut outbox, key, mut places) = (Outbox::new(), Slab::default().insert(()), Vec::new());
            while !outbox.is_full() {
                for from in [Side::Client, Side::Server] {
                    let number = outbox.messages.len() as u8;
                    outbox.room()[..length].fill(number);
                    places.push(outbox.place(length));
                    outbox.post(key, from, outbox.place(length));
                }
            }
            assert_eq!(outbox.messages().len(), count, "of {length} bytes");
            assert!(!outbox.is_empty());
            for (number, place) in places.into_iter().enumerate() {
                let bytes = outbox.bytes(place);
                assert!(
                    bytes.len() == length && bytes.iter().all(|&byte| byte == number as u8),
                    "one lies over another"
                );
            }
            outbox.retain(|message| message.from == Side::Client);
            assert_eq!(outbox.messages().len(), count / 2);
            outbox.clear();
            assert!(outbox.is_empty() && !outbox.is_full());
        }
    }
}
