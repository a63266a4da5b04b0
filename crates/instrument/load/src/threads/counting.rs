//! What becomes of requests, and the window's two ends.

use plimsoll_measure::tally::Cause;

use crate::config::{Extent, Recovery};
use crate::protocol::Protocol;
use crate::record::Request;
use crate::shared::Usage;

use super::client::Client;

impl<P: Protocol> Client<'_, P> {
    /// Counts an answer; whether there is more to do.
    pub(super) fn complete(&mut self, payload: u64, status: u16, intended: u64, sent: u64, keep: bool) -> bool {
        let now = self.now();
        self.cross_boundaries(now);
        self.under_way = None;
        self.tally.statuses.count(status);
        if status >= 400 {
            self.recorder.failed();
            self.tally.requests.failed += 1;
            self.tally.errors.count(Cause::Status);
            if let Some(sequence) = self.recorder.sequences.first_mut() {
                sequence.failed_requests += 1;
            }
        } else {
            self.tally.requests.completed += 1;
            self.tally.payload_bytes += payload;
            self.tally.response.record_ns(now - intended);
            self.recorder.completed_in_second(now - intended);
            if P::TELLS_TRANSMISSION {
                self.tally.transmission.record_ns(now - sent);
            } else {
                self.tally.service.record_ns(now - sent);
            }
            let each = matches!(self.shared.config.extent, Extent::Each(_));
            let (unix, last) = (self.shared.control.unix(now), self.left == 0);
            if let Some(sequence) = self.recorder.sequences.first_mut() {
                sequence.completed += 1;
                sequence.exchange_ns += now - sent;
                sequence.success = !each || last;
                let request = sequence.completed as u32;
                let connection = self.number as u32;
                self.recorder.log(Request {
                    at: unix,
                    connection,
                    request,
                    bytes: payload,
                    response_ns: now - intended,
                });
            }
        }
        self.show(u64::from(status < 400), u64::from(status >= 400));
        if self.shared.config.recovery == Recovery::GiveUp {
            self.attempts = 0;
        }
        if !keep || self.shared.config.opening.reconnect {
            self.disconnect();
        }
        !(self.window_closed || matches!(self.shared.config.extent, Extent::Each(_)) && self.left == 0)
    }

    /// Counts a lost request and connection, and goes on as the run has it; whether there is more to do.
    pub(super) fn lose(&mut self, cause: Cause) -> bool {
        let now = self.now();
        self.cross_boundaries(now);
        let busy = self.under_way.is_some();
        if let Some(intended) = self.under_way.take() {
            if cause != Cause::Connect {
                self.tally.errors.count(cause);
            }
            self.recorder.failed();
            self.show(0, 1);
            if cause == Cause::Timeout {
                self.tally.requests.timed_out += 1;
                self.tally.unanswered.record_ns(now - intended);
            } else {
                self.tally.requests.failed += 1;
            }
        } else {
            self.counted.connections.count_idle_loss(cause);
        }
        self.disconnect();
        if let Some(sequence) = self.recorder.sequences.first_mut() {
            sequence.failed_requests += u64::from(busy);
            sequence.failed_sequences += 1;
            sequence.exchange_ns = 0;
        }
        match (self.shared.config.extent, self.shared.config.recovery) {
            (Extent::Each(_), Recovery::GiveUp) => {
                self.give_up();
                return false;
            }
            (Extent::Each(each), Recovery::Restart { .. }) => self.left = each,
            _ => {}
        }
        if self.shared.config.opening.reconnect {
            return self.rest_or_give_up();
        }
        self.rest_or_give_up() && self.reopen()
    }

    pub(super) fn cross_boundaries(&mut self, now: u64) {
        let control = &self.shared.control;
        self.recorder.pass(now);
        if !self.window_open && control.opens.has_come(now) {
            self.window_open = true;
            self.usage_at_open = Usage::now();
            let mut warm_up = std::mem::take(&mut self.tally);
            warm_up.requests.in_flight = u64::from(self.under_way.is_some());
            self.tally.requests.scheduled = warm_up.requests.in_flight;
            self.counted.warm_up = Some(warm_up);
        }
        if !self.window_closed && control.closes.has_come(now) {
            self.close_window(now);
        }
    }

    pub(super) fn close_window(&mut self, now: u64) {
        // A thread that comes late to it has had no more time than the others.
        let end = self.shared.control.closes.get().map_or(now, |closes| closes.min(now));
        if let Some(intended) = self.under_way {
            self.tally.requests.in_flight += 1;
            self.tally.unanswered.record_ns(end.saturating_sub(intended));
        }
        let stream = self.stream.take().filter(|_| !self.shared.config.extent.is_count());
        if let Some(stream) = stream {
            let timeout = self.shared.config.timeout.as_nanos() as u64;
            stream.count_unsent(end, timeout, &mut self.random, &mut self.tally);
        }
        self.tally.requests.scheduled += self.left;
        self.tally.requests.unsent += self.left;
        self.window_closed = true;
        self.counted.ended_at = end;
        self.usage_at_open.note_since(&mut self.counted);
        self.counted.window = std::mem::take(&mut self.tally);
    }
}
