//! From a table to routes: names resolved, cycles refused. It may take seconds, as resolving does, so while the forwarder runs it has a thread of its own.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use plimsoll_sys::event::Event;

use crate::route::Route;
use crate::shared::Shared;
use crate::table::{Table, refuse_cycles};

/// Where the table comes from, and comes from again at a reload.
pub struct Source {
    /// Reads it anew; the error is a sentence.
    pub read: Box<dyn Fn() -> Result<Table, String> + Send + Sync>,
    /// Reload whenever this file has changed.
    pub watch: Option<Watch>,
}

/// A file as it was when it was last looked at.
pub struct Watch {
    path: PathBuf,
    stamp: Option<Stamp>,
}

impl Watch {
    /// Begins to watch a file. To be called before it is first read, so that no change falls in between.
    pub fn begin(path: PathBuf) -> Watch {
        let stamp = stamp(&path);
        Watch { path, stamp }
    }
}

/// Where no rule has a name, this often it is looked whether one has come.
const NO_NAMES: Duration = Duration::from_secs(1);

/// The routes of a table.
pub(crate) fn routes(table: &Table) -> Result<Vec<Route>, String> {
    let look_up = |name: &str| {
        (name, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
    };
    refuse_cycles(&table.rules, is_local, look_up).map_err(|fault| fault.to_string())?;
    let route = |rule: &crate::table::Rule| {
        Route::new(rule, rule.listen.clone())
            .map_err(|(name, error)| format!("cannot resolve `{name}`: {error}; check the name, or write an address"))
    };
    table.rules.iter().map(route).collect()
}

/// Whether an address is one of this machine's: then the kernel connects to it from itself.
fn is_local(ip: IpAddr) -> bool {
    let any: SocketAddr = if ip.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let source = |ip| {
        // Connecting a datagram socket sends nothing.
        let socket = UdpSocket::bind(any)?;
        socket.connect(SocketAddr::new(ip, 9))?;
        socket.local_addr()
    };
    ip.is_loopback() || source(ip).is_ok_and(|source| source.ip() == ip)
}

/// A table and its routes, or why it is refused.
pub(crate) type Outcome = Result<(Table, Vec<Route>), String>;

/// Reads tables on demand, one at a time.
pub(crate) struct Reloader {
    wanted: SyncSender<()>,
    outcomes: Receiver<Outcome>,
    /// Raised when there is an outcome.
    pub(crate) ready: Arc<Event>,
    watched: Option<Watch>,
}

/// A file as it was: the moment it changed, its length and its number, as many editors replace a file by another.
type Stamp = (SystemTime, u64, u64);

impl Reloader {
    pub(crate) fn start(source: Source) -> std::io::Result<Reloader> {
        // One more may be wanted while one is under way: the file may have changed since that was read.
        let (wanted, demands) = sync_channel::<()>(1);
        let (hand_over, outcomes) = sync_channel(1);
        let ready = Arc::new(Event::new()?);
        let raise = Arc::clone(&ready);
        let Source { read, watch } = source;
        std::thread::Builder::new().name("reload".to_owned()).spawn(move || {
            while demands.recv().is_ok() {
                let outcome = read().and_then(|table| routes(&table).map(|routes| (table, routes)));
                if hand_over.send(outcome).is_err() {
                    return;
                }
                raise.raise();
            }
        })?;
        Ok(Reloader { wanted, outcomes, ready, watched: watch })
    }

    /// Asks for the table to be read anew.
    pub(crate) fn want(&self) {
        // Where the queue is full one is wanted already.
        let _ = self.wanted.try_send(());
    }

    /// Asks for it if the file that is watched has changed since this was last called.
    pub(crate) fn look(&mut self) {
        let Some(watch) = &mut self.watched else { return };
        let now = stamp(&watch.path);
        // A file that is gone is about to be replaced.
        if now.is_some() && now != watch.stamp {
            watch.stamp = now;
            self.want();
        }
    }

    pub(crate) fn watches(&self) -> bool {
        self.watched.is_some()
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.ready.lower();
        self.outcomes.try_recv().ok()
    }
}

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// Resolves names again, all as often as the rule that wants it most, until what it returns is dropped.
pub(crate) fn resolve_again(shared: &Arc<Shared>) -> std::io::Result<SyncSender<()>> {
    let (end, ended) = sync_channel::<()>(0);
    let shared: Weak<Shared> = Arc::downgrade(shared);
    std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        let mut every = NO_NAMES;
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let Some(routes) = shared.upgrade().map(|shared| shared.routes()) else { return };
            let named = || routes.values().filter(|route| route.has_names());
            named().for_each(|route| route.resolve_again());
            every = named().map(|route| route.limits.resolve).min().unwrap_or(NO_NAMES);
        }
    })?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_addresses_are_told_from_others() {
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        assert!(is_local(IpAddr::from([127, 1, 2, 3])));
        // TEST-NET-1 (RFC 5737) is nobody's.
        assert!(!is_local(IpAddr::from([192, 0, 2, 1])));
    }
}
