//! A rule at work: its servers with the addresses that their names have now, who is next, and what
//! went through.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use plimsoll_reactor::source::Rotation;

use crate::balance::{self, Standing};
use crate::counts::Counts;
use crate::meter::Meter;
use crate::names::Names;
use crate::table::{Destination, Listen, Rule};

/// A server that did not take a connection is tried after the others for this long.
const AVOIDED_FOR: Duration = Duration::from_secs(5);

/// One listening address and its destinations.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its `listen` is where the listener is: port 0 has become another.
    pub(crate) rule: Rule,
    servers: RwLock<Arc<[Arc<Server>]>>,
    /// Connections led so far.
    turn: AtomicUsize,
    pub(crate) counts: Arc<Counts>,
    /// Of `limit.rate`, and of `limit.bandwidth` from the client and from the server.
    pub(crate) rate: Option<Arc<Meter>>,
    pub(crate) bandwidth: Option<Arc<[Meter; 2]>>,
}

/// Where a connection can be led.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Tcp(address) => write!(formatter, "{address}"),
            Target::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// One address of a destination. A reload that keeps the address keeps the server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) target: Target,
    identity: u64,
    /// Open connections to it.
    pub(crate) open: AtomicUsize,
    /// Its checks fail. Written by the checks, and read through [`Route::is_down`].
    pub(crate) down: AtomicBool,
    /// Times that it was to be connected to from one of its rule's sources.
    asked: AtomicUsize,
    known_since: Instant,
    /// Milliseconds since `known_since` until which it is avoided, as a connection to it failed.
    avoided_until: AtomicU64,
}

impl Server {
    fn new(target: Target, now: Instant) -> Server {
        Server {
            identity: balance::identity(&target),
            target,
            open: AtomicUsize::new(0),
            down: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            known_since: now,
            avoided_until: AtomicU64::new(0),
        }
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.known_since).as_millis() as u64
    }

    /// A connection to it failed.
    pub(crate) fn failed(&self, now: Instant) {
        let until = self.milliseconds(now) + AVOIDED_FOR.as_millis() as u64;
        self.avoided_until.store(until, Ordering::Relaxed);
    }

    /// It took a connection, which is open from now on.
    pub(crate) fn took(&self) {
        self.avoided_until.store(0, Ordering::Relaxed);
    }

    fn standing(&self, is_down: bool, now: Instant) -> Standing {
        let avoided = is_down || self.milliseconds(now) < self.avoided_until.load(Ordering::Relaxed);
        Standing { avoided, open: self.open.load(Ordering::Relaxed), identity: self.identity }
    }
}

impl Route {
    /// A route for a rule, with the addresses that are known of its names.
    pub(crate) fn new(rule: &Rule, names: &Names, now: Instant) -> Route {
        let meter = |each_second: f64| Meter::new(each_second, now);
        let route = Route {
            rule: rule.clone(),
            servers: RwLock::new(Arc::from([])),
            turn: AtomicUsize::new(0),
            counts: Arc::default(),
            rate: rule.quota.rate.map(|rate| Arc::new(meter(rate))),
            bandwidth: rule.quota.bandwidth.map(|bytes| Arc::new([meter(bytes as f64), meter(bytes as f64)])),
        };
        route.update(names, now);
        route
    }

    pub(crate) fn listen(&self) -> &Listen {
        &self.rule.listen
    }

    /// Replaces its servers' addresses by those to which its names resolve now.
    pub(crate) fn update(&self, names: &Names, now: Instant) {
        let targets = self.rule.to.iter().flat_map(|destination| match destination {
            Destination::Tcp(address) => vec![Target::Tcp(*address)],
            Destination::Unix(path) => vec![Target::Unix(path.clone())],
            Destination::Name(name, port) => {
                let addresses = names.known(name).unwrap_or_default();
                addresses.iter().map(|address| Target::Tcp(SocketAddr::new(*address, *port))).collect()
            }
        });
        let targets: Vec<Target> = targets.collect();
        self.lead_to(&targets, &self.servers(), now);
    }

    /// Takes over the state and counts of a former route at the same listener.
    pub(crate) fn succeed(&mut self, former: &Route, now: Instant) {
        self.counts = Arc::clone(&former.counts);
        let targets: Vec<Target> = self.servers().iter().map(|server| server.target.clone()).collect();
        self.lead_to(&targets, &former.servers(), now);
        // An unchanged limit also covers the former route's connections, which go on.
        if self.rule.quota.rate == former.rule.quota.rate {
            self.rate.clone_from(&former.rate);
        }
        if self.rule.quota.bandwidth == former.rule.quota.bandwidth {
            self.bandwidth.clone_from(&former.bandwidth);
        }
    }

