//! A connection that the forwarder would lead back to itself would open connections until none is
//! left: such a table is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Destination, Fault, Listen, Rule};

/// Refuses a table in which a connection comes back to a rule that it came from, directly or by way
/// of others. `is_local` says whether an address is this machine's: a rule that listens on every
/// address listens on those. Names are looked up with `resolve`.
pub fn refuse_cycles(
    rules: &[Rule],
    is_local: impl Fn(IpAddr) -> bool,
    resolve: impl Fn(&str) -> Vec<IpAddr>,
) -> Result<(), Fault> {
    let mut by_port: std::collections::HashMap<u16, Vec<usize>> = std::collections::HashMap::new();
    let mut by_path = std::collections::HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        match &rule.listen {
            Listen::Tcp(address) if address.port() != 0 => by_port.entry(address.port()).or_default().push(index),
            Listen::Tcp(_) => {}
            Listen::Unix(path) => {
                by_path.insert(path, index);
            }
        }
    }
    let reached = |address: SocketAddr, next: &mut Vec<usize>| {
        let address = SocketAddr::new(connected_to(address.ip()), address.port());
        for &index in by_port.get(&address.port()).into_iter().flatten() {
            let Listen::Tcp(listen) = rules[index].listen else { continue };
            let every = listen.ip().is_unspecified() && listen.is_ipv4() == address.is_ipv4();
            if listen.ip() == address.ip() || every && is_local(address.ip()) {
                next.push(index);
            }
        }
    };
    let leads_to = |rule: &Rule| {
        let mut next = Vec::new();
        for destination in &rule.to {
            match destination {
                Destination::Tcp(address) => reached(*address, &mut next),
                // Nothing of ours listens at that port: no need to ask.
                Destination::Name(_, port) if !by_port.contains_key(port) => {}
                Destination::Name(name, port) => {
                    resolve(name).into_iter().for_each(|ip| reached(SocketAddr::new(ip, *port), &mut next));
                }
                Destination::Unix(path) => next.extend(by_path.get(path)),
            }
        }
        next
    };
    let mut state = vec![Visit::Not; rules.len()];
    for start in 0..rules.len() {
        let mut trail = vec![(start, None::<Vec<usize>>)];
        while let Some((index, next)) = trail.last_mut() {
            let index = *index;
            let next = match next {
                Some(next) => next,
                None if state[index] == Visit::Done => {
                    trail.pop();
                    continue;
                }
                None => {
                    state[index] = Visit::OnTrail;
                    next.insert(leads_to(&rules[index]))
                }
            };
            match next.pop() {
                None => {
                    state[index] = Visit::Done;
                    trail.pop();
                }
                Some(following) if state[following] == Visit::OnTrail => {
                    let rule = &rules[following];
                    let what = format!("{} leads back to itself; give it another destination", rule.listen);
                    return Err(Fault::new(rule.place, what));
                }
                Some(following) => trail.push((following, None)),
            }
        }
    }
    Ok(())
}

/// The address that a connect reaches: for the unspecified address the loopback one (ip(7)), and
/// for an IPv4 address mapped into IPv6 that one (ipv6(7)).
fn connected_to(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    OnTrail,
    Done,
}

#[cfg(test)]
mod tests {
    use super::super::mapping;
    use super::*;

    fn verdict(mappings: &[&str]) -> Result<(), Fault> {
        let table = mapping::read(mappings.iter().copied()).expect("the mappings are well formed");
        let resolve = |name: &str| if name == "localhost" { vec![IpAddr::from([127, 0, 0, 1])] } else { Vec::new() };
        refuse_cycles(&table.rules, |ip| ip.is_loopback() || ip == IpAddr::from([192, 0, 2, 1]), resolve)
    }

    #[test]
    fn what_leads_back_to_itself_is_refused() {
        for mappings in [
            &["127.0.0.1:7000=127.0.0.1:7000"][..],
            &["*:7000=127.0.0.1:7000"],
            &["*:7000=192.0.2.1:7000"],
            &["*:7000=0.0.0.0:7000"],
            &["127.0.0.1:7000=0.0.0.0:7000"],
            &["[::1]:7000=[::]:7000"],
            &["127.0.0.1:7000=[::ffff:127.0.0.1]:7000"],
            &["0.0.0.0:7000=[::ffff:192.0.2.1]:7000"],
            &["127.0.0.1:7000=[::ffff:0.0.0.0]:7000"],
            &["*:7000=localhost:7000"],
            &["127.0.0.1:1=127.0.0.1:2", "127.0.0.1:2=127.0.0.1:3", "127.0.0.1:3=127.0.0.1:1"],
            &["unix:/run/a=127.0.0.1:2", "127.0.0.1:2=unix:/run/a"],
        ] {
            assert!(verdict(mappings).is_err(), "{mappings:?}");
        }
    }

    #[test]
    fn what_ends_elsewhere_is_not() {
        for mappings in [
            &["127.0.0.1:7000=127.0.0.2:7000"][..],
            &["127.0.0.2:7000=0.0.0.0:7000"],
            &["[::1]:7000=0.0.0.0:7000"],
            &["*:7000=192.0.2.9:7000"],
            &["127.0.0.1:7000=localhost:7001", "127.0.0.1:7001=192.0.2.9:7000"],
            &["127.0.0.1:1=127.0.0.1:3", "127.0.0.1:2=127.0.0.1:3", "127.0.0.1:3=192.0.2.9:1"],
            &["127.0.0.1:0=127.0.0.1:9"],
        ] {
            assert_eq!(verdict(mappings), Ok(()), "{mappings:?}");
        }
    }
}
