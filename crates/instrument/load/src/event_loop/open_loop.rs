//! The open loop: requests due at instants of their own meet connections that are free.
//!
//! A request that is due while no connection is free stays in the stream, and is sent on the first that becomes free: the time until then is
//! *pool wait*, the server's doing. What is lost after both were there is *schedule lag*, the generator's.

use plimsoll_reactor::slab::Key;

use super::{Sockets, State, Table};
use crate::protocol::Protocol;
use crate::stream::{Stream, count_expired};

impl<P: Protocol, S: Sockets> Table<P, S> {
    pub(super) fn start_stream(&mut self, start: u64) {
        let config = &self.shared.config;
        let share = self.share as f64 / config.connections as f64;
        let tables = self.shared.control.gauges.len();
        let phase = config.part.phase(self.number, tables);
        self.stream = Stream::begin(config, share, phase, start, &mut self.random);
    }

    /// A connection is free for a request.
    pub(super) fn wait_in_pool(&mut self, key: Key) {
        if self.stream.is_some() {
            self.pool.push_back(key);
        } else if self.gate_passed {
            // All requests there are have been sent.
            self.close(key);
        }
    }

    /// When there is something to send and something to send it on; `None` where one of them is missing.
    pub(super) fn next_dispatch(&self) -> Option<u64> {
        self.stream.as_ref().filter(|_| !self.pool.is_empty()).map(Stream::next)
    }

    /// Sends up to `most` requests that are due.
    pub(super) fn dispatch(&mut self, most: usize) {
        let timeout = self.timeout_ns();
        for _ in 0..most {
            let now = self.now();
            let Some(stream) = &mut self.stream else { return };
            let due = stream.next();
            if due > now || self.pool.is_empty() {
                return;
            }
            if due.saturating_add(timeout) <= now {
                stream.advance(&mut self.random);
                self.expire(timeout);
                continue;
            }
            let Some(key) = self.pool.pop_front() else { return };
            // It may have been lost while it waited.
            let Some(connection) = self.slab.get(key).filter(|connection| connection.state == State::Idle) else {
                continue;
            };
            let free = connection.intended;
            if !self.claim() {
                return self.exhaust_stream(key);
            }
            if let Some(stream) = &mut self.stream {
                stream.advance(&mut self.random);
            }
            self.tally.pool_wait.record_ns(free.saturating_sub(due));
            self.begin(key, due, free, now);
        }
    }

    /// A request has timed out before any connection was free for it.
    fn expire(&mut self, age: u64) {
        if !self.claim() {
            return;
        }
        self.shown.1 += 1;
        count_expired(age, &mut self.tally);
    }

    /// Every request there was to send is sent: connections close as they become free.
    fn exhaust_stream(&mut self, key: Key) {
        self.stream = None;
        self.close(key);
        for key in std::mem::take(&mut self.pool) {
            if self.slab.get(key).is_some_and(|connection| connection.state == State::Idle) {
                self.close(key);
            }
        }
    }

    /// Accounts for what was due by the window's end and had not been sent.
    pub(super) fn end_stream(&mut self, end: u64) {
        let timeout = self.timeout_ns();
        self.pool.clear();
        let Some(stream) = self.stream.take() else { return };
        // Where requests are counted, those never sent are among the ones left.
        if !self.shared.config.extent.is_count() {
            self.shown.1 += stream.count_unsent(end, timeout, &mut self.random, &mut self.tally);
        }
    }
}
