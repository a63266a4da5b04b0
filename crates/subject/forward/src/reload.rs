//! From a table to routes: names resolved, cycles refused. It may take seconds, as resolving does,
//! so while the forwarder runs it has threads of its own, and these have descriptor tables of their
//! own: what they have open is in nobody's way, and in nobody's books.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use plimsoll_reactor::own_table;
use plimsoll_sys::poll::Place;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, passing};

use crate::file_watch::FileWatch;
use crate::names::{Answer, Names};
use crate::route::Route;
use crate::shared::{Routes, Shared};
use crate::table::{Destination, Fault, Rule, Table, refuse_cycles};

/// Where the table comes from, and comes from again at a reload.
pub struct Source {
    /// Reads it anew; the error is a sentence.
    pub read: Box<dyn Fn() -> Result<Table, String> + Send + Sync>,
    /// Reload whenever this file has changed.
    pub watch: Option<FileWatch>,
}

/// How often it is looked at the latest whether names are due: a new table may want that sooner.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The routes of a table, and messages about it.
pub(crate) fn routes(table: &Table, names: &Names) -> Result<(Vec<Route>, Vec<String>), String> {
    let mut notes = table.notes.clone();
    let (now, mut asked, mut fresh) = (Instant::now(), HashSet::new(), HashMap::new());
    for destination in table.rules.iter().flat_map(|rule| &rule.to) {
        let Destination::Name(name, _) = destination else { continue };
        if !asked.insert(name) {
            continue;
        }
        match names.ask(name) {
            Ok(Answer::Fresh(addresses)) => drop(fresh.insert(name.clone(), addresses)),
            Ok(Answer::Stale(error)) => {
                notes.push(format!(
                    "`{name}` cannot be resolved just now, and keeps the addresses that it had: {error}"
                ));
            }
            Err(error) => {
                let why = format!("cannot resolve `{name}`: {error}; check the name, or write an address");
                return Err(table.file.as_ref().map_or(why.clone(), |file| format!("{}: {why}", file.display())));
            }
        }
    }
    let look_up = |name: &str| -> Vec<IpAddr> {
        fresh.get(name).cloned().or_else(|| names.known(name)).map_or_else(Vec::new, |addresses| addresses.to_vec())
    };
    refuse_cycles(&table.rules, is_local, look_up).map_err(|fault| table.sentence(&fault))?;
    check_sources(table).map_err(|fault| table.sentence(&fault))?;
    // Only now: a table that is refused changes nothing.
    fresh.into_iter().for_each(|(name, addresses)| names.learn(&name, addresses));
    Ok((table.rules.iter().map(|rule| Route::new(rule, names, now)).collect(), notes))
}

/// Refuses a `source` that nothing can be connected from, or nothing that it is for.
fn check_sources(table: &Table) -> Result<(), Fault> {
    // Rules share their sources, of which there may be thousands: each list is looked at once.
    let mut lists: Vec<SourceList<'_>> = Vec::new();
    let mut known: HashMap<*const IpAddr, usize> = HashMap::new();
    for rule in &table.rules {
        for list in rule.source.versions().into_iter().filter(|list| !list.is_empty()) {
            let place = *known.entry(list.as_ptr()).or_insert_with(|| {
                lists.push(SourceList { rule, sources: list, is_used: false, is_passed_by: false });
                lists.len() - 1
            });
            for destination in &rule.to {
                match destination {
                    Destination::Tcp(address) if address.is_ipv4() != list[0].is_ipv4() => {
                        lists[place].is_passed_by = true;
                    }
                    // A name may have addresses of both versions, now or later.
                    Destination::Tcp(_) | Destination::Name(..) => lists[place].is_used = true,
                    Destination::Unix(_) => {}
                }
            }
        }
    }
    let mut usable = HashSet::new();
    for SourceList { rule, sources, is_used, is_passed_by } in lists {
        let refused = |what: String| Fault { place: rule.place, what };
        if is_passed_by && !is_used {
            let version = if sources[0].is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(refused(format!(
                "no destination can be connected to from the source {}, as none has an {version} address; choose an \
                 address of the destinations' version",
                sources[0]
            )));
        }
        for source in sources.iter().filter(|source| usable.insert(**source)) {
            UdpSocket::bind((*source, 0)).map_err(|error| {
                refused(format!(
                    "the source {source} cannot be connected from: {error}; choose an address of this machine (`ip \
                     address` lists them)"
                ))
            })?;
        }
    }
    Ok(())
}

