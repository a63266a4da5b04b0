//! What all parts of one server write down together: open connections, the connection log, and
//! things worth saying.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_reactor::limit::ConnectionLimit;
use plimsoll_sys::event::Event;
use plimsoll_sys::file::Root;

use crate::connection_log::ConnectionLog;
use crate::totals::{ConnectionTotals, Totals};

/// Takes a sentence for the person who runs the server.
pub type Notify = Box<dyn Fn(&str) + Send + Sync>;

pub(crate) struct ServerState {
    limit: ConnectionLimit,
    /// What files are beneath.
    root: Option<Arc<Root>>,
    log: Option<ConnectionLog>,
    notify: Notify,
    notified: Mutex<HashSet<&'static str>>,
}

impl ServerState {
    /// For a server that has at most `most` connections at a time.
    pub(crate) fn new(log: Option<ConnectionLog>, root: Option<Root>, most: u64, notify: Notify) -> ServerState {
        ServerState {
            limit: ConnectionLimit::new(most),
            root: root.map(Arc::new),
            log,
            notify,
            notified: Mutex::default(),
        }
    }

    pub(crate) fn root(&self) -> Option<Arc<Root>> {
        self.root.clone()
    }

    /// The descriptors that every event loop uses.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let root = self.root.iter().map(|root| root.as_fd().as_raw_fd());
        root.chain(self.log.as_ref().map(ConnectionLog::descriptor)).collect()
    }

    /// Asks for a place for a connection, before it is accepted.
    pub(crate) fn acquire(&self) -> bool {
        self.limit.acquire()
    }

    /// Has `wake` raised when a place is free that [`ServerState::acquire`] did not find.
    pub(crate) fn await_place(&self, wake: &Arc<Event>) {
        self.limit.await_place(wake);
    }

    /// Takes a place for a connection that is there already.
    pub(crate) fn force(&self) {
        self.limit.force();
    }

    /// Gives a place back that no connection has taken.
    pub(crate) fn release(&self) {
        self.limit.release();
    }

    /// Whether there is a limit that accepting has to mind.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_limited()
    }

    /// A connection has taken its place.
    pub(crate) fn opened(&self, totals: &mut Totals) {
        totals.connections += 1;
        self.limit.opened();
    }

    pub(crate) fn closed(&self, peer: SocketAddr, counts: &ConnectionTotals, totals: &mut Totals) {
        self.limit.closed();
        counts.add_to(totals);
        self.write_log(totals, |log| log.record(peer, counts));
    }

    /// Writes to the log, if there is one. That a part of it could not be written is counted, and
    /// said once.
    fn write_log(&self, totals: &mut Totals, write: impl FnOnce(&ConnectionLog) -> io::Result<()>) {
        let Some(log) = &self.log else { return };
        if let Err(error) = write(log) {
            totals.count_error("connection_log");
            self.notify_once("connection_log", &log.incomplete(&error));
        }
    }

    /// Says a sentence the first time that `cause` comes up.
    pub(crate) fn notify_once(&self, cause: &'static str, sentence: &str) {
        if self.notified.lock().unwrap_or_else(PoisonError::into_inner).insert(cause) {
            (self.notify)(sentence);
        }
    }

    /// Writes out what is buffered, at the server's end.
    pub(crate) fn finish(&self, totals: &mut Totals) {
        totals.peak_connections = self.limit.peak();
        totals.leaked.slots += self.limit.taken();
        self.write_log(totals, ConnectionLog::flush);
    }
}
