//! How time ends a ring's connections: a peer that sends nothing, or takes nothing, for too long.

use std::io;

use plimsoll_reactor::progress::Sent;
use plimsoll_sys::ring::Slot;

use super::connection::{Connection, Lifecycle, Receive};
use super::leaving::collect_output;
use super::{EventLoop, OUTSTANDING};
use crate::driver::conversation::ConversationState;
use crate::service::Service;
use crate::totals::SEND_TIMEOUT;

impl<P: Service> EventLoop<'_, P> {
    /// A connection's timer has fired.
    pub(super) fn expire(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        if !connection.limit.is_reached(self.workspace.environment.now(), &mut self.wheel, index as u64) {
            return Ok(());
        }
        let slot = connection.slot;
        if connection.limit.is_sending() || connection.conversation.state == ConversationState::Discarding {
            if connection.life == Lifecycle::Failed || std::mem::replace(&mut connection.asking, true) {
                return Ok(());
            }
            return self.ring.ask_unacknowledged(slot);
        }
        if connection.conversation.state != ConversationState::Receiving {
            return self.end_overdue(slot).and_then(|()| self.drive(slot));
        }
        let looks_already = std::mem::replace(&mut connection.is_overdue, true);
        if !looks_already && connection.receive == Receive::Armed {
            connection.receive = Receive::Ending;
            return self.ring.cancel_receive(slot);
        }
        // A receive that ends, or that waits for a buffer, is followed by one that does not wait.
        Ok(())
    }

    /// Ends a connection whose time is over, with a word of the service's where it has one.
    pub(super) fn end_overdue(&mut self, slot: Slot) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        let Connection { conversation, unsent, body, .. } = connection;
        let free_buffers = &mut self.free_buffers;
        let outcome = conversation.expire(&mut self.workspace, |input, output, environment, _| {
            collect_output(input, output, environment, unsent, body, free_buffers)?;
            Ok(false)
        });
        if let Err(error) = outcome {
            self.fail(slot, &error)?;
        }
        Ok(())
    }

    /// Looks at what the peer has acknowledged, and gives it up where that is nothing for too long.
    pub(super) fn look(&mut self, slot: Slot, unacknowledged: io::Result<usize>) -> io::Result<()> {
        let draining = self.workspace.environment.is_draining();
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.asking = false;
        match connection.conversation.state {
            _ if connection.sending => {}
            // Before Linux 6.7 a ring cannot tell: there, it is closed as if all had arrived.
            ConversationState::Discarding => {
                let now = self.workspace.environment.now();
                let outcome = connection.conversation.look(now, unacknowledged.unwrap_or(0), draining);
                if let Err(error) = outcome {
                    self.fail(slot, &error)?;
                }
                return self.drive(slot);
            }
            _ => {}
        }
        let (now, key) = (self.workspace.environment.now(), slot.index() as u64);
        // Before Linux 6.7 a ring cannot tell: there, what the kernel took has to do. It holds
        // something, as output waits.
        let sent = Sent::new(connection.conversation.counts.bytes_sent, unacknowledged.unwrap_or(1));
        if connection.life != Lifecycle::Failed
            && let Some(timeout) = connection.conversation.send_timeout()
            && connection.limit.gives_up(sent, timeout, now, &mut self.wheel, key)
        {
            self.totals.count_error(SEND_TIMEOUT);
            connection.life = Lifecycle::Failed;
            // The peer does not take what the kernel holds for it either.
            self.ring.reset(slot)?;
        }
        self.drive(slot)
    }
}
