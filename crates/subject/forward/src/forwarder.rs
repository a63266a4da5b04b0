//! A forwarder, from its configuration to its totals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use plimsoll_reactor::accept::Strategy;
use plimsoll_sys::descriptor;
use plimsoll_sys::signal::Signals;

use crate::acceptor::Acceptor;
use crate::admin::Admin;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::inherited::Inherited;
use crate::listeners::Listeners;
use crate::log::Writer;
use crate::names::Names;
use crate::reload::{self, Source};
use crate::shared::Shared;
use crate::speaker::Speaker;
use crate::table::{Listen, LogTarget, Table};
use crate::totals::Totals;
use crate::upgrade::{Entrance, Predecessor};
use crate::{Say, checks};

/// What a forwarder is to be.
pub struct Config {
    /// The first table.
    pub table: Table,
    /// Event loops.
    pub workers: usize,
    /// How they come by connections.
    pub accept: Strategy,
    /// How long connections may go on once the forwarder is asked to stop.
    pub drain: Duration,
    /// Where each closed connection gets a row.
    pub connection_log: Option<LogTarget>,
    /// Where each relayed read gets a row. Splice is off with it, as bytes in a pipe come in no
    /// reads.
    pub transfer_log: Option<PathBuf>,
    /// Listeners that this process was started with.
    pub inherited: Inherited,
    /// A Unix socket by which it takes over from a process that runs, and is taken over from later.
    pub upgrade: Option<PathBuf>,
}

/// A forwarder whose listeners are open.
pub struct Forwarder {
    listeners: Listeners,
    /// Sockets a listener: one for all workers, or one a worker.
    sets: usize,
    max_connections: Option<u64>,
    workers: usize,
    accept: Strategy,
    drain: Duration,
    writer: Writer,
    /// Where the table says that the log goes, unless the command line does.
    log: Option<Option<LogTarget>>,
    names: Arc<Names>,
    admin: Option<Admin>,
    upgrade: Option<Upgrade>,
    say: Arc<Say>,
    speaker: Speaker,
    /// How many of this table it has.
    descriptors: usize,
}

/// A forwarder whose event loops run, and have no listeners yet.
pub struct Started {
    coordinator: Coordinator,
    /// Dropping it ends the thread that resolves names again.
    names: SyncSender<()>,
    /// Dropping it ends the thread that checks servers.
    checks: SyncSender<()>,
    shared: Arc<Shared>,
    upgrade: Option<Upgrade>,
    drain: Duration,
    /// Descriptors of this table that are not the forwarder's.
    others: usize,
    speaker: Speaker,
}

/// The process that this one takes over from, or where another one may ask, as there is none.
enum Upgrade {
    From(Predecessor, PathBuf),
    Open(Entrance),
}

impl Forwarder {
    /// Resolves names, opens the listeners and the logs. From now on connections queue until
    /// [`Started::run`].
    pub fn bind(config: Config, say: Say) -> Result<Forwarder, Error> {
        let Config { table, workers, accept, drain, connection_log, transfer_log, mut inherited, upgrade: by } = config;
        let (speaker, say) = Speaker::start(say)?;
        let (say, names) = (Arc::new(say), Arc::new(Names::of_the_machine()));
        let (routes, notes) = reload::routes(&table, &names).map_err(Error::Table)?;
        notes.iter().for_each(|note| say(note));
        // From now on: what the resolving of names keeps open is the C library's. Those that are
        // inherited are closed on the way, or are taken.
        let before = descriptor::count_open().saturating_sub(inherited.count());
        let log = connection_log.is_none().then(|| table.log.clone());
        let writer = Writer::start(connection_log.as_ref().or(table.log.as_ref()), transfer_log, Arc::clone(&say))
            .map_err(|(path, source)| Error::Log { path, source })?;
        let sets = if accept == Strategy::ReusePort { workers } else { 1 };
        let find = |path| Upgrade::find(path, &mut inherited);
        let mut upgrade = by.map(find).transpose()?;
        inherited.check(sets).map_err(Error::Table)?;
        let mut listeners = Listeners::default();
        let listen_error = |(listen, source)| Error::Listen { listen, source };
        listeners.change(routes, sets, &mut inherited).map_err(listen_error)?.say_left_out(&say);
        let open_admin = |address| {
            let listen_error = |source| Error::Listen { listen: Listen::Tcp(address), source };
            Admin::bind(address, &mut inherited).map_err(listen_error)
        };
        let admin = table.admin.map(open_admin).transpose()?;
        if let Some(listen) = inherited.left_over() {
            let why = format!(
                "the service manager has a socket at {listen}, and no rule listens there: add a rule, or take the \
                 socket out of the .socket unit"
            );
            return Err(Error::Table(why));
        }
        if let Some(Upgrade::From(predecessor, _)) = &mut upgrade {
            predecessor.note(&inherited);
        }
        let max_connections = table.max_connections;
        drop(inherited);
        let descriptors = descriptor::count_open().saturating_sub(before);
        Ok(Forwarder {
            listeners,
            sets,
            max_connections,
            workers,
            accept,
            drain,
            writer,
            log,
            names,
            admin,
            upgrade,
            say,
            speaker,
            descriptors,
        })
    }

