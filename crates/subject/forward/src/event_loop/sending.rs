//! What was read in a round goes out together.
//!
//! Each message would otherwise wake its receiver before the next is sent, and where that runs on
//! the same CPU, the kernel would switch to it and back: with client, server and forwarder on one
//! CPU that is a quarter or more of what relaying costs (docs/bench.md).

use std::sync::atomic::Ordering;

use super::EventLoop;
use crate::outbox::Message;

impl EventLoop<'_> {
    /// Sends what the connections have read in this round.
    pub(super) fn send(&mut self) {
        if self.pool.outbox.is_empty() {
            return;
        }
        let connections = &self.connections;
        let posted = |message: &Message| connections.get(message.key).and_then(|found| found.posted(message.from));
        // A connection that ended in this round after it had read something sends no more.
        self.pool.outbox.retain(|message| posted(message).is_some());
        let outbox = &self.pool.outbox;
        let sends = outbox.messages().iter().map(|message| {
            let (sink, place) = posted(message).expect("others were dropped");
            (sink, outbox.bytes(place))
        });
        self.totals.sends_batched += self.batch.send(sends, &mut self.outcomes) as u64;
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for (number, outcome) in outcomes.drain(..).enumerate() {
            let message = self.pool.outbox.messages()[number];
            let Some(connection) = self.connections.get_mut(message.key) else { continue };
            let has_more = connection.sent(message, outcome, &mut self.pool, self.now);
            if connection.is_watched() {
                self.follow_deadline(message.key);
            }
            if has_more {
                self.list(message.key);
            }
        }
        self.outcomes = outcomes;
        self.pool.outbox.clear();
        self.say_fault();
    }

    /// Says, once, that messages cannot go out together.
    pub(super) fn say_fault(&mut self) {
        if let Some(fault) = self.batch.take_fault()
            && !self.shared.fault_said.swap(true, Ordering::Relaxed)
        {
            (self.shared.say)(&format!(
                "io_uring cannot be had ({fault}): each message is sent by a call of its own, at more CPU time where \
                 both sides share the forwarder's CPU; allow it (sysctl kernel.io_uring_disabled=0, or the \
                 container's seccomp profile)"
            ));
        }
    }
}
