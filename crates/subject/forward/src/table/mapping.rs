//! A mapping on one line: `LISTEN=DESTINATION`, split at its last `=`.
//!
//! `LISTEN` is `ADDRESS:PORT`, `*:PORT`, either with a range of ports, or `unix:PATH`.
//! `DESTINATION` is `HOST:PORT`, `unix:PATH`, or for a range a `HOST` alone (the same
//! ports) or with a range as long. IPv6 addresses are in brackets.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::{Destination, EVERY, Fault, Listen, Place, Rule, Table, number, reject_duplicates};

/// The table that these mappings make.
pub fn read<'a>(mappings: impl IntoIterator<Item = &'a str>) -> Result<Table, Fault> {
    let mut rules = Vec::new();
    for mapping in mappings {
        let refused =
            |what: String| Fault::new(Place::default(), format!("cannot read the mapping `{mapping}`: {what}"));
        let (listen, to) = mapping.rsplit_once('=').ok_or_else(|| {
            refused("there is no `=`; write LISTEN=DESTINATION, such as 127.0.0.1:7000=192.0.2.10:80".to_owned())
        })?;
        rules.extend(expand(listen, &[to], Place::default()).map_err(refused)?);
    }
    reject_duplicates(&rules)?;
    Ok(Table { rules, ..Table::default() })
}

/// The rules of a `LISTEN` and its destinations: one for each port, and for `*` one for each IP
/// version.
pub(super) fn expand(listen: &str, to: &[&str], place: Place) -> Result<Vec<Rule>, String> {
    if let Some(path) = listen.strip_prefix("unix:") {
        let to = to.iter().map(|to| destination(to, 0, None)).collect::<Result<_, _>>()?;
        return Ok(vec![Rule::new(Listen::Unix(self::path(path)?), to, place)]);
    }
    let (host, ports) = match listen.rsplit_once(':') {
        Some((host, ports)) if !host.is_empty() => (host, ports),
        // Text alone, or after a single colon, is a port if it reads as one.
        _ if self::ports(listen.trim_start_matches(':')).is_ok() => {
            let port = listen.trim_start_matches(':');
            return Err(format!("`{listen}` has no address; write 127.0.0.1:{port}, or *:{port} for every address"));
        }
        _ => return Err(format!("`{listen}` has no port; write ADDRESS:PORT, *:PORT or unix:PATH")),
    };
    let ports = self::ports(ports)?;
    let addresses: Vec<IpAddr> = if host == "*" { EVERY.to_vec() } else { vec![listen_address(host)?] };
    let mut rules = Vec::new();
    for port in ports.clone() {
        let to: Vec<Destination> =
            to.iter().map(|to| destination(to, port - ports.start(), Some(&ports))).collect::<Result<_, _>>()?;
        rules.extend(addresses.iter().map(|address| {
            let listen = Listen::Tcp(SocketAddr::new(*address, port));
            Rule { wildcard: host == "*", ..Rule::new(listen, to.clone(), place) }
        }));
    }
    Ok(rules)
}