    /// Where it can be connected to, in the order asked for.
    pub fn addresses(&self) -> Vec<Listen> {
        self.listeners.iter().map(|listener| listener.at.clone()).collect()
    }

    /// Whether it takes over from a process that runs.
    pub fn takes_over(&self) -> bool {
        matches!(self.upgrade, Some(Upgrade::From(..)))
    }

    /// Where its metrics are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Starts the event loops and all other threads. Connections still queue until
    /// [`Started::run`]. SIGHUP reads the table anew from `source`.
    pub fn start(self, source: Option<Source>) -> Result<Started, Error> {
        let Forwarder { listeners, sets, max_connections, workers, accept, drain, .. } = self;
        let Forwarder { writer, log, names, admin, upgrade, say, speaker, descriptors, .. } = self;
        let others = descriptor::count_open().saturating_sub(descriptors);
        let most = max_connections.unwrap_or(u64::MAX);
        let exclusive = accept == Strategy::Exclusive && workers > 1;
        let acceptor = if accept == Strategy::Handoff { Some(Acceptor::new(workers, &listeners)?) } else { None };
        let acceptance = (exclusive, acceptor.as_ref().map(Acceptor::queues));
        let shared = Shared::new(listeners.routes(), most, writer.log().clone(), say, names, acceptance);
        let shared = Arc::new(shared);
        let mut coordinator = Coordinator::new(workers, listeners, sets, acceptor, Arc::clone(&shared), writer, log)?;
        coordinator.start(source)?;
        let (names, checks) = (reload::resolve_again(&shared)?, checks::start(&shared)?);
        coordinator.admin = admin.map(|admin| admin.start(&shared)).transpose()?;
        Ok(Started { coordinator, names, checks, shared, upgrade, drain, others, speaker })
    }
}

impl Started {
    /// Accepts, has the process that this one takes over from stop, and relays until a signal says
    /// to stop: SIGTERM or SIGINT drains, a second one ends it at once. `signals` must have been
    /// taken before any thread was started. `on_drain` is called when the draining begins.
    pub fn run(self, signals: &Signals, on_drain: &dyn Fn()) -> Result<Totals, Error> {
        let Started { mut coordinator, names, checks, shared, upgrade, drain, others, speaker: _speaker } = self;
        coordinator.listen()?;
        coordinator.entrance = upgrade.and_then(|upgrade| upgrade.complete(&shared.say));
        let outcome = coordinator.coordinate(signals, drain, on_drain);
        drop((names, checks, shared));
        coordinator.finish(outcome, others)
    }
}

impl Upgrade {
    fn find(path: PathBuf, inherited: &mut Inherited) -> Result<Upgrade, Error> {
        let found = Predecessor::find(&path, inherited).and_then(|found| match found {
            Some(predecessor) => Ok(Upgrade::From(predecessor, path.clone())),
            None => Entrance::open(&path).map(Upgrade::Open),
        });
        found.map_err(|source| Error::Upgrade { path, source })
    }

    /// Event loops accept now: has the process that runs stop, and waits in its place. Where either
    /// fails this process goes on all the same, as its clients need it.
    fn complete(self, say: &Say) -> Option<Entrance> {
        let (predecessor, path) = match self {
            Upgrade::Open(entrance) => return Some(entrance),
            Upgrade::From(predecessor, path) => (predecessor, path),
        };
        if let Err(error) = predecessor.release() {
            say(&format!(
                "the process that this one takes over from cannot be sent a message: {error}; stop it if it still runs"
            ));
        }
        let entrance = Entrance::replace(&path);
        let no_entrance = |error| say(&format!("no later process can take over by {}: {error}", path.display()));
        entrance.map_err(no_entrance).ok()
    }
}
