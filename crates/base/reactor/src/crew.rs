//! A crew of event loops: workers, each with the descriptor tables that its connections need.
//!
//! A *worker* is parallelism: one event loop's worth of CPU. A *table* is room: RLIMIT_NOFILE descriptors. A table is a thread that has unshared its
//! descriptors (`plimsoll_sys::descriptor`), with an event loop over its own. The tables of one worker hand a *baton* around, so that one of
//! them runs at a time; with one table nobody else wants it. One table of a worker at a time has the *turn* to accept; when it is full, the turn goes
//! to another with room, or to a new one.
//!
//! The thread that made the crew coordinates it: only its table has every event's descriptor, so waking a loop is its business. A loop that needs something raises
//! [`Crew::request`] and the coordinator calls [`Crew::attend`].
//!
//! A table begins as a copy of the coordinator's, or, with [`Outset::Empty`], with nothing but the way to hear from it: a *mailbox*, by which descriptors that
//! are opened later reach it as well.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use plimsoll_sys::event::Event;
use plimsoll_sys::{descriptor, passing};

/// An event loop keeps its big buffers on the heap; its stack holds a few frames.
const STACK_BYTES: usize = 256 * 1024;

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

#[derive(Debug)]
struct Shared {
    phase: AtomicU8,
    request: Event,
    /// How many event loops have ended.
    ended: AtomicUsize,
    growth: Growth,
    workers: Vec<Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    baton: Mutex<()>,
    /// How many tables it has.
    tables: AtomicUsize,
    /// The table whose turn it is to accept.
    accepting: AtomicUsize,
    /// No table has room, and no further one could be added.
    stalled: AtomicBool,
}

/// An event loop's place in the crew.
#[derive(Debug)]
pub struct Seat {
    worker: usize,
    table: usize,
    room: Arc<AtomicBool>,
    wake: Arc<Event>,
    mailbox: Option<Arc<OwnedFd>>,
    shared: Arc<Shared>,
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

    /// Raised when the phase or the turn has changed. The loop waits for it beside its connections, and lowers it.
    pub fn wake(&self) -> &Event {
        &self.wake
    }

    /// Where messages of the coordinator's arrive (`plimsoll_sys::passing`), for tables that began empty.
    pub fn mailbox(&self) -> Option<BorrowedFd<'_>> {
        self.mailbox.as_ref().map(|end| end.as_fd())
    }

    /// What the loop is to do.
    pub fn phase(&self) -> Phase {
        match self.shared.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// The right to run, which one table of the worker has at a time: taken after each wait, given back before the next.
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

    /// Says that this table has no room for another connection, so that the turn goes to one that has.
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
}

impl Seat {
    /// Has [`Crew::request`] raised, to say something of the caller's own to the coordinator.
    pub fn ask_attention(&self) {
        self.shared.request.raise();
    }
}

/// Whether a worker whose tables are full gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// As many tables as the connections need.
    AsNeeded,
    /// The one it has.
    Never,
}

/// What a new table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outset {
    /// All that the coordinator's holds at that moment, under the same numbers.
    Copy,
    /// Standard input, output and error, and a mailbox.
    Empty,
}

struct Member<R> {
    worker: usize,
    room: Arc<AtomicBool>,
    wake: Arc<Event>,
    mailbox: Option<OwnedFd>,
    thread: JoinHandle<R>,
}

/// Event loops that run `body`, and the means to add to, wake and end them.
pub struct Crew<R> {
    body: Arc<dyn Fn(Seat) -> R + Send + Sync>,
    outset: Outset,
    shared: Arc<Shared>,
    members: Vec<Member<R>>,
}

