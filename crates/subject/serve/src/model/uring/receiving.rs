//! How bytes come from a ring's sockets: received into the ring's buffers, answered by the service.
//!
//! The rule: every buffer goes back to the pool, or goes out with the echo of what it holds.

use std::io;

use plimsoll_sys::ring::{self, Buffer, Payload, SendMode, Slot};

use super::connection::{Connection, Lifecycle, Receive};
use super::leaving::collect_output;
use super::{EventLoop, OUTSTANDING};
use crate::driver::conversation::ConversationState;
use crate::service::{Chunk, Service};

impl<P: Service> EventLoop<'_, P> {
    pub(super) fn received(&mut self, slot: Slot, outcome: io::Result<Option<Buffer>>, more: bool) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        if !more {
            connection.receive = Receive::Off;
        }
        match outcome {
            Ok(Some(buffer)) => self.take_in(slot, buffer)?,
            Ok(None) => connection.life = connection.life.max(Lifecycle::Ended),
            Err(error) if ring::is_out_of_buffers(&error) => {
                connection.receive = Receive::AwaitingBuffer;
                self.awaiting_buffer.push_back(slot);
            }
            Err(error) if ring::is_cancelled(&error) => {}
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && connection.conversation.state == ConversationState::Closing =>
            {
                connection.found_empty = true;
            }
            // Receives do not wait where the server is ending, or the connection's time is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.draining => {
                connection.conversation.nothing_arrives();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.end_overdue(slot)?,
            Err(error) => self.fail(slot, &error)?,
        }
        self.drive(slot)
    }

    /// Makes the service answer the bytes in `buffer`, or keeps them for later while something is
    /// being sent.
    fn take_in(&mut self, slot: Slot, buffer: Buffer) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        connection.conversation.received(buffer.len(), self.draining);
        match connection.conversation.state {
            _ if connection.life == Lifecycle::Failed => {}
            ConversationState::Receiving if !connection.sends() => return self.converse(slot, Some(buffer)),
            ConversationState::Receiving | ConversationState::Resuming => {
                connection.conversation.hold(self.ring.bytes(&buffer));
                connection.has_unprocessed_input = true;
            }
            ConversationState::Closing => connection.conversation.close_in_stages(),
            ConversationState::Lingering | ConversationState::Discarding => {}
        }
        self.ring.recycle(buffer);
        Ok(())
    }

    /// Has the service answer, and keeps what it says for [`EventLoop::drive`]. An echo goes out of
    /// the buffer that it came in.
    pub(super) fn converse(&mut self, slot: Slot, buffer: Option<Buffer>) -> io::Result<()> {
        let connection = self.connections.get_mut(slot.index()).expect(OUTSTANDING);
        let fresh = buffer.as_ref().map_or(&[][..], |buffer| self.ring.bytes(buffer));
        let Connection { conversation, unsent, body, .. } = connection;
        connection.has_unprocessed_input = false;
        let (mut in_place, free_buffers) = (None, &mut self.free_buffers);
        let outcome = conversation.serve(fresh, &mut self.workspace, |input, output, environment, _| {
            match output.chunks.as_slice() {
                [Chunk::Input(range)] if input.as_ptr() == fresh.as_ptr() => in_place = Some(range.clone()),
                _ => collect_output(input, output, environment, unsent, body, free_buffers)?,
            }
            Ok(false)
        });
        let failed = outcome.is_err();
        if let Err(error) = outcome {
            self.fail(slot, &error)?;
        }
        match (buffer, in_place) {
            (Some(buffer), Some(range)) if !failed => {
                self.connections.get_mut(slot.index()).expect(OUTSTANDING).sending = true;
                self.ring.send(slot, Payload::Received(buffer, range), SendMode::None)
            }
            (Some(buffer), _) => {
                self.ring.recycle(buffer);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Lets as many connections receive again as there are buffers.
    pub(super) fn rearm_receives(&mut self) -> io::Result<()> {
        // Who is sending receives again only after that, and leaves its buffer to the next.
        let mut free = self.ring.free_buffers();
        for _ in 0..self.awaiting_buffer.len() {
            if free == 0 {
                break;
            }
            let Some(slot) = self.awaiting_buffer.pop_front() else { break };
            // It may have been closed, or its slot be another's, since it was put on the list.
            if let Some(connection) = self.connections.get_mut(slot.index())
                && connection.receive == Receive::AwaitingBuffer
            {
                connection.receive = Receive::Off;
                self.drive(slot)?;
                let driven = self.connections.get_mut(slot.index());
                free -= usize::from(driven.is_some_and(|connection| connection.receive == Receive::Armed));
            }
        }
        Ok(())
    }
}
