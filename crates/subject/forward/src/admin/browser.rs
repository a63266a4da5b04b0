//! Whether a browser asks by a name. A page from elsewhere may have a name of its own lead to this
//! address (DNS rebinding): the browser then takes both for one site, and lets the page read.
//!
//! Scrapers may ask by any name. Theirs are no browsers' requests: each of those has a field that
//! no page can leave out.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Fields that browsers add: to every request, to requests across origins, and to those of
/// addresses that they trust (Fetch, WHATWG; Fetch Metadata, W3C).
const BROWSERS_FIELDS: [&str; 3] = ["accept-language", "origin", "sec-fetch-site"];

/// Whether the request with this head is a browser's, whose `Host` names neither an address nor
/// this machine.
pub(super) fn asks_by_a_name(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let lines = || head.lines().skip(1).take_while(|line| !line.is_empty());
    let fields = || lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()));
    let is_browsers = |name: &str| BROWSERS_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field));
    fields().any(|(name, _)| is_browsers(name))
        && fields().any(|(name, host)| name.eq_ignore_ascii_case("host") && !is_own(host))
}

/// Whether only this machine can be meant: an address, or `localhost`, with a port or without.
fn is_own(host: &str) -> bool {
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || host.parse::<SocketAddr>().is_ok()
        || host.parse::<Ipv4Addr>().is_ok()
        || in_brackets.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_asks_by_an_address_and_a_scraper_by_any_name() {
        let names = ["forward.example:9100", "forward", "localhost.example", "127.0.0.1.example:9100", "[::1", ""];
        let own = ["127.0.0.1:9100", "192.0.2.1", "[::1]:9100", "[2001:db8::1]", "localhost", "LocalHost:9100"];
        for (hosts, is_name) in [(&names, true), (&own, false)] {
            for host in hosts {
                for field in ["Accept-Language: en", "accept-language:", "Origin: null", "Sec-Fetch-Site: none"] {
                    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{field}\r\n\r\n");
                    assert_eq!(asks_by_a_name(head.as_bytes()), is_name, "{head}");
                }
                // As Prometheus asks; what comes behind the head is none of its fields.
                let head = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nAccept: */*\r\n\r\nOrigin: x\r\n\r\n");
                assert!(!asks_by_a_name(head.as_bytes()), "{head}");
            }
        }
        assert!(!asks_by_a_name(b"GET / HTTP/1.0\r\nAccept-Language: en\r\n\r\n"), "no browser leaves Host out");
    }
}