/// Sources of one IP version, and what they are for.
struct SourceList<'a> {
    /// The first rule that has them.
    rule: &'a Rule,
    sources: &'a [IpAddr],
    /// Some destination can be connected to from them.
    is_used: bool,
    /// Some destination is of the other version.
    is_passed_by: bool,
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

/// A table, its routes and messages about it; or why it is refused.
pub(crate) type Outcome = Result<(Table, Vec<Route>, Vec<String>), String>;

/// Reads tables on demand, one at a time.
pub(crate) struct Reloader {
    wanted: SyncSender<()>,
    outcomes: Receiver<Outcome>,
    /// A message comes here when there is an outcome; none will where the thread has ended.
    ready: Option<OwnedFd>,
    watched: Option<FileWatch>,
}

impl Reloader {
    pub(crate) fn start(source: Source, names: Arc<Names>) -> std::io::Result<Reloader> {
        // One more may be wanted while one is under way: the file may have changed since that was
        // read.
        let (wanted, demands) = sync_channel::<()>(1);
        let (hand_over, outcomes) = sync_channel(1);
        let Source { read, watch } = source;
        let ready = own_table::spawn("reload", move |mailbox| {
            while demands.recv().is_ok() {
                let outcome = read().and_then(|table| {
                    let (routes, notes) = routes(&table, &names)?;
                    Ok((table, routes, notes))
                });
                if hand_over.send(outcome).is_err() {
                    return;
                }
                // Where the coordinator has ended it needs none.
                let _ = passing::send(&mailbox, b".", &[]);
            }
        })?;
        Ok(Reloader { wanted, outcomes, ready: Some(ready), watched: watch })
    }

    /// Asks for the table to be read anew.
    pub(crate) fn want(&self) {
        // Where the queue is full one is wanted already.
        let _ = self.wanted.try_send(());
    }

    /// Asks for it if the file that is watched has changed, and has settled.
    pub(crate) fn look(&mut self) {
        if self.watched.as_mut().is_some_and(|file| file.has_changed(Instant::now())) {
            self.want();
        }
    }

    pub(crate) fn watches(&self) -> bool {
        self.watched.is_some()
    }

    /// What to wait for until there is an outcome.
    pub(crate) fn place(&self) -> Option<Place> {
        self.ready.as_ref().map(|ready| Place::new(ready.as_raw_fd(), Interest::READ))
    }

    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let mut nothing = Vec::new();
        while let Some(ready) = &self.ready
            && let Ok(length) = passing::receive(ready, &mut [0], &mut nothing)
        {
            if length == 0 {
                // It would be reported for ever.
                self.ready = None;
            }
        }
        self.outcomes.try_recv().ok()
    }
}

/// Resolves names again, all as often as the rule with the shortest interval asks, until the
/// returned value is dropped.
pub(crate) fn resolve_again(shared: &Arc<Shared>) -> std::io::Result<SyncSender<()>> {
    let (end, ended) = sync_channel::<()>(0);
    let shared: Weak<Shared> = Arc::downgrade(shared);
    std::thread::Builder::new().name("names".to_owned()).spawn(move || {
        // Nothing of the coordinator's is used here. Where a table cannot be had, that one does.
        let _ = descriptor::unshare_table_keeping(&[]);
        let (mut renewed, mut look_in) = (Instant::now(), Duration::ZERO);
        while ended.recv_timeout(look_in) == Err(RecvTimeoutError::Timeout) {
            let Some((names, routes)) = shared.upgrade().map(|shared| (Arc::clone(&shared.names), shared.routes()))
            else {
                return;
            };
            look_in = until_renewal(&routes, renewed.elapsed());
            if !look_in.is_zero() {
                look_in = look_in.min(LOOK_EVERY);
                continue;
            }
            let refused = renew(&names, &routes, Instant::now());
            renewed = Instant::now();
            let Some(shared) = shared.upgrade() else { return };
            refused.iter().for_each(|sentence| shared.failures.report(sentence, Instant::now()));
        }
    })?;
    Ok(end)
}

