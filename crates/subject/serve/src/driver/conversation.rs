//! A conversation: what one connection's service has answered, what of its input is left, and what
//! happens next. It moves no bytes itself.
//!
//! A connection closes in the same way in every model: see [`Conversation::close_in_stages`], and
//! of a server that is ending [`Conversation::nothing_arrives`].

use std::io;
use std::time::{Duration, Instant};

use plimsoll_reactor::progress::Sent;

use super::environment::{Environment, Workspace, burn};
use super::linger::{Linger, Looked};
use crate::service::{NextStep, Output, Processed, Service};
use crate::totals::ConnectionTotals;

/// What a server that is ending still receives for the service on one connection. A socket holds
/// less (net.ipv4.tcp_rmem is 6 MiB at most unless it is set), so what has arrived as the end
/// begins is answered; and a peer that never stops to send does not use up the time that others
/// have.
const ARRIVED_BYTES: u32 = 16 << 20;

/// What happens next on a connection, once everything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversationState {
    /// Bytes are received for the service.
    Receiving,
    /// The service has more to say to what it has.
    Resuming,
    /// It is closed.
    Closing,
    /// Its writing half is to be ended.
    Lingering,
    /// Its writing half is ended: bytes that arrive are discarded.
    Discarding,
}

pub(crate) struct Conversation<P> {
    service: P,
    pub(crate) counts: ConnectionTotals,
    pub(crate) state: ConversationState,
    /// Bytes received since the server began to end.
    late_bytes: u32,
    /// Until when something must arrive; while input is discarded, when to look at what the peer
    /// has acknowledged.
    pub(crate) until: Option<Instant>,
    /// Input that the service has left; there is a buffer only while there is some. Boxed: few
    /// connections have one at a time.
    #[expect(clippy::box_collection, reason = "a pointer a connection, not a vector")]
    held: Option<Box<Vec<u8>>>,
    /// While input is discarded.
    linger: Option<Box<Linger>>,
}

impl<P: Service> Conversation<P> {
    pub(crate) fn new(prototype: &P, environment: &Environment) -> Conversation<P> {
        let mut service = prototype.clone();
        let until = service.opened(environment);
        let (counts, state) = (ConnectionTotals::default(), ConversationState::Receiving);
        Conversation { service, counts, state, late_bytes: 0, until, held: None, linger: None }
    }

    /// Keeps bytes that come while the service cannot take them.
    pub(crate) fn hold(&mut self, fresh: &[u8]) {
        self.held.get_or_insert_default().extend_from_slice(fresh);
    }

