//! From names to addresses: which servers connections go to.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use plimsoll_sys::net;

use crate::address;
use crate::outcome::usage;

/// How long one address of a name may take to accept a connection before the next one is tried.
const TRY: Duration = Duration::from_secs(1);

/// Which addresses of a name are used.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct Family {
    /// Use only IPv4 addresses.
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = "Connections")]
    ipv4: bool,
    /// Use only IPv6 addresses.
    #[arg(short = '6', long, help_heading = "Connections")]
    ipv6: bool,
}

impl Family {
    fn includes(self, address: &SocketAddr) -> bool {
        if address.is_ipv4() { !self.ipv6 } else { !self.ipv4 }
    }
}

/// The addresses that a name is loaded at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// At least one, all of one IP version.
    pub(super) addresses: Vec<SocketAddr>,
    /// Addresses of the other IP version, tried first, where nothing accepted a connection.
    refusing: Vec<SocketAddr>,
}

impl Server {
    /// A note about the choice, for a person.
    pub(super) fn note(&self, name: &str) -> Option<String> {
        if self.refusing.is_empty() {
            return None;
        }
        let list = |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(format!(
            "{name}: nothing accepts connections at {}, so {} is loaded (-4 or -6 chooses)",
            list(&self.refusing),
            list(&self.addresses)
        ))
    }
}

/// The addresses of HOST:PORT.
///
/// All addresses of one IP version are used. Where a name has both versions, it is the first that
/// the resolver names (RFC 6724), unless only the other accepts a connection: a server on 127.0.0.1
/// is found by the name localhost, though that is ::1 first.
pub(super) fn resolve(text: &str, family: Family) -> anyhow::Result<Server> {
    let found = match address::resolve(text) {
        Ok(found) => found,
        Err(error) => {
            return usage(format!(
                "cannot load `{text}`: {error}; write ADDR:PORT of a server that can be reached, such as \
                 127.0.0.1:7000 or [::1]:7000"
            ));
        }
    };
    if found.iter().any(|address| address.port() == 0) {
        return usage(format!("cannot load `{text}`: nothing listens on port 0; name the server's port"));
    }
    let accepts = |address: &SocketAddr| net::connect_within(address, TRY).is_ok();
    match choose(found, family, accepts) {
        Some(server) => Ok(server),
        None => usage(format!("cannot load `{text}`: it has no address of that IP version; leave -4 or -6 out")),
    }
}

fn choose(found: Vec<SocketAddr>, family: Family, accepts: impl Fn(&SocketAddr) -> bool) -> Option<Server> {
    let mut known: Vec<SocketAddr> = Vec::new();
    for address in found.into_iter().filter(|address| family.includes(address)) {
        if !known.contains(&address) {
            known.push(address);
        }
    }
    let first = known.first()?.is_ipv4();
    let (addresses, others): (Vec<_>, Vec<_>) = known.into_iter().partition(|address| address.is_ipv4() == first);
    if others.is_empty() || addresses.iter().any(&accepts) || !others.iter().any(&accepts) {
        return Some(Server { addresses, refusing: Vec::new() });
    }
    Some(Server { addresses: others, refusing: addresses })
}

/// The addresses that connections go to, one after the other, each with its server's place. Every
/// server comes before any server's second address. `None` where there are fewer connections than
/// servers.
pub(super) fn deal(servers: &[Server], connections: usize) -> Option<Vec<(usize, SocketAddr)>> {
    let rounds = servers.iter().map(|server| server.addresses.len()).max().unwrap_or(0);
    let mut dealt = Vec::new();
    for round in 0..rounds {
        let of_round =
            servers.iter().enumerate().filter_map(|(place, server)| Some((place, *server.addresses.get(round)?)));
        dealt.extend(of_round);
    }
    dealt.truncate(connections);
    (dealt.len() >= servers.len()).then_some(dealt)
}

/// Connections for one host and port that go to another, as curl has it: HOST:PORT:ADDR:PORT. An
/// empty part in front matches any, and an empty part behind changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectTo {
    from: (String, Option<u16>),
    to: (String, Option<u16>),
}

