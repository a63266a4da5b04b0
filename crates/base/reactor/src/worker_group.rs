//! A group of event loops: workers, each with the descriptor tables that its connections need.
//!
//! A *worker* is parallelism: one event loop's worth of CPU. A *table* is room: RLIMIT_NOFILE
//! descriptors. A table is a thread that has unshared its descriptors (`plimsoll_sys::descriptor`),
//! with an event loop over its own. The tables of one worker share a *run lock*, so that one of
//! them runs at a time. One table of a worker holds the *accept token*. When that table is full,
//! the coordinator passes the token to another with room, or to a new one.
//!
//! The coordinator is the thread that made the group: only its table has the descriptor of every
//! wake-up, so only it can wake a loop. A loop that needs something raises
//! [`WorkerGroup::request`], and the coordinator calls [`WorkerGroup::process_requests`].
//!
//! A table begins with what its [`TableInit`] says: a copy of the coordinator's, a part of it, or
//! nothing but a *mailbox*, by which descriptors arrive that the coordinator opens later.

mod loop_handle;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use plimsoll_sys::event::Event;
use plimsoll_sys::{descriptor, passing};

use crate::accept::Pause;
pub use loop_handle::{LoopHandle, Phase};
use loop_handle::{Shared, Worker};

/// An event loop keeps its big buffers on the heap; its stack holds a few frames.
const STACK_BYTES: usize = 256 * 1024;

/// Descriptors that the coordinator's table has left after a table was added because others were
/// full: where tables took the last one, an acceptor there could take no connection any more.
const SPARE: usize = 4;

/// Whether a worker whose tables are full gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// As many tables as the connections need.
    AsNeeded,
    /// The one it has.
    Never,
}

/// What a new table holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableInit {
    /// All that the coordinator's holds at that moment, under the same numbers.
    Copy,
    /// These of the coordinator's, under the same numbers, beside standard input, output and error.
    /// Nothing that the coordinator holds only for a moment, such as a connection on its way to
    /// a worker, stays open in a table that never learns of it.
    Only(Vec<RawFd>),
    /// Standard input, output and error, and a mailbox.
    Empty,
}

/// What [`WorkerGroup::process_requests`] has found.
#[derive(Debug)]
pub struct Requests {
    /// Whether [`WorkerGroup::request`] was raised since the last time.
    pub raised: bool,
    /// Why a worker that needs a table cannot have it. Its accepting pauses until a table of its
    /// has room again, or one can be added: see [`WorkerGroup::retry_at`].
    pub refused: Option<io::Error>,
}

struct LoopThread<R> {
    worker: usize,
    room: Arc<AtomicBool>,
    wake: Arc<Event>,
    mailbox: Option<OwnedFd>,
    thread: JoinHandle<Option<R>>,
}

/// Event loops that run `body`, and the means to add to, wake and end them.
pub struct WorkerGroup<R> {
    body: Arc<dyn Fn(LoopHandle) -> R + Send + Sync>,
    table_init: TableInit,
    awaits_setup: bool,
    shared: Arc<Shared>,
    threads: Vec<LoopThread<R>>,
    /// A table was refused.
    refused: Pause,
}

