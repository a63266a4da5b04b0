//! The addresses of names. A name that cannot be resolved keeps its former addresses, so that an
//! outage of the name service stops no reload.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Lookup = Box<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// See the head of this file.
pub(crate) struct Names {
    lookup: Lookup,
    known: Mutex<HashMap<String, Arc<[IpAddr]>>>,
}

/// What the name service said.
#[derive(Debug)]
pub(crate) enum Answer {
    /// These addresses.
    Fresh(Arc<[IpAddr]>),
    /// None, for this reason; former addresses stay.
    Stale(io::Error),
}

impl Names {
    /// The machine's own way to resolve names (getaddrinfo(3)).
    pub(crate) fn of_the_machine() -> Names {
        Names::new(Box::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())))
    }

    pub(crate) fn new(lookup: Lookup) -> Names {
        Names { lookup, known: Mutex::default() }
    }

    /// Asks for a name's addresses; the error is that of a name that never had any. It changes
    /// nothing that is known.
    pub(crate) fn ask(&self, name: &str) -> io::Result<Answer> {
        let found = (self.lookup)(name).and_then(|found| {
            let mut addresses: Vec<IpAddr> = Vec::with_capacity(found.len());
            // One for each kind of socket (getaddrinfo(3)); their order is the resolver's
            // preference.
            found.into_iter().for_each(|address| {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            });
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
            }
            Ok(addresses.into())
        });
        match found {
            Ok(addresses) => Ok(Answer::Fresh(addresses)),
            Err(error) if self.known(name).is_some() => Ok(Answer::Stale(error)),
            Err(error) => Err(error),
        }
    }

    /// Takes note of a name's addresses.
    pub(crate) fn learn(&self, name: &str, addresses: Arc<[IpAddr]>) {
        self.lock().insert(name.to_owned(), addresses);
    }

    /// The addresses that a name is known to have.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[IpAddr]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn an_outage_leaves_a_name_the_addresses_that_it_had() {
        let works = Arc::new(AtomicBool::new(true));
        let answers = Arc::clone(&works);
        let address = IpAddr::from([192, 0, 2, 1]);
        let names = Names::new(Box::new(move |name| match (name, answers.load(Ordering::Relaxed)) {
            ("empty", true) => Ok(Vec::new()),
            (_, true) => Ok(vec![address, address]),
            (_, false) => Err(io::Error::other("the name service is out")),
        }));
        assert!(names.ask("empty").is_err());
        let Ok(Answer::Fresh(addresses)) = names.ask("server") else { panic!("it has an address") };
        assert_eq!(addresses[..], [address], "each once");
        names.learn("server", addresses);
        works.store(false, Ordering::Relaxed);
        let answer = names.ask("server").expect("it had an address");
        assert!(matches!(&answer, Answer::Stale(error) if error.to_string().contains("out")));
        assert_eq!(names.known("server").as_deref(), Some(&[address][..]));
        assert!(names.ask("another").is_err());
    }
}
