//! `forward.toml`. A key that is unknown, twice, of the wrong kind or not supported yet is refused with its place.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_measure::units;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Balance, Fault, Limits, LogFormat, LogTarget, Place, Places, Rule, Table, mapping, refuse_twins};

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
            "admin" => return Err(key.later()),
            _ => return Err(key.unknown("`log`, `defaults` and `forward`")),
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
    refuse_twins(&table.rules)?;
    Ok(table)
}

#[derive(Clone, Debug, Default)]
struct Defaults {
    limits: Limits,
    max_connections: Option<u64>,
    source: Vec<IpAddr>,
}

struct Key<'a> {
    name: &'a str,
    place: Place,
}

impl Key<'_> {
    fn unknown(&self, known: &str) -> Fault {
        Fault::new(self.place, format!("`{}` means nothing here; what does is {known}", self.name))
    }

    fn later(&self) -> Fault {
        Fault::new(self.place, format!("`{}` is not supported yet; leave it out", self.name))
    }
}

struct Reader<'a> {
    places: Places<'a>,
}

impl<'a> Reader<'a> {
    /// Keys and values in the order in which they stand.
    fn pairs<'t>(&self, table: &'t DeTable<'a>) -> Vec<(Key<'t>, &'t Spanned<DeValue<'a>>)> {
        let mut pairs: Vec<_> = table.iter().collect();
        pairs.sort_by_key(|(key, _)| key.span().start);
        pairs
            .into_iter()
            .map(|(key, value)| (Key { name: key.get_ref().as_ref(), place: self.places.at(key.span().start) }, value))
            .collect()
    }

    fn fault(&self, value: &Spanned<DeValue<'_>>, what: impl Into<String>) -> Fault {
        Fault::new(self.places.at(value.span().start), what)
    }

    fn log(&self, value: &Spanned<DeValue<'a>>) -> Result<Option<LogTarget>, Fault> {
        let (mut path, mut format) = (None, LogFormat::default());
        for (key, value) in self.pairs(self.table(value, "[log]")?) {
            match key.name {
                "connections" => path = Some(self.string(value, "connections")?),
                "format" => {
                    format = match self.string(value, "format")? {
                        "csv" => LogFormat::Csv,
                        "json" => LogFormat::Json,
                        other => return Err(self.fault(value, format!("`{other}` is no format; write csv or json"))),
                    }
                }
                _ => return Err(key.unknown("`connections` and `format`")),
            }
        }
        Ok(path.map(|path| LogTarget { path: (path != "stdout").then(|| PathBuf::from(path)), format }))
    }

    fn defaults(&self, value: &Spanned<DeValue<'a>>) -> Result<Defaults, Fault> {
        let mut defaults = Defaults::default();
        for (key, value) in self.pairs(self.table(value, "[defaults]")?) {
            match key.name {
                "max_connections" => defaults.max_connections = Some(self.count(value, key.name)?),
                "source" => defaults.source = self.addresses(value, key.name)?,
                _ if self.limit(&mut defaults.limits, &key, value)? => {}
                _ => {
                    return Err(
                        key.unknown("`connect_timeout`, `idle_timeout`, `half_close`, `resolve_every`, `max_connections` and `source`")
                    );
                }
            }
        }
        Ok(defaults)
    }

    /// Sets the limit that `key` names, if it names one.
    fn limit(&self, limits: &mut Limits, key: &Key<'_>, value: &Spanned<DeValue<'a>>) -> Result<bool, Fault> {
        let limit = match key.name {
            "connect_timeout" => &mut limits.connect,
            "idle_timeout" => &mut limits.idle,
            "half_close" => &mut limits.half_close,
            "resolve_every" => &mut limits.resolve,
            _ => return Ok(false),
        };
        *limit = units::duration(self.string(value, key.name)?)
            .map_err(|error| self.fault(value, format!("`{}`: {error}", key.name)))?;
        if *limit < Duration::from_millis(1) {
            return Err(self.fault(value, format!("`{}` must be at least 1ms", key.name)));
        }
        Ok(true)
    }

    fn rule(&self, key: &Key<'_>, value: &Spanned<DeValue<'a>>, defaults: &Defaults) -> Result<Vec<Rule>, Fault> {
        let (mut to, mut balance) = (None, Balance::default());
        let (mut limits, mut source) = (defaults.limits, defaults.source.clone());
        if let DeValue::Table(table) = value.get_ref() {
            for (key, value) in self.pairs(table) {
                match key.name {
                    "to" => to = Some(self.strings(value, "to")?),
                    "balance" => balance = self.balance(value)?,
                    "source" => source = self.addresses(value, key.name)?,
                    "allow" | "deny" | "check" | "send_proxy" | "accept_proxy" | "limit" => return Err(key.later()),
                    _ if self.limit(&mut limits, &key, value)? => {}
                    _ => {
                        return Err(key
                            .unknown("`to`, `balance`, `connect_timeout`, `idle_timeout`, `half_close`, `resolve_every` and `source`"));
                    }
                }
            }
        } else {
            to = Some(self.strings(value, key.name)?);
        }
        let to = to.unwrap_or_default();
        if to.is_empty() {
            return Err(Fault::new(key.place, format!("`{}` leads nowhere; add a destination to `to`", key.name)));
        }
        let rules = mapping::expand(key.name, &to)
            .map_err(|what| Fault::new(key.place, format!("cannot read the rule `{}`: {what}", key.name)))?;
        let place = key.place;
        Ok(rules
            .into_iter()
            .map(|(listen, to)| Rule { listen, to, balance, limits, source: source.clone(), place })
            .collect())
    }

    fn balance(&self, value: &Spanned<DeValue<'a>>) -> Result<Balance, Fault> {
        match self.string(value, "balance")? {
            "round-robin" => Ok(Balance::RoundRobin),
            "first" => Ok(Balance::First),
            later @ ("least-connections" | "source-hash") => {
                Err(self.fault(value, format!("`{later}` is not supported yet; write round-robin or first")))
            }
            other => Err(self.fault(value, format!("`{other}` is no way to balance; write round-robin or first"))),
        }
    }

    fn table<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<&'t DeTable<'a>, Fault> {
        value.get_ref().as_table().ok_or_else(|| self.fault(value, format!("{name} must be a table")))
    }

    fn string<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<&'t str, Fault> {
        let wrong = || self.fault(value, format!("`{name}` must be a string, not a {}", value.get_ref().type_str()));
        value.get_ref().as_str().ok_or_else(wrong)
    }

    /// A string, or an array of them.
    fn strings<'t>(&self, value: &'t Spanned<DeValue<'a>>, name: &str) -> Result<Vec<&'t str>, Fault> {
        match value.get_ref() {
            DeValue::Array(array) => array.iter().map(|value| self.string(value, name)).collect(),
            _ => Ok(vec![self.string(value, name)?]),
        }
    }

    fn addresses(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<Vec<IpAddr>, Fault> {
        let address = |text: &str| {
            text.parse()
                .map_err(|_| self.fault(value, format!("`{name}`: `{text}` is not an IP address of this machine")))
        };
        self.strings(value, name)?.into_iter().map(address).collect()
    }

    /// A whole number above 0, or a string with a unit, such as "60k".
    fn count(&self, value: &Spanned<DeValue<'a>>, name: &str) -> Result<u64, Fault> {
        let wrong = |what: &str| self.fault(value, format!("`{name}` must be a count of at least 1{what}"));
        let count = match value.get_ref() {
            DeValue::Integer(integer) => {
                u64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| wrong(""))?
            }
            DeValue::String(text) => units::count(text).map_err(|error| wrong(&format!(": {error}")))?,
            _ => return Err(wrong("")),
        };
        if count == 0 { Err(wrong("")) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(table.rules[3].source.len(), 2);
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
            ("[log]\nformat = \"xml\"\n", "line 2, column 10", "csv or json"),
            ("[forwards]\n", "line 1, column 2", "`forwards` means nothing here"),
        ];
        for (text, place, reason) in cases {
            let fault = read(text).expect_err(text).to_string();
            assert!(fault.starts_with(&format!("{place}: ")) && fault.contains(reason), "{text}: {fault}");
        }
    }

    #[test]
    fn what_a_later_version_will_know_is_refused_by_name() {
        let rule = |line: &str| format!("[forward.\"*:1\"]\nto = \"192.0.2.1:1\"\n{line}\n");
        for (key, text) in [
            ("admin", "[admin]\nlisten = \"127.0.0.1:9100\"\n".to_owned()),
            ("allow", rule("allow = [\"192.0.2.0/24\"]")),
            ("deny", rule("deny = []")),
            ("check", rule("check = { every = \"2s\" }")),
            ("send_proxy", rule("send_proxy = \"v2\"")),
            ("accept_proxy", rule("accept_proxy = { from = [] }")),
            ("limit", rule("limit = { connections = 1000 }")),
            ("least-connections", rule("balance = \"least-connections\"")),
            ("source-hash", rule("balance = \"source-hash\"")),
        ] {
            let fault = read(&text).expect_err(key).to_string();
            assert!(fault.contains(&format!("`{key}` is not supported yet")), "{key}: {fault}");
        }
    }
}
