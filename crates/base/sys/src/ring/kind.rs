//! What a request is about, in the number that the kernel hands back with its completion.

/// The kind of a request, in the upper half of the number; the lower half is a slot, or what else
/// the kind is counted by.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Wake,
    Accept,
    Receive,
    Send,
    Close,
    Ready,
    Adopt,
    Install,
    Room,
    Connect,
    End,
    Unacknowledged,
    /// Requests whose own completion says nothing that matters.
    Aside,
}

impl Kind {
    pub(super) fn tag(self, number: u32) -> u64 {
        u64::from(self as u8) << 32 | u64::from(number)
    }

    pub(super) fn of(tag: u64) -> Option<Kind> {
        const ALL: [Kind; 13] = [
            Kind::Wake,
            Kind::Accept,
            Kind::Receive,
            Kind::Send,
            Kind::Close,
            Kind::Ready,
            Kind::Adopt,
            Kind::Install,
            Kind::Room,
            Kind::Connect,
            Kind::End,
            Kind::Unacknowledged,
            Kind::Aside,
        ];
        ALL.get((tag >> 32) as usize).copied()
    }
}
