//! A learning switch: through which port is an address? (IEEE 802.1D, section 7.)
//!
//! It floods frames for unknown addresses. There is no spanning tree: the configuration refuses
//! loops.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::frame::Address;

/// An address not heard from for this long is forgotten (IEEE 802.1D's default).
const AGE: Duration = Duration::from_secs(300);

/// Past this many addresses none is learnt, and frames for further ones are flooded: a sender of
/// forged addresses must not fill the memory.
const ADDRESSES_MAX: usize = 65_536;

/// Behind which port each MAC address was last seen.
#[derive(Debug, Default)]
pub(crate) struct MacTable(HashMap<Address, (usize, Instant)>);

impl MacTable {
    /// Notes that a frame from `sender` came in through `port`.
    pub(crate) fn learn(&mut self, now: Instant, sender: Address, port: usize) {
        let is_group = sender[0] & 1 == 1;
        if !is_group && (self.0.len() < ADDRESSES_MAX || self.0.contains_key(&sender)) {
            self.0.insert(sender, (port, now));
        }
    }

    /// The port that leads to `receiver`; `None` is all but the one it came in through.
    pub(crate) fn port(&self, now: Instant, receiver: Address) -> Option<usize> {
        self.0.get(&receiver).filter(|(_, heard)| now.saturating_duration_since(*heard) < AGE).map(|(port, _)| *port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Address = [2, 0, 0, 0, 0, 1];
    const EVERYBODY: Address = [0xff; 6];

    #[test]
    fn an_address_is_known_by_its_last_port_until_it_has_been_silent_for_five_minutes() {
        let start = Instant::now();
        let mut table = MacTable::default();
        assert_eq!(table.port(start, ONE), None);
        table.learn(start, ONE, 3);
        table.learn(start + Duration::from_secs(1), ONE, 4);
        assert_eq!(table.port(start + Duration::from_secs(300), ONE), Some(4));
        assert_eq!(table.port(start + Duration::from_secs(301), ONE), None);
    }

    #[test]
    fn a_group_address_is_never_learnt() {
        let mut table = MacTable::default();
        table.learn(Instant::now(), EVERYBODY, 1);
        assert_eq!(table.port(Instant::now(), EVERYBODY), None);
    }

    #[test]
    fn forged_senders_do_not_fill_the_memory() {
        let now = Instant::now();
        let mut table = MacTable::default();
        table.learn(now, ONE, 1);
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            let [a, b, c, d] = number.to_be_bytes();
            table.learn(now, [6, 0, a, b, c, d], 2);
        }
        assert_eq!(table.0.len(), ADDRESSES_MAX);
        table.learn(now, ONE, 5);
        assert_eq!(table.port(now, ONE), Some(5));
    }
}
