//! What the kernel reports: each completion changes the state of its socket, and may be news for the
//! event loop.

use std::io;
use std::os::fd::AsFd;

use plimsoll_sys::readiness::Ready;
use plimsoll_sys::ring::{self, Buffer, Completion, Payload, SendMode, Slot};

use super::super::sockets::{Arrival, WAKE};
use super::{Content, SPARE_BYTES, SPARES, Uring};

/// The end of a stream.
const END: Arrival<'static> = Arrival { bytes: &[], more: false, at: None };

impl Uring {
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
                let line = self.line(slot);
                line.connecting = false;
                line.outcome = outcome.err();
                self.unless_closing(slot, |key| Ready { key, readable: false, writable: true, ended: false })
            }
            Completion::Received { slot, outcome, more } => self.received(slot, outcome, more),
            Completion::Sent { slot, outcome, payload } => self.sent(slot, outcome, payload),
            Completion::Closed(slot) => {
                self.vacant.push(slot.index() as u32);
                None
            }
            // Nothing else is ever asked for here.
            _ => None,
        }
    }

    fn received(&mut self, slot: Slot, outcome: io::Result<Option<Buffer>>, more: bool) -> Option<Ready> {
        self.line(slot).receiving &= more;
        let content = match outcome {
            Ok(Some(buffer)) => Content::Bytes(buffer),
            Ok(None) => Content::End,
            Err(error) if ring::is_out_of_buffers(&error) => {
                if self.line(slot).closing {
                    self.go_on_closing(slot);
                } else {
                    self.hungry.push_back(slot);
                }
                return None;
            }
            Err(error) => Content::Error(error.raw_os_error().unwrap_or_default()),
        };
        let whole = matches!(content, Content::Bytes(_));
        self.arrived = Some(content);
        self.unread = true;
        if whole && !more && !self.line(slot).closing {
            self.arm(slot);
        }
        // The kernel reports the end right behind the last bytes where both were there.
        if whole && more {
            self.ahead = self.ring.next_completion();
            if matches!(self.ahead, Some(Completion::Received { slot: next, outcome: Ok(None), .. }) if next == slot) {
                self.ahead = None;
                self.ends = true;
                self.line(slot).receiving = false;
            }
        }
        let ended = self.ends;
        let failed = !whole && self.line(slot).outcome.is_some();
        self.unless_closing(slot, |key| Ready { key, readable: true, writable: failed, ended })
    }

    fn sent(&mut self, slot: Slot, outcome: io::Result<usize>, payload: Payload) -> Option<Ready> {
        // A send that breaks off tells how far it went.
        self.sent += outcome.as_ref().map_or(0, |count| *count);
        let line = &mut self.lines[slot.index()];
        line.sending = false;
        let Payload::Owned(mut bytes, from) = payload else { return None };
        match outcome {
            Ok(count) if from + count < bytes.len() && !line.closing => {
                line.sending = true;
                let outcome = self.ring.send(slot, Payload::Owned(bytes, from + count), SendMode::All);
                self.note(outcome);
                return None;
            }
            Ok(_) => {}
            Err(error) => line.outcome = Some(error),
        }
        self.sending -= 1;
        let failed = line.outcome.is_some();
        // The server may have answered before it ended the connection: the receive hands over what
        // has arrived, and tells of the failure at its end.
        let waits = failed && line.receiving && !line.closing;
        let told = (std::mem::take(&mut line.blocked) || failed) && !waits;
        if self.spares.len() < SPARES && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            self.spares.push(bytes);
        }
        if waits {
            let outcome = self.ring.end_reading(slot);
            self.note(outcome);
        }
        self.unless_closing(slot, |key| Ready { key, readable: false, writable: true, ended: false }).filter(|_| told)
    }

    /// Reports of a socket, or goes on to close it.
    fn unless_closing(&mut self, slot: Slot, report: impl FnOnce(u64) -> Ready) -> Option<Ready> {
        let line = self.line(slot);
        if line.closing {
            self.go_on_closing(slot);
            return None;
        }
        Some(report(line.key))
    }

    pub(super) fn go_on_closing(&mut self, slot: Slot) {
        let line = self.line(slot);
        if !(line.connecting || line.receiving || line.sending) {
            let outcome = self.ring.close(slot);
            self.note(outcome);
        }
    }

    /// The end of what a socket receives: the server's, unless a send failed before.
    pub(super) fn end(&mut self, slot: Slot) -> io::Result<Arrival<'static>> {
        self.line(slot).outcome.take().map_or(Ok(END), Err)
    }
}
