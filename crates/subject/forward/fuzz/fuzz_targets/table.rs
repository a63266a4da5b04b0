//! Whatever a table holds, it is read or refused with a place that it has; and what is read has no
//! address twice.
#![no_main]

use std::collections::HashSet;
use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use plimsoll_forward::table::{Fault, Listen, Table, lines, mapping, toml};

fuzz_target!(|text: &str| {
    let host = |name: &str| (name.len() < 4).then(|| IpAddr::from([127, 0, 0, 1]));
    let service = |name: &str| u16::try_from(name.len()).ok();
    look(text, toml::read(text));
    look(text, lines::read(text, &lines::Lookup { host: &host, service: &service }));
    look(text, mapping::read(text.lines()));
});

fn look(text: &str, outcome: Result<Table, Fault>) {
    match outcome {
        Ok(table) => {
            assert!(!table.rules.is_empty() || text.lines().next().is_none());
            let mut seen = HashSet::new();
            for rule in &table.rules {
                assert!(!rule.to.is_empty());
                let is_free = matches!(&rule.listen, Listen::Tcp(address) if address.port() == 0);
                assert!(is_free || seen.insert(&rule.listen), "{} twice", rule.listen);
            }
        }
        Err(fault) => {
            let (place, lines) = (fault.place, text.lines().count() + 1);
            assert!(place.line <= lines && !fault.what.is_empty(), "{fault}");
        }
    }
}