    fn lead_to(&self, targets: &[Target], former: &[Arc<Server>], now: Instant) {
        // A target that is listed twice is one server, whose turn comes twice.
        let mut known: HashMap<&Target, Arc<Server>> =
            former.iter().map(|server| (&server.target, Arc::clone(server))).collect();
        let new = |target: &Target| Arc::new(Server::new(target.clone(), now));
        let servers: Vec<Arc<Server>> =
            targets.iter().map(|target| Arc::clone(known.entry(target).or_insert_with(|| new(target)))).collect();
        *self.servers.write().unwrap_or_else(PoisonError::into_inner) = servers.into();
    }

    /// Every server of the route, once.
    pub(crate) fn distinct_servers(&self) -> Vec<Arc<Server>> {
        let mut seen = HashSet::new();
        self.servers().iter().filter(|server| seen.insert(Arc::as_ptr(server))).cloned().collect()
    }

    /// Every server of the route, as often as it is listed.
    pub(crate) fn servers(&self) -> Arc<[Arc<Server>]> {
        Arc::clone(&self.servers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a server's checks fail. Without checks it would never be found up again.
    pub(crate) fn is_down(&self, server: &Server) -> bool {
        self.rule.check.is_some() && server.down.load(Ordering::Relaxed)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.rule.to.iter().filter_map(|destination| match destination {
            Destination::Name(name, _) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The servers that the next connection tries, the first one last.
    pub(crate) fn attempts(&self, client: Option<SocketAddr>, now: Instant) -> Vec<Arc<Server>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let servers = self.servers();
        if let [server] = &servers[..] {
            return vec![Arc::clone(server)];
        }
        let standings: Vec<Standing> =
            servers.iter().map(|server| server.standing(self.is_down(server), now)).collect();
        let order = balance::order(self.rule.balance, turn, client, &standings);
        order.into_iter().rev().map(|place| Arc::clone(&servers[place])).collect()
    }

    /// The local address to connect from: the listed ones, in turn for each server, as each address
    /// has its ports once per server. To a loopback address, further addresses before the ports of
    /// one run out.
    pub(crate) fn source(&self, server: &Server) -> Option<IpAddr> {
        let Target::Tcp(destination) = server.target else { return None };
        let listed = self.rule.source.to(destination.ip());
        if !listed.is_empty() {
            return Some(listed[server.asked.fetch_add(1, Ordering::Relaxed) % listed.len()]);
        }
        let open = server.open.load(Ordering::Relaxed);
        Rotation::choose(destination.ip(), open, &[]).address(open)
    }

    /// Whether a client may connect.
    pub(crate) fn admits(&self, client: Option<IpAddr>) -> bool {
        self.rule.access.iter().all(|access| access.admits(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Table, mapping, toml};

    fn route(table: Table) -> Route {
        let names = Names::new(Box::new(|_| Err(std::io::Error::other("no name service"))));
        names.learn("three.example", Arc::from([1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]))));
        Route::new(&table.rules[0], &names, Instant::now())
    }

    fn attempts(route: &Route) -> Vec<String> {
        let servers = route.attempts(None, Instant::now());
        servers.iter().rev().map(|server| server.target.to_string()).collect()
    }

    #[test]
    fn each_turn_begins_with_the_next_destination_and_tries_every_one() {
        let text = "[forward]\n\"127.0.0.1:1\" = [\"192.0.2.1:1\", \"unix:/run/a\", \"192.0.2.2:1\"]\n";
        let route = route(toml::read(text).expect("a table"));
        assert_eq!(attempts(&route), ["192.0.2.1:1", "unix:/run/a", "192.0.2.2:1"]);
        assert_eq!(attempts(&route), ["unix:/run/a", "192.0.2.2:1", "192.0.2.1:1"]);
    }

    #[test]
    fn a_destination_that_is_listed_twice_is_one_server_with_two_turns() {
        let text = "[forward]\n\"127.0.0.1:1\" = [\"192.0.2.1:1\", \"192.0.2.1:1\", \"192.0.2.2:1\"]\n";
        let route = route(toml::read(text).expect("a table"));
        assert!(Arc::ptr_eq(&route.servers()[0], &route.servers()[1]));
        assert_eq!((route.servers().len(), route.distinct_servers().len()), (3, 2));
        assert_eq!(attempts(&route), ["192.0.2.1:1", "192.0.2.1:1", "192.0.2.2:1"]);
    }

    #[test]
    fn every_address_of_a_name_has_its_turn() {
        let route = route(mapping::read(["127.0.0.1:1=three.example:7"]).expect("a table"));
        assert_eq!(attempts(&route), ["192.0.2.1:7", "192.0.2.2:7", "192.0.2.3:7"]);
        assert_eq!(attempts(&route)[0], "192.0.2.2:7");
    }

    #[test]
    fn a_server_that_failed_is_tried_last_until_it_takes_a_connection_or_some_seconds_have_passed() {
        let text = "[forward.\"127.0.0.1:1\"]\nto = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\nbalance = \"first\"\n";
        let route = route(toml::read(text).expect("a table"));
        let now = Instant::now();
        let first = |now| route.attempts(None, now).pop().map(|server| server.target.to_string());
        assert_eq!(first(now).as_deref(), Some("192.0.2.1:1"));
        route.servers()[0].failed(now);
        assert_eq!(first(now).as_deref(), Some("192.0.2.2:1"));
        assert_eq!(first(now + AVOIDED_FOR).as_deref(), Some("192.0.2.1:1"));
        route.servers()[0].failed(now);
        route.servers()[0].took();
        assert_eq!(first(now).as_deref(), Some("192.0.2.1:1"));
    }

    #[test]
    fn a_route_that_succeeds_another_goes_on_with_its_servers() {
        let table =
            || toml::read("[forward]\n\"127.0.0.1:1\" = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\n").expect("a table");
        let (former, mut next) = (route(table()), route(table()));
        former.servers()[1].open.store(7, Ordering::Relaxed);
        former.counts.accepted.store(9, Ordering::Relaxed);
        next.succeed(&former, Instant::now());
        assert!(Arc::ptr_eq(&former.servers()[1], &next.servers()[1]));
        assert_eq!(next.counts.accepted.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn what_checks_found_counts_for_a_route_with_checks_alone_and_stays_for_the_one_that_goes_on() {
        let table = |check: &str| {
            let to = "to = [\"192.0.2.1:1\", \"192.0.2.2:1\"]";
            route(
                toml::read(&format!("[forward.\"127.0.0.1:1\"]\n{to}\nbalance = \"first\"\n{check}")).expect("a table"),
            )
        };
        let (checked, mut unchecked) = (table("check = {}"), table(""));
        checked.servers()[0].down.store(true, Ordering::Relaxed);
        unchecked.succeed(&checked, Instant::now());
        assert_eq!(attempts(&unchecked)[0], "192.0.2.1:1");
        assert_eq!(attempts(&checked)[0], "192.0.2.2:1", "where the new table is refused");
        // A check that is under way at the reload may end later.
        checked.servers()[0].down.store(true, Ordering::Relaxed);
        assert_eq!(attempts(&unchecked)[0], "192.0.2.1:1");
    }

    #[test]
    fn a_route_shares_the_limits_that_it_has_in_common_with_the_one_that_it_succeeds() {
        let limited = |limit: &str| {
            let text = format!("[forward.\"127.0.0.1:1\"]\nto = \"192.0.2.1:1\"\nlimit = {{ {limit} }}\n");
            route(toml::read(&text).expect("a table"))
        };
        let now = Instant::now() + Duration::from_secs(60);
        let wait = |route: &Route| route.bandwidth.as_ref().and_then(|meters| meters[1].wait(now));
        let former = limited("rate = \"1/s\", bandwidth = \"1KB/s\"");
        let successor = |limit| {
            let mut next = limited(limit);
            next.succeed(&former, now);
            next
        };
        let all_stay = successor("connections = 7, rate = \"1/s\", bandwidth = \"1KB/s\"");
        let others = successor("rate = \"2/s\", bandwidth = \"2KB/s\"");
        // Connections of the former route go on.
        former.bandwidth.as_ref().expect("it has a limit")[1].count(1000, now);
        assert!(former.rate.as_ref().is_some_and(|rate| rate.admit(now)));
        assert_eq!((wait(&all_stay), wait(&others)), (wait(&former), None));
        assert!(wait(&former).is_some());
        let admits = |route: &Route| route.rate.as_ref().is_some_and(|rate| rate.admit(now));
        assert_eq!((admits(&all_stay), admits(&others)), (false, true));
    }

    #[test]
    fn every_server_is_connected_to_from_every_source() {
        let text = "[forward.\"127.0.0.1:1\"]\nto = [\"192.0.2.1:1\", \"192.0.2.2:1\", \"[2001:db8::1]:1\", \
                    \"unix:/run/a\"]\nsource = [\"192.0.2.8\", \"2001:db8::8\", \"192.0.2.9\"]\n";
        let route = route(toml::read(text).expect("a table"));
        let mut pairs: Vec<String> = (0..8)
            .map(|_| {
                let server = route.attempts(None, Instant::now()).pop().expect("a server");
                let source = route.source(&server).map_or("-".to_owned(), |source| source.to_string());
                format!("{source} {}", server.target)
            })
            .collect();
        pairs.sort();
        pairs.dedup();
        let expected = [
            "- unix:/run/a",
            "192.0.2.8 192.0.2.1:1",
            "192.0.2.8 192.0.2.2:1",
            "192.0.2.9 192.0.2.1:1",
            "192.0.2.9 192.0.2.2:1",
            "2001:db8::8 [2001:db8::1]:1",
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn loopback_sources_rotate_before_ports_run_out() {
        let route = route(mapping::read(["127.0.0.1:1=127.0.0.1:2"]).expect("a table"));
        let source = |open: usize| {
            let server = &route.servers()[0];
            server.open.store(open, Ordering::Relaxed);
            route.source(server)
        };
        assert_eq!(source(100), None);
        assert_ne!(source(20_000), source(40_000));
    }
}
