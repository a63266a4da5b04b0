//! The acceptor of `handoff`: accepts at every listener for all workers, and deals connections to
//! those with the fewest (`plimsoll_reactor::handoff`).
//!
//! port_fwd's accept thread, but for what made that stall: here nothing waits for a worker, and
//! what no worker takes stays queued in the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::accept::{Failure, Pause, Turns};
use plimsoll_reactor::handoff::{Dispatcher, HandoffQueue};
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::event::Event;
use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net};

use crate::inherited::Owner;
use crate::limit::Room;
use crate::listeners::{Listener, Listeners};
use crate::shared::{Handed, ListenerNumber, Shared};
use crate::totals::Totals;

/// Listeners looked at before signals are handled again, and connections accepted in a row at one
/// of them.
const EVENT_BATCH: usize = 64;
const ACCEPT_BATCH: usize = 16;

/// See the head of this file.
pub(crate) struct Acceptor {
    /// Thousands of listeners cost nothing while they are quiet.
    epoll: Epoll,
    dealer: Dispatcher<Handed>,
    /// By worker: where its connections arrive. Every table of the worker has it.
    doors: Vec<OwnedFd>,
    /// No longer in the table, with connections that were queued before.
    leaving: Vec<Listener>,
    /// Listeners that wait, as their rule has its part of the connections or epoll has no room for
    /// them, and for how long.
    waiting: Vec<ListenerNumber>,
    wait: Pause,
    /// A rule found no place for a connection: the coordinator is woken when one is given back.
    awaits_place: bool,
    turns: Turns,
    swept: bool,
    totals: Totals,
}

/// Whether there was nothing left to accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Empty,
    Unknown,
    /// The rule has its part of the connections, or the listener is shut down.
    Waits,
}

/// Whether the limits on connections hold. They do not for what was queued before its listener
/// goes: it has been promised.
#[derive(Clone, Copy)]
enum Limits<'a> {
    /// This is raised when a place is given back that was not found.
    Hold(&'a Arc<Event>),
    Ignored,
}

impl Acceptor {
    pub(crate) fn new(workers: usize, listeners: &Listeners) -> io::Result<Acceptor> {
        let (dealer, doors) = Dispatcher::new(workers)?;
        let epoll = Epoll::new(EVENT_BATCH)?;
        let mut acceptor = Acceptor {
            epoll,
            dealer,
            doors,
            leaving: Vec::new(),
            waiting: Vec::new(),
            wait: Pause::default(),
            awaits_place: false,
            turns: Turns::default(),
            swept: false,
            totals: Totals::default(),
        };
        acceptor.change(&listeners.iter().collect::<Vec<_>>(), Vec::new())?;
        Ok(acceptor)
    }

    pub(crate) fn queues(&self) -> Arc<[HandoffQueue<Handed>]> {
        self.dealer.queues()
    }

