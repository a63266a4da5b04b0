//! What the kernel reports: each completion changes the state of its socket, and may be news for
//! the event loop.

use std::io;
use std::os::fd::AsFd;

use plimsoll_sys::readiness::Ready;
use plimsoll_sys::ring::{self, Buffer, Completion, Payload, SendMode, Slot};

use super::super::sockets::{Arrival, WAKE};
use super::{Content, FREE_BUFFER_BYTES, FREE_BUFFERS, Uring};

/// The end of a stream.
const END: Arrival<'static> = Arrival { bytes: &[], more: false, at: None };

impl Uring {
    /// Notes what a completion says, and returns the news for the event loop.
    pub(super) fn take(&mut self, completion: Completion) -> Option<Ready> {
        match completion {
            Completion::Woken { more } => {
                if !more {
                    let outcome = self.ring.watch(self.wake.as_fd());
                    self.note(outcome);
                }
                Some(Ready { key: WAKE, readable: true, writable: false, ended: false })
            }
            Completion::Connected { slot, outcome } => {
                let state = self.state(slot);
                state.connecting = false;
                state.outcome = outcome.err();
                self.report_unless_closing(slot, |key| Ready { key, readable: false, writable: true, ended: false })
            }
            Completion::Received { slot, outcome, more } => self.received(slot, outcome, more),
            Completion::Sent { slot, outcome, payload } => self.sent(slot, outcome, payload),
            Completion::Closed(slot) => {
                self.free_slots.push(slot.index() as u32);
                None
            }
            // No other request is made here.
            _ => None,
        }
    }

    fn received(&mut self, slot: Slot, outcome: io::Result<Option<Buffer>>, more: bool) -> Option<Ready> {
        self.state(slot).receiving &= more;
        let content = match outcome {
            Ok(Some(buffer)) => Content::Bytes(buffer),
            Ok(None) => Content::End,
            Err(error) if ring::is_out_of_buffers(&error) => {
                if self.state(slot).closing {
                    self.close_if_idle(slot);
                } else {
                    self.awaiting_buffer.push_back(slot);
                }
                return None;
            }
            Err(error) => Content::Error(error.raw_os_error().unwrap_or_default()),
        };
        let whole = matches!(content, Content::Bytes(_));
        self.arrived = Some(content);
        self.unread = true;
        if whole && !more && !self.state(slot).closing {
            self.arm(slot);
        }
        // Where the bytes and the end were both there, the kernel reports the end next.
        if whole && more {
            self.peeked = self.ring.next_completion();
            if matches!(self.peeked, Some(Completion::Received { slot: next, outcome: Ok(None), .. }) if next == slot) {
                self.peeked = None;
                self.ends = true;
                self.state(slot).receiving = false;
            }
        }
        let ended = self.ends;
        let failed = !whole && self.state(slot).outcome.is_some();
        self.report_unless_closing(slot, |key| Ready { key, readable: true, writable: failed, ended })
    }

    fn sent(&mut self, slot: Slot, outcome: io::Result<usize>, payload: Payload) -> Option<Ready> {
        // A send that breaks off reports the bytes that were sent.
        self.sent += outcome.as_ref().map_or(0, |count| *count);
        let state = &mut self.slots[slot.index()];
        state.sending = false;
        let Payload::Owned(mut bytes, from) = payload else { return None };
        match outcome {
            Ok(count) if from + count < bytes.len() && !state.closing => {
                state.sending = true;
                let outcome = self.ring.send(slot, Payload::Owned(bytes, from + count), SendMode::Some);
                self.note(outcome);
                return None;
            }
            Ok(_) => {}
            Err(error) => state.outcome = Some(error),
        }
        self.ending -= usize::from(state.closing);
        let failed = state.outcome.is_some();
        // The server may have answered before it ended the connection: the receive reports what has
        // arrived first, and the failure at its end.
        let waits = failed && state.receiving && !state.closing;
        let told = (std::mem::take(&mut state.blocked) || failed) && !waits;
        if self.free_buffers.len() < FREE_BUFFERS && bytes.capacity() <= FREE_BUFFER_BYTES {
            bytes.clear();
            self.free_buffers.push(bytes);
        }
        if waits {
            let outcome = self.ring.end_reading(slot);
            self.note(outcome);
        }
        self.report_unless_closing(slot, |key| Ready { key, readable: false, writable: true, ended: false })
            .filter(|_| told)
    }

    /// Reports news of a socket, or goes on to close it.
    fn report_unless_closing(&mut self, slot: Slot, report: impl FnOnce(u64) -> Ready) -> Option<Ready> {
        let state = self.state(slot);
        if state.closing {
            self.close_if_idle(slot);
            return None;
        }
        Some(report(state.key))
    }

    /// Closes a socket once no request is outstanding on it.
    pub(super) fn close_if_idle(&mut self, slot: Slot) {
        let state = self.state(slot);
        if !(state.connecting || state.receiving || state.sending) {
            let outcome = self.ring.close(slot);
            self.note(outcome);
        }
    }

    /// The end of what a socket receives: the server's, unless a send failed before.
    pub(super) fn end(&mut self, slot: Slot) -> io::Result<Arrival<'static>> {
        self.state(slot).outcome.take().map_or(Ok(END), Err)
    }
}
