//! The listeners that are open, and the change from one table's to the next one's.
//!
//! A listener of both tables stays as it is, with its queue: only its route changes. The new ones
//! are opened first, so that a table that cannot be had in full changes nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::listening;
use plimsoll_sys::net;
use plimsoll_sys::unix::{self, Name};

use crate::Say;
use crate::inherited::{Inherited, Owner};
use crate::route::Route;
use crate::shared::{ListenerNumber, Routes};
use crate::table::{Listen, Rule};

/// After this long without a byte the kernel probes whether the peer is still there (TCP_KEEPIDLE):
/// within the usual life of a NAT entry. Accepted connections inherit it from their listener.
pub(crate) const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(75);

/// What identifies a listener: the address that was asked for, and how often before, as port 0 may
/// be asked for several times.
type Asked = (Listen, usize);

pub(crate) struct Listener {
    pub(crate) number: ListenerNumber,
    asked: Asked,
    /// Where it is in truth: port 0 has become another.
    pub(crate) at: Listen,
    /// One for each set: one for all workers, or one a worker.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) route: Arc<Route>,
    pub(crate) owner: Owner,
    /// Of a Unix socket.
    name: Option<Name>,
    /// The name was made here, and not by a process that had the socket before.
    has_made_name: bool,
}

/// What was opened for a route: where, the sockets, and who else has them.
type Opened = (Listen, MadeName, Vec<OwnedFd>, Owner);

/// The name of a Unix socket that was made for a table. It is taken away again, while the socket is
/// open, unless the table is taken over.
#[derive(Default)]
struct MadeName(Option<Name>);

impl MadeName {
    /// Leaves it, and returns whether there is one.
    fn keep(mut self) -> bool {
        self.0.take().is_some()
    }
}

impl Drop for MadeName {
    fn drop(&mut self) {
        self.0.iter().for_each(Name::remove);
    }
}

/// The permissions that a Unix socket had before a table changed them. It has them again, unless
/// the table is taken over.
struct FormerMode<'a>(Option<(&'a Name, u32)>);

impl FormerMode<'_> {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for FormerMode<'_> {
    fn drop(&mut self) {
        if let Some((name, mode)) = self.0 {
            // Where it fails nothing else can be done.
            let _ = name.set_mode(mode);
        }
    }
}

/// All listeners of a forwarder, in the order of the table.
#[derive(Default)]
pub(crate) struct Listeners {
    open: Vec<Listener>,
    /// Places in `open`, by number.
    places: HashMap<ListenerNumber, usize>,
    next_number: ListenerNumber,
}

/// What a change of tables opened and closed.
pub(crate) struct Change {
    pub(crate) opened: Vec<ListenerNumber>,
    pub(crate) closed: Vec<Listener>,
    /// Addresses of `*` that this machine does not have.
    pub(crate) left_out: Vec<Listen>,
}

impl Change {
    /// Says which addresses were left out.
    pub(crate) fn say_left_out(&self, say: &Say) {
        if let Some(first) = self.left_out.first() {
            let count = self.left_out.len();
            say(&format!(
                "this machine has no IPv6: {first} is not listened on ({count} such in all), only its IPv4 side"
            ));
        }
    }
}

