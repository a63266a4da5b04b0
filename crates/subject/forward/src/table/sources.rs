//! The local addresses that a rule connects from.

use std::net::IpAddr;
use std::sync::Arc;

/// Local addresses by IP version, as a connection has both ends of one version. The rules of a
/// table share them: there may be thousands of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    v4: Arc<[IpAddr]>,
    v6: Arc<[IpAddr]>,
}

impl FromIterator<IpAddr> for Sources {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Sources {
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = addresses.into_iter().partition(IpAddr::is_ipv4);
        Sources { v4: v4.into(), v6: v6.into() }
    }
}

impl Sources {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.iter().chain(self.v6.iter()).copied()
    }

    /// The addresses from which a destination can be connected to.
    pub fn to(&self, destination: IpAddr) -> &[IpAddr] {
        if destination.is_ipv4() { &self.v4 } else { &self.v6 }
    }

    /// The IPv4 and the IPv6 addresses.
    pub(crate) fn versions(&self) -> [&Arc<[IpAddr]>; 2] {
        [&self.v4, &self.v6]
    }
}
