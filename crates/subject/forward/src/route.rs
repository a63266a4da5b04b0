//! A rule at work: its destinations with the addresses that their names have now, and who is next.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use plimsoll_reactor::source::Rotation;

use crate::table::{Balance, Destination, Limits, Listen, Rule};

/// One listening address and where it leads.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) listen: Listen,
    pub(crate) limits: Limits,
    balance: Balance,
    endpoints: Vec<Endpoint>,
    source: Vec<IpAddr>,
    /// Connections led so far.
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Endpoint {
    destination: Destination,
    /// What a name resolves to; replaced as a whole.
    addresses: RwLock<Arc<[SocketAddr]>>,
    /// Open connections to it.
    open: AtomicUsize,
}

/// What to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    Tcp(SocketAddr, Option<IpAddr>),
    Unix(&'a Path),
}

/// A destination of a route, for as long as a connection to it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointNumber(u16);

impl Route {
    /// A route for a rule, whose names are resolved now: this may take seconds. Returns the first name that has no address, with the reason.
    pub(crate) fn new(rule: &Rule, listen: Listen) -> Result<Route, (String, std::io::Error)> {
        let endpoint = |destination: &Destination| {
            let addresses = match destination {
                Destination::Tcp(address) => Arc::from([*address]),
                Destination::Unix(_) => Arc::from([]),
                Destination::Name(name, port) => resolve(name, *port).map_err(|error| (name.clone(), error))?,
            };
            Ok(Endpoint {
                destination: destination.clone(),
                addresses: RwLock::new(addresses),
                open: AtomicUsize::new(0),
            })
        };
        Ok(Route {
            listen,
            limits: rule.limits,
            balance: rule.balance,
            endpoints: rule.to.iter().map(endpoint).collect::<Result<_, _>>()?,
            source: rule.source.clone(),
            turn: AtomicUsize::new(0),
        })
    }

    /// Resolves its names again. One that has no address just now keeps those that it had.
    pub(crate) fn resolve_again(&self) {
        for endpoint in &self.endpoints {
            if let Destination::Name(name, port) = &endpoint.destination
                && let Ok(addresses) = resolve(name, *port)
            {
                *endpoint.addresses.write().unwrap_or_else(PoisonError::into_inner) = addresses;
            }
        }
    }

    pub(crate) fn has_names(&self) -> bool {
        self.endpoints.iter().any(|endpoint| matches!(endpoint.destination, Destination::Name(..)))
    }

    /// The number of the next connection, which decides where its attempts begin.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands what the `attempt`-th attempt of a connection goes to to `connect`, or returns none where every destination has been tried.
    pub(crate) fn attempt<R>(
        &self,
        turn: usize,
        attempt: usize,
        connect: impl FnOnce(EndpointNumber, Target<'_>) -> R,
    ) -> Option<R> {
        let first = match self.balance {
            Balance::RoundRobin => turn % self.endpoints.len(),
            Balance::First => 0,
        };
        let mut passed = 0;
        for step in 0..self.endpoints.len() {
            let index = (first + step) % self.endpoints.len();
            let endpoint = &self.endpoints[index];
            let number = EndpointNumber(index as u16);
            match &endpoint.destination {
                Destination::Unix(path) if passed == attempt => return Some(connect(number, Target::Unix(path))),
                Destination::Unix(_) => passed += 1,
                Destination::Tcp(address) if passed == attempt => {
                    return Some(connect(number, Target::Tcp(*address, self.source(endpoint, *address, turn))));
                }
                Destination::Tcp(_) => passed += 1,
                Destination::Name(..) => {
                    let addresses = Arc::clone(&endpoint.addresses.read().unwrap_or_else(PoisonError::into_inner));
                    if let Some(address) = addresses.get(attempt - passed) {
                        return Some(connect(number, Target::Tcp(*address, self.source(endpoint, *address, turn))));
                    }
                    passed += addresses.len();
                }
            }
        }
        None
    }

    /// The local address to connect from: those listed, in turn; or, to a loopback address, more than the one before its ports run out.
    fn source(&self, endpoint: &Endpoint, destination: SocketAddr, turn: usize) -> Option<IpAddr> {
        if !self.source.is_empty() {
            let of_version = || self.source.iter().filter(|source| source.is_ipv4() == destination.is_ipv4());
            let count = of_version().count();
            return if count == 0 { None } else { of_version().nth(turn % count).copied() };
        }
        let open = endpoint.open.load(Ordering::Relaxed);
        Rotation::choose(destination.ip(), open, &[]).address(open)
    }

    pub(crate) fn opened(&self, number: EndpointNumber) {
        self.endpoints[usize::from(number.0)].open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self, number: EndpointNumber) {
        self.endpoints[usize::from(number.0)].open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The path of a destination that is a Unix socket.
    pub(crate) fn unix_path(&self, number: EndpointNumber) -> Option<PathBuf> {
        match &self.endpoints[usize::from(number.0)].destination {
            Destination::Unix(path) => Some(path.clone()),
            _ => None,
        }
    }
}

fn resolve(name: &str, port: u16) -> std::io::Result<Arc<[SocketAddr]>> {
    let mut addresses: Vec<SocketAddr> = (name, port).to_socket_addrs()?.collect();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{mapping, toml};

    fn route(table: crate::table::Table) -> Route {
        let rule = &table.rules[0];
        Route::new(rule, rule.listen.clone()).expect("no names")
    }

    fn attempts(route: &Route, turn: usize) -> Vec<String> {
        (0..)
            .map_while(|attempt| {
                route.attempt(turn, attempt, |_, target| match target {
                    Target::Tcp(address, _) => address.to_string(),
                    Target::Unix(path) => path.display().to_string(),
                })
            })
            .collect()
    }

    #[test]
    fn each_turn_begins_with_the_next_destination_and_tries_every_one() {
        let text = "[forward]\n\"127.0.0.1:1\" = [\"192.0.2.1:1\", \"unix:/run/a\", \"192.0.2.2:1\"]\n";
        let route = route(toml::read(text).expect("a table"));
        assert_eq!(attempts(&route, 0), ["192.0.2.1:1", "/run/a", "192.0.2.2:1"]);
        assert_eq!(attempts(&route, 1), ["/run/a", "192.0.2.2:1", "192.0.2.1:1"]);
        assert_eq!(attempts(&route, 3), attempts(&route, 0));
    }

    #[test]
    fn with_first_every_turn_begins_with_the_first() {
        let text = "[forward.\"127.0.0.1:1\"]\nto = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\nbalance = \"first\"\n";
        let route = route(toml::read(text).expect("a table"));
        assert_eq!(attempts(&route, 1), ["192.0.2.1:1", "192.0.2.2:1"]);
    }

    #[test]
    fn loopback_sources_rotate_before_ports_run_out() {
        let route = route(mapping::read(["127.0.0.1:1=127.0.0.1:2"]).expect("a table"));
        let source = |open: usize| {
            route.endpoints[0].open.store(open, Ordering::Relaxed);
            route.attempt(0, 0, |_, target| match target {
                Target::Tcp(_, source) => source,
                Target::Unix(_) => None,
            })
        };
        assert_eq!(source(100), Some(None));
        assert_ne!(source(20_000), source(40_000));
    }
}
