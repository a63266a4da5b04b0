//! Who may connect: networks, or rinetd's patterns of addresses.

use std::net::IpAddr;

use super::number;

/// The bits before an IPv4 address that is mapped into IPv6, ::ffff:0:0/96 (RFC 4291, section
/// 2.5.5.2).
const MAPPED_BITS: u32 = 96;

/// Addresses that share their first bits, such as `192.0.2.0/24`. An IPv4 address mapped into IPv6
/// counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Reads `ADDRESS/BITS`, or an address alone.
    pub fn parse(text: &str) -> Result<Network, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}` is not a network; write ADDRESS/BITS or an address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            Some(bits) => number(bits)
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("`{text}`: the bits of this network are a number from 0 to {most}"))?,
        };
        let network = Network { address, prefix };
        let first = network.first();
        if first != address {
            return Err(format!("`{text}` has bits set beyond its {prefix}; write {first}/{prefix}"));
        }
        // A client of it counts as an IPv4 one.
        Ok(match (address.to_canonical(), prefix.checked_sub(MAPPED_BITS)) {
            (mapped @ IpAddr::V4(_), Some(prefix)) if address.is_ipv6() => Network { address: mapped, prefix },
            _ => network,
        })
    }

    /// Whether the address is one of this network's.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Network { address, prefix: self.prefix }.first() == self.address
    }

    /// The first address of the network.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
        }
    }
}

/// Some addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The addresses of a network.
    Network(Network),
    /// Those whose text matches, where `?` is any one character and `*` any number of them
    /// (rinetd(8)).
    Text(String),
}

impl Pattern {
    fn matches(&self, address: IpAddr) -> bool {
        match self {
            Pattern::Network(network) => network.contains(address),
            Pattern::Text(pattern) => text_matches(pattern.as_bytes(), address.to_canonical().to_string().as_bytes()),
        }
    }
}

fn text_matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => text_matches(rest, text),
        (Some((b'*', rest)), Some((_, following))) => text_matches(rest, text) || text_matches(pattern, following),
        (Some((b'?', rest)), Some((_, following))) => text_matches(rest, following),
        (Some((wanted, rest)), Some((found, following))) => wanted == found && text_matches(rest, following),
        _ => false,
    }
}

/// Who may connect: no client in `deny`, and if `allow` has a pattern, only clients in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// If any, only these may connect.
    pub allow: Vec<Pattern>,
    /// These may not.
    pub deny: Vec<Pattern>,
}

impl Access {
    /// Whether a client may connect. The client of a Unix socket has no address: only an `allow`
    /// keeps it out.
    pub fn admits(&self, client: Option<IpAddr>) -> bool {
        let is_in = |patterns: &[Pattern]| {
            client.is_some_and(|address| patterns.iter().any(|pattern| pattern.matches(address)))
        };
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::parse(text).expect(text)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_network_contains_the_addresses_that_share_its_bits() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.0/24", "::ffff:192.0.2.9", "::ffff:192.0.3.9"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::", "192.0.2.1"),
            ("::ffff:192.0.2.0/120", "192.0.2.9", "192.0.3.9"),
            ("::ffff:192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("::ffff:0:0/96", "192.0.2.1", "::1"),
        ] {
            assert!(network(text).contains(address(inside)), "{text} {inside}");
            assert!(!network(text).contains(address(outside)), "{text} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_reason() {
        for (text, reason) in [
            ("192.0.2.1/24", "write 192.0.2.0/24"),
            ("192.0.2.0/33", "0 to 32"),
            ("2001:db8::/129", "0 to 128"),
            ("192.0.2.0/-1", "0 to 32"),
            ("192.0.2.0/+24", "0 to 32"),
            ("example.org", "not a network"),
            ("", "not a network"),
        ] {
            let why = Network::parse(text).expect_err(text);
            assert!(why.contains(reason), "{text}: {why}");
        }
    }

    #[test]
    fn patterns_of_text_match_as_rinetd_has_them() {
        for (pattern, text, matches) in [
            ("192.0.2.*", "192.0.2.17", true),
            ("192.0.2.*", "192.0.20.1", false),
            ("192.0.2.?", "192.0.2.7", true),
            ("192.0.2.?", "192.0.2.17", false),
            ("*", "2001:db8::1", true),
            ("*.1", "192.0.2.11", false),
            ("1*2*1", "192.0.2.1", true),
        ] {
            assert_eq!(Pattern::Text(pattern.to_owned()).matches(address(text)), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn denying_wins_over_allowing_and_allowing_anybody_keeps_the_others_out() {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::Network(network(text))).collect();
        let access = Access { allow: patterns(&["192.0.2.0/24"]), deny: patterns(&["192.0.2.7"]) };
        assert!(access.admits(Some(address("192.0.2.1"))));
        assert!(!access.admits(Some(address("192.0.2.7"))));
        assert!(!access.admits(Some(address("198.51.100.1"))));
        assert!(!access.admits(None));
        assert!(Access { allow: Vec::new(), deny: patterns(&["0.0.0.0/0"]) }.admits(None));
        assert!(Access::default().admits(Some(address("::1"))));
    }
}
