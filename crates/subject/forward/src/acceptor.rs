//! The acceptor of `handoff`: accepts at every listener for all workers, and deals connections to those with the fewest (`plimsoll_reactor::handoff`).
//!
//! port_fwd's accept thread, but for what made that stall: here nothing waits for a worker, and what no worker takes stays queued in the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::handoff::{Dealer, Desk};
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net};

use crate::listeners::{Listener, Listeners};
use crate::shared::{Handed, Shared};
use crate::totals::Totals;

/// Listeners looked at before signals are heard again, and connections accepted in a row at one of them.
const EVENT_BATCH: usize = 64;
const ACCEPT_BATCH: usize = 16;

/// See the head of this file.
pub(crate) struct Acceptor {
    /// Thousands of listeners cost nothing while they are quiet.
    epoll: Epoll,
    dealer: Dealer<Handed>,
    /// By worker: where its connections arrive. Every table of the worker has it.
    doors: Vec<OwnedFd>,
    /// No longer in the table, with connections that were queued before.
    leaving: Vec<Listener>,
    swept: bool,
    totals: Totals,
}

/// Whether there was nothing left to accept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Empty,
    Unknown,
}

impl Acceptor {
    pub(crate) fn new(workers: usize, listeners: &Listeners) -> io::Result<Acceptor> {
        let (dealer, doors) = Dealer::new(workers)?;
        let epoll = Epoll::new(EVENT_BATCH)?;
        let mut acceptor =
            Acceptor { epoll, dealer, doors, leaving: Vec::new(), swept: false, totals: Totals::default() };
        acceptor.change(&listeners.iter().collect::<Vec<_>>(), Vec::new())?;
        Ok(acceptor)
    }

    pub(crate) fn desks(&self) -> Arc<[Desk<Handed>]> {
        self.dealer.desks()
    }

    pub(crate) fn door(&self, worker: usize) -> BorrowedFd<'_> {
        self.doors[worker].as_fd()
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        self.dealer.places([self.epoll.as_fd().as_raw_fd()])
    }

    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.dealer.paused_until()
    }

    /// Some listeners have come, and some have gone: what is queued at those is still accepted.
    pub(crate) fn change(&mut self, opened: &[&Listener], closed: Vec<Listener>) -> io::Result<()> {
        for listener in opened {
            self.epoll.add(&listener.sockets[0], u64::from(listener.number), Interest::READ, Trigger::Level)?;
        }
        self.leaving.extend(closed);
        Ok(())
    }

    /// Whether listeners that are no longer in the table are still open.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Hands on what there is, as far as workers take it.
    pub(crate) fn accept(&mut self, listeners: &Listeners, shared: &Shared) -> io::Result<()> {
        let (now, most) = (Instant::now(), shared.max_connections.load(Ordering::Relaxed));
        while let Some(listener) = self.leaving.pop() {
            if self.take(&listener, usize::MAX, most, now) == Queue::Unknown {
                self.leaving.push(listener);
                return Ok(());
            }
        }
        if !self.is_free(now) {
            return Ok(());
        }
        let ready: Vec<u64> = self.epoll.wait(Some(Duration::ZERO))?.map(|event| event.key).collect();
        for listener in ready.into_iter().filter_map(|number| listeners.by_number(number as u32)) {
            self.take(listener, ACCEPT_BATCH, most, now);
        }
        Ok(())
    }

    /// Hands on everything that is queued, for the last time: a listener is closed when nothing is left there. To be called again until it says that all are.
    pub(crate) fn sweep(&mut self, listeners: &Listeners) -> bool {
        let (leaving, now) = (std::mem::take(&mut self.leaving), Instant::now());
        self.swept = leaving.iter().chain(listeners.iter()).all(|listener| {
            let empty = self.take(listener, usize::MAX, u64::MAX, now) == Queue::Empty;
            if empty {
                net::stop_listening(&listener.sockets[0]);
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

    pub(crate) fn finish(mut self) -> Totals {
        self.dealer.let_go();
        self.totals
    }

    fn take(&mut self, listener: &Listener, count: usize, most: u64, now: Instant) -> Queue {
        for _ in 0..count {
            if !self.is_free(now) {
                return Queue::Unknown;
            }
            if self.dealer.load() >= most {
                self.dealer.pause(now);
                return Queue::Unknown;
            }
            match net::accept_prepared(&listener.sockets[0]) {
                Ok((socket, address)) => {
                    if let Err(error) = self.dealer.deal(socket, (address, Arc::clone(&listener.route))) {
                        self.totals.count_error(&error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Queue::Empty,
                Err(error) => {
                    self.totals.count_error(&error);
                    if descriptor::is_exhaustion(&error) {
                        self.dealer.pause(now);
                        return Queue::Unknown;
                    }
                    // Otherwise the error is that of one connection, which ended in the queue (accept(2)), or of a listener that was closed.
                    if error.kind() == io::ErrorKind::InvalidInput {
                        return Queue::Empty;
                    }
                }
            }
        }
        Queue::Unknown
    }

    fn is_free(&mut self, now: Instant) -> bool {
        self.dealer.is_free(now).unwrap_or_else(|error| {
            self.totals.count_error(&error);
            true
        })
    }
}
