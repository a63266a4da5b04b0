//! The coordinator of the event loops: handles signals, reloads the table, adds descriptor tables,
//! and ends them. With `handoff` it also accepts connections and hands them to workers.

mod reloading;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::shutdown::{Shutdown, Step};
use plimsoll_reactor::worker_group::{Growth, Phase, Requests, TableInit, WorkerGroup};
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::{descriptor, passing};

use crate::Say;
use crate::acceptor::Acceptor;
use crate::admin;
use crate::error::Error;
use crate::event_loop;
use crate::file_watch::LOOK_EVERY;
use crate::inherited::Owner;
use crate::listeners::{Listener, Listeners};
use crate::log::Writer;
use crate::message::{MOST, Message};
use crate::reload::{self, Reloader, Source};
use crate::shared::Shared;
use crate::table::LogTarget;
use crate::totals::Totals;
use crate::upgrade::Entrance;

/// After this a message is sent again for which there was no room or no memory.
const PASSING_RETRY: Duration = Duration::from_millis(1);

/// Listeners in a message to a table that had no room for some. It may have the others, for which
/// it needs descriptors once more until the message is read.
const FEW: usize = 8;

pub(crate) struct Coordinator {
    /// Each loop returns its worker's number and its counts.
    group: WorkerGroup<(usize, io::Result<Totals>)>,
    workers: usize,
    listeners: Listeners,
    sets: usize,
    /// Where connections are handed over; without it the tables accept.
    acceptor: Option<Acceptor>,
    shared: Arc<Shared>,
    writer: Writer,
    say: Arc<Say>,
    reloader: Option<Reloader>,
    /// A new table, until the listeners that the last one had no more are closed: it may name them
    /// again.
    waiting: Option<reload::Outcome>,
    /// Messages to leave listeners that were sent.
    leaves: usize,
    /// It was said that no table can be added, and none has been since.
    stalled: bool,
    /// Where the table said that the log goes, unless the command line does.
    log: Option<Option<LogTarget>>,
    pub(crate) admin: Option<admin::Running>,
    /// Where a process that takes over asks.
    pub(crate) entrance: Option<Entrance>,
}

impl Coordinator {
    pub(crate) fn new(
        workers: usize,
        listeners: Listeners,
        sets: usize,
        acceptor: Option<Acceptor>,
        shared: Arc<Shared>,
        writer: Writer,
        log: Option<Option<LogTarget>>,
    ) -> io::Result<Coordinator> {
        let say = Arc::clone(&shared.say);
        let for_loops = Arc::clone(&shared);
        let group = WorkerGroup::new(workers, Growth::AsNeeded, move |handle| {
            (handle.worker(), event_loop::run(&handle, &for_loops))
        })?;
        let group = group.with_table_init(TableInit::Empty).with_setup();
        Ok(Coordinator {
            group,
            workers,
            listeners,
            sets,
            acceptor,
            shared,
            writer,
            say,
            reloader: None,
            waiting: None,
            leaves: 0,
            stalled: false,
            log,
            admin: None,
            entrance: None,
        })
    }

    /// Starts the event loops, which have no listeners yet, and what reads the table anew.
    pub(crate) fn start(&mut self, source: Option<Source>) -> io::Result<()> {
        self.reloader = source.map(|source| Reloader::start(source, Arc::clone(&self.shared.names))).transpose()?;
        for worker in 0..self.workers {
            self.group.add_table(worker)?;
        }
        Ok(())
    }

    /// Sends the event loops their listeners: from now on they accept.
    pub(crate) fn listen(&self) -> io::Result<()> {
        self.introduce(0)
    }