impl<R: Send + 'static> Crew<R> {
    /// A crew of `workers` without tables as yet, each of which will run `body`.
    pub fn new(
        workers: usize,
        growth: Growth,
        body: impl Fn(Seat) -> R + Send + Sync + 'static,
    ) -> io::Result<Crew<R>> {
        let workers = (0..workers).map(|_| Worker::default()).collect();
        let shared = Shared {
            phase: AtomicU8::new(Phase::Run as u8),
            request: Event::new()?,
            ended: AtomicUsize::new(0),
            growth,
            workers,
        };
        Ok(Crew { body: Arc::new(body), outset: Outset::Copy, shared: Arc::new(shared), members: Vec::new() })
    }

    /// Says what tables hold when they begin; [`Outset::Copy`] unless told otherwise.
    #[must_use]
    pub fn with_outset(self, outset: Outset) -> Crew<R> {
        Crew { outset, ..self }
    }

    /// Adds a table to a worker and starts its event loop.
    pub fn add_table(&mut self, worker: usize) -> io::Result<()> {
        let table = self.tables(worker).count();
        let wake = Arc::new(Event::new()?);
        let room = Arc::new(AtomicBool::new(true));
        let (near, far) = match self.outset {
            Outset::Copy => (None, None),
            Outset::Empty => passing::pair().map(|(near, far)| (Some(near), Some(Arc::new(far))))?,
        };
        let seat = Seat {
            worker,
            table,
            room: Arc::clone(&room),
            wake: Arc::clone(&wake),
            mailbox: far.clone(),
            shared: Arc::clone(&self.shared),
        };
        let body = Arc::clone(&self.body);
        let unshared = Arc::new(Mutex::new(None));
        let outcome = Arc::clone(&unshared);
        let (ready, started) = std::sync::mpsc::sync_channel::<()>(0);
        let thread = thread::Builder::new().name(format!("worker {worker}.{table}")).stack_size(STACK_BYTES).spawn(
            move || {
                let ended = RaiseOnDrop(Arc::clone(&seat.shared));
                let unshared = match seat.mailbox() {
                    None => descriptor::unshare_table(),
                    Some(mailbox) => {
                        descriptor::unshare_table_keeping(&[mailbox, seat.wake.as_fd(), seat.shared.request.as_fd()])
                    }
                };
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = unshared.err();
                drop(ready);
                let result = body(seat);
                drop(ended);
                result
            },
        )?;
        // The coordinator goes on only when the copy is made: what it opens and closes next must not appear in, or vanish from, the copy.
        let _ = started.recv();
        if let Some(error) = unshared.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.set_phase(Phase::Stop);
            return Err(error);
        }
        // The thread closes its number of the far end; this table's own, which had to be open for the copy to have it, stays: one a table.
        self.members.push(Member { worker, room, wake, mailbox: near, thread });
        self.shared.workers[worker].tables.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Readable when [`Crew::attend`] is to be called: a table is full, or an event loop has ended.
    pub fn request(&self) -> &Event {
        &self.shared.request
    }

    /// Does what the event loops have asked for: passes turns on, adds tables. Returns the reason where a worker needs a table and cannot have it;
    /// its accepting pauses until a table of its has room again.
    pub fn attend(&mut self) -> Option<io::Error> {
        self.shared.request.lower();
        let mut refused = None;
        for worker in 0..self.shared.workers.len() {
            let accepting = self.shared.workers[worker].accepting.load(Ordering::Acquire);
            let has_room = |member: &Member<R>| member.room.load(Ordering::Acquire);
            if self.phase() != Phase::Run || self.tables(worker).nth(accepting).is_none_or(has_room) {
                continue;
            }
            if self.tables(worker).all(|member| !has_room(member)) {
                // Said before looking again, so that room reported meanwhile is either seen here or asks for attention once more.
                self.shared.workers[worker].stalled.store(true, Ordering::Release);
                if self.shared.growth == Growth::AsNeeded {
                    refused = refused.or(self.add_table(worker).err());
                }
            }
            if let Some((table, member)) = self.tables(worker).enumerate().find(|(_, member)| has_room(member)) {
                self.shared.workers[worker].stalled.store(false, Ordering::Release);
                self.shared.workers[worker].accepting.store(table, Ordering::Release);
                member.wake.raise();
            }
        }
        refused
    }

    /// How many tables there are.
    pub fn table_count(&self) -> usize {
        self.members.len()
    }

    /// The coordinator's ends of the mailboxes, each with the number of its worker, in the order in which the tables were added; none where tables began as
    /// copies.
    pub fn mailboxes(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.members.iter().filter_map(|member| Some((member.worker, member.mailbox.as_ref()?.as_fd())))
    }

    /// Whether every event loop has ended.
    pub fn is_finished(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) == self.members.len()
    }

    /// Whether any event loop has ended.
    pub fn any_finished(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) > 0
    }

    /// Moves the crew on to a later phase and wakes every loop to see it.
    pub fn set_phase(&self, phase: Phase) {
        self.shared.phase.fetch_max(phase as u8, Ordering::AcqRel);
        self.wake();
    }

    /// Wakes every loop, to look at what its body shares with the coordinator.
    pub fn wake(&self) {
        for member in &self.members {
            member.wake.raise();
        }
    }

    /// Waits for every event loop to end and returns what each returned. A loop that panicked panics here.
    pub fn join(self) -> Vec<R> {
        self.members
            .into_iter()
            .map(|member| member.thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
            .collect()
    }

    fn phase(&self) -> Phase {
        match self.shared.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    fn tables(&self, worker: usize) -> impl Iterator<Item = &Member<R>> {
        self.members.iter().filter(move |member| member.worker == worker)
    }
}

/// Asks for attention when an event loop ends, however it ends.
struct RaiseOnDrop(Arc<Shared>);

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        self.0.request.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < deadline, "{what} did not happen");
            thread::yield_now();
        }
    }

    #[test]
    fn each_table_has_descriptor_numbers_of_its_own() {
        let (opened, numbers) = mpsc::channel();
        let opened = Mutex::new(opened);
        let mut crew = Crew::new(1, Growth::Never, move |seat| {
            let file = File::open("/dev/null").expect("/dev/null opens");
            let opened = opened.lock().expect("no test thread panics").clone();
            opened.send(file.as_raw_fd()).expect("the test listens");
            until("the stop", || seat.phase() == Phase::Stop);
        })
        .expect("an event can be made");
        crew.add_table(0).expect("a table");
        let first = numbers.recv().expect("the first table opened its file");
        let seen_here = std::fs::read_link(format!("/proc/self/fd/{first}")).unwrap_or_default();
        assert_ne!(seen_here, std::path::Path::new("/dev/null"), "the coordinator does not see it");
        crew.add_table(0).expect("a table");
        numbers.recv().expect("the second table opened its file");
        crew.set_phase(Phase::Stop);
        assert_eq!(crew.join().len(), 2);
    }

    #[test]
    fn a_table_that_began_empty_has_what_its_mailbox_brings() {
        let kept_here = File::open("/dev/null").expect("/dev/null opens");
        let number = kept_here.as_raw_fd();
        let mut crew = Crew::new(1, Growth::Never, move |seat| {
            let seen = std::fs::read_link(format!("/proc/thread-self/fd/{number}")).unwrap_or_default();
            let mailbox = seat.mailbox().expect("it began empty");
            let (mut message, mut descriptors) = ([0; 8], Vec::new());
            until("a message", || passing::receive(mailbox, &mut message, &mut descriptors).is_ok());
            let received = format!("/proc/thread-self/fd/{}", descriptors[0].as_raw_fd());
            (seen, std::fs::read_link(received).unwrap_or_default())
        })
        .expect("an event can be made")
        .with_outset(Outset::Empty);
        crew.add_table(0).expect("a table");
        let (_, mailbox) = crew.mailboxes().next().expect("a table that began empty has one");
        passing::send(mailbox, b"a file", &[kept_here.as_fd()]).expect("the mailbox has room");
        let (seen, received) = crew.join().remove(0);
        assert_ne!(seen, std::path::Path::new("/dev/null"));
        assert_eq!(received, std::path::Path::new("/dev/null"));
    }

    #[test]
    fn a_full_table_passes_the_turn_to_a_new_one_and_gets_it_back_when_that_is_full() {
        let turns: Arc<Mutex<Vec<usize>>> = Arc::default();
        let log = Arc::clone(&turns);
        let first_has_room = AtomicBool::new(false);
        let mut crew = Crew::new(1, Growth::AsNeeded, move |seat| {
            let take_turn = || {
                until("a turn", || seat.accepts() || seat.phase() != Phase::Run);
                log.lock().expect("no test thread panics").push(seat.table());
            };
            take_turn();
            if seat.table() == 1 {
                until("room in the first table", || first_has_room.load(Ordering::Acquire));
            }
            seat.report_full();
            until("the turn's passing", || !seat.accepts());
            if seat.table() == 0 {
                seat.report_room();
                first_has_room.store(true, Ordering::Release);
                take_turn();
            }
        })
        .expect("an event can be made");
        crew.add_table(0).expect("a table");
        until("the end of both tables", || {
            assert!(crew.attend().is_none());
            crew.table_count() == 2 && crew.is_finished()
        });
        crew.join();
        assert_eq!(*turns.lock().expect("no test thread panics"), [0, 1, 0]);
    }

    #[test]
    fn one_table_of_a_worker_runs_at_a_time() {
        let running = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&running);
        let mut crew = Crew::new(1, Growth::Never, move |seat| {
            for _ in 0..200 {
                let baton = seat.baton();
                assert_eq!(count.fetch_add(1, Ordering::AcqRel), 0);
                thread::yield_now();
                count.fetch_sub(1, Ordering::AcqRel);
                drop(baton);
            }
        })
        .expect("an event can be made");
        for _ in 0..3 {
            crew.add_table(0).expect("a table");
        }
        assert_eq!(crew.join().len(), 3);
    }
}