impl ConnectTo {
    pub(super) fn parse(text: &str) -> Result<ConnectTo, String> {
        let wrong = || {
            format!(
                "'{text}' is not HOST:PORT:ADDR:PORT; write one such as shop.example:443:127.0.0.1:8443, with IPv6 \
                 addresses in brackets"
            )
        };
        let mut inside = false;
        let parts: Vec<&str> = text
            .split(|character: char| {
                inside = (inside || character == '[') && character != ']';
                character == ':' && !inside
            })
            .collect();
        let [from_host, from_port, to_host, to_port] = parts[..] else { return Err(wrong()) };
        let port = |text: &str| match text {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| wrong()),
        };
        let host = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(ConnectTo { from: (host(from_host), port(from_port)?), to: (host(to_host), port(to_port)?) })
    }

    /// ADDR:PORT where the server of this host and port is reached by these rules, of which the
    /// first that matches counts.
    pub(super) fn reach(rules: &[ConnectTo], host: &str, port: u16) -> String {
        rules.iter().find_map(|rule| rule.apply(host, port)).unwrap_or_else(|| with_port(host, port))
    }

    /// Where a connection for this host and port goes; `None` where this rule is about others.
    fn apply(&self, host: &str, port: u16) -> Option<String> {
        let (from_host, from_port) = &self.from;
        let matches = (from_host.is_empty() || from_host.eq_ignore_ascii_case(host))
            && from_port.is_none_or(|from_port| from_port == port);
        let (to_host, to_port) = &self.to;
        let to_host = if to_host.is_empty() { host } else { to_host };
        let to_port = to_port.unwrap_or(port);
        matches.then(|| with_port(to_host, to_port))
    }
}

fn with_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    const ANY: Family = Family { ipv4: false, ipv6: false };
    const ONLY_IPV4: Family = Family { ipv4: true, ipv6: false };
    const ONLY_IPV6: Family = Family { ipv4: false, ipv6: true };

    #[test]
    fn all_addresses_of_one_version_are_loaded_and_the_other_where_only_that_one_accepts() {
        let all = ["[::1]:80", "127.0.0.1:80", "[::2]:80", "127.0.0.2:80", "[::1]:80"];
        let (six, four) = (["[::1]:80", "[::2]:80"], ["127.0.0.1:80", "127.0.0.2:80"]);
        for (family, accepting, chosen, refusing) in [
            (ANY, &["[::1]:80", "127.0.0.1:80"][..], &six[..], &[] as &[&str]),
            (ANY, &["[::2]:80"], &six, &[]),
            (ANY, &["127.0.0.2:80"], &four, &six),
            // The run says what is wrong with them.
            (ANY, &[], &six, &[]),
            (ONLY_IPV4, &["[::1]:80"], &four, &[]),
            (ONLY_IPV6, &["127.0.0.1:80"], &six, &[]),
        ] {
            let accepts = |address: &SocketAddr| addresses(accepting).contains(address);
            let server = choose(addresses(&all), family, accepts).expect("there are addresses");
            let want = Server { addresses: addresses(chosen), refusing: addresses(refusing) };
            assert_eq!(server, want, "{accepting:?} accept");
            assert_eq!(server.note("h:80").is_some(), !refusing.is_empty());
        }
        assert_eq!(choose(addresses(&four), ONLY_IPV6, |_| true), None);
    }

    #[test]
    fn nothing_is_tried_where_there_is_no_choice() {
        let untried = |_: &SocketAddr| -> bool { panic!("a connection that nobody asked for") };
        assert!(choose(addresses(&["127.0.0.1:80", "127.0.0.2:80"]), ANY, untried).is_some());
        assert!(choose(addresses(&["127.0.0.1:80", "[::1]:80"]), ONLY_IPV4, untried).is_some());
    }

    #[test]
    fn every_server_is_dealt_a_connection_before_any_second_address() {
        let server = |texts: &[&str]| Server { addresses: addresses(texts), refusing: Vec::new() };
        let servers = [server(&["127.0.0.1:80", "127.0.0.2:80"]), server(&["127.0.0.3:80"])];
        let dealt = |connections| {
            let dealt = deal(&servers, connections)?;
            Some(dealt.into_iter().map(|(place, address)| format!("{place} {}", address.ip())).collect::<Vec<_>>())
        };
        assert_eq!(dealt(1), None);
        assert_eq!(dealt(2).expect("enough"), ["0 127.0.0.1", "1 127.0.0.3"]);
        assert_eq!(dealt(64).expect("enough"), ["0 127.0.0.1", "1 127.0.0.3", "0 127.0.0.2"]);
    }

    #[test]
    fn a_connection_goes_where_its_rule_says() {
        for (rule, host, port, goes) in [
            ("h:443:127.0.0.1:8443", "h", 443, Some("127.0.0.1:8443")),
            ("h:443:127.0.0.1:8443", "H", 443, Some("127.0.0.1:8443")),
            ("h:443:127.0.0.1:8443", "h", 80, None),
            ("h:443:127.0.0.1:8443", "g", 443, None),
            ("::[::1]:", "h", 81, Some("[::1]:81")),
            ("[::1]:80:h:", "::1", 80, Some("h:80")),
            (":::7", "::1", 80, Some("[::1]:7")),
        ] {
            let rule = ConnectTo::parse(rule).expect(rule);
            assert_eq!(rule.apply(host, port).as_deref(), goes, "{rule:?} {host}:{port}");
        }
        for wrong in ["", "h:80", "h:80:g", "h:x:g:80", "h:80:g:99999", "a:b:c:d:e"] {
            assert!(ConnectTo::parse(wrong).expect_err(wrong).contains("shop.example"), "{wrong}");
        }
    }
}