    pub(crate) fn coordinate(&mut self, signals: &Signals, drain: Duration, on_drain: &dyn Fn()) -> io::Result<()> {
        let mut shutdown = Shutdown::new(drain);
        while !self.group.is_finished() {
            self.wait(signals, &shutdown)?;
            let mut steps = Vec::new();
            while let Some(signal) = signals.next() {
                match signal {
                    Signal::Interrupt | Signal::Terminate => {
                        if shutdown.is_running() {
                            self.leave_to_successor();
                        }
                        steps.extend(shutdown.on_signal(Instant::now()));
                    }
                    Signal::Hangup => self.on_hangup(),
                    Signal::Child => {}
                }
            }
            steps.extend(shutdown.on_time(Instant::now()));
            if shutdown.is_running() && self.group.any_finished() {
                // A loop that was not asked to stop ends only when it cannot go on.
                steps.extend(shutdown.stop());
            }
            if self.may_be_taken_over(&shutdown) && self.is_taken_over() && shutdown.is_running() {
                steps.extend(shutdown.on_signal(Instant::now()));
            }
            for step in steps {
                match step {
                    Step::Drain => {
                        self.shared.draining.store(true, Ordering::Relaxed);
                        on_drain();
                        self.begin_drain()?;
                    }
                    Step::Stop => self.group.set_phase(Phase::Stop),
                }
            }
            self.attend()?;
            self.accept(&shutdown)?;
            if shutdown.is_running() {
                self.reload_if_wanted()?;
            } else if self.shared.swept.load(Ordering::Acquire) >= self.group.table_count() {
                // Queued connections have been taken, so closing loses none.
                self.close_listeners();
            }
            self.writer.say_drops(&self.say);
        }
        Ok(())
    }

    fn wait(&self, signals: &Signals, shutdown: &Shutdown) -> io::Result<()> {
        let mut places = vec![
            Place::new(signals.as_raw_fd(), Interest::READ),
            Place::new(self.group.request().as_fd().as_raw_fd(), Interest::READ),
        ];
        let mut until = shutdown.until().into_iter().chain(self.group.retry_at()).min();
        if let Some(acceptor) = self.acceptor.as_ref().filter(|acceptor| !acceptor.is_swept()) {
            places.extend(acceptor.places());
            until = until.into_iter().chain(acceptor.paused_until()).min();
        }
        if let Some(entrance) = self.entrance.as_ref().filter(|_| self.may_be_taken_over(shutdown)) {
            places.extend(entrance.place());
            until = until.into_iter().chain(entrance.paused_until()).min();
        }
        let mut timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        // In a drain no table is taken any more: waiting for one that is ready would spin.
        if let Some(reloader) = self.reloader.as_ref().filter(|_| shutdown.is_running()) {
            // Where one waits to be followed, the next one is taken after it.
            places.extend(reloader.place().filter(|_| self.waiting.is_none()));
            if reloader.watches() {
                timeout = Some(timeout.map_or(LOOK_EVERY, |timeout| timeout.min(LOOK_EVERY)));
            }
        }
        if let Some(error) = poll::wait_or_retry(&mut places, timeout)? {
            let what = format!("signals and requests wait a moment: {error}");
            self.shared.failures.report(&what, Instant::now());
        }
        Ok(())
    }

    /// With `handoff`, accepts connections and hands them over. Connections that are queued when
    /// the forwarder is to end are handed to the workers before they drain. With other strategies
    /// the workers take them.
    fn accept(&mut self, shutdown: &Shutdown) -> io::Result<()> {
        let Some(acceptor) = &mut self.acceptor else { return Ok(()) };
        if shutdown.is_running() {
            return acceptor.accept(&self.listeners, &self.shared, self.group.request());
        }
        if !acceptor.is_swept() && acceptor.sweep(&self.listeners, &self.shared) {
            self.close_listeners();
            self.group.set_phase(Phase::Drain);
        }
        Ok(())
    }

    /// Closes the listeners, and then the place where a process that takes over asks, unless there
    /// is an admin address to take over: so that it need not wait for an answer, and can listen
    /// itself.
    fn close_listeners(&mut self) {
        self.listeners.close();
        // A process that has asked already has the sockets, and will still say that it accepts.
        self.entrance.take_if(|entrance| self.admin.is_none() && !entrance.is_asked());
    }

