//! A forwarder from its listeners to its totals: the coordinator of the event loops.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_reactor::crew::{Crew, Growth, Outset, Phase};
use plimsoll_sys::passing;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};

use crate::Say;
use crate::event_loop;
use crate::listeners::{Listener, Listeners};
use crate::log::{Record, Writer};
use crate::mail::{MOST, Mail};
use crate::reload::{self, Reloader, Source};
use crate::shared::{ListenerNumber, Shared};
use crate::table::{Listen, LogTarget, Table};
use crate::totals::Totals;

/// How workers come by connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// There is one worker.
    Single,
    /// All wait at the same listeners, and the kernel wakes one or a few.
    Exclusive,
    /// Each has a listener of its own at each address (SO_REUSEPORT), and the kernel spreads connections by a hash.
    ReusePort,
}

impl Accept {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Accept::Single => "single",
            Accept::Exclusive => "exclusive",
            Accept::ReusePort => "reuseport",
        }
    }
}

/// No accept strategy has this name.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no accept strategy; choose single, exclusive or reuseport (handoff is not supported yet)")]
pub struct UnknownAccept(String);

impl FromStr for Accept {
    type Err = UnknownAccept;

    fn from_str(name: &str) -> Result<Accept, UnknownAccept> {
        [Accept::Single, Accept::Exclusive, Accept::ReusePort]
            .into_iter()
            .find(|accept| accept.name() == name)
            .ok_or_else(|| UnknownAccept(name.to_owned()))
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What a forwarder is to be.
pub struct Config {
    /// The first table.
    pub table: Table,
    /// Event loops.
    pub workers: usize,
    /// How they come by connections.
    pub accept: Accept,
    /// How long connections may go on when it is told to stop.
    pub drain: Duration,
    /// Where each closed connection gets a row.
    pub connection_log: Option<LogTarget>,
    /// Where each relayed read gets a row. Splice is off with it, as bytes in a pipe come in no reads.
    pub transfer_log: Option<PathBuf>,
}

/// Why there is no forwarder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table is well formed, and cannot be.
    #[error("{0}")]
    Table(String),
    /// An address could not be listened on.
    #[error("cannot listen on {listen}: {}", listen_remedy(.source))]
    Listen {
        /// The address.
        listen: Listen,
        /// What the kernel said.
        source: io::Error,
    },
    /// A log could not be opened.
    #[error("cannot open the log {}: {source}; name a file in a folder that you can write to", path.display())]
    Log {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The forwarder could not be started, or could not go on.
    #[error("the forwarder stopped: {0}")]
    Run(#[from] io::Error),
}

fn listen_remedy(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop what listens there (`ss -ltnp` names it), or choose another port; 0 picks a free one"
        }
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine (`ip address` lists them)",
        io::ErrorKind::PermissionDenied => "choose a port of 1024 or more, or run as root",
        _ if error.raw_os_error() == Some(24) => "raise `ulimit -n`, or listen on fewer ports",
        _ => "choose another address",
    };
    format!("{error}; {remedy}")
}

/// The file that is watched is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A forwarder whose listeners are open.
pub struct Forwarder {
    listeners: Listeners,
    /// Sockets a listener: one for all workers, or one a worker.
    sets: usize,
    max_connections: Option<u64>,
    workers: usize,
    accept: Accept,
    drain: Duration,
    writer: Writer,
    say: Arc<Say>,
}

impl Forwarder {
    /// Resolves names, opens the listeners and the logs. From now on connections are taken, and queue until [`Forwarder::run`].
    pub fn bind(config: Config, say: Say) -> Result<Forwarder, Error> {
        let Config { table, workers, accept, drain, connection_log, transfer_log } = config;
        let say = Arc::new(say);
        table.notes.iter().for_each(|note| say(note));
        let routes = reload::routes(&table).map_err(Error::Table)?;
        let writer = Writer::start(connection_log.as_ref().or(table.log.as_ref()), transfer_log, Arc::clone(&say))
            .map_err(|(path, source)| Error::Log { path, source })?;
        let sets = if accept == Accept::ReusePort { workers } else { 1 };
        let mut listeners = Listeners::default();
        listeners.change(routes, sets).map_err(|(listen, source)| Error::Listen { listen, source })?;
        Ok(Forwarder { listeners, sets, max_connections: table.max_connections, workers, accept, drain, writer, say })
    }

