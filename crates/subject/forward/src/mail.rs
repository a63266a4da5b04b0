//! What the coordinator tells a table by its mailbox. Pure: bytes to and from messages; the
//! descriptors travel beside them.

use crate::shared::ListenerNumber;

/// A message holds at most this many listener numbers: as many as descriptors go with one.
pub(crate) const MOST: usize = plimsoll_sys::passing::MOST;
pub(crate) const MESSAGE_BYTES: usize = 1 + 4 * MOST;

/// What a table is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mail {
    /// Accept at these listeners, whose descriptors come with the message in the same order.
    Listen(Vec<ListenerNumber>),
    /// Take what is queued at these, and close them.
    Leave(Vec<ListenerNumber>),
    /// Close these as they are: another process accepts what is queued there.
    Forget(Vec<ListenerNumber>),
    /// The routes have changed.
    Routes,
    /// Take connections that are handed over by the descriptor that comes with this.
    Door,
}

impl Mail {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers): (u8, &[ListenerNumber]) = match self {
            Mail::Listen(numbers) => (b'+', numbers),
            Mail::Leave(numbers) => (b'-', numbers),
            Mail::Forget(numbers) => (b'!', numbers),
            Mail::Routes => (b'~', &[]),
            Mail::Door => (b'=', &[]),
        };
        std::iter::once(kind).chain(numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Mail> {
        let (kind, numbers) = bytes.split_first()?;
        let numbers = || {
            numbers.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("chunks of 4"))).collect()
        };
        match kind {
            b'+' => Some(Mail::Listen(numbers())),
            b'-' => Some(Mail::Leave(numbers())),
            b'!' => Some(Mail::Forget(numbers())),
            b'~' => Some(Mail::Routes),
            b'=' => Some(Mail::Door),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_is_read_and_the_largest_fits() {
        let all = Mail::Listen((0..MOST as u32).collect());
        for mail in [all, Mail::Leave(vec![7, u32::MAX]), Mail::Forget(vec![1]), Mail::Routes, Mail::Door] {
            let bytes = mail.to_bytes();
            assert!(bytes.len() <= MESSAGE_BYTES);
            assert_eq!(Mail::from_bytes(&bytes), Some(mail));
        }
        assert_eq!(Mail::from_bytes(b""), None);
    }
}
