//! In which order a connection tries the servers of a rule. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::table::Balance;

/// What matters of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its checks fail, or the last connection to it did a moment ago: it is tried after the
    /// others.
    pub(crate) avoided: bool,
    /// Connections that are open to it.
    pub(crate) open: usize,
    /// A number of its own that stays the same.
    pub(crate) identity: u64,
}

/// A server's number for [`Standing::identity`], the same in every process.
pub(crate) fn identity(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The places of all servers in the order in which connection number `turn` tries them.
pub(crate) fn order(balance: Balance, turn: usize, client: Option<SocketAddr>, servers: &[Standing]) -> Vec<usize> {
    let mut order = Vec::with_capacity(servers.len());
    for avoided in [false, true] {
        let mut part: Vec<usize> = (0..servers.len()).filter(|&place| servers[place].avoided == avoided).collect();
        if part.is_empty() {
            continue;
        }
        // Only available servers take turns: the server after a dead one has no double share.
        let first = turn % part.len();
        match balance {
            Balance::First => {}
            Balance::RoundRobin => part.rotate_left(first),
            Balance::LeastConnections => {
                part.rotate_left(first);
                part.sort_by_key(|&place| servers[place].open);
            }
            Balance::SourceHash => {
                part.sort_by_key(|&place| std::cmp::Reverse(score(client.map(|client| client.ip()), servers[place])));
            }
        }
        order.extend(part);
    }
    order
}

/// Highest-random-weight hashing (Thaler and Ravishankar, 1998): a server that comes or goes moves
/// only the clients that are its own.
fn score(client: Option<IpAddr>, server: Standing) -> u64 {
    identity(&(client.map(|client| client.to_canonical()), server.identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(avoided: &[usize], open: &[usize]) -> Vec<Standing> {
        let standing = |(place, open): (usize, &usize)| Standing {
            avoided: avoided.contains(&place),
            open: *open,
            identity: identity(&place),
        };
        open.iter().enumerate().map(standing).collect()
    }

    fn client(last: u8) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, last], 7)))
    }

    #[test]
    fn each_turn_begins_with_the_next_and_tries_every_one() {
        let three = servers(&[], &[0; 3]);
        let order = |turn| order(Balance::RoundRobin, turn, None, &three);
        assert_eq!(order(0), [0, 1, 2]);
        assert_eq!(order(1), [1, 2, 0]);
        assert_eq!(order(3), order(0));
    }

    #[test]
    fn the_share_of_a_dead_server_is_divided_among_the_others_and_it_is_tried_last() {
        let three = servers(&[1], &[0; 3]);
        let firsts: Vec<usize> = (0..6).map(|turn| order(Balance::RoundRobin, turn, None, &three)[0]).collect();
        assert_eq!(firsts, [0, 2, 0, 2, 0, 2]);
        assert_eq!(order(Balance::First, 0, None, &servers(&[0], &[0; 3])), [1, 2, 0]);
        assert_eq!(order(Balance::First, 5, None, &servers(&[0, 1, 2], &[0; 3])), [0, 1, 2], "all are tried still");
    }

    #[test]
    fn the_one_with_the_fewest_connections_is_first_and_equals_take_turns() {
        assert_eq!(order(Balance::LeastConnections, 0, None, &servers(&[], &[3, 1, 2])), [1, 2, 0]);
        let equal = servers(&[], &[1, 1, 9]);
        let firsts: Vec<usize> = (0..3).map(|turn| order(Balance::LeastConnections, turn, None, &equal)[0]).collect();
        assert_eq!(firsts, [0, 1, 0]);
        assert_eq!(order(Balance::LeastConnections, 0, None, &servers(&[1], &[3, 0, 2])), [2, 0, 1]);
    }

    #[test]
    fn a_client_keeps_its_server_and_a_server_that_goes_moves_only_its_own_clients() {
        let (all, without) = (servers(&[], &[0; 4]), servers(&[2], &[0; 4]));
        let mut counts = [0; 4];
        for last in 0..=255 {
            let first = order(Balance::SourceHash, usize::from(last), client(last), &all)[0];
            counts[first] += 1;
            assert_eq!(order(Balance::SourceHash, 9, client(last), &all)[0], first, "whatever the turn");
            let now = order(Balance::SourceHash, 0, client(last), &without)[0];
            assert!(if first == 2 { now != 2 } else { now == first }, "client {last}");
        }
        assert!(counts.iter().all(|count| *count > 30), "{counts:?}");
    }
}
