//! A server from its listeners to its totals.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::crew::{Crew, Growth, Outset, Phase, Seat};
use plimsoll_reactor::listening;
use plimsoll_reactor::shutdown::{Shutdown, Step};
use plimsoll_sys::file::Root;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};
use plimsoll_sys::{descriptor, net};

use crate::accept::handoff::Handoff;
use crate::accept::{Doors, Strategy};
use crate::acceptor;
use crate::connection_log::ConnectionLog;
use crate::driver::readiness::{self, Selector};
use crate::ledger::{Ledger, Say};
use crate::model::{self, Model};
use crate::service::Service;
use crate::totals::Totals;

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it waits for its connections.
    pub model: Model,
    /// Where it listens. Port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Event loops; without meaning for the models that have none.
    pub workers: usize,
    /// How connections find their worker; likewise. [`Strategy::Single`] has one worker.
    pub accept: Strategy,
    /// How long connections may go on when it is told to stop.
    pub drain: Duration,
    /// Past so many connections at a time, accepting pauses.
    pub max_connections: Option<u64>,
    /// What files are beneath, for a service that asks for them.
    pub root: Option<PathBuf>,
    /// Where each closed connection gets a row.
    pub connection_log: Option<PathBuf>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {}", listen_remedy(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The files' folder could not be opened.
    #[error("cannot serve files from {}: {source}; name a folder that you can read", path.display())]
    Root {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection log could not be created.
    #[error("cannot create the connection log {}: {source}; name a file in a folder that you can write to", path.display())]
    ConnectionLog {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server could not be started, or could not go on.
    #[error("the server stopped: {0}")]
    Run(#[from] io::Error),
}

fn listen_remedy(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop what listens there (`ss -ltnp` names it), or choose another port; 0 picks a free one"
        }
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine (`ip address` lists them)",
        io::ErrorKind::PermissionDenied => "choose a port of 1024 or more, or run as root",
        _ => "choose another address",
    };
    format!("{error}; {remedy}")
}

/// A server whose listeners are open.
pub struct Server {
    config: Config,
    /// By worker, then in the order of `Config::listen`. There is one set where workers have none of their own.
    listeners: Vec<Vec<OwnedFd>>,
    addresses: Vec<SocketAddr>,
    ledger: Ledger,
}

impl Server {
    /// Opens the listeners, and the connection log. From now on connections are taken, and queue until [`Server::run`].
    pub fn bind(config: Config, say: Say) -> Result<Server, Error> {
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
        let ledger = Ledger::new(log, root, config.max_connections.unwrap_or(u64::MAX), say);
        Ok(Server { config, listeners, addresses, ledger })
    }

    /// Where it can be connected to, in the order asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until a signal says to stop: SIGTERM or SIGINT drains, a second one ends it at once. `signals` must have been taken before
    /// any thread was started, with SIGCHLD among them for [`Model::Fork`].
    pub fn run<P: Service>(self, service: P, signals: &Signals) -> Result<Totals, Error> {
        let Server { config, mut listeners, ledger, .. } = self;
        // Listeners are closed on the way.
        let descriptors = descriptor::open_count()?.saturating_sub(listeners.iter().flatten().count());
        let ledger = Arc::new(ledger);
        let crewed = |listeners, growth| Crewed { listeners, growth, signals, config: &config, ledger: &ledger };
        let (never, as_needed) = (Growth::Never, Growth::AsNeeded);
        let mut totals = match config.model {
            Model::Threads => {
                let staff = model::threads::Threads::new(service, Arc::clone(&ledger))?;
                acceptor::run(listeners.remove(0), signals, staff, config.drain, &ledger)?
            }
            Model::Fork => {
                let staff = model::fork::Fork::new(service, Arc::clone(&ledger))?;
                acceptor::run(listeners.remove(0), signals, staff, config.drain, &ledger)?
            }
            Model::Select => crewed(listeners, never).run(table::<model::select::Select, P>(service, &ledger))?,
            Model::Poll => crewed(listeners, as_needed).run(table::<model::poll::Poll, P>(service, &ledger))?,
            Model::Epoll => crewed(listeners, as_needed).run(table::<model::epoll::Epoll, P>(service, &ledger))?,
            Model::EpollEt => {
                crewed(listeners, as_needed).run(table::<model::epoll_et::EpollEt, P>(service, &ledger))?
            }
            Model::Uring => {
                let shared = Arc::clone(&ledger);
                crewed(listeners, as_needed).run(move |seat: &Seat, doors: Doors<'_>| {
                    model::uring::run(seat, doors, &service, &shared, model::uring::sizes(seat.table()))
                })?
            }
        };
        ledger.finish(&mut totals);
        totals.leaked.descriptors += descriptor::open_count()?.saturating_sub(descriptors) as u64;
        Ok(totals)
    }
}