/// How long until names are to be resolved again that were resolved `since` then; without names the
/// next look.
fn until_renewal(routes: &Routes, since: Duration) -> Duration {
    let named = routes.values().filter(|route| route.names().next().is_some());
    let every = named.map(|route| route.rule.limits.resolve).min();
    every.map_or(LOOK_EVERY, |every| every.saturating_sub(since))
}

/// Asks for the addresses of all names anew, and says of which they are not taken: they would lead
/// back here.
fn renew(names: &Names, routes: &Routes, now: Instant) -> Vec<String> {
    let (mut asked, mut refused, mut rules) = (HashSet::new(), Vec::new(), Vec::new());
    for name in routes.values().flat_map(|route| route.names()).filter(|name| asked.insert(name.to_owned())) {
        let Ok(Answer::Fresh(addresses)) = names.ask(name) else { continue };
        if names.known(name).is_some_and(|former| former == addresses) {
            continue;
        }
        if rules.is_empty() {
            rules = routes.values().map(|route| route.rule.clone()).collect();
        }
        let look_up = |other: &str| -> Vec<IpAddr> {
            let known = if other == name { Some(Arc::clone(&addresses)) } else { names.known(other) };
            known.map_or_else(Vec::new, |addresses| addresses.to_vec())
        };
        match refuse_cycles(&rules, is_local, look_up) {
            Ok(()) => names.learn(name, addresses),
            Err(fault) => {
                refused.push(format!("`{name}` has new addresses, which are not used: with them {}", fault.what))
            }
        }
    }
    routes.values().filter(|route| route.names().next().is_some()).for_each(|route| route.update(names, now));
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{lines, mapping, toml};
    use std::path::PathBuf;
    use std::sync::Mutex;

    fn names(answers: &Arc<Mutex<Result<[u8; 4], &'static str>>>) -> Names {
        let answers = Arc::clone(answers);
        Names::new(Box::new(move |_| match *answers.lock().expect("nobody panics") {
            Ok(address) => Ok(vec![IpAddr::from(address)]),
            Err(why) => Err(std::io::Error::other(why)),
        }))
    }

    fn servers(route: &Route) -> Vec<String> {
        route.servers().iter().map(|server| server.target.to_string()).collect()
    }

    #[test]
    fn an_outage_of_the_name_service_stops_no_reload_but_of_names_that_were_never_resolved() {
        let answers = Arc::new(Mutex::new(Ok([192, 0, 2, 1])));
        let names = names(&answers);
        let table = |mappings: &[&str]| mapping::read(mappings.iter().copied()).expect("a table");
        routes(&table(&["127.0.0.1:1=known.example:80"]), &names).expect("it resolves");
        *answers.lock().expect("nobody panics") = Err("the name service is out");
        let (routes, notes) = routes(&table(&["127.0.0.1:1=known.example:80", "127.0.0.1:2=192.0.2.2:80"]), &names)
            .expect("what is known stays");
        assert_eq!(servers(&routes[0]), ["192.0.2.1:80"]);
        assert!(notes[0].contains("`known.example` cannot be resolved just now"), "{notes:?}");
        let why = super::routes(&table(&["127.0.0.1:1=new.example:80"]), &names).expect_err("it has no address");
        assert!(why.contains("cannot resolve `new.example`"), "{why}");
    }

    #[test]
    fn a_name_that_comes_to_lead_back_here_keeps_its_addresses() {
        let answers = Arc::new(Mutex::new(Ok([192, 0, 2, 1])));
        let names = names(&answers);
        let table = mapping::read(["127.0.0.1:7000=moves.example:7000"]).expect("a table");
        let (mut made, _) = routes(&table, &names).expect("it leads elsewhere");
        let routes: Routes = HashMap::from([(1, Arc::new(made.remove(0)))]);
        for (address, leads_to, refused) in
            [([127, 0, 0, 1], "192.0.2.1:7000", 1), ([192, 0, 2, 3], "192.0.2.3:7000", 0)]
        {
            *answers.lock().expect("nobody panics") = Ok(address);
            let said = renew(&names, &routes, Instant::now());
            assert_eq!(said.len(), refused, "{said:?}");
            assert_eq!(servers(&routes[&1]), [leads_to]);
        }
    }

    #[test]
    fn names_are_resolved_as_often_as_the_present_table_wants_it() {
        let routes = |every: &str| -> Routes {
            let rule = "[forward]\n\"127.0.0.1:1\" = \"server.example:1\"";
            let table = toml::read(&format!("[defaults]\nresolve_every = \"{every}\"\n{rule}\n")).expect("a table");
            let route = Route::new(&table.rules[0], &Names::of_the_machine(), Instant::now());
            Routes::from([(1, Arc::new(route))])
        };
        let seconds = Duration::from_secs;
        assert_eq!(until_renewal(&routes("1h"), seconds(60)), seconds(3540));
        // A reload has come.
        assert_eq!(until_renewal(&routes("90s"), seconds(60)), seconds(30));
        assert_eq!(until_renewal(&routes("30s"), seconds(60)), Duration::ZERO);
        assert_eq!(until_renewal(&Routes::new(), seconds(60)), LOOK_EVERY);
    }

    #[test]
    fn a_source_that_is_no_address_of_this_machine_is_refused_with_its_place() {
        // TEST-NET-3 (RFC 5737) belongs to no machine.
        let text = "[forward.\"127.0.0.1:1\"]\nto = \"127.0.0.1:2\"\nsource = \"203.0.113.77\"\n";
        let mut table = toml::read(text).expect("a table");
        table.file = Some(PathBuf::from("forward.toml"));
        let why = routes(&table, &Names::of_the_machine()).expect_err("nothing can be connected from there");
        assert!(
            why.starts_with("forward.toml: line 1, column 10: the source 203.0.113.77 cannot be connected from"),
            "{why}"
        );
        let lookup = lines::Lookup { host: &|_| None, service: &|_| None };
        let table = lines::read("127.0.0.1 1 127.0.0.1 2 [src=127.0.0.9]\n", &lookup).expect("a table");
        assert!(routes(&table, &Names::of_the_machine()).is_ok());
    }

    #[test]
    fn sources_of_an_ip_version_that_no_destination_has_are_refused() {
        let rule = |to: &str| format!("[forward]\n\"127.0.0.1:1\" = \"{to}\"\n");
        let check = |source: &str, to: &str| {
            let text = format!("[defaults]\nsource = {source}\n{}", rule(to));
            check_sources(&toml::read(&text).expect("a table")).map_err(|fault| fault.what)
        };
        let why = check("[\"127.0.0.9\"]", "[::1]:2").expect_err("an IPv6 destination");
        assert!(why.contains("from the source 127.0.0.9, as none has an IPv4 address"), "{why}");
        for to in ["127.0.0.1:2", "localhost:2", "unix:/run/a"] {
            assert_eq!(check("[\"127.0.0.9\"]", to), Ok(()), "{to}");
        }
    }

    #[test]
    fn a_reader_that_panics_is_waited_for_no_more() {
        let watch = None;
        let source = Source { read: Box::new(|| panic!("as a fault of the reader's would")), watch };
        let mut reloader = Reloader::start(source, Arc::new(Names::of_the_machine())).expect("a thread");
        reloader.want();
        while let Some(place) = reloader.place() {
            plimsoll_sys::poll::wait(&mut [place], None).expect("a wait");
            assert!(reloader.outcome().is_none());
        }
        reloader.want();
        assert!(reloader.outcome().is_none());
    }

    #[test]
    fn this_machines_addresses_are_told_from_others() {
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        assert!(is_local(IpAddr::from([127, 1, 2, 3])));
        // TEST-NET-1 (RFC 5737) belongs to no machine.
        assert!(!is_local(IpAddr::from([192, 0, 2, 1])));
    }
}
