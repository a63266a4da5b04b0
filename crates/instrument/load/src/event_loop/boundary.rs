//! The gate, the window's two ends, and the end of the run.

use plimsoll_measure::tally::Tally;
use plimsoll_reactor::slab::Key;

use super::{Sockets, State, Table};
use crate::config::Extent;
use crate::protocol::Protocol;
use crate::shared::Usage;

impl<P: Protocol, S: Sockets> Table<P, S> {
    /// Does what the instants that have come ask for.
    pub(super) fn cross_boundaries(&mut self, now: u64) {
        let control = &self.shared.control;
        let (gate, opens, closes) =
            (control.gate.has_come(now), control.opens.has_come(now), control.closes.has_come(now));
        // The window is opened before the gate, so that where both are the same instant the first request is in the window.
        if opens && !self.window_open {
            self.open_window();
        }
        if gate && !self.gate_passed {
            self.pass_gate();
        }
        if closes && !self.window_closed {
            self.close_window(now);
        }
    }

    fn pass_gate(&mut self) {
        self.gate_passed = true;
        let start = self.shared.control.gate.get().unwrap_or(0);
        self.start_stream(start);
        for key in self.keys_in(State::Idle) {
            self.enter(key, start);
        }
    }

    fn open_window(&mut self) {
        self.window_open = true;
        self.usage_at_open = Usage::now();
        let mut warm_up = std::mem::take(&mut self.tally);
        warm_up.requests.in_flight = self.busy;
        self.tally.requests.scheduled = self.busy;
        self.counted.warm_up = Some(warm_up);
    }

    /// Ends the window: what is under way stays so, for the record, and has a little time yet to come to an end that is not counted.
    fn close_window(&mut self, now: u64) {
        // A loop that comes late to it has had no more time than the others.
        let end = self.shared.control.closes.get().map_or(now, |closes| closes.min(now));
        self.count_unfinished(end);
        self.end_stream(end);
        self.window_closed = true;
        self.counted.ended_at = end;
        self.usage_at_open.note_since(&mut self.counted);
        self.counted.window = std::mem::take(&mut self.tally);
        self.shared.control.give_back(std::mem::take(&mut self.claims));
        for state in [State::Resting, State::Connecting, State::Greeting, State::Idle, State::Due, State::Finished] {
            for key in self.keys_in(state) {
                self.abandon(key);
            }
        }
        self.due.clear();
    }

    fn abandon(&mut self, key: Key) {
        if self.slab.get(key).is_some_and(|connection| matches!(connection.state, State::Connecting | State::Greeting))
        {
            self.pending -= 1;
            self.take(key);
        } else {
            self.close(key);
        }
    }

    fn count_unfinished(&mut self, end: u64) {
        let unopened = (self.share - self.opened) as u64 * self.each();
        let Tally { requests, unanswered, .. } = &mut self.tally;
        requests.in_flight += self.busy;
        for key in self.slab.keys() {
            let Some(connection) = self.slab.get(key) else { continue };
            match connection.state {
                State::Busy => unanswered.record_ns(end.saturating_sub(connection.intended)),
                State::Connecting | State::Greeting if connection.carries => {
                    unanswered.record_ns(end.saturating_sub(connection.intended))
                }
                // Due, and the generator has not come to send it. Where requests are counted these are among the ones left.
                State::Due if connection.intended <= end && !self.shared.config.extent.is_count() => {
                    unanswered.record_ns(end - connection.intended);
                    requests.scheduled += 1;
                    requests.unsent += 1;
                }
                // It was lost, and an attempt to open it again has failed since: it could not be kept.
                State::Resting | State::Connecting if connection.proven && connection.attempts > 1 => {
                    self.counted.connections.failed += 1;
                }
                _ => {}
            }
            if let Extent::Each(_) = self.shared.config.extent {
                requests.scheduled += connection.left;
                requests.unsent += connection.left;
            }
        }
        requests.scheduled += unopened;
        requests.unsent += unopened;
    }

    /// The loop's last act.
    pub(super) fn finish(&mut self) {
        if !self.window_closed {
            let now = self.now();
            self.close_window(now);
        }
        self.recorder.finish();
        self.counted.sequences = std::mem::take(&mut self.recorder.sequences);
    }

    fn keys_in(&self, state: State) -> Vec<Key> {
        self.slab.keys().filter(|key| self.slab.get(*key).is_some_and(|connection| connection.state == state)).collect()
    }
}
