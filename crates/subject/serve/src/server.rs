//! A server from its listeners to its totals.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use plimsoll_reactor::accept::Strategy;
use plimsoll_reactor::listening;
use plimsoll_reactor::worker_group::{Growth, LoopHandle};
use plimsoll_sys::descriptor;
use plimsoll_sys::file::Root;
use plimsoll_sys::signal::Signals;

use crate::accept::ConnectionSource;
use crate::acceptor;
use crate::config::{Config, Error};
use crate::connection_log::ConnectionLog;
use crate::coordinator::Coordinator;
use crate::driver::readiness::{self, Selector};
use crate::model::{self, Model};
use crate::service::Service;
use crate::state::{Notify, ServerState};
use crate::totals::Totals;

/// A server whose listeners are open.
pub struct Server {
    config: Config,
    /// By worker, then in the order of `Config::listen`. There is one set where workers have none
    /// of their own.
    listeners: Vec<Vec<OwnedFd>>,
    addresses: Vec<SocketAddr>,
    state: ServerState,
}

impl Server {
    /// Opens the listeners, and the connection log. From now on connections are taken, and queue
    /// until [`Server::run`].
    pub fn bind(config: Config, notify: Notify) -> Result<Server, Error> {
        let log = config.connection_log.as_deref().map(ConnectionLog::create).transpose().map_err(|source| {
            Error::ConnectionLog { path: config.connection_log.clone().unwrap_or_default(), source }
        })?;
        let root = config
            .root
            .as_deref()
            .map(Root::open)
            .transpose()
            .map_err(|source| Error::Root { path: config.root.clone().unwrap_or_default(), source })?;
        let each_its_own = config.model.has_workers() && config.accept == Strategy::ReusePort;
        let sets = if each_its_own { config.workers } else { 1 };
        let mut listeners: Vec<Vec<OwnedFd>> = (0..sets).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for &asked in &config.listen {
            let refused = |source| Error::Listen { address: asked, source };
            let (address, sockets) = listening::open(asked, sets).map_err(refused)?;
            listeners.iter_mut().zip(sockets).for_each(|(set, socket)| set.push(socket));
            addresses.push(address);
        }
        let state = ServerState::new(log, root, config.max_connections.unwrap_or(u64::MAX), notify);
        Ok(Server { config, listeners, addresses, state })
    }

    /// Where it can be connected to, in the order asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until a signal says to stop: SIGTERM or SIGINT drains, a second one ends it at once.
    /// `signals` must have been taken before any thread was started, with SIGCHLD among them
    /// for [`Model::Fork`].
    pub fn run<P: Service>(self, service: P, signals: &Signals) -> Result<Totals, Error> {
        let Server { config, mut listeners, state, .. } = self;
        // Listeners are closed on the way.
        let descriptors = descriptor::count_open().saturating_sub(listeners.iter().flatten().count());
        let state = Arc::new(state);
        let crewed = |listeners, growth| Coordinator { listeners, growth, signals, config: &config, state: &state };
        let (never, as_needed) = (Growth::Never, Growth::AsNeeded);
        let mut totals = match config.model {
            Model::Threads => {
                let spawner = model::threads::Threads::new(service, Arc::clone(&state))?;
                acceptor::run(listeners.remove(0), signals, spawner, config.drain, &state)?
            }
            Model::Fork => {
                let spawner = model::fork::Fork::new(service, Arc::clone(&state))?;
                acceptor::run(listeners.remove(0), signals, spawner, config.drain, &state)?
            }
            Model::Select => crewed(listeners, never).run(table::<model::select::Select, P>(service, &state))?,
            Model::Poll => crewed(listeners, as_needed).run(table::<model::poll::Poll, P>(service, &state))?,
            Model::Epoll => crewed(listeners, as_needed).run(table::<model::epoll::Epoll, P>(service, &state))?,
            Model::EpollEt => {
                crewed(listeners, as_needed).run(table::<model::epoll_et::EpollEt, P>(service, &state))?
            }
            Model::Uring => {
                let shared = Arc::clone(&state);
                crewed(listeners, as_needed).run(move |handle: &LoopHandle, source: ConnectionSource<'_>| {
                    model::uring::run(handle, source, &service, &shared, model::uring::sizes(handle.table()))
                })?
            }
        };
        state.finish(&mut totals);
        totals.leaked.descriptors += descriptor::count_open().saturating_sub(descriptors) as u64;
        Ok(totals)
    }
}

/// An event loop of a readiness model, over one descriptor table.
fn table<S: Selector, P: Service>(
    service: P,
    state: &Arc<ServerState>,
) -> impl Fn(&LoopHandle, ConnectionSource<'_>) -> io::Result<Totals> + Send + Sync + 'static {
    let state = Arc::clone(state);
    move |handle, source| readiness::run::<S, P>(handle, source, &service, &state)
}
