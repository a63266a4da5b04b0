//! An event loop's place in a crew: what it is told there, and what it says.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_sys::event::Event;

use super::Growth;

/// What an event loop is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Serve.
    Run,
    /// Begin nothing new, finish what is under way, then end.
    Drain,
    /// End now.
    Stop,
}

/// What the seats of a crew share with it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) phase: AtomicU8,
    pub(super) request: Event,
    /// How many event loops have ended.
    pub(super) ended: AtomicUsize,
    pub(super) growth: Growth,
    pub(super) workers: Vec<Worker>,
}

impl Shared {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    baton: Mutex<()>,
    /// How many tables it has.
    pub(super) tables: AtomicUsize,
    /// The table whose turn it is to accept.
    pub(super) accepting: AtomicUsize,
    /// No table has room, and no further one could be added.
    pub(super) stalled: AtomicBool,
}

/// An event loop's place in the crew.
#[derive(Debug)]
pub struct Seat {
    pub(super) worker: usize,
    pub(super) table: usize,
    pub(super) room: Arc<AtomicBool>,
    pub(super) wake: Arc<Event>,
    pub(super) mailbox: Option<Arc<OwnedFd>>,
    pub(super) shared: Arc<Shared>,
}

impl Seat {
    /// The number of its worker.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Its number among the worker's tables.
    pub fn table(&self) -> usize {
        self.table
    }

    /// Raised when the phase or the turn has changed. The loop waits for it beside its connections,
    /// and lowers it.
    pub fn wake(&self) -> &Event {
        &self.wake
    }

    /// Where messages of the coordinator's arrive (`plimsoll_sys::passing`), for tables that began
    /// empty.
    pub fn mailbox(&self) -> Option<BorrowedFd<'_>> {
        self.mailbox.as_ref().map(|end| end.as_fd())
    }

    /// What the loop is to do.
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// The right to run, which one table of the worker has at a time: taken after each wait, given
    /// back before the next.
    pub fn baton(&self) -> MutexGuard<'_, ()> {
        // The baton guards no data: a loop that panicked with it left nothing half-done behind it.
        self.shared.workers[self.worker].baton.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the worker has no other table, so that nobody wants the baton.
    pub fn is_alone(&self) -> bool {
        self.shared.workers[self.worker].tables.load(Ordering::Acquire) < 2
    }

    /// Whether it is this table's turn to accept.
    pub fn accepts(&self) -> bool {
        self.shared.workers[self.worker].accepting.load(Ordering::Acquire) == self.table
    }

    /// Whether a full table is relieved by a new one, so that it is nothing to worry about.
    pub fn grows(&self) -> bool {
        self.shared.growth == Growth::AsNeeded
    }

    /// Says that this table has no room for another connection, so that the turn goes to one that
    /// has.
    pub fn report_full(&self) {
        if self.room.swap(false, Ordering::AcqRel) {
            self.shared.request.raise();
        }
    }

    /// Says that this table has room again.
    pub fn report_room(&self) {
        if !self.room.swap(true, Ordering::AcqRel) && self.shared.workers[self.worker].stalled.load(Ordering::Acquire) {
            self.shared.request.raise();
        }
    }

    /// Has [`super::Crew::request`] raised, to say something of the caller's own to the
    /// coordinator.
    pub fn ask_attention(&self) {
        self.shared.request.raise();
    }
}