    /// How many bytes are kept.
    pub(crate) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.len())
    }

    /// Whether the end of the stream follows what is being sent.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.state, ConversationState::Closing | ConversationState::Lingering)
    }

    /// How long the peer may acknowledge nothing of what is being sent.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        self.service.send_timeout()
    }

    /// Makes the service answer the input that it left and then `fresh`. `send` takes the output of
    /// each step with the input that it may borrow from, and returns whether all of it is sent. If
    /// input is left after that, other connections are served first.
    pub(crate) fn serve(
        &mut self,
        fresh: &[u8],
        workspace: &mut Workspace,
        mut send: impl FnMut(&[u8], &mut Output, &Environment, &mut ConnectionTotals) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut held = self.held.take();
        let input: &[u8] = match &mut held {
            Some(held) => {
                held.extend_from_slice(fresh);
                held
            }
            None => fresh,
        };
        let mut taken = 0;
        loop {
            let Processed { consumed, requests, next } =
                self.service.receive(&input[taken..], &mut workspace.environment, &mut workspace.output);
            self.counts.requests += requests;
            let mut sent = true;
            if !workspace.output.chunks.is_empty() {
                burn(workspace.output.burn);
                workspace.output.ends = matches!(next, NextStep::Close | NextStep::Linger);
                let outcome = send(&input[taken..], &mut workspace.output, &workspace.environment, &mut self.counts);
                workspace.output.clear();
                sent = outcome?;
            }
            taken += consumed;
            self.state = match next {
                // More has arrived, and a close before it is read would be a reset (RFC 1122,
                // section 4.2.2.13): it is discarded.
                NextStep::Receive(_) if self.late_bytes >= ARRIVED_BYTES => ConversationState::Lingering,
                NextStep::Receive(until) => {
                    self.until = until;
                    ConversationState::Receiving
                }
                NextStep::Send => ConversationState::Resuming,
                NextStep::Close => ConversationState::Closing,
                NextStep::Linger => ConversationState::Lingering,
            };
            if !sent || self.state != ConversationState::Resuming || taken < input.len() {
                break;
            }
        }
        self.held = match held {
            _ if taken == input.len()
                || matches!(self.state, ConversationState::Closing | ConversationState::Lingering) =>
            {
                None
            }
            None => Some(Box::new(fresh[taken..].to_vec())),
            Some(mut held) => {
                held.drain(..taken);
                Some(held)
            }
        };
        Ok(())
    }

    /// Whether the time is over until which something must arrive.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// The limit has passed: has the service say so, or end the connection without a word.
    pub(crate) fn expire(
        &mut self,
        workspace: &mut Workspace,
        mut send: impl FnMut(&[u8], &mut Output, &Environment, &mut ConnectionTotals) -> io::Result<bool>,
    ) -> io::Result<()> {
        if self.state != ConversationState::Receiving {
            self.state = ConversationState::Closing;
            return Ok(());
        }
        let partial = self.held.take().is_some();
        let next = self.service.expired(partial, &mut workspace.environment, &mut workspace.output);
        self.state = if next == NextStep::Linger { ConversationState::Lingering } else { ConversationState::Closing };
        if !workspace.output.chunks.is_empty() {
            workspace.output.ends = true;
            let outcome = send(&[], &mut workspace.output, &workspace.environment, &mut self.counts);
            workspace.output.clear();
            outcome?;
        }
        Ok(())
    }

    /// Bytes were received.
    pub(crate) fn received(&mut self, length: usize, draining: bool) {
        self.counts.bytes_received += length as u64;
        if draining {
            self.late_bytes = self.late_bytes.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        }
    }

    /// The server is ending, and what has arrived is read: nothing more is answered.
    pub(crate) fn nothing_arrives(&mut self) {
        if self.state == ConversationState::Receiving {
            self.state = ConversationState::Closing;
        }
    }

    /// The connection is to be closed while the socket may hold bytes that were not read, or, as
    /// the server is ending, such bytes may be on their way. Each resets a connection that is
    /// closed before it (RFC 1122, section 4.2.2.13), and the peer may lose what it has not read
    /// yet. So the writing half is ended first, and input is discarded until the peer has
    /// acknowledged that end (RFC 9112, section 9.6).
    pub(crate) fn close_in_stages(&mut self) {
        if !self.has_lingered() {
            self.state = ConversationState::Lingering;
        }
    }

    /// Whether its input is discarded, or was: it is closed then, whatever still comes.
    pub(crate) fn has_lingered(&self) -> bool {
        self.linger.is_some()
    }

    /// Everything is sent and the writing half is ended: input is discarded from now on.
    pub(crate) fn discard(&mut self, now: Instant, draining: bool) {
        let linger = Linger::begin(now);
        self.state = ConversationState::Discarding;
        self.until = Some(linger.first_look(draining));
        self.linger = Some(Box::new(linger));
    }

    /// The server is ending while input is discarded: the next look is now.
    pub(crate) fn hasten(&mut self, now: Instant) {
        if self.state == ConversationState::Discarding {
            self.until = Some(now);
        }
    }

    /// Looks at what the peer has acknowledged while input is discarded. A peer that acknowledges
    /// nothing for too long is an error of kind `TimedOut` without a number of the kernel's.
    pub(crate) fn look(&mut self, now: Instant, unacknowledged: usize, draining: bool) -> io::Result<()> {
        let sent = Sent::new(self.counts.bytes_sent, unacknowledged);
        let timeout = self.service.send_timeout();
        match self.linger.as_mut().map(|linger| linger.look(now, sent, timeout, draining)) {
            Some(Looked::LookAgain(at)) => self.until = Some(at),
            Some(Looked::GiveUp) => return Err(io::ErrorKind::TimedOut.into()),
            Some(Looked::Over) | None => self.state = ConversationState::Closing,
        }
        Ok(())
    }
}