    /// Where it can be connected to, in the order asked for.
    pub fn addresses(&self) -> Vec<Listen> {
        self.listeners.iter().map(|listener| listener.at.clone()).collect()
    }

    /// Relays until a signal says to stop: SIGTERM or SIGINT drains, a second one ends it at once. SIGHUP reads the table anew from `source`. `signals` must have been
    /// taken before any thread was started.
    pub fn run(self, signals: &Signals, source: Option<Source>) -> Result<Totals, Error> {
        let Forwarder { listeners, sets, max_connections, workers, accept, drain, writer, say } = self;
        let exclusive = accept == Accept::Exclusive && workers > 1;
        let most = max_connections.unwrap_or(u64::MAX);
        let shared = Shared::new(listeners.routes(), most, writer.log().clone(), Arc::clone(&say), exclusive);
        let shared = Arc::new(shared);
        let for_loops = Arc::clone(&shared);
        let crew = Crew::new(workers, Growth::AsNeeded, move |seat| event_loop::run(&seat, &for_loops))?;
        let mut coordinator = Coordinator {
            crew: crew.with_outset(Outset::Empty),
            listeners,
            sets,
            shared: Arc::clone(&shared),
            writer,
            say,
            reloader: source.map(Reloader::start).transpose()?,
            reloads: (0, 0),
        };
        for worker in 0..workers {
            coordinator.crew.add_table(worker)?;
        }
        coordinator.introduce(0)?;
        let names = reload::resolve_again(&shared)?;
        coordinator.coordinate(signals, drain)?;
        drop((names, shared));
        coordinator.finish()
    }
}

struct Coordinator {
    crew: Crew<io::Result<Totals>>,
    listeners: Listeners,
    sets: usize,
    shared: Arc<Shared>,
    writer: Writer,
    say: Arc<Say>,
    reloader: Option<Reloader>,
    /// Done and refused.
    reloads: (u64, u64),
}

impl Coordinator {
    fn coordinate(&mut self, signals: &Signals, drain: Duration) -> io::Result<()> {
        let mut deadline: Option<Instant> = None;
        while !self.crew.is_finished() {
            self.wait(signals, deadline)?;
            while let Some(signal) = signals.next() {
                match signal {
                    Signal::Interrupt | Signal::Terminate if deadline.is_some() => self.crew.set_phase(Phase::Stop),
                    Signal::Interrupt | Signal::Terminate => {
                        deadline = Some(Instant::now() + drain);
                        self.crew.set_phase(Phase::Drain);
                    }
                    Signal::Hangup => self.hang_up(),
                    Signal::Child => {}
                }
            }
            self.attend()?;
            if deadline.is_none()
                && let Some(reloader) = &mut self.reloader
            {
                reloader.look();
                if let Some(outcome) = reloader.outcome() {
                    self.reload(outcome)?;
                }
            }
            self.writer.say_drops(&self.say);
            if deadline.is_some() && self.shared.swept.load(Ordering::Acquire) >= self.crew.table_count() {
                // What was queued has been taken: only now nobody is lost by closing.
                self.listeners.close();
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.crew.set_phase(Phase::Stop);
                // Once is enough, and waiting for a time that has passed would spin.
                deadline = Some(Instant::now() + Duration::from_secs(3600));
            } else if deadline.is_none() && self.crew.any_finished() {
                // A loop ends by itself only when it cannot go on.
                self.crew.set_phase(Phase::Stop);
            }
        }
        Ok(())
    }

    fn wait(&self, signals: &Signals, deadline: Option<Instant>) -> io::Result<()> {
        let mut places = vec![
            Place::new(signals.as_raw_fd(), Interest::READ),
            Place::new(self.crew.request().as_fd().as_raw_fd(), Interest::READ),
        ];
        let mut timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(reloader) = &self.reloader {
            places.push(Place::new(reloader.ready.as_fd().as_raw_fd(), Interest::READ));
            if reloader.watches() {
                timeout = Some(timeout.map_or(LOOK_EVERY, |timeout| timeout.min(LOOK_EVERY)));
            }
        }
        poll::wait(&mut places, timeout)?;
        Ok(())
    }

