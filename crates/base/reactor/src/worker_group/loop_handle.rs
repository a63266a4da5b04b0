//! An event loop's side of its group: what the coordinator sends it, and what it reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
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

/// What the loops of a group share with it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) phase: AtomicU8,
    pub(super) request: Arc<Event>,
    /// How many event loops have ended.
    pub(super) ended: AtomicUsize,
    pub(super) growth: Growth,
    pub(super) workers: Vec<Worker>,
}

impl Phase {
    /// The phase that this is the number of (`phase as u8`).
    pub fn from_number(number: u8) -> Phase {
        match number {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }
}

impl Shared {
    pub(super) fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    run_lock: Mutex<()>,
    /// How many tables it has.
    pub(super) tables: AtomicUsize,
    /// The table that holds the accept token.
    pub(super) accepting: AtomicUsize,
    /// No table has room, and no further one could be added.
    pub(super) stalled: AtomicBool,
}

/// An event loop's side of its group.
#[derive(Debug)]
pub struct LoopHandle {
    pub(super) worker: usize,
    pub(super) table: usize,
    pub(super) room: Arc<AtomicBool>,
    pub(super) wake: Arc<Event>,
    pub(super) mailbox: Option<OwnedFd>,
    pub(super) shared: Arc<Shared>,
    /// Whoever adds the table waits for the first message.
    pub(super) report: SyncSender<io::Result<()>>,
    /// The table is one of the group's.
    pub(super) is_added: Arc<AtomicBool>,
}

impl LoopHandle {
    /// Makes what the loop needs to begin. Where the group awaits that
    /// (`WorkerGroup::with_setup`), the table is added now, or refused for the error.
    pub fn set_up<T>(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let made = make();
        self.is_added.fetch_or(made.is_ok(), Ordering::AcqRel);
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        // It can only fail where nobody waits.
        let _ = self.report.try_send(made.as_ref().map(|_| ()).map_err(copy));
        made
    }

    /// The number of its worker.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Its number among the worker's tables.
    pub fn table(&self) -> usize {
        self.table
    }

    /// Raised when the phase or the holder of the accept token has changed, or by the coordinator
    /// for a reason of its own. The loop waits for it beside its connections, and lowers it.
    pub fn wake(&self) -> &Event {
        &self.wake
    }

    /// What wakes the coordinator (`WorkerGroup::request`). Every loop may raise it: its descriptor
    /// is in every table, which another loop's is not.
    pub fn request(&self) -> &Arc<Event> {
        &self.shared.request
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

    /// The lock under which one table of the worker runs at a time. A loop takes it after each
    /// wait, and gives it back before the next.
    pub fn run_lock(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data: a loop that panicked with it left nothing half-done.
        self.shared.workers[self.worker].run_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the worker has no other table, so that no other loop waits for the run lock.
    pub fn is_alone(&self) -> bool {
        self.shared.workers[self.worker].tables.load(Ordering::Acquire) < 2
    }

    /// Whether this is the table of its worker that accepts.
    pub fn holds_accept_token(&self) -> bool {
        self.shared.workers[self.worker].accepting.load(Ordering::Acquire) == self.table
    }

    /// Whether a worker whose tables are full gets another, so that a full table is no error.
    pub fn grows(&self) -> bool {
        self.shared.growth == Growth::AsNeeded
    }

    /// Reports that this table has no room for another connection, so that the accept token goes to
    /// one that has.
    pub fn report_full(&self) {
        if self.room.swap(false, Ordering::AcqRel) {
            self.shared.request.raise();
        }
    }

    /// Reports that this table has room again.
    pub fn report_room(&self) {
        // The coordinator says that it is stalled, and looks for room once more; here it is the
        // other way round. One of the two sees the other's news, which SeqCst alone promises.
        if !self.room.swap(true, Ordering::SeqCst) && self.shared.workers[self.worker].stalled.load(Ordering::SeqCst) {
            self.shared.request.raise();
        }
    }

    /// Raises [`super::WorkerGroup::request`], so that the coordinator looks at what the caller
    /// shares with it.
    pub fn request_attention(&self) {
        self.shared.request.raise();
    }
}
