//! What every event loop of one forwarder shares, and what the coordinator sends them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use plimsoll_reactor::handoff::HandoffQueue;
use plimsoll_reactor::limit::ConnectionLimit;
use plimsoll_sys::event::Event;

use crate::Say;
use crate::failures::Failures;
use crate::limit::{self, Room};
use crate::log::Log;
use crate::names::Names;
use crate::route::Route;

/// Names a listener for as long as it is open, in every table alike; a number is not used twice.
pub(crate) type ListenerNumber = u32;

/// The routes by their listeners. Replaced as a whole: a connection keeps the route that it began
/// with.
pub(crate) type Routes = HashMap<ListenerNumber, Arc<Route>>;

/// What goes with a connection to its worker: its client, and its route.
pub(crate) type Handed = (Option<SocketAddr>, Arc<Route>);

pub(crate) struct Shared {
    routes: RwLock<Arc<Routes>>,
    pub(crate) limit: ConnectionLimit,
    pub(crate) log: Log,
    pub(crate) say: Arc<Say>,
    pub(crate) failures: Failures,
    pub(crate) names: Arc<Names>,
    /// Listeners are shared by the workers, so that only some of them are to wake for a connection.
    pub(crate) exclusive: bool,
    pub(crate) splices: bool,
    /// It has been said that messages cannot go out together.
    pub(crate) fault_said: AtomicBool,
    /// Where connections are handed over, by worker; without it tables accept for themselves.
    pub(crate) queues: Option<Arc<[HandoffQueue<Handed>]>>,
    /// Tables, by their worker and their number there, that ask for every listener: they had no
    /// room for some.
    lacking: Mutex<Vec<(usize, usize)>>,
    /// Messages to leave listeners that event loops have followed.
    pub(crate) left: AtomicUsize,
    /// Event loops that have taken what was queued at their listeners and closed them, when
    /// draining.
    pub(crate) swept: AtomicUsize,
    /// No new connections are taken.
    pub(crate) draining: AtomicBool,
    /// Tables that replaced the first one, and those that were refused.
    pub(crate) reloads: [AtomicU64; 2],
}

impl Shared {
    pub(crate) fn new(
        routes: Routes,
        max_connections: u64,
        log: Log,
        say: Arc<Say>,
        names: Arc<Names>,
        acceptance: (bool, Option<Arc<[HandoffQueue<Handed>]>>),
    ) -> Shared {
        let (exclusive, queues) = acceptance;
        Shared {
            routes: RwLock::new(Arc::new(routes)),
            limit: ConnectionLimit::new(max_connections),
            splices: !log.transfers,
            fault_said: AtomicBool::new(false),
            log,
            failures: Failures::new(Arc::clone(&say)),
            say,
            names,
            exclusive,
            queues,
            lacking: Mutex::default(),
            left: AtomicUsize::new(0),
            swept: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            reloads: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    pub(crate) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish(&self, routes: Routes) {
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }

    /// A table has room for listeners that it had none for.
    pub(crate) fn ask_for_listeners(&self, worker: usize, table: usize) {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner).push((worker, table));
    }

    /// The tables that have asked for listeners since the last time.
    pub(crate) fn take_lacking(&self) -> Vec<(usize, usize)> {
        std::mem::take(&mut *self.lacking.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a place for a connection to this listener, or says why there is none. Then `wake` is
    /// raised when one is given back.
    pub(crate) fn take_place(&self, route: &Route, now: Instant, wake: &Arc<Event>) -> Room {
        let mut room = self.try_place(route);
        if room != Room::Taken {
            self.limit.await_release(wake);
            room = self.try_place(route);
        }
        let most = self.limit.most();
        let waits = "new connections wait in the kernel's queue; raise it, or give busy rules a `limit`";
        match room {
            Room::Taken => {}
            Room::Full => {
                self.failures.report(&format!("max_connections ({most}) is reached: {waits}"), now);
            }
            Room::KeptForOthers => {
                let listen = route.listen();
                let what = format!("{listen}: the rest of max_connections ({most}) is kept for other rules: {waits}");
                self.failures.report(&what, now);
            }
        }
        room
    }

    fn try_place(&self, route: &Route) -> Room {
        let open = |route: &Route| route.counts.open.load(Ordering::Relaxed);
        limit::acquire(
            &self.limit,
            || open(route),
            || {
                let all: Vec<u64> = self.routes().values().map(|route| open(route)).collect();
                all.into_iter()
            },
        )
    }
}