    fn hang_up(&self) {
        // Whoever moves logs away sends SIGHUP too.
        self.writer.log().hand(Record::Reopen);
        match &self.reloader {
            Some(reloader) => reloader.want(),
            None => (self.say)("there is no file to read the table from anew: it came as arguments"),
        }
    }

    /// Adds and introduces the tables that the event loops need.
    fn attend(&mut self) -> io::Result<()> {
        let before = self.crew.table_count();
        if let Some(error) = self.crew.attend() {
            (self.say)(&format!(
                "accepting pauses, as no descriptor table can be added: {error}; raise `ulimit -n` or `ulimit -u`"
            ));
        }
        self.introduce(before)
    }

    /// Sends every listener to the tables from number `first` on.
    fn introduce(&self, first: usize) -> io::Result<()> {
        let all: Vec<&Listener> = self.listeners.iter().collect();
        for (worker, mailbox) in self.crew.mailboxes().skip(first) {
            send_listeners(mailbox, worker, &all)?;
        }
        Ok(())
    }

    /// Puts a new table in the place of the old one, or says why not.
    fn reload(&mut self, outcome: reload::Outcome) -> io::Result<()> {
        let changed = outcome.and_then(|(table, routes)| {
            let change = self.listeners.change(routes, self.sets);
            let change = change.map_err(|(listen, source)| Error::Listen { listen, source }.to_string())?;
            Ok((table, change))
        });
        let (table, change) = match changed {
            Ok(changed) => changed,
            Err(why) => {
                self.reloads.1 += 1;
                (self.say)(&format!("the table is refused, and the former one goes on: {why}"));
                return Ok(());
            }
        };
        table.notes.iter().for_each(|note| (self.say)(note));
        self.shared.publish(self.listeners.routes());
        self.shared.max_connections.store(table.max_connections.unwrap_or(u64::MAX), Ordering::Relaxed);
        // Numbers are given in order, so that what was opened now is from the first of them on.
        let first = change.opened.first().copied().unwrap_or(ListenerNumber::MAX);
        let opened: Vec<&Listener> = self.listeners.iter().filter(|listener| listener.number >= first).collect();
        let closed: Vec<ListenerNumber> = change.closed.iter().map(|listener| listener.number).collect();
        for (worker, mailbox) in self.crew.mailboxes() {
            send(mailbox, &Mail::Routes, &[])?;
            send_listeners(mailbox, worker, &opened)?;
            for numbers in closed.chunks(MOST) {
                send(mailbox, &Mail::Leave(numbers.to_vec()), &[])?;
            }
        }
        change.closed.iter().for_each(Listener::unlink);
        self.reloads.0 += 1;
        let count = self.listeners.iter().count();
        (self.say)(&format!("the table is reloaded: {count} listeners, {} new, {} gone", opened.len(), closed.len()));
        Ok(())
    }

    fn finish(self) -> Result<Totals, Error> {
        let Coordinator { crew, mut listeners, shared, writer, reloads, .. } = self;
        listeners.close();
        let mut totals = Totals { reloads: reloads.0, reloads_refused: reloads.1, ..Totals::default() };
        for part in crew.join() {
            totals.add(&part?);
        }
        totals.peak_connections = shared.gauge.peak();
        drop(shared);
        totals.log_rows_dropped = writer.finish();
        Ok(totals)
    }
}

fn send_listeners(mailbox: BorrowedFd<'_>, worker: usize, listeners: &[&Listener]) -> io::Result<()> {
    for part in listeners.chunks(MOST) {
        let numbers = part.iter().map(|listener| listener.number).collect();
        let sockets: Vec<BorrowedFd<'_>> =
            part.iter().map(|listener| listener.sockets[worker % listener.sockets.len()].as_fd()).collect();
        send(mailbox, &Mail::Listen(numbers), &sockets)?;
    }
    Ok(())
}

/// Sends a message, waiting for the table to take earlier ones where it must. A table that has ended needs none.
fn send(mailbox: BorrowedFd<'_>, mail: &Mail, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    loop {
        match passing::send(mailbox, &mail.to_bytes(), sockets) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll::wait(&mut [Place::new(mailbox.as_raw_fd(), Interest::WRITE)], None)?;
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            outcome => return outcome,
        }
    }
}