impl Listeners {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.open.iter()
    }

    pub(crate) fn by_number(&self, number: ListenerNumber) -> Option<&Listener> {
        self.places.get(&number).map(|&place| &self.open[place])
    }

    pub(crate) fn routes(&self) -> Routes {
        self.open.iter().map(|listener| (listener.number, Arc::clone(&listener.route))).collect()
    }

    /// Becomes the listeners of these routes, with `sets` sockets each unless they are inherited.
    /// Where one cannot be opened nothing has changed.
    pub(crate) fn change(
        &mut self,
        routes: Vec<Route>,
        sets: usize,
        inherited: &mut Inherited,
    ) -> Result<Change, (Listen, io::Error)> {
        self.change_by(routes, |route| open(&route.rule, sets, inherited))
    }

    /// Every socket, in an order that stays while nothing changes.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Owner)> {
        let of = |listener: &Listener| listener.owner;
        self.open.iter().flat_map(move |listener| listener.sockets.iter().map(move |each| (each.as_fd(), of(listener))))
    }

    /// Another process accepts at these of the sockets, in the same order. Returns at how many
    /// addresses.
    pub(crate) fn hand_over(&mut self, taken: &[bool]) -> usize {
        let (mut rest, mut count) = (taken, 0);
        for listener in &mut self.open {
            let (own, others) = rest.split_at(listener.sockets.len().min(rest.len()));
            rest = others;
            if own.iter().all(|taken| *taken) {
                listener.owner = Owner::Another;
                count += 1;
            }
        }
        count
    }

    /// Another process may accept at any of them.
    pub(crate) fn hand_over_all(&mut self) {
        self.open.iter_mut().for_each(|listener| listener.owner = Owner::Another);
    }

    /// Whether there are none any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// The listeners that another process has open too.
    pub(crate) fn shared(&self) -> Vec<ListenerNumber> {
        self.open.iter().filter(|each| each.owner == Owner::Another).map(|each| each.number).collect()
    }

    fn change_by(
        &mut self,
        routes: Vec<Route>,
        mut open: impl FnMut(&Route) -> io::Result<Opened>,
    ) -> Result<Change, (Listen, io::Error)> {
        let held: HashMap<&Asked, usize> =
            self.open.iter().zip(0..).map(|(listener, index)| (&listener.asked, index)).collect();
        let mut seen: HashMap<Listen, usize> = HashMap::new();
        let mut plan = Vec::with_capacity(routes.len());
        let (now, mut left_out) = (Instant::now(), Vec::new());
        for mut route in routes {
            let before = seen.entry(route.listen().clone()).or_default();
            let asked = (route.listen().clone(), *before);
            *before += 1;
            if let Some(&index) = held.get(&asked) {
                route.rule.listen = self.open[index].at.clone();
                route.succeed(&self.open[index].route, now);
                plan.push((Ok(index), asked, route));
                continue;
            }
            match open(&route) {
                Ok((at, made, sockets, owner)) => {
                    route.rule.listen = at;
                    plan.push((Err((made, sockets, owner)), asked, route));
                }
                // `*` stands for every address that this machine has: where IPv6 is switched off,
                // those of IPv4.
                Err(error) if route.rule.wildcard && net::is_without_family(&error) => left_out.push(asked.0),
                Err(error) => return Err((asked.0, error)),
            }
        }
        let mut former_modes = Vec::new();
        for (source, asked, route) in &plan {
            if let Ok(index) = source {
                let former = self.open[*index].follow_mode(route).map_err(|error| (asked.0.clone(), error))?;
                former_modes.extend(former);
            }
        }
        former_modes.into_iter().for_each(FormerMode::forget);
        let mut former: Vec<Option<Listener>> = std::mem::take(&mut self.open).into_iter().map(Some).collect();
        let mut opened = Vec::new();
        for (source, asked, route) in plan {
            let (at, route) = (route.listen().clone(), Arc::new(route));
            let listener = match source {
                Ok(index) => {
                    let former = former[index].take().expect("each is asked for once");
                    Listener { asked, at, route, ..former }
                }
                Err((made, sockets, owner)) => {
                    let has_made_name = made.keep();
                    self.next_number += 1;
                    opened.push(self.next_number);
                    let name = if let Listen::Unix(path) = &at { Some(Name::of(path)) } else { None };
                    Listener { number: self.next_number, asked, at, sockets, route, owner, name, has_made_name }
                }
            };
            self.open.push(listener);
        }
        self.places = self.open.iter().zip(0..).map(|(listener, place)| (listener.number, place)).collect();
        Ok(Change { opened, closed: former.into_iter().flatten().collect(), left_out })
    }

    /// Closes the listeners: further clients are refused, except where another process accepts.
    pub(crate) fn close(&mut self) {
        self.places.clear();
        for listener in std::mem::take(&mut self.open) {
            listener.stop();
            listener.unlink();
        }
    }
}

