//! Listening sockets that were open before this process listened: a service manager's
//! (sd_listen_fds(3)), or those of the process that it takes over from.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use plimsoll_sys::{net, unix};

use crate::table::{Listen, Rule};

/// Whether another process has a listener open too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This process alone: when it ends, further clients are refused.
    This,
    /// A service manager, or the process that takes over: queued connections are theirs, and later
    /// clients wait in that queue too.
    Another,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: HashMap<Listen, Vec<OwnedFd>>,
    /// Where a service manager has sockets.
    managed: HashSet<Listen>,
    /// Where a rule has to listen: this process's service manager has a socket there.
    needed: HashSet<Listen>,
    taken: HashSet<Listen>,
}

impl Inherited {
    /// The sockets of a service manager.
    pub fn of_the_manager(sockets: impl IntoIterator<Item = OwnedFd>) -> io::Result<Inherited> {
        let mut inherited = Inherited::default();
        sockets.into_iter().try_for_each(|socket| inherited.add(socket, Owner::Another).map(drop))?;
        inherited.needed = inherited.managed.clone();
        Ok(inherited)
    }

    /// Adds a socket, and says where it listens.
    pub(crate) fn add(&mut self, socket: OwnedFd, owner: Owner) -> io::Result<Listen> {
        let listen = address_of(&socket)?;
        if owner == Owner::Another {
            self.managed.insert(listen.clone());
        }
        self.sockets.entry(listen.clone()).or_default().push(socket);
        Ok(listen)
    }

    /// How many sockets there are.
    pub(crate) fn count(&self) -> usize {
        self.sockets.values().map(Vec::len).sum()
    }

    /// The sockets of a rule, if there are any.
    pub(crate) fn take(&mut self, rule: &Rule) -> io::Result<Option<(Vec<OwnedFd>, Owner)>> {
        if let Some(sockets) = self.sockets.get(&rule.listen) {
            self.taken.insert(rule.listen.clone());
            let owner = if self.managed.contains(&rule.listen) { Owner::Another } else { Owner::This };
            return copies(sockets).map(|sockets| Some((sockets, owner)));
        }
        // A service manager's `ListenStream=PORT` is one socket for both versions of IP.
        let Listen::Tcp(address) = rule.listen else { return Ok(None) };
        let both = Listen::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())));
        match self.sockets.get(&both).filter(|_| rule.wildcard && address.ip() == Ipv4Addr::UNSPECIFIED) {
            Some(sockets) if sockets.iter().all(net::is_dual_stack) => {
                copies(sockets).map(|sockets| Some((sockets, Owner::Another)))
            }
            _ => Ok(None),
        }
    }

    /// The one socket at an address.
    pub(crate) fn take_at(&mut self, address: SocketAddr) -> io::Result<Option<OwnedFd>> {
        let listen = Listen::Tcp(address);
        let Some(socket) = self.sockets.get(&listen).and_then(|sockets| sockets.first()) else { return Ok(None) };
        self.taken.insert(listen);
        socket.try_clone().map(Some)
    }

    /// Whether the sockets there were taken.
    pub(crate) fn is_taken(&self, listen: &Listen) -> bool {
        self.taken.contains(listen)
    }

    /// Why this process, with `sets` sockets a listener, cannot serve the inherited sockets: the
    /// clients of a socket that no worker accepts at would wait for ever.
    pub(crate) fn check(&self, sets: usize) -> Result<(), String> {
        let too_many = self.sockets.iter().find(|(_, sockets)| sockets.len() > sets);
        too_many.map_or(Ok(()), |(listen, sockets)| {
            let count = sockets.len();
            Err(format!(
                "{count} sockets were handed over for {listen}, one a worker: start with `--accept reuseport --workers \
                 {count}`"
            ))
        })
    }

    /// Of a service manager's sockets, one that no rule has taken.
    pub(crate) fn left_over(&self) -> Option<&Listen> {
        self.needed.difference(&self.taken).next()
    }
}

fn copies(sockets: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    sockets.iter().map(OwnedFd::try_clone).collect()
}

fn address_of(socket: &OwnedFd) -> io::Result<Listen> {
    net::local_address(socket).map(Listen::Tcp).or_else(|_| unix::local_path(socket).map(Listen::Unix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::mapping;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    fn rule(listen: &str) -> Rule {
        mapping::read([format!("{listen}=192.0.2.1:80").as_str()]).expect("a mapping").rules.remove(0)
    }

    #[test]
    fn a_socket_goes_to_the_rule_of_its_address_and_what_is_left_over_is_named() {
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [first, second] = sockets.each_ref().map(|socket| socket.local_addr().expect("it is bound"));
        let mut inherited = Inherited::of_the_manager(sockets.map(OwnedFd::from)).expect("two listeners");
        assert_eq!(inherited.check(1), Ok(()));
        let (taken, owner) = inherited.take(&rule(&first.to_string())).expect("no error").expect("it is there");
        assert_eq!((taken.len(), owner), (1, Owner::Another));
        assert_eq!(net::local_address(taken[0].as_fd()).expect("it is bound"), first);
        assert!(inherited.take(&rule("127.0.0.1:1")).expect("no error").is_none());
        assert!(inherited.is_taken(&Listen::Tcp(first)) && !inherited.is_taken(&Listen::Tcp(second)));
        assert_eq!(inherited.left_over(), Some(&Listen::Tcp(second)));
    }

    #[test]
    fn more_sockets_than_workers_are_refused() {
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let mut inherited = Inherited::default();
        inherited.add(socket.try_clone().expect("a descriptor is left"), Owner::This).expect("a listener");
        inherited.add(socket, Owner::This).expect("a listener");
        assert!(inherited.check(1).expect_err("one has no worker").contains("--workers 2"));
        assert_eq!(inherited.check(2), Ok(()));
        assert_eq!(inherited.left_over(), None, "the process that had it goes on with it");
    }
}
