//! The messages that the coordinator sends to a table's mailbox. Pure: bytes to and from messages;
//! the descriptors travel beside them.

use crate::shared::ListenerNumber;

/// A message holds at most this many listener numbers: as many as descriptors go with one.
pub(crate) const MOST: usize = plimsoll_sys::passing::MOST;
pub(crate) const MESSAGE_BYTES: usize = 1 + 4 * MOST;

/// A message to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Accept at these listeners, whose descriptors come with the message in the same order.
    Listen(Vec<ListenerNumber>),
    /// Take the connections queued at these, and close them.
    Leave(Vec<ListenerNumber>),
    /// Close these as they are: another process accepts the connections queued there.
    Forget(Vec<ListenerNumber>),
    /// The routes have changed.
    Routes,
    /// Take connections that are handed over by the descriptor that comes with this.
    Handoff,
}

impl Message {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers): (u8, &[ListenerNumber]) = match self {
            Message::Listen(numbers) => (b'+', numbers),
            Message::Leave(numbers) => (b'-', numbers),
            Message::Forget(numbers) => (b'!', numbers),
            Message::Routes => (b'~', &[]),
            Message::Handoff => (b'=', &[]),
        };
        std::iter::once(kind).chain(numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Message> {
        let (kind, numbers) = bytes.split_first()?;
        let numbers = || {
            numbers.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("chunks of 4"))).collect()
        };
        match kind {
            b'+' => Some(Message::Listen(numbers())),
            b'-' => Some(Message::Leave(numbers())),
            b'!' => Some(Message::Forget(numbers())),
            b'~' => Some(Message::Routes),
            b'=' => Some(Message::Handoff),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_read_and_the_largest_fits() {
        let all = Message::Listen((0..MOST as u32).collect());
        for message in
            [all, Message::Leave(vec![7, u32::MAX]), Message::Forget(vec![1]), Message::Routes, Message::Handoff]
        {
            let bytes = message.to_bytes();
            assert!(bytes.len() <= MESSAGE_BYTES);
            assert_eq!(Message::from_bytes(&bytes), Some(message));
        }
        assert_eq!(Message::from_bytes(b""), None);
    }
}
