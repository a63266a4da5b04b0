//! How one event loop accepts: whether it does now, from where, and what a failure changes. The
//! readiness loops and the ring share it; they differ in who calls accept(2).
//!
//! The rule: a loop accepts while it holds its worker's accept token and nothing is exhausted. A
//! full table passes the token on; a full machine, or the server's limit, pauses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::{Failure, Pause, Turns};
use plimsoll_reactor::worker_group::{LoopHandle, Phase};

use super::{Accepted, ConnectionSource, accept_within_limit};
use crate::state::ServerState;
use crate::totals::Totals;

/// What a loop has taken from a listener.
pub(crate) enum Taken {
    /// A connection.
    Connection(OwnedFd, SocketAddr),
    /// One that ended in the queue: there may be another.
    Lost,
    /// No connection waits, or accepting pauses.
    Nothing,
}

/// See the head of this file.
pub(crate) struct Intake<'a> {
    handle: &'a LoopHandle,
    source: ConnectionSource<'a>,
    state: &'a ServerState,
    pause: Pause,
    turns: Turns,
    /// The table was reported as full.
    full: bool,
    /// The loop pauses as no place was free, and is woken when one is.
    awaits_place: bool,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(handle: &'a LoopHandle, source: ConnectionSource<'a>, state: &'a ServerState) -> Intake<'a> {
        Intake {
            handle,
            source,
            state,
            pause: Pause::default(),
            turns: Turns::default(),
            full: false,
            awaits_place: false,
        }
    }

    pub(crate) fn source(&self) -> ConnectionSource<'a> {
        self.source
    }

    /// Whether the loop accepts now.
    pub(crate) fn is_open(&self) -> bool {
        self.handle.phase() == Phase::Run && self.handle.holds_accept_token() && !self.pause.is_on()
    }

    /// Takes the next connection at a listener, with its place under the limit. Where there is a
    /// limit, the listeners take turns: a place that is free is not that of the listener at hand.
    pub(crate) fn take(&mut self, listener: usize, totals: &mut Totals) -> Taken {
        let source = self.source;
        let accepted = match source.is_handed() {
            // The acceptor has taken the place.
            true => Accepted::of(source.take(listener)),
            false if self.state.is_limited() => {
                let (turns, count) = (&mut self.turns, source.descriptors().len());
                accept_within_limit(self.state, || turns.accept(count, |listener| source.take(listener)))
            }
            false => accept_within_limit(self.state, || source.take(listener)),
        };
        match accepted {
            Accepted::Connection(socket, peer) => Taken::Connection(socket, peer),
            Accepted::Nothing => Taken::Nothing,
            Accepted::PastLimit => {
                self.pause.begin(Instant::now());
                self.awaits_place = true;
                self.state.await_place(self.handle.request());
                Taken::Nothing
            }
            Accepted::Failed(error) => {
                self.failed(&error, totals);
                if self.is_open() { Taken::Lost } else { Taken::Nothing }
            }
        }
    }

    /// Takes what the acceptor handed over before the server's end, for the last time.
    pub(crate) fn take_last_handed(&self) -> Option<(OwnedFd, SocketAddr)> {
        let takes = self.source.is_handed() && self.handle.holds_accept_token();
        takes.then(|| self.source.take(0).ok()).flatten()
    }

    /// An accept has failed: counts it, and passes the token on or pauses where it has to.
    pub(crate) fn failed(&mut self, error: &io::Error, totals: &mut Totals) {
        // The coordinator shuts listeners down before this loop learns of the end.
        if self.handle.phase() != Phase::Run {
            return;
        }
        let failure = Failure::of(error);
        if failure == Failure::FullTable {
            self.report_full();
        }
        // A full table is no error where another takes over: the coordinator counts when none can
        // be added.
        if failure != Failure::FullTable || !self.handle.grows() {
            totals.count_io_error(error);
        }
        // A listener that another thread has shut down would be reported for ever.
        if failure.pauses() || failure == Failure::Closed {
            self.pause.begin(Instant::now());
        }
    }

    /// This table has no room: the accept token goes to another.
    pub(crate) fn report_full(&mut self) {
        self.full = true;
        self.handle.report_full();
    }

    /// This table has room again.
    pub(crate) fn report_room(&mut self) {
        if std::mem::take(&mut self.full) {
            self.handle.report_room();
        }
    }

    /// The loop was woken: a place under the limit may be free.
    pub(crate) fn on_wake(&mut self) {
        if std::mem::take(&mut self.awaits_place) {
            self.pause.end_soon(Instant::now());
        }
    }

    /// A connection has ended, so what was exhausted may be free again.
    pub(crate) fn connection_ended(&mut self) {
        if self.pause.is_on() {
            self.pause.end_soon(Instant::now());
        }
    }

    /// Ends a pause whose time is over, and returns whether it did.
    pub(crate) fn resumes(&mut self) -> bool {
        self.pause.is_on() && self.pause.ends(Instant::now())
    }

    /// How long a wait may last for the sake of a pause.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.pause.until().map(|until| until.saturating_duration_since(Instant::now()))
    }
}
