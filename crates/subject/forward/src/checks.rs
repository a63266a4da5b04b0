//! Health checks of servers, as their rules say: a server is up if it takes a connection.
//!
//! One thread makes all checks, none waiting for another. There may be thousands, so the thread has
//! a descriptor table of its own. [`Health`] is pure.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::{descriptor, net, unix};

use crate::route::{Server, Target};
use crate::shared::{Routes, Shared};
use crate::table::Check;

/// The table, and whether the forwarder has ended, is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A check for which this machine has no descriptor or memory is put off for this long: most checks
/// end sooner, and free their descriptor.
const PUT_OFF: Duration = Duration::from_millis(10);

/// Answers and failures in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Health {
    answers: u32,
    failures: u32,
    down: bool,
}

impl Health {
    /// Takes note of an answer, or of none. Returns whether the server is to be thought of as down,
    /// where that is new.
    fn note(&mut self, answered: bool, check: &Check) -> Option<bool> {
        (self.answers, self.failures) =
            if answered { (self.answers.saturating_add(1), 0) } else { (0, self.failures.saturating_add(1)) };
        let down = if self.down { self.answers < check.rise } else { self.failures >= check.fall };
        (std::mem::replace(&mut self.down, down) != down).then_some(down)
    }
}

/// One server that is asked.
struct Probe {
    server: Arc<Server>,
    /// The first of its rule's sources: from another address it may answer otherwise.
    source: Option<IpAddr>,
    check: Check,
    listen: String,
    health: Health,
    due: Instant,
    /// The connection that is being made, and when it has taken too long.
    asked: Option<(OwnedFd, Instant)>,
}

/// Starts the thread. It ends when what is returned is dropped.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<SyncSender<()>> {
    let (end, ended) = sync_channel::<()>(0);
    let shared = Arc::downgrade(shared);
    std::thread::Builder::new().name("checks".to_owned()).spawn(move || {
        // Nothing of the coordinator's is used here. Where a table cannot be had, that one does.
        let _ = descriptor::unshare_table_keeping(&[]);
        run(&shared, &ended);
    })?;
    Ok(end)
}

fn run(shared: &Weak<Shared>, ended: &Receiver<()>) {
    let (mut probes, mut followed) = (Vec::new(), None::<Arc<Routes>>);
    while ended.try_recv() != Err(TryRecvError::Disconnected) {
        let Some(shared) = shared.upgrade() else { return };
        let (routes, now) = (shared.routes(), Instant::now());
        // Names may have new addresses in the same routes, so the servers are compared, not the
        // tables alone.
        if followed.as_ref().is_none_or(|former| !Arc::ptr_eq(former, &routes)) || has_checked_names(&routes) {
            probes = follow(probes, &routes, now);
            followed = Some(routes);
        }
        for probe in &mut probes {
            ask(probe, &shared, now);
        }
        let timeout = probes.iter().map(|probe| probe.asked.as_ref().map_or(probe.due, |(_, until)| *until)).min();
        let timeout = timeout.map_or(LOOK_EVERY, |until| until.saturating_duration_since(now).min(LOOK_EVERY));
        drop(shared);
        let asked = probes.iter().filter_map(|probe| probe.asked.as_ref());
        let mut places: Vec<Place> = asked.map(|(socket, _)| Place::new(socket.as_raw_fd(), Interest::WRITE)).collect();
        if poll::wait(&mut places, Some(timeout)).is_err() {
            std::thread::sleep(timeout);
        }
    }
}

fn has_checked_names(routes: &Routes) -> bool {
    routes.values().any(|route| route.rule.check.is_some() && route.names().next().is_some())
}

/// The probes of a table: probes of servers that were checked before go on.
fn follow(former: Vec<Probe>, routes: &Routes, now: Instant) -> Vec<Probe> {
    // By server: there may be thousands.
    let mut former: HashMap<*const Server, Probe> =
        former.into_iter().map(|probe| (Arc::as_ptr(&probe.server), probe)).collect();
    let mut probes = Vec::new();
    for route in routes.values() {
        let Some(check) = route.rule.check else { continue };
        for server in &route.distinct_servers() {
            let listen = route.listen().to_string();
            let source = match &server.target {
                Target::Tcp(address) => route.rule.source.to(address.ip()).first().copied(),
                Target::Unix(_) => None,
            };
            let known = former.remove(&Arc::as_ptr(server));
            let (health, due, asked) = known.map_or_else(
                || {
                    // What former checks found may be long ago.
                    server.down.store(false, Ordering::Relaxed);
                    (Health::default(), now, None)
                },
                // A table that checks more often does so at once.
                |known| (known.health, known.due.min(now + check.every), known.asked),
            );
            probes.push(Probe { server: Arc::clone(server), source, check, listen, health, due, asked });
        }
    }
    probes
}