/// An event loop of a readiness model, over one descriptor table.
fn table<S: Selector, P: Service>(
    service: P,
    ledger: &Arc<Ledger>,
) -> impl Fn(&Seat, Doors<'_>) -> io::Result<Totals> + Send + Sync + 'static {
    let ledger = Arc::clone(ledger);
    move |seat, doors| readiness::run::<S, P>(seat, doors, &service, &ledger)
}

/// Runs an event loop, and counts the descriptors that it leaves open in its thread's table.
fn counted(run: impl FnOnce() -> io::Result<Totals>) -> io::Result<Totals> {
    let before = descriptor::open_count()?;
    let mut totals = run()?;
    totals.leaked.descriptors += descriptor::open_count()?.saturating_sub(before) as u64;
    Ok(totals)
}

/// What a crew of workers is run with.
struct Crewed<'a> {
    listeners: Vec<Vec<OwnedFd>>,
    growth: Growth,
    signals: &'a Signals,
    config: &'a Config,
    ledger: &'a Ledger,
}

impl Crewed<'_> {
    /// Runs the workers, adding tables as connections need them.
    fn run(
        mut self,
        table: impl Fn(&Seat, Doors<'_>) -> io::Result<Totals> + Send + Sync + 'static,
    ) -> io::Result<Totals> {
        let (accept, workers) = (self.config.accept, self.config.workers);
        let mut handoff = None;
        if accept == Strategy::Handoff {
            let (acceptor, ends) = Handoff::new(self.listeners.remove(0), workers)?;
            self.listeners = ends;
            handoff = Some(acceptor);
        }
        let doors = Arc::new(std::mem::take(&mut self.listeners));
        let (shared, desks) = (Arc::clone(&doors), handoff.as_ref().map(Handoff::desks));
        let mut needed = self.ledger.descriptors();
        needed.extend(doors.iter().flatten().map(AsRawFd::as_raw_fd));
        let mut crew = Crew::new(workers, self.growth, move |seat| {
            let worker = seat.worker();
            let doors = match &desks {
                Some(desks) => Doors::Handed(&shared[worker], &desks[worker]),
                None if accept == Strategy::Exclusive => Doors::Shared(&shared[0]),
                None => Doors::Own(&shared[worker]),
            };
            (worker, counted(|| table(&seat, doors)))
        })?
        .with_outset(Outset::Only(needed));
        for worker in 0..workers {
            crew.add_table(worker)?;
        }
        let mut totals = Totals::default();
        let stop_listening = || match accept {
            Strategy::Handoff => {}
            _ => doors.iter().flatten().for_each(net::stop_listening),
        };
        self.attend(&mut crew, handoff.as_mut(), stop_listening, &mut totals)?;
        totals.connections_per_worker = vec![0; workers];
        let parts = crew.join();
        if let Some(handoff) = handoff {
            handoff.finish(self.ledger);
        }
        for (worker, part) in parts {
            let part = part?;
            totals.connections_per_worker[worker] += part.connections;
            totals.add(&part);
        }
        Ok(totals)
    }

    /// Does what the event loops and the signals ask for, until every loop has ended.
    fn attend(
        &self,
        crew: &mut Crew<(usize, io::Result<Totals>)>,
        mut handoff: Option<&mut Handoff>,
        stop_listening: impl Fn(),
        totals: &mut Totals,
    ) -> io::Result<()> {
        let mut shutdown = Shutdown::new(self.config.drain);
        while !crew.is_finished() {
            let own = [self.signals.as_raw_fd(), crew.request().as_fd().as_raw_fd()];
            let mut places: Vec<Place> = own.map(|descriptor| Place::new(descriptor, Interest::READ)).to_vec();
            let mut until = shutdown.until();
            if let Some(handoff) = handoff.as_ref().filter(|_| shutdown.is_running()) {
                places.extend(handoff.places());
                until = handoff.paused_until();
            }
            poll::wait(&mut places, until.map(|until| until.saturating_duration_since(Instant::now())))?;
            let mut steps = Vec::new();
            while let Some(signal) = self.signals.next() {
                if matches!(signal, Signal::Interrupt | Signal::Terminate) {
                    steps.extend(shutdown.on_signal(Instant::now()));
                }
            }
            steps.extend(shutdown.on_time(Instant::now()));
            if shutdown.is_running() && crew.any_finished() {
                // A loop ends by itself only when it cannot go on.
                steps.extend(shutdown.stop());
            }
            for step in steps {
                if let Some(handoff) = &mut handoff {
                    // Before the workers look for what they were handed last.
                    totals.add(&handoff.close(self.ledger));
                }
                // In this order: a loop that finds its listener shut down knows why.
                crew.set_phase(if step == Step::Drain { Phase::Drain } else { Phase::Stop });
                stop_listening();
            }
            if let Some(handoff) = handoff.as_mut().filter(|_| shutdown.is_running()) {
                handoff.accept(self.ledger);
            }
            if let Some(error) = crew.attend() {
                totals.count_io_error(&error);
                self.ledger.say_once(
                    "table",
                    &format!("accepting pauses, as no descriptor table can be added: {error}; raise `ulimit -n` or `ulimit -u`"),
                );
            }
        }
        Ok(())
    }
}