    /// Whether a process that asks is attended to: in a drain once the listeners are closed, where
    /// the admin address is left, which goes on until then.
    fn may_be_taken_over(&self, shutdown: &Shutdown) -> bool {
        shutdown.is_running() || self.listeners.is_closed() && self.admin.is_some()
    }

    /// Makes the event loops take queued connections and end, except where another process accepts.
    fn begin_drain(&mut self) -> io::Result<()> {
        if self.acceptor.is_some() {
            // It hands over queued connections first.
            return Ok(());
        }
        for numbers in self.listeners.shared().chunks(MOST) {
            for (_, mailbox) in self.group.mailboxes() {
                send(mailbox, &Message::Forget(numbers.to_vec()), &[])?;
            }
        }
        self.group.set_phase(Phase::Drain);
        Ok(())
    }

    /// Gives the listeners to a process that asks, and says whether one has taken over.
    fn is_taken_over(&mut self) -> bool {
        let Some(entrance) = &mut self.entrance else { return false };
        let admin = self.admin.as_ref().map(|admin| (admin.listener.as_fd(), Owner::This));
        let sockets: Vec<_> = admin.into_iter().chain(self.listeners.sockets()).collect();
        match entrance.attend(&sockets) {
            Ok(None) => false,
            Ok(Some(taken)) => {
                let taken = match &self.admin {
                    Some(_) => &taken[1..],
                    None => &taken[..],
                };
                // The new process answers there, or has none.
                self.admin = None;
                if self.listeners.is_closed() {
                    (self.say)("another process has started in place of this one, which drains");
                } else {
                    let count = self.listeners.hand_over(taken);
                    (self.say)(&format!(
                        "another process has taken over, with {count} of the listeners: this one drains"
                    ));
                }
                true
            }
            Err(error) => {
                let what = format!("another process asked to take over, and this one goes on: {error}");
                self.shared.failures.report(&what, Instant::now());
                false
            }
        }
    }

    /// A signal ends this process while another one may be about to take over. What that one has is
    /// left to it: the end of listening here would end it there.
    fn leave_to_successor(&mut self) {
        if !self.is_taken_over() && self.entrance.as_ref().is_some_and(Entrance::is_asked) {
            // It answers at the admin address too, or has none.
            self.admin = None;
            self.listeners.hand_over_all();
            (self.say)("another process has the listeners, and has not said yet that it accepts: they are left to it");
        }
    }

    fn on_hangup(&self) {
        // logrotate(8) sends SIGHUP too.
        self.writer.reopen();
        match &self.reloader {
            Some(reloader) => reloader.want(),
            None => (self.say)("there is no file to read the table from anew: it came as arguments"),
        }
    }

    /// Does what the event loops have asked for, and adds and introduces the tables that they need.
    fn attend(&mut self) -> io::Result<()> {
        let before = self.group.table_count();
        let Requests { raised, refused } = self.group.process_requests();
        if raised {
            // A place may be free that the acceptor waits for.
            match &mut self.acceptor {
                Some(acceptor) => acceptor.on_wake(),
                None => self.group.wake(),
            }
        }
        match refused {
            Some(error) if !self.stalled => {
                self.stalled = true;
                (self.say)(&format!(
                    "accepting pauses, as no descriptor table can be added: {error}; raise `ulimit -n` or `ulimit -u`"
                ));
            }
            _ => self.stalled &= self.group.table_count() == before,
        }
        self.introduce(before)
    }

