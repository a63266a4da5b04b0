//! What every event loop of one forwarder shares, and what the coordinator tells them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};

use plimsoll_reactor::handoff::Desk;

use crate::Say;
use crate::log::Log;
use crate::route::Route;
use crate::totals::Gauge;

/// Names a listener for as long as it is open, in every table alike; a number is not used twice.
pub(crate) type ListenerNumber = u32;

/// The routes by their listeners. Replaced as a whole: a connection keeps the route that it began with.
pub(crate) type Routes = HashMap<ListenerNumber, Arc<Route>>;

/// What goes with a connection to its worker: who has connected, and where it leads.
pub(crate) type Handed = (Option<SocketAddr>, Arc<Route>);

pub(crate) struct Shared {
    routes: RwLock<Arc<Routes>>,
    pub(crate) gauge: Gauge,
    /// Past this many connections accepting pauses.
    pub(crate) max_connections: AtomicU64,
    pub(crate) log: Log,
    pub(crate) say: Arc<Say>,
    /// Listeners are shared by the workers, so that only some of them are to wake for a connection.
    pub(crate) exclusive: bool,
    pub(crate) splices: bool,
    /// It has been said that messages cannot go out together.
    pub(crate) fault_said: AtomicBool,
    /// Where connections are handed over, by worker; without it tables accept for themselves.
    pub(crate) desks: Option<Arc<[Desk<Handed>]>>,
    /// Messages to leave listeners that event loops have followed.
    pub(crate) left: AtomicUsize,
    /// Event loops that have taken what was queued at their listeners and closed them, when draining.
    pub(crate) swept: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(
        routes: Routes,
        max_connections: u64,
        log: Log,
        say: Arc<Say>,
        exclusive: bool,
        desks: Option<Arc<[Desk<Handed>]>>,
    ) -> Shared {
        Shared {
            routes: RwLock::new(Arc::new(routes)),
            gauge: Gauge::default(),
            max_connections: AtomicU64::new(max_connections),
            splices: !log.transfers,
            fault_said: AtomicBool::new(false),
            log,
            say,
            exclusive,
            desks,
            left: AtomicUsize::new(0),
            swept: AtomicUsize::new(0),
        }
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish(&self, routes: Routes) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }
}