/// A forwarder that fails before it has begun closes no listeners. It leaves no names that it made,
/// and leaves those of a process that it would have taken over from.
impl Drop for Listeners {
    fn drop(&mut self) {
        self.open.iter().filter(|listener| listener.has_made_name).for_each(Listener::unlink);
    }
}

impl Listener {
    /// Refuses further clients here, unless another process has the listener open.
    pub(crate) fn stop(&self) {
        if self.owner == Owner::This {
            self.sockets.iter().for_each(net::stop_listening);
        }
    }

    /// Gives a Unix socket the permissions that its next route asks for, where the present one asks
    /// for others.
    fn follow_mode(&self, next: &Route) -> io::Result<Option<FormerMode<'_>>> {
        let mode = next.rule.mode.filter(|_| next.rule.mode != self.route.rule.mode);
        match (&self.name, mode, self.owner) {
            (Some(name), Some(mode), Owner::This) => {
                Ok(name.set_mode(mode)?.map(|former| FormerMode(Some((name, former)))))
            }
            _ => Ok(None),
        }
    }

    /// Takes a Unix socket's name away, unless another process listens there.
    pub(crate) fn unlink(&self) {
        if let (Some(name), Owner::This) = (&self.name, self.owner) {
            name.remove();
        }
    }
}

fn open(rule: &Rule, sets: usize, inherited: &mut Inherited) -> io::Result<Opened> {
    if let Some((sockets, owner)) = inherited.take(rule)? {
        match (&rule.listen, rule.mode) {
            (Listen::Tcp(_), _) => sockets.iter().try_for_each(|socket| net::prepare(socket, KEEP_ALIVE_AFTER))?,
            // A service manager has its own setting for that.
            (Listen::Unix(path), Some(mode)) if owner == Owner::This => Name::of(path).set_mode(mode).map(drop)?,
            (Listen::Unix(_), _) => {}
        }
        return Ok((rule.listen.clone(), MadeName::default(), sockets, owner));
    }
    let address = match &rule.listen {
        // The name has one socket, whatever the strategy.
        Listen::Unix(path) => {
            let socket = unix::listen(path, rule.mode)?;
            return Ok((rule.listen.clone(), MadeName(Some(Name::of(path))), vec![socket], Owner::This));
        }
        Listen::Tcp(address) => *address,
    };
    let (address, sockets) = listening::open(address, sets)?;
    sockets.iter().try_for_each(|socket| net::prepare(socket, KEEP_ALIVE_AFTER))?;
    Ok((Listen::Tcp(address), MadeName::default(), sockets, Owner::This))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::table::mapping;

    #[test]
    fn every_address_is_ipv4s_where_there_is_no_ipv6_and_an_ipv6_address_asked_for_by_itself_is_an_error() {
        let routes = |mapping: &str| -> Vec<Route> {
            let table = mapping::read([mapping]).expect("a mapping");
            table.rules.iter().map(|rule| Route::new(rule, &Names::of_the_machine(), Instant::now())).collect()
        };
        // EAFNOSUPPORT, as socket(2) says where IPv6 is switched off.
        let without_ipv6 = |route: &Route| match route.listen() {
            Listen::Tcp(address) if address.is_ipv6() => Err(io::Error::from_raw_os_error(97)),
            listen => Ok((listen.clone(), MadeName::default(), Vec::new(), Owner::This)),
        };
        let mut listeners = Listeners::default();
        let change = listeners.change_by(routes("*:7000=192.0.2.1:80"), without_ipv6).expect("IPv4 is there");
        assert_eq!(change.left_out.iter().map(ToString::to_string).collect::<Vec<_>>(), ["[::]:7000"]);
        assert_eq!(listeners.iter().map(|listener| listener.at.to_string()).collect::<Vec<_>>(), ["0.0.0.0:7000"]);
        for mapping in ["[::]:7000=192.0.2.1:80", "[::1]:7000=192.0.2.1:80"] {
            assert!(Listeners::default().change_by(routes(mapping), without_ipv6).is_err(), "{mapping}");
        }
    }
}