/// The destination that `text` names for the port at `offset` in the range of ports listened on.
fn destination(text: &str, offset: u16, listened: Option<&RangeInclusive<u16>>) -> Result<Destination, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Destination::Unix(self::path(path)?));
    }
    let range_length = listened.map_or(1, RangeInclusive::len);
    let same_port = listened.map(|ports| ports.start() + offset).filter(|port| *port != 0);
    let (host, port) = match text.rsplit_once(':') {
        // A bare IPv6 address has colons and no port.
        Some((host, _)) if !text.ends_with(']') && host.contains(':') && !host.starts_with('[') => {
            return Err(format!(
                "`{text}` may be an address or an address with a port; write IPv6 addresses in brackets"
            ));
        }
        Some((host, ports)) if !text.ends_with(']') => {
            let ports = self::ports(ports)?;
            match ports.len() {
                1 => (host, *ports.start()),
                length if length == range_length => (host, ports.start() + offset),
                length => return Err(format!("{range_length} ports lead to {length}; give one port, or as many")),
            }
        }
        _ => (text, same_port.ok_or_else(|| format!("`{text}` has no port; write HOST:PORT"))?),
    };
    if port == 0 {
        return Err("nothing can be connected to at port 0; give the destination's port".to_owned());
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if let Some(address) = address(bare.unwrap_or(host))? {
        return Ok(Destination::Tcp(SocketAddr::new(address, port)));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if bare.is_some() || host.is_empty() || !host.chars().all(is_name) {
        return Err(format!("`{host}` is neither an address nor a name"));
    }
    Ok(Destination::Name(host.to_owned(), port))
}

fn listen_address(host: &str) -> Result<IpAddr, String> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match (address(bare.unwrap_or(host))?, bare) {
        (Some(address), Some(_)) if address.is_ipv6() => Ok(address),
        (Some(address), None) if address.is_ipv4() => Ok(address),
        (Some(_), None) => Err(format!("write the IPv6 address in brackets: [{host}]")),
        _ => Err(format!("`{host}` is not an address of this machine to listen on; write an IP address, or * for all")),
    }
}

/// The address that `text` is, if it is one. One that means something on one link alone is refused:
/// the kernel neither connects nor listens there without the link's interface (EINVAL, ipv6(7)).
pub(super) fn address(text: &str) -> Result<Option<IpAddr>, String> {
    let (bare, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let address = bare.parse::<IpAddr>().ok();
    let is_link_local = matches!(address, Some(IpAddr::V6(address)) if address.is_unicast_link_local());
    if address.is_some() && zone.is_some() || is_link_local {
        return Err(format!(
            "`{text}` is an address of one link alone (RFC 4007), and a table cannot name its interface; write a \
             global or unique local address (`ip -6 address` lists those of a machine)"
        ));
    }
    Ok(address)
}

/// One port, or a range `FIRST-LAST`.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| number::<u16>(text).ok_or_else(|| format!("`{text}` is not a port (0 to 65535)"));
    let Some((first, last)) = text.split_once('-') else {
        let port = port(text)?;
        return Ok(port..=port);
    };
    let (first, last) = (port(first)?, port(last)?);
    if first == 0 || first > last {
        return Err(format!("`{text}` is not a range of ports; write FIRST-LAST, such as 20000-20100"));
    }
    Ok(first..=last)
}

