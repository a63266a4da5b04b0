//! One connection of a ring: what is outstanding, what waits to be sent, and how far it has come.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use plimsoll_sys::ring::Slot;

use crate::driver::conversation::{Conversation, ConversationState};
use crate::driver::limit::Limit;
use crate::driver::unsent::{Body, Unsent};
use crate::service::Service;

/// A connection in the ring's table.
pub(super) struct Connection<P> {
    pub(super) slot: Slot,
    pub(super) peer: SocketAddr,
    pub(super) conversation: Conversation<P>,
    pub(super) limit: Limit,
    pub(super) receive: Receive,
    /// Before the close, nothing was found in the socket.
    pub(super) found_empty: bool,
    /// A send is outstanding.
    pub(super) sending: bool,
    /// The ring was asked what the peer has acknowledged.
    pub(super) asking: bool,
    /// Its time is over. What has arrived is received without waiting, as a loop that is behind has
    /// not been told of all of it; when that was the last, the connection ends.
    pub(super) is_overdue: bool,
    /// The conversation holds bytes that came during a send.
    pub(super) has_unprocessed_input: bool,
    pub(super) life: Lifecycle,
    /// What is sent next.
    pub(super) unsent: Vec<u8>,
    /// What is sent after that.
    pub(super) body: Option<Box<Body>>,
    /// How files are sent, once there was one.
    pub(super) file_transfer: Option<Box<FileTransfer>>,
}

/// The state of a connection's receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receive {
    /// Outstanding.
    Armed,
    /// Outstanding, and told to end.
    Ending,
    /// Not outstanding.
    Off,
    /// Not outstanding: it ended as no buffer was free. The connection is on the list of those that
    /// wait for a buffer.
    AwaitingBuffer,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lifecycle {
    /// Bytes go both ways.
    Open,
    /// The peer has ended its half: what is unsent still goes out.
    Ended,
    /// The connection failed: nothing moves any more.
    Failed,
}

/// How a connection's files are sent.
pub(super) enum FileTransfer {
    /// By sendfile: the socket's number in the thread's table, and what waits there.
    Sendfile(OwnedFd, Unsent),
    /// The current file passes through memory. The next one tries again.
    Memory,
}

impl<P: Service> Connection<P> {
    /// Whether something is being sent, or waits to be.
    pub(super) fn sends(&self) -> bool {
        self.sending || !self.unsent.is_empty() || self.body.is_some()
    }

    /// Whether an end of the stream would look to the peer like the end of all output, while some
    /// of it waits here.
    pub(super) fn is_cut_short(&self) -> bool {
        self.sends() || self.conversation.state == ConversationState::Resuming
    }

    /// Whether its socket is to be looked at before it is closed.
    pub(super) fn needs_look(&self) -> bool {
        !(self.found_empty || self.conversation.has_lingered())
    }

    /// Whether it is the service's turn, and nothing is in its way.
    pub(super) fn has_more_to_say(&self) -> bool {
        !self.sends()
            && self.life != Lifecycle::Failed
            && (self.conversation.state == ConversationState::Resuming || self.has_unprocessed_input)
    }
}

impl<P> Connection<P> {
    /// Whether what is sent next is a file.
    pub(super) fn sends_a_file(&self) -> bool {
        matches!(self.body.as_deref(), Some(Body::File { .. }))
    }
}