    pub(crate) fn handoff_socket(&self, worker: usize) -> BorrowedFd<'_> {
        self.doors[worker].as_fd()
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        self.dealer.places([self.epoll.as_fd().as_raw_fd()])
    }

    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.dealer.paused_until().into_iter().chain(self.wait.until()).min()
    }

    /// Takes over new listeners, and closes others once their queued connections are accepted.
    pub(crate) fn change(&mut self, opened: &[&Listener], closed: Vec<Listener>) -> io::Result<()> {
        let now = Instant::now();
        opened.iter().try_for_each(|listener| self.wait_for(listener, now))?;
        for listener in &closed {
            match self.waiting.iter().position(|number| *number == listener.number) {
                Some(place) => drop(self.waiting.swap_remove(place)),
                // A service manager has the open file too, so closing would leave it reporting
                // (epoll(7)).
                None => self.epoll.remove(&listener.sockets[0])?,
            }
        }
        self.leaving.extend(closed);
        Ok(())
    }

    /// Begins to wait for a listener; where the machine is short of what that takes, after a
    /// moment.
    fn wait_for(&mut self, listener: &Listener, now: Instant) -> io::Result<()> {
        match self.epoll.add(&listener.sockets[0], u64::from(listener.number), Interest::READ, Trigger::Level) {
            Err(error) if descriptor::is_exhaustion(&error) => {
                self.totals.count_error(&error);
                self.waiting.push(listener.number);
                self.wait.begin(now);
                Ok(())
            }
            added => added,
        }
    }

    /// Whether listeners that are no longer in the table are still open.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The coordinator was woken: a place may be free.
    pub(crate) fn on_wake(&mut self) {
        if std::mem::take(&mut self.awaits_place) {
            let now = Instant::now();
            self.dealer.resume(now);
            self.wait.end_soon(now);
        }
    }

    /// Hands on what there is, as far as workers take it. `wake` is raised when a place is given
    /// back that was not found.
    pub(crate) fn accept(&mut self, listeners: &Listeners, shared: &Shared, wake: &Arc<Event>) -> io::Result<()> {
        let now = Instant::now();
        if self.wait.ends(now) {
            for listener in
                std::mem::take(&mut self.waiting).into_iter().filter_map(|number| listeners.by_number(number))
            {
                self.wait_for(listener, now)?;
            }
        }
        while let Some(listener) = self.leaving.pop() {
            if self.take(&listener, usize::MAX, shared, Limits::Ignored, now) == Queue::Unknown {
                self.leaving.push(listener);
                return Ok(());
            }
        }
        if !self.is_free(shared, now) {
            return Ok(());
        }
        let mut ready: Vec<_> =
            self.epoll.wait(Some(Duration::ZERO))?.map(|event| event.key as ListenerNumber).collect();
        self.turns.order(&mut ready);
        for listener in ready.into_iter().filter_map(|number| listeners.by_number(number)) {
            if self.take(listener, ACCEPT_BATCH, shared, Limits::Hold(wake), now) == Queue::Waits {
                // Until a moment has passed: it would be reported as ready all the time.
                self.epoll.remove(&listener.sockets[0])?;
                self.waiting.push(listener.number);
                self.wait.begin(now);
            }
        }
        Ok(())
    }

    /// Hands on everything that is queued, for the last time: a listener is closed when nothing is
    /// left there. To be called again until it says that all are.
    pub(crate) fn sweep(&mut self, listeners: &Listeners, shared: &Shared) -> bool {
        // Listeners that wait are looked at all the same: nothing is due when their wait is over.
        self.wait = Pause::default();
        let (leaving, now) = (std::mem::take(&mut self.leaving), Instant::now());
        // One that no worker has taken yet is in hand.
        let free = self.is_free(shared, now);
        self.swept = free
            && leaving.iter().chain(listeners.iter()).all(|listener| {
                // Connections queued where another process listens belong to that process.
                let empty = listener.owner == Owner::Another
                    || self.take(listener, usize::MAX, shared, Limits::Ignored, now) == Queue::Empty;
                if empty {
                    listener.stop();
                }
                empty
            });
        if !self.swept {
            self.leaving = leaving;
        }
        self.swept
    }

    /// Whether everything was handed on for the last time.
    pub(crate) fn is_swept(&self) -> bool {
        self.swept
    }

    /// Every worker has ended: what none of them has taken is closed.
    pub(crate) fn finish(mut self, shared: &Shared) -> Totals {
        let in_hand = usize::from(self.dealer.discard_pending());
        (0..self.dealer.unclaimed() + in_hand).for_each(|_| shared.limit.release());
        self.totals
    }

    fn take(&mut self, listener: &Listener, count: usize, shared: &Shared, limits: Limits<'_>, now: Instant) -> Queue {
        for _ in 0..count {
            if !self.is_free(shared, now) {
                return Queue::Unknown;
            }
            match limits {
                Limits::Ignored => shared.limit.force(),
                Limits::Hold(wake) => match shared.take_place(&listener.route, now, wake) {
                    Room::Taken => {}
                    Room::KeptForOthers => {
                        self.awaits_place = true;
                        return Queue::Waits;
                    }
                    Room::Full => {
                        self.awaits_place = true;
                        self.dealer.pause(now);
                        return Queue::Unknown;
                    }
                },
            }
            match net::accept_prepared(&listener.sockets[0]) {
                Ok((socket, address)) => {
                    self.turns.had(listener.number);
                    if let Err(error) = self.dealer.dispatch(socket, (address, Arc::clone(&listener.route)), now) {
                        shared.limit.release();
                        self.totals.count_error(&error);
                    }
                }
                Err(error) => {
                    shared.limit.release();
                    let failure = Failure::of(&error);
                    match failure {
                        Failure::Empty => return Queue::Empty,
                        // A listener that another thread has shut down would be reported for ever.
                        Failure::Closed if matches!(limits, Limits::Hold(_)) => return Queue::Waits,
                        Failure::Closed => return Queue::Empty,
                        _ => {}
                    }
                    self.totals.count_error(&error);
                    if failure.pauses() {
                        self.dealer.pause(now);
                        return Queue::Unknown;
                    }
                }
            }
        }
        Queue::Unknown
    }

    fn is_free(&mut self, shared: &Shared, now: Instant) -> bool {
        self.dealer.is_free(now).unwrap_or_else(|error| {
            // The connection in hand is gone.
            shared.limit.release();
            self.totals.count_error(&error);
            true
        })
    }
}