fn path(text: &str) -> Result<PathBuf, String> {
    // sun_path in unix(7), with its closing NUL.
    const LONGEST: usize = 107;
    match text.len() {
        0 => Err("`unix:` is followed by no path".to_owned()),
        length if length > LONGEST => {
            Err(format!("the path is {length} bytes long, and a Unix socket's has at most {LONGEST}"))
        }
        _ => Ok(PathBuf::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mapping: &str) -> Result<Vec<String>, String> {
        let table = read([mapping]).map_err(|fault| fault.to_string())?;
        let to = |rule: &Rule| rule.to.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        Ok(table.rules.iter().map(|rule| format!("{} -> {}", rule.listen, to(rule))).collect())
    }

    #[test]
    fn mappings_are_read_as_the_interface_has_them() {
        let cases: &[(&str, &[&str])] = &[
            ("127.0.0.1:7000=192.0.2.10:80", &["127.0.0.1:7000 -> 192.0.2.10:80"]),
            ("[::1]:7000=[2001:db8::1]:443", &["[::1]:7000 -> [2001:db8::1]:443"]),
            ("*:8443=db.example:443", &["0.0.0.0:8443 -> db.example:443", "[::]:8443 -> db.example:443"]),
            ("unix:/run/a.sock=127.0.0.1:5432", &["unix:/run/a.sock -> 127.0.0.1:5432"]),
            ("unix:/run/a=b.sock=127.0.0.1:5432", &["unix:/run/a=b.sock -> 127.0.0.1:5432"]),
            ("127.0.0.1:1=unix:/run/b.sock", &["127.0.0.1:1 -> unix:/run/b.sock"]),
            ("127.0.0.1:5-6=192.0.2.7", &["127.0.0.1:5 -> 192.0.2.7:5", "127.0.0.1:6 -> 192.0.2.7:6"]),
            ("127.0.0.1:5-6=[::1]", &["127.0.0.1:5 -> [::1]:5", "127.0.0.1:6 -> [::1]:6"]),
            ("127.0.0.1:5-6=192.0.2.7:8-9", &["127.0.0.1:5 -> 192.0.2.7:8", "127.0.0.1:6 -> 192.0.2.7:9"]),
            ("127.0.0.1:5-6=192.0.2.7:8", &["127.0.0.1:5 -> 192.0.2.7:8", "127.0.0.1:6 -> 192.0.2.7:8"]),
            ("127.0.0.1:0=192.0.2.7:8", &["127.0.0.1:0 -> 192.0.2.7:8"]),
        ];
        for (mapping, want) in cases {
            assert_eq!(lines(mapping).expect(mapping), *want, "{mapping}");
        }
    }

    #[test]
    fn a_mapping_that_makes_no_sense_is_refused_with_its_reason() {
        let cases = [
            ("127.0.0.1:7000", "no `=`"),
            ("7000=127.0.0.1:80", "`7000` has no address; write 127.0.0.1:7000"),
            (":7000=127.0.0.1:80", "`:7000` has no address; write 127.0.0.1:7000"),
            ("here=127.0.0.1:80", "has no port"),
            ("::1:7000=127.0.0.1:80", "brackets"),
            ("127.0.0.1:7000=::1:80", "brackets"),
            ("127.0.0.1:7x=127.0.0.1:80", "not a port"),
            ("127.0.0.1:+7=127.0.0.1:80", "not a port"),
            ("127.0.0.1:7=127.0.0.1:+80", "not a port"),
            ("127.0.0.1:70000=127.0.0.1:80", "not a port"),
            ("127.0.0.1:9-8=127.0.0.1", "not a range"),
            ("127.0.0.1:5-6=127.0.0.1:1-3", "2 ports lead to 3"),
            ("127.0.0.1:0=192.0.2.7", "no port"),
            ("127.0.0.1:1=192.0.2.7:0", "port 0"),
            ("127.0.0.1:1=under/way:1", "neither an address nor a name"),
            ("example.org:1=127.0.0.1:2", "not an address of this machine"),
            ("unix:=127.0.0.1:2", "no path"),
            ("127.0.0.1:1=[fe80::1%eth0]:2", "`fe80::1%eth0` is an address of one link alone"),
            ("127.0.0.1:1=[fe80::1]:2", "`fe80::1` is an address of one link alone"),
            ("[fe80::1%2]:1=127.0.0.1:2", "`fe80::1%2` is an address of one link alone"),
            ("fe80::1%2:1=127.0.0.1:2", "`fe80::1%2` is an address of one link alone"),
        ];
        for (mapping, reason) in cases {
            let fault = lines(mapping).expect_err(mapping);
            assert!(fault.contains(reason) && fault.contains(mapping), "{mapping}: {fault}");
        }
    }

    #[test]
    fn one_address_has_one_rule_but_port_0_may_come_twice() {
        assert!(read(["*:80=192.0.2.1:80", "0.0.0.0:80=192.0.2.1:80"]).is_err());
        for pair in
            [["*:80=192.0.2.1:80", "127.0.0.1:80=192.0.2.1:80"], ["[::1]:80=192.0.2.1:80", "[::]:80=192.0.2.1:80"]]
        {
            let fault = read(pair).expect_err("the one takes the other's place").to_string();
            assert!(fault.contains("cannot both be listened on"), "{fault}");
        }
        assert!(read(["0.0.0.0:80=192.0.2.1:80", "[::1]:80=192.0.2.1:80"]).is_ok(), "each IP version has its own");
        assert_eq!(read(["127.0.0.1:0=192.0.2.1:80", "127.0.0.1:0=192.0.2.1:80"]).expect("two rules").rules.len(), 2);
    }
}
