//! One connection of a readiness loop, without the selector: it returns what to wait for next.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use plimsoll_reactor::progress::Sent;
use plimsoll_reactor::timer::Wheel;
use plimsoll_sys::net;
use plimsoll_sys::readiness::Interest;

use crate::driver::conversation::{Conversation, ConversationState};
use crate::driver::environment::Workspace;
use crate::driver::limit::Limit;
use crate::driver::unsent::{Room, Unsent, reset_after};
use crate::service::Service;
use crate::totals::Totals;

/// A connection of a readiness loop: what it waits for, what it has yet to send, and its talk with
/// the service.
pub(super) struct Connection<P> {
    pub(super) socket: OwnedFd,
    pub(super) peer: SocketAddr,
    pub(super) conversation: Conversation<P>,
    pub(super) unsent: Unsent,
    pub(super) room: Room,
    pub(super) limit: Limit,
    pub(super) interest: Interest,
    /// A read may find something. Set by the selector, cleared by a read that found the socket
    /// empty.
    pub(super) readable: bool,
    /// It is on the list of connections with more to do.
    pub(super) is_listed: bool,
    /// The end of the stream, or an urgent byte, is in the socket: a short read does not mean that
    /// it is empty.
    pub(super) ended: bool,
}

/// Whether a connection goes on.
pub(super) enum Outcome {
    /// It waits for the selector.
    Waits,
    /// It has had its turn, and there may be more to read.
    Unread,
    /// It has had its turn, and has more to do that no selector will report.
    Yields,
    /// It is done, well or not.
    Closes,
}

impl<P: Service> Connection<P> {
    /// Sends what waits, then reads and serves at most `reads` times.
    pub(super) fn exchange(
        &mut self,
        input: &mut [u8],
        workspace: &mut Workspace,
        mut reads: usize,
    ) -> io::Result<Outcome> {
        if !self.unsent.is_empty() {
            self.unsent.flush(&self.socket, self.room, &mut self.conversation.counts.bytes_sent)?;
        }
        if self.unsent.is_empty() && self.conversation.state == ConversationState::Resuming {
            self.serve(&[], workspace)?;
        }
        loop {
            if !self.unsent.is_empty() {
                return Ok(if self.unsent.is_blocked() { Outcome::Waits } else { Outcome::Yields });
            }
            match self.conversation.state {
                ConversationState::Receiving | ConversationState::Discarding => {}
                ConversationState::Resuming => return Ok(Outcome::Yields),
                ConversationState::Closing => {
                    // Nothing is read while an answer is made or waits for room.
                    self.readable = net::has_unread(&self.socket);
                    if workspace.environment.is_draining() || self.readable {
                        self.conversation.close_in_stages();
                    }
                    if self.conversation.state == ConversationState::Closing {
                        // A close on unread bytes is a reset, and would drop what is held for the
                        // last packet.
                        net::shutdown(&self.socket, net::Half::Write);
                        return Ok(Outcome::Closes);
                    }
                    continue;
                }
                ConversationState::Lingering => {
                    net::shutdown(&self.socket, net::Half::Write);
                    let environment = &workspace.environment;
                    self.conversation.discard(environment.now(), environment.is_draining());
                }
            }
            if !self.readable {
                if workspace.environment.is_draining() && self.conversation.state == ConversationState::Receiving {
                    self.conversation.nothing_arrives();
                    continue;
                }
                return Ok(Outcome::Waits);
            }
            if reads == 0 {
                return Ok(Outcome::Unread);
            }
            reads -= 1;
            let length = match net::read(&self.socket, input) {
                Ok(0) => return Ok(Outcome::Closes),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A read that did not fill the buffer took all there was (epoll(7)), except the end of
            // the stream and what follows an urgent byte.
            self.readable = length == input.len() || self.ended;
            self.conversation.received(length, workspace.environment.is_draining());
            if self.conversation.state == ConversationState::Receiving {
                self.serve(&input[..length], workspace)?;
            }
        }
    }

    fn serve(&mut self, fresh: &[u8], workspace: &mut Workspace) -> io::Result<()> {
        let Connection { conversation, unsent, socket, room, .. } = self;
        conversation.serve(fresh, workspace, |input, output, environment, counts| {
            unsent.send(&*socket, input, output, environment, *room, &mut counts.bytes_sent)?;
            Ok(unsent.is_empty())
        })
    }

    /// Sets the time limit that the connection's state asks for.
    pub(super) fn set_limit(&mut self, now: Instant, wheel: &mut Wheel, key: u64) {
        if !self.unsent.is_empty() {
            self.limit.send_within(self.conversation.send_timeout(), now, wheel, key);
        } else {
            // What the service has yet to answer waits for its turn, and not for the peer.
            let until = self.conversation.until.filter(|_| self.conversation.state != ConversationState::Resuming);
            self.limit.receive_until(until, wheel, key);
        }
    }

    /// Whether the peer has taken nothing of what waits for too long.
    pub(super) fn gives_up(&mut self, now: Instant, wheel: &mut Wheel, key: u64) -> io::Result<bool> {
        let Some(timeout) = self.conversation.send_timeout() else { return Ok(false) };
        let sent = Sent::new(self.conversation.counts.bytes_sent, net::unacknowledged(&self.socket)?);
        Ok(self.limit.gives_up(sent, timeout, now, wheel, key))
    }

    /// Counts what ends the connection early, and makes its close a reset where that is needed.
    pub(super) fn fail(&self, error: &io::Error, totals: &mut Totals) {
        totals.count_io_error(error);
        reset_after(&self.socket, error);
    }

    /// Whether an end of the stream would look to the peer like the end of all output, while some
    /// of it waits here.
    pub(super) fn is_cut_short(&self) -> bool {
        !self.unsent.is_empty() || self.conversation.state == ConversationState::Resuming
    }

    /// Whether it waits for bytes of its peer, and their time is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        // One on the list, and one whose last read filled the buffer, may have more to read.
        let waits = self.unsent.is_empty() && !self.is_listed && !self.readable;
        waits && self.conversation.state == ConversationState::Receiving && self.conversation.is_overdue(now)
    }

    pub(super) fn expire(&mut self, workspace: &mut Workspace) -> io::Result<()> {
        let Connection { conversation, unsent, socket, room, .. } = self;
        if conversation.state == ConversationState::Discarding {
            let environment = &workspace.environment;
            let unacknowledged = net::unacknowledged(&*socket)?;
            return conversation.look(environment.now(), unacknowledged, environment.is_draining());
        }
        conversation.expire(workspace, |input, output, environment, counts| {
            unsent.send(&*socket, input, output, environment, *room, &mut counts.bytes_sent)?;
            Ok(unsent.is_empty())
        })
    }
}