    /// Sends every listener, or the socket by which connections are handed over, to the tables from
    /// number `first` on, and to those that ask for it.
    fn introduce(&self, first: usize) -> io::Result<()> {
        let tables_of = |worker| self.group.mailboxes().filter(move |(of, _)| *of == worker);
        // In a drain no table needs another listener.
        let draining = self.shared.draining.load(Ordering::Relaxed);
        let asking = if draining { Vec::new() } else { self.shared.take_lacking() };
        let asking = asking.into_iter().filter_map(|(worker, table)| tables_of(worker).nth(table));
        let all: Vec<&Listener> = self.listeners.iter().collect();
        let new = self.group.mailboxes().skip(first).map(|to| (to, MOST));
        for ((worker, mailbox), most) in asking.map(|to| (to, FEW)).chain(new) {
            match &self.acceptor {
                Some(acceptor) => send(mailbox, &Message::Handoff, &[acceptor.handoff_socket(worker)])?,
                None => all.chunks(most).try_for_each(|part| send_listeners(mailbox, worker, part))?,
            }
        }
        Ok(())
    }

    /// Waits for the event loops, which end at once after a failure, and has the logs written to
    /// their end. `others` are the descriptors of this table that are not the forwarder's: what is
    /// open besides them in the end has leaked.
    pub(crate) fn finish(self, outcome: io::Result<()>, others: usize) -> Result<Totals, Error> {
        let mut failure = outcome.err();
        if failure.is_some() {
            self.group.set_phase(Phase::Stop);
        }
        let Coordinator { group, workers, mut listeners, acceptor, shared, writer, .. } = self;
        let Coordinator { say, reloader, admin, entrance, .. } = self;
        listeners.close();
        let [reloads, reloads_refused] = [0, 1].map(|place| shared.reloads[place].load(Ordering::Relaxed));
        let mut totals = Totals { reloads, reloads_refused, ..Totals::default() };
        totals.connections_per_worker = vec![0; workers];
        let parts = group.join();
        if let Some(acceptor) = acceptor {
            totals.add(&acceptor.finish(&shared));
        }
        for (worker, part) in parts {
            match part {
                Ok(part) => {
                    totals.connections_per_worker[worker] += part.connections;
                    totals.add(&part);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        totals.peak_connections = shared.limit.peak();
        totals.leaked.slots += shared.limit.taken();
        drop((shared, listeners));
        let written = writer.finish();
        totals.log_rows_dropped = written.missing;
        if !written.has_ended {
            say("the last log rows are not written: whatever reads the log, or its disk, has stalled");
        }
        drop((reloader, admin, entrance));
        // A log that nobody reads is still open in the hands of its thread.
        if written.has_ended {
            totals.leaked.descriptors += descriptor::count_open().saturating_sub(others) as u64;
        }
        failure.map_or(Ok(totals), |error| Err(error.into()))
    }
}

fn send_listeners(mailbox: BorrowedFd<'_>, worker: usize, listeners: &[&Listener]) -> io::Result<()> {
    for part in listeners.chunks(MOST) {
        let numbers = part.iter().map(|listener| listener.number).collect();
        let sockets: Vec<BorrowedFd<'_>> =
            part.iter().map(|listener| listener.sockets[worker % listener.sockets.len()].as_fd()).collect();
        send(mailbox, &Message::Listen(numbers), &sockets)?;
    }
    Ok(())
}

/// Sends a message, waiting for the table to take earlier ones where it must. A table that has
/// ended needs none.
fn send(mailbox: BorrowedFd<'_>, message: &Message, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    loop {
        match passing::send(mailbox, &message.to_bytes(), sockets) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll::wait_or_retry(&mut [Place::new(mailbox.as_raw_fd(), Interest::WRITE)], None)?;
            }
            // As many descriptors of this user are on their way as may be (unix(7)), and tables
            // take them meanwhile; or there is no memory for the message.
            Err(error) if descriptor::is_too_many_passed(&error) || descriptor::is_exhaustion(&error) => {
                poll::wait_or_retry(&mut [], Some(PASSING_RETRY))?;
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            outcome => return outcome,
        }
    }
}