impl<R: Send + 'static> WorkerGroup<R> {
    /// A group of `workers` without tables as yet, each of which will run `body`.
    pub fn new(
        workers: usize,
        growth: Growth,
        body: impl Fn(LoopHandle) -> R + Send + Sync + 'static,
    ) -> io::Result<WorkerGroup<R>> {
        let workers = (0..workers).map(|_| Worker::default()).collect();
        let shared = Shared {
            phase: AtomicU8::new(Phase::Run as u8),
            request: Arc::new(Event::new()?),
            ended: AtomicUsize::new(0),
            growth,
            workers,
        };
        Ok(WorkerGroup {
            body: Arc::new(body),
            table_init: TableInit::Copy,
            awaits_setup: false,
            shared: Arc::new(shared),
            threads: Vec::new(),
            refused: Pause::default(),
        })
    }

    /// Says what tables hold when they begin; [`TableInit::Copy`] unless told otherwise.
    #[must_use]
    pub fn with_table_init(self, table_init: TableInit) -> WorkerGroup<R> {
        WorkerGroup { table_init, ..self }
    }

    /// Adds a table only when its loop has what it needs to begin: each calls
    /// [`LoopHandle::set_up`]. Where the machine lacks that, the table is refused, and the others
    /// go on.
    #[must_use]
    pub fn with_setup(self) -> WorkerGroup<R> {
        WorkerGroup { awaits_setup: true, ..self }
    }

    /// Adds a table to a worker and starts its event loop.
    pub fn add_table(&mut self, worker: usize) -> io::Result<()> {
        self.add_table_and_leave(worker, 0)
    }

    /// The same, if it leaves so many descriptors of the coordinator's table.
    fn add_table_and_leave(&mut self, worker: usize, spare: usize) -> io::Result<()> {
        let table = self.tables(worker).count();
        let wake = Arc::new(Event::new()?);
        let room = Arc::new(AtomicBool::new(true));
        let (near, far) = match &self.table_init {
            TableInit::Copy | TableInit::Only(_) => (None, None),
            TableInit::Empty => passing::pair().map(|(near, far)| (Some(near), Some(Arc::new(far))))?,
        };
        // All of them at once, and none is left open for the new table to copy. Where there is a
        // mailbox, one more is left: the far end is closed below.
        drop((0..spare).map(|_| Event::new()).collect::<io::Result<Vec<Event>>>()?);
        let keep = self.kept(&wake, far.as_deref());
        let (body, shared, theirs) = (Arc::clone(&self.body), Arc::clone(&self.shared), far.clone());
        let (handle_room, handle_wake) = (Arc::clone(&room), Arc::clone(&wake));
        let (report, begun) = mpsc::sync_channel(1);
        let awaits_setup = self.awaits_setup;
        let thread = thread::Builder::new().name(format!("worker {worker}.{table}")).stack_size(STACK_BYTES).spawn(
            move || {
                let outcome = match &keep {
                    None => descriptor::unshare_table(),
                    Some(keep) => descriptor::unshare_table_keeping(keep),
                };
                // A number that is this thread's to close: the first one is closed below, in the
                // table where it was made.
                let mailbox = outcome.and_then(|()| theirs.as_deref().map(OwnedFd::try_clone).transpose());
                drop(theirs);
                let mailbox = match mailbox {
                    Ok(mailbox) => mailbox,
                    // Without a table of its own its numbers would be the coordinator's.
                    Err(error) => {
                        let _ = report.send(Err(error));
                        return None;
                    }
                };
                if !awaits_setup {
                    let _ = report.send(Ok(()));
                }
                let is_added = Arc::new(AtomicBool::new(!awaits_setup));
                let ended = RaiseOnDrop { shared: Arc::clone(&shared), is_added: Arc::clone(&is_added) };
                let (room, wake) = (handle_room, handle_wake);
                let result = body(LoopHandle { worker, table, room, wake, mailbox, shared, report, is_added });
                drop(ended);
                Some(result)
            },
        )?;
        // The coordinator goes on only when the copy is made: what it opens and closes next must
        // not appear in, or vanish from, the copy.
        if let Err(error) = begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) {
            drop(thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)));
            return Err(error);
        }
        drop(far);
        self.threads.push(LoopThread { worker, room, wake, mailbox: near, thread });
        self.shared.workers[worker].tables.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Readable when [`WorkerGroup::process_requests`] is to be called: a table is full, or an
    /// event loop has ended. The coordinator may have others raise it too.
    pub fn request(&self) -> &Arc<Event> {
        &self.shared.request
    }

    /// Does what the event loops have asked for: passes accept tokens on, adds tables.
    pub fn process_requests(&mut self) -> Requests {
        // An event that is raised from now on ends the next wait.
        let raised = self.shared.request.lower();
        let mut refused = None;
        for worker in 0..self.shared.workers.len() {
            let accepting = self.shared.workers[worker].accepting.load(Ordering::Acquire);
            // With `stalled` below: see `LoopHandle::report_room`.
            let has_room = |thread: &LoopThread<R>| thread.room.load(Ordering::SeqCst);
            if self.shared.phase() != Phase::Run || self.tables(worker).nth(accepting).is_none_or(has_room) {
                continue;
            }
            if self.tables(worker).all(|thread| !has_room(thread)) {
                // Said before looking again, so that room reported meanwhile is either seen here or
                // asks for attention once more.
                self.shared.workers[worker].stalled.store(true, Ordering::SeqCst);
                if self.shared.growth == Growth::AsNeeded {
                    refused = refused.or(self.add_table_and_leave(worker, SPARE).err());
                }
            }
            if let Some((table, thread)) = self.tables(worker).enumerate().find(|(_, thread)| has_room(thread)) {
                self.shared.workers[worker].stalled.store(false, Ordering::Release);
                self.shared.workers[worker].accepting.store(table, Ordering::Release);
                thread.wake.raise();
            }
        }
        self.refused = Pause::default();
        if refused.is_some() {
            self.refused.begin(Instant::now());
        }
        Requests { raised, refused }
    }

    /// When [`WorkerGroup::process_requests`] is to be called at the latest: a table was refused,
    /// and what the machine lacked may be there by then, whether or not a connection ends here.
    pub fn retry_at(&self) -> Option<Instant> {
        self.refused.until()
    }

    /// How many tables there are.
    pub fn table_count(&self) -> usize {
        self.threads.len()
    }

    /// The coordinator's ends of the mailboxes, each with the number of its worker, in the order in
    /// which the tables were added; none where tables began as copies.
    pub fn mailboxes(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.threads.iter().filter_map(|thread| Some((thread.worker, thread.mailbox.as_ref()?.as_fd())))
    }

    /// Whether every event loop has ended.
    pub fn is_finished(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) == self.threads.len()
    }

    /// Whether any event loop has ended.
    pub fn any_finished(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) > 0
    }

    /// Moves the group on to a later phase and wakes every loop to see it.
    pub fn set_phase(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake();
    }

    /// Wakes every loop, so that its body looks at what it shares with the coordinator.
    pub fn wake(&self) {
        for thread in &self.threads {
            thread.wake.raise();
        }
    }

    /// Waits for every event loop to end and returns what each returned. A loop that panicked
    /// panics here.
    pub fn join(self) -> Vec<R> {
        self.threads
            .into_iter()
            .map(|thread| thread.thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
            .map(|result| result.expect("a thread has a table, and so a result"))
            .collect()
    }

    /// The numbers that a new table keeps of the coordinator's; `None` for all.
    fn kept(&self, wake: &Event, mailbox: Option<&OwnedFd>) -> Option<Vec<RawFd>> {
        let events = [wake.as_fd().as_raw_fd(), self.shared.request.as_fd().as_raw_fd()];
        match &self.table_init {
            TableInit::Copy => None,
            TableInit::Only(numbers) => Some(numbers.iter().copied().chain(events).collect()),
            TableInit::Empty => Some(mailbox.map(AsRawFd::as_raw_fd).into_iter().chain(events).collect()),
        }
    }

    fn tables(&self, worker: usize) -> impl Iterator<Item = &LoopThread<R>> {
        self.threads.iter().filter(move |thread| thread.worker == worker)
    }
}

/// Asks for attention when an event loop ends, however it ends. The loop of a table that was
/// refused is none of the group's: the coordinator would look at once, and try to add the table
/// again.
struct RaiseOnDrop {
    shared: Arc<Shared>,
    is_added: Arc<AtomicBool>,
}

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        if self.is_added.load(Ordering::Acquire) {
            self.shared.ended.fetch_add(1, Ordering::AcqRel);
            self.shared.request.raise();
        }
    }
}

#[cfg(test)]
mod tests;
