//! Source addresses, rotated before their ports run out.
//!
//! Two addresses and two ports identify a TCP connection, so one source address has one connection
//! a port to the same destination: 28,232 with the kernel's default range. Well before that its
//! search for a free port slows down several times (inet_hash_connect tries ports one by one), so
//! an address is left earlier.

use std::net::{IpAddr, Ipv4Addr};

/// Connections from one source address to one destination before the next address is used: half the
/// default port range, where the kernel still finds a free port at the first tries.
pub const CONNECTIONS_PER_ADDRESS: usize = 14_000;

/// Which source address each connection to a destination uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The kernel chooses.
    Kernel,
    /// All of 127.0.0.0/8, which needs no set-up on the loopback interface.
    Loopback,
    /// These, in turn.
    Listed(Vec<IpAddr>),
}

impl Rotation {
    /// The rotation for `connections` connections to `destination`: the addresses listed, or
    /// loopback's own where ports would run out, or else the kernel's choice.
    pub fn choose(destination: IpAddr, connections: usize, listed: &[IpAddr]) -> Rotation {
        if !listed.is_empty() {
            Rotation::Listed(listed.to_vec())
        } else if connections > CONNECTIONS_PER_ADDRESS && matches!(destination, IpAddr::V4(v4) if v4.is_loopback()) {
            Rotation::Loopback
        } else {
            Rotation::Kernel
        }
    }

    /// The source address of the connection with this number, counted from 0 for each destination.
    /// Listed addresses are used in turn; loopback's are each filled before the next.
    pub fn address(&self, connection: usize) -> Option<IpAddr> {
        match self {
            Rotation::Kernel => None,
            Rotation::Loopback => {
                // From 127.0.0.2 on: 127.0.0.1 is where everybody else's connections come from.
                let host = 2 + (connection / CONNECTIONS_PER_ADDRESS) as u32;
                Some(IpAddr::V4(Ipv4Addr::from_bits(0x7f00_0000 | (host & 0x00ff_ffff))))
            }
            Rotation::Listed(addresses) => Some(addresses[connection % addresses.len()]),
        }
    }

    /// The source address of a connect by one of several lanes that count their own, each from 0
    /// for each destination.
    pub fn address_in_lane(&self, connect: usize, lane: usize, lanes: usize) -> Option<IpAddr> {
        match self {
            // Every lane has its turn with each address, however many there are of either.
            Rotation::Listed(_) => self.address(connect + lane),
            // All lanes together fill an address.
            Rotation::Kernel | Rotation::Loopback => self.address(connect * lanes + lane),
        }
    }

    /// How many connections to one destination these addresses have ports for; `None` where only
    /// the kernel knows.
    pub fn capacity(&self) -> Option<usize> {
        match self {
            Rotation::Kernel => None,
            Rotation::Loopback => Some(CONNECTIONS_PER_ADDRESS * 0x00ff_fffd),
            Rotation::Listed(addresses) => Some(CONNECTIONS_PER_ADDRESS * addresses.len()),
        }
    }

    /// Whether so many connections to one destination are more than the kernel quickly finds ports
    /// for.
    pub fn is_crowded_by(&self, connections: usize) -> bool {
        connections > self.capacity().unwrap_or(CONNECTIONS_PER_ADDRESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn few_connections_leave_the_choice_to_the_kernel() {
        assert_eq!(Rotation::choose(LOOPBACK, CONNECTIONS_PER_ADDRESS, &[]), Rotation::Kernel);
    }

    #[test]
    fn a_million_loopback_connections_never_crowd_an_address() {
        let rotation = Rotation::choose(LOOPBACK, 1_000_000, &[]);
        let mut counts = std::collections::HashMap::new();
        for connection in 0..1_000_000 {
            let address = rotation.address(connection).expect("loopback rotates");
            assert!(address.is_loopback() && address != LOOPBACK);
            *counts.entry(address).or_insert(0) += 1;
        }
        assert_eq!(counts.values().max(), Some(&CONNECTIONS_PER_ADDRESS));
        let addresses = [0, CONNECTIONS_PER_ADDRESS].map(|connection| rotation.address(connection));
        assert_eq!(addresses, [2, 3].map(|host| Some(IpAddr::from([127, 0, 0, host]))));
    }

    #[test]
    fn addresses_are_crowded_by_more_connections_than_they_have_ports_for() {
        let listed = Rotation::Listed(vec![LOOPBACK; 3]);
        // Of 2^24 addresses 127.0.0.0, 127.0.0.1 and the last are left out.
        for (rotation, capacity) in [(&listed, 3), (&Rotation::Loopback, (1 << 24) - 3)] {
            let most = capacity * CONNECTIONS_PER_ADDRESS;
            assert_eq!(rotation.capacity(), Some(most));
            assert_eq!([most, most + 1].map(|count| rotation.is_crowded_by(count)), [false, true]);
        }
        assert_eq!(Rotation::Kernel.capacity(), None);
        let beside = [CONNECTIONS_PER_ADDRESS, CONNECTIONS_PER_ADDRESS + 1];
        assert_eq!(beside.map(|count| Rotation::Kernel.is_crowded_by(count)), [false, true]);
    }

    #[test]
    fn each_lane_uses_every_listed_address_and_all_lanes_together_fill_one_of_loopback() {
        let listed: Vec<IpAddr> = [1, 2].map(|host| IpAddr::from([192, 0, 2, host])).to_vec();
        let rotation = Rotation::choose(LOOPBACK, 3, &listed);
        for (lane, lanes) in [(0, 1), (0, 2), (1, 2), (3, 4)] {
            let used = [0, 1].map(|connect| rotation.address_in_lane(connect, lane, lanes));
            assert!(listed.iter().all(|address| used.contains(&Some(*address))), "{lane} of {lanes}: {used:?}");
        }
        let last = CONNECTIONS_PER_ADDRESS / 2 - 1;
        let places = [(last, 1), (last + 1, 0)];
        let found = places.map(|(connect, lane)| Rotation::Loopback.address_in_lane(connect, lane, 2));
        assert_eq!(found, [2, 3].map(|host| Some(IpAddr::from([127, 0, 0, host]))));
    }

    #[test]
    fn listed_addresses_are_used_in_turn() {
        let listed: Vec<IpAddr> = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().expect("an address")).to_vec();
        let rotation = Rotation::choose(LOOPBACK, 3, &listed);
        assert_eq!([0, 1, 2].map(|n| rotation.address(n)), [Some(listed[0]), Some(listed[1]), Some(listed[0])]);
    }
}