/// Asks a server whose time has come, or looks whether it has answered.
fn ask(probe: &mut Probe, shared: &Shared, now: Instant) {
    let outcome = match &probe.asked {
        Some((socket, until)) => match outcome(socket, *until, now) {
            Some(outcome) => outcome,
            None => return,
        },
        None if now < probe.due => return,
        None => {
            probe.due = now + probe.check.every;
            let socket = match &probe.server.target {
                Target::Tcp(address) => net::connect(*address, probe.source, net::Mode::Nonblocking),
                Target::Unix(path) => unix::connect(path),
            };
            match socket {
                Ok(socket) => {
                    probe.asked = Some((socket, now + probe.check.timeout));
                    return;
                }
                // A full queue shows that the server is there.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                // What this machine is short of is no fault of the server's.
                Err(error) if descriptor::is_exhaustion(&error) => {
                    probe.due = now + PUT_OFF;
                    let (listen, target) = (&probe.listen, &probe.server.target);
                    let what = format!("{listen}: {target} is checked late: {error}; raise `ulimit -n`");
                    return shared.failures.report(&what, now);
                }
                // Connections from its source to this server have all ports.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                    let (listen, target) = (&probe.listen, &probe.server.target);
                    let what = format!("{listen}: {target} is not checked: {error}; list more addresses in `source`");
                    return shared.failures.report(&what, now);
                }
                Err(error) => Err(error),
            }
        }
    };
    probe.asked = None;
    if let Some(down) = probe.health.note(outcome.is_ok(), &probe.check) {
        probe.server.down.store(down, Ordering::Relaxed);
        let (listen, target) = (&probe.listen, &probe.server.target);
        match outcome {
            Err(error) => {
                let failures = probe.health.failures;
                (shared.say)(&format!("{listen}: {target} is down: {failures} checks failed: {error}"));
            }
            Ok(()) => (shared.say)(&format!("{listen}: {target} is up again")),
        }
    }
}

/// Whether a connection was made, as far as it is known by now.
fn outcome(socket: &OwnedFd, until: Instant, now: Instant) -> Option<io::Result<()>> {
    match poll::is_ready(socket, Interest::WRITE) {
        Ok(false) if now >= until => Some(Err(net::timed_out())),
        Ok(false) => None,
        Ok(true) => Some(net::take_connect_outcome(socket)),
        Err(error) => Some(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::route::Route;
    use crate::table::toml;

    #[test]
    fn a_table_that_checks_more_often_has_its_first_check_when_it_says_and_no_former_one_later() {
        let routes = |every: &str| -> Routes {
            let rule = "[forward.\"127.0.0.1:1\"]\nto = \"192.0.2.1:1\"";
            let table = toml::read(&format!("{rule}\ncheck = {{ every = \"{every}\" }}\n")).expect("a table");
            let route = Route::new(&table.rules[0], &Names::of_the_machine(), Instant::now());
            Routes::from([(1, Arc::new(route))])
        };
        let succeeded = |former: &Routes, every| -> Routes {
            let next = routes(every);
            next.into_iter()
                .map(|(number, route)| {
                    let mut route = Arc::into_inner(route).expect("nobody else has it");
                    route.succeed(&former[&number], Instant::now());
                    (number, Arc::new(route))
                })
                .collect()
        };
        let (start, hour) = (Instant::now(), Duration::from_secs(3600));
        let rarely = routes("1h");
        let mut probes = follow(Vec::new(), &rarely, start);
        assert_eq!(probes[0].due, start, "the first one is at once");
        probes[0].due = start + hour;
        let probes = follow(probes, &succeeded(&rarely, "2h"), start);
        assert_eq!(probes[0].due, start + hour);
        let probes = follow(probes, &succeeded(&rarely, "2s"), start);
        assert_eq!(probes[0].due, start + Duration::from_secs(2));
    }

    #[test]
    fn a_server_falls_and_rises_after_as_many_in_a_row_as_the_rule_says() {
        let check = Check { fall: 3, rise: 2, ..Check::default() };
        let mut health = Health::default();
        let answers = [true, false, false, true, false, false, false, false, true, false, true, true, true];
        let news: Vec<Option<bool>> = answers.iter().map(|answered| health.note(*answered, &check)).collect();
        let want = [(6, Some(true)), (11, Some(false))];
        for (place, news) in news.into_iter().enumerate() {
            let wanted = want.iter().find(|(at, _)| *at == place).and_then(|(_, news)| *news);
            assert_eq!(news, wanted, "after {place}");
        }
    }
}
