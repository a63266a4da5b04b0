//! The acceptor of `handoff`: accepts at every listener, within the server's limit, and
//! hands connections to the workers (`plimsoll_reactor::handoff`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_reactor::accept::{Failure, Turns};
use plimsoll_reactor::handoff::{Dispatcher, HandoffQueue};
use plimsoll_sys::event::Event;
use plimsoll_sys::net;
use plimsoll_sys::poll::Place;

use super::{Accepted, accept_within_limit};
use crate::state::ServerState;
use crate::totals::Totals;

/// Connections accepted in a row before signals and workers are looked at again.
const BATCH: usize = 64;

/// See the head of this file.
pub(crate) struct Handoff {
    listeners: Vec<OwnedFd>,
    turns: Turns,
    dispatcher: Dispatcher<SocketAddr>,
    totals: Totals,
    /// Accepting pauses as no place was free, and goes on when one is.
    awaits_place: bool,
}

impl Handoff {
    /// An acceptor for so many workers, and by worker the end that it hands to.
    pub(crate) fn new(listeners: Vec<OwnedFd>, workers: usize) -> io::Result<(Handoff, Vec<Vec<OwnedFd>>)> {
        let (dispatcher, ends) = Dispatcher::new(workers)?;
        let ends = ends.into_iter().map(|end| vec![end]).collect();
        Ok((
            Handoff { listeners, turns: Turns::default(), dispatcher, totals: Totals::default(), awaits_place: false },
            ends,
        ))
    }

    pub(crate) fn queues(&self) -> Arc<[HandoffQueue<SocketAddr>]> {
        self.dispatcher.queues()
    }

    /// What to wait for.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.dispatcher.places(self.listeners.iter().map(AsRawFd::as_raw_fd))
    }

    /// Until when nothing is accepted, if it is not.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.dispatcher.paused_until()
    }

    /// The coordinator was woken: a place under the limit may be free.
    pub(crate) fn on_wake(&mut self) {
        if std::mem::take(&mut self.awaits_place) {
            self.dispatcher.resume(Instant::now());
        }
    }

    /// Hands on as much as there is, and as workers take. `wake` is raised when a place is free
    /// that it did not find.
    pub(crate) fn accept(&mut self, state: &ServerState, wake: &Arc<Event>) {
        let now = Instant::now();
        for _ in 0..BATCH {
            match self.dispatcher.is_free(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.lost(&error, state),
            }
            let Handoff { listeners, turns, .. } = self;
            let accept = |listener: usize| net::accept(&listeners[listener], net::Mode::Nonblocking);
            match accept_within_limit(state, || turns.accept(listeners.len(), accept)) {
                Accepted::Connection(socket, peer) => {
                    if let Err(error) = self.dispatcher.dispatch(socket, peer, now) {
                        self.lost(&error, state);
                    }
                }
                Accepted::Nothing => return,
                Accepted::PastLimit => {
                    self.dispatcher.pause(now);
                    self.awaits_place = true;
                    return state.await_place(wake);
                }
                Accepted::Failed(error) => {
                    self.totals.count_io_error(&error);
                    if Failure::of(&error).pauses() {
                        return self.dispatcher.pause(now);
                    }
                }
            }
        }
    }

    /// Stops accepting; what workers have been handed is theirs.
    pub(crate) fn close(&mut self, state: &ServerState) -> Totals {
        self.listeners.iter().for_each(net::stop_listening);
        self.listeners.clear();
        if self.dispatcher.discard_pending() {
            state.release();
        }
        std::mem::take(&mut self.totals)
    }

    /// Every worker has ended: what none of them has taken is closed with the pairs.
    pub(crate) fn finish(self, state: &ServerState) {
        (0..self.dispatcher.unclaimed()).for_each(|_| state.release());
    }

    fn lost(&mut self, error: &io::Error, state: &ServerState) {
        self.totals.count_io_error(error);
        state.release();
    }
}
