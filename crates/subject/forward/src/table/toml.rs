//! `forward.toml`. A key that is unknown, twice or of the wrong kind is refused with its place.

mod rules;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fault, LogFormat, LogTarget, Place, Places, Table, reject_duplicates};
use rules::Defaults;
use values::Reader;

/// Reads a whole file.
pub fn read(text: &str) -> Result<Table, Fault> {
    let places = Places::new(text);
    let root = DeTable::parse(text).map_err(|error| {
        let place = places.at(error.span().map_or(0, |span| span.start));
        Fault::new(place, format!("this is not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    let reader = Reader { places };
    let mut table = Table::default();
    let (mut defaults, mut forward) = (Defaults::default(), None);
    for (key, value) in reader.pairs(root.get_ref()) {
        match key.name {
            "log" => table.log = reader.log(value)?,
            "defaults" => defaults = reader.defaults(value)?,
            "forward" => forward = Some(value),
            "admin" => table.admin = reader.admin(value)?,
            _ => return Err(key.unknown("`admin`, `log`, `defaults` and `forward`")),
        }
    }
    table.max_connections = defaults.max_connections;
    let nothing = || {
        Fault::new(Place { line: 1, column: 1 }, "nothing is forwarded; add [forward] with LISTEN = \"DESTINATION\"")
    };
    for (key, value) in reader.pairs(reader.table(forward.ok_or_else(nothing)?, "[forward]")?) {
        table.rules.extend(reader.rule(&key, value, &defaults)?);
    }
    if table.rules.is_empty() {
        return Err(nothing());
    }
    reject_duplicates(&table.rules)?;
    Ok(table)
}

impl<'a> Reader<'a> {
    fn log(&self, value: &Spanned<DeValue<'a>>) -> Result<Option<LogTarget>, Fault> {
        let (mut path, mut format) = (None, None);
        for (key, value) in self.pairs(self.table(value, "[log]")?) {
            match key.name {
                "connections" => path = Some(self.string(value, "connections")?),
                "format" => {
                    format = Some(match self.string(value, "format")? {
                        "csv" => LogFormat::Csv,
                        "json" => LogFormat::Json,
                        other => return Err(self.fault(value, format!("`{other}` is no format; write csv or json"))),
                    })
                }
                _ => return Err(key.unknown("`connections` and `format`")),
            }
        }
        let Some(path) = path else {
            // Also with --log, which would have the other format in silence.
            return match format {
                None => Ok(None),
                Some(_) => Err(self.fault(value, "[log] has a format and no log; write connections = \"FILE\"")),
            };
        };
        let path = (path != "stdout").then(|| PathBuf::from(path));
        Ok(Some(LogTarget { path, format: format.unwrap_or_default() }))
    }

    fn admin(&self, value: &Spanned<DeValue<'a>>) -> Result<Option<SocketAddr>, Fault> {
        let mut listen = None;
        for (key, value) in self.pairs(self.table(value, "[admin]")?) {
            match key.name {
                "listen" => {
                    let text = self.string(value, "listen")?;
                    let remedy = match text.contains('%') {
                        true => "write the interface's number (`ip link`), as in [fe80::1%2]:9100",
                        false => "write 127.0.0.1:9100",
                    };
                    let wrong = || self.fault(value, format!("`{text}` is not an address to listen on; {remedy}"));
                    listen = Some(text.parse().map_err(|_| wrong())?);
                }
                _ => return Err(key.unknown("`listen`")),
            }
        }
        Ok(listen)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table::{Balance, Check, Network, ProxyVersion, Quota};

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
[log]
connections = "connections.csv"
format = "json"

[defaults]
connect_timeout = "2s"
idle_timeout = "10m"
half_close = "5s"
max_connections = 60000
source = ["192.0.2.1", "192.0.2.2"]

[forward]
"*:8080" = "192.0.2.10:80"
"127.0.0.1:5432" = ["192.0.2.10:5432", "192.0.2.11:5432"]

[forward."127.0.0.1:443"]
to = ["192.0.2.10:443"]
balance = "first"
idle_timeout = "1s"
"#;
        let table = read(text).expect("the file is whole");
        let listens: Vec<String> = table.rules.iter().map(|rule| rule.listen.to_string()).collect();
        assert_eq!(listens, ["0.0.0.0:8080", "[::]:8080", "127.0.0.1:5432", "127.0.0.1:443"]);
        assert_eq!(table.rules[2].to.len(), 2);
        assert_eq!(table.rules[2].balance, Balance::RoundRobin);
        assert_eq!(table.rules[2].limits.idle, Duration::from_secs(600));
        assert_eq!(table.rules[3].balance, Balance::First);
        assert_eq!(table.rules[3].limits.idle, Duration::from_secs(1));
        assert_eq!(table.rules[3].limits.connect, Duration::from_secs(2));
        assert_eq!(table.rules[3].source.iter().count(), 2);
        assert_eq!(table.rules[3].place, Place { line: 17, column: 10 });
        assert_eq!(table.max_connections, Some(60_000));
        assert_eq!(
            table.log,
            Some(LogTarget { path: Some(PathBuf::from("connections.csv")), format: LogFormat::Json })
        );
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line_and_column() {
        let cases = [
            ("[forward]\n\"*:1\" = 7\n", "line 2, column 9", "must be a string"),
            ("[forward]\n\"*:1\" = \"192.0.2.1:x\"\n", "line 2, column 1", "not a port"),
            ("[forward\n", "line 1, column 9", "not TOML"),
            ("[forward]\n\"*:1\" = \"192.0.2.1:1\"\n\"*:1\" = \"192.0.2.1:2\"\n", "line 3, column 1", "not TOML"),
            ("[forward]\n\"*:1\" = []\n", "line 2, column 1", "leads nowhere"),
            ("[forward]\n", "line 1, column 1", "nothing is forwarded"),
            ("[defaults]\nidle = \"1s\"\n", "line 2, column 1", "`idle` means nothing here"),
            ("[defaults]\nidle_timeout = \"1 day\"\n", "line 2, column 16", "`idle_timeout`"),
            ("[defaults]\nidle_timeout = \"0s\"\n", "line 2, column 16", "at least 1ms"),
            ("[defaults]\nmax_connections = 0\n", "line 2, column 19", "at least 1"),
            ("[defaults]\nmax_connections = -5\n", "line 2, column 19", "at least 1"),
            ("[defaults]\nsource = [\"here\"]\n", "line 2, column 10", "not an IP address"),
            ("[defaults]\nsource = [\"fe80::1%2\"]\n", "line 2, column 10", "an address of one link alone"),
            ("[log]\nformat = \"xml\"\n", "line 2, column 10", "csv or json"),
            ("[log]\nformat = \"json\"\n", "line 1, column 1", "a format and no log"),
            ("[forwards]\n", "line 1, column 2", "`forwards` means nothing here"),
        ];
        for (text, place, reason) in cases {
            let fault = read(text).expect_err(text).to_string();
            assert!(fault.starts_with(&format!("{place}: ")) && fault.contains(reason), "{text}: {fault}");
        }
    }

    #[test]
    fn every_setting_of_a_rule_is_read() {
        let text = r#"
[admin]
listen = "127.0.0.1:9100"

[forward."unix:/run/a.sock"]
to = ["192.0.2.10:443", "192.0.2.11:443"]
balance = "least-connections"
mode = "0660"
allow = ["192.0.2.0/24", "2001:db8::/32"]
deny = []
check = { every = "3s", timeout = "100ms", fall = 4, rise = 1 }
send_proxy = "v2"
accept_proxy = { from = ["192.0.2.1/32"] }
limit = { connections = 1000, rate = "100/s", bandwidth = "50MB/s" }
send_timeout = "10s"
"#;
        let table = read(text).expect("the file is whole");
        assert_eq!(table.admin, Some(SocketAddr::from(([127, 0, 0, 1], 9100))));
        let rule = &table.rules[0];
        assert_eq!(rule.balance, Balance::LeastConnections);
        assert_eq!(rule.mode, Some(0o660));
        assert_eq!((rule.access[0].allow.len(), rule.access[0].deny.len()), (2, 0));
        let (every, timeout) = (Duration::from_secs(3), Duration::from_millis(100));
        assert_eq!(rule.check, Some(Check { every, timeout, fall: 4, rise: 1 }));
        assert_eq!(rule.send_proxy, Some(ProxyVersion::V2));
        assert_eq!(rule.accept_proxy, [Network::parse("192.0.2.1").expect("an address")]);
        let quota = Quota { connections: Some(1000), rate: Some(100.0), bandwidth: Some(50_000_000) };
        assert_eq!(rule.quota, quota);
        assert_eq!(rule.limits.send, Duration::from_secs(10));
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_refused_by_name() {
        for (line, reason) in [
            ("balance = \"random\"", "`random` is no way to balance"),
            ("mode = \"0660\"", "`mode` is for a Unix socket"),
            ("mode = \"9\"", "no permissions"),
            ("mode = \"+7\"", "no permissions"),
            ("allow = [\"192.0.2.1/24\"]", "write 192.0.2.0/24"),
            ("deny = \"here\"", "not a network"),
            ("check = { each = \"2s\" }", "`each` means nothing here"),
            ("check = { fall = 0 }", "`fall` must be a count of at least 1"),
            ("check = true", "must be a table"),
            ("limit = { rate = \"100\" }", "such as 100/s"),
            ("limit = { rate = \"0/s\" }", "such as 100/s"),
            ("limit = { bandwidth = \"50MB\" }", "such as 50MB/s"),
            ("limit = { connections = 0 }", "at least 1"),
            ("send_proxy = true", "must be a string"),
            ("send_proxy = \"v3\"", "write v1 or v2"),
            ("accept_proxy = { from = [] }", "has an empty `from`"),
            ("allowed = []", "`allowed` means nothing here"),
        ] {
            let text = format!("[forward.\"*:1\"]\nto = \"192.0.2.1:1\"\n{line}\n");
            let fault = read(&text).expect_err(line).to_string();
            assert!(fault.contains(reason), "{line}: {fault}");
        }
        let fault = read("[admin]\nlisten = \"9100\"\n").expect_err("no address").to_string();
        assert!(fault.contains("line 2, column 10: `9100` is not an address"), "{fault}");
        let fault = read("[admin]\nlisten = \"[fe80::1%eth0]:9100\"\n").expect_err("a name").to_string();
        assert!(fault.contains("write the interface's number"), "{fault}");
    }
}
