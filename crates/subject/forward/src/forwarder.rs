//! A forwarder, from its configuration to its totals.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_reactor::accept::Strategy;
use plimsoll_sys::signal::Signals;

use crate::acceptor::Acceptor;
use crate::admin::Admin;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::listeners::Listeners;
use crate::log::Writer;
use crate::names::Names;
use crate::reload::{self, Source};
use crate::shared::Shared;
use crate::table::{Listen, LogTarget, Table};
use crate::totals::Totals;
use crate::{Say, checks};

/// What a forwarder is to be.
pub struct Config {
    /// The first table.
    pub table: Table,
    /// Event loops.
    pub workers: usize,
    /// How they come by connections.
    pub accept: Strategy,
    /// How long connections may go on when it is told to stop.
    pub drain: Duration,
    /// Where each closed connection gets a row.
    pub connection_log: Option<LogTarget>,
    /// Where each relayed read gets a row. Splice is off with it, as bytes in a pipe come in no
    /// reads.
    pub transfer_log: Option<PathBuf>,
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
    say: Arc<Say>,
}

impl Forwarder {
    /// Resolves names, opens the listeners and the logs. From now on connections are taken, and
    /// queue until [`Forwarder::run`].
    pub fn bind(config: Config, say: Say) -> Result<Forwarder, Error> {
        let Config { table, workers, accept, drain, connection_log, transfer_log } = config;
        let (say, names) = (Arc::new(say), Arc::new(Names::of_the_machine()));
        let (routes, notes) = reload::routes(&table, &names).map_err(Error::Table)?;
        notes.iter().for_each(|note| say(note));
        let log = connection_log.is_none().then(|| table.log.clone());
        let writer = Writer::start(connection_log.as_ref().or(table.log.as_ref()), transfer_log, Arc::clone(&say))
            .map_err(|(path, source)| Error::Log { path, source })?;
        let sets = if accept == Strategy::ReusePort { workers } else { 1 };
        let mut listeners = Listeners::default();
        let listen_error = |(listen, source)| Error::Listen { listen, source };
        listeners.change(routes, sets).map_err(listen_error)?.say_left_out(&say);
        let open_admin =
            |address| Admin::bind(address).map_err(|source| Error::Listen { listen: Listen::Tcp(address), source });
        let admin = table.admin.map(open_admin).transpose()?;
        let max_connections = table.max_connections;
        Ok(Forwarder { listeners, sets, max_connections, workers, accept, drain, writer, log, names, admin, say })
    }

    /// Where it can be connected to, in the order asked for.
    pub fn addresses(&self) -> Vec<Listen> {
        self.listeners.iter().map(|listener| listener.at.clone()).collect()
    }

    /// Where its metrics are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Relays until a signal says to stop: SIGTERM or SIGINT drains, a second one ends it at once.
    /// SIGHUP reads the table anew from `source`. `signals` must have been taken before any
    /// thread was started. `on_drain` is called when the draining begins.
    pub fn run(self, signals: &Signals, source: Option<Source>, on_drain: &dyn Fn()) -> Result<Totals, Error> {
        let Forwarder { listeners, sets, max_connections, workers, accept, drain, writer, log, names, admin, say } =
            self;
        let most = max_connections.unwrap_or(u64::MAX);
        let exclusive = accept == Strategy::Exclusive && workers > 1;
        let acceptor = if accept == Strategy::Handoff { Some(Acceptor::new(workers, &listeners)?) } else { None };
        let acceptance = (exclusive, acceptor.as_ref().map(Acceptor::desks));
        let shared = Shared::new(listeners.routes(), most, writer.log().clone(), say, names, acceptance);
        let shared = Arc::new(shared);
        let mut coordinator = Coordinator::new(workers, listeners, sets, acceptor, Arc::clone(&shared), writer, log)?;
        coordinator.start(source)?;
        let (names, checks) = (reload::resolve_again(&shared)?, checks::start(&shared)?);
        let admin = admin.map(|admin| admin.start(&shared)).transpose()?;
        coordinator.coordinate(signals, drain, on_drain)?;
        drop((names, checks, admin, shared));
        coordinator.finish()
    }
}
