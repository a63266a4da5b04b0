//! The files of port_fwd and of rinetd, a rule a line, `#` before a comment.
//!
//! port_fwd: `LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT`, listening on every address. rinetd
//! (rinetd(8)): `BIND_ADDRESS BIND_PORT CONNECT_ADDRESS CONNECT_PORT`, either port as a number or a
//! service's name, with `/tcp` if at all, and `[src=ADDRESS, timeout=SECONDS]` after it; `allow`
//! and `deny` with a pattern of addresses, for all rules before the first of them, for the rule
//! above after it. What of rinetd has no counterpart here is refused, but for the names of
//! its own log and pid files, which are noted.

use std::net::IpAddr;

use plimsoll_measure::units;

use super::{Access, Fault, Pattern, Place, Rule, Table, mapping, reject_duplicates};

/// How names are looked up, as this module makes no calls itself.
pub struct Lookup<'a> {
    /// An address of a host.
    pub host: &'a dyn Fn(&str) -> Option<IpAddr>,
    /// The TCP port of a service.
    pub service: &'a dyn Fn(&str) -> Option<u16>,
}

/// Reads a file in either format; the first rule decides which.
pub fn read(text: &str, lookup: &Lookup<'_>) -> Result<Table, Fault> {
    let mut reader = Reader { table: Table::default(), global: Access::default(), last: 0..0, lookup };
    let mut port_fwd = None;
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split('#').next().unwrap_or_default();
        let trimmed = content.trim();
        if trimmed.is_empty() {
            continue;
        }
        let place = Place { line: number, column: 1 + content.chars().take_while(|c| c.is_whitespace()).count() };
        let is_port_fwd = trimmed.contains('=') && trimmed.contains('|');
        if port_fwd.is_some_and(|former| former != is_port_fwd) {
            return Err(Fault::new(place, "port_fwd's and rinetd's formats are mixed; keep each file in one of them"));
        }
        port_fwd = Some(is_port_fwd);
        let read = if is_port_fwd { reader.port_fwd(place, trimmed) } else { reader.rinetd(place, trimmed) };
        read.map_err(|what| Fault::new(place, format!("cannot read `{trimmed}`: {what}")))?;
    }
    let Reader { mut table, global, .. } = reader;
    if table.rules.is_empty() {
        let what =
            "the table has no rule; write LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT, or rinetd's four words, on a line";
        return Err(Fault::new(Place { line: 1, column: 1 }, what));
    }
    if global != Access::default() {
        table.rules.iter_mut().for_each(|rule| rule.access.push(global.clone()));
    }
    reject_duplicates(&table.rules)?;
    Ok(table)
}

struct Reader<'a> {
    table: Table,
    /// For all rules.
    global: Access,
    /// The rules of the last line that had any.
    last: std::ops::Range<usize>,
    lookup: &'a Lookup<'a>,
}

impl Reader<'_> {
    fn port_fwd(&mut self, place: Place, line: &str) -> Result<(), String> {
        let malformed = || "write LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT".to_owned();
        let (listen, server) = line.split_once('=').ok_or_else(malformed)?;
        let (address, port) = server.split_once('|').ok_or_else(malformed)?;
        let to = host_and_port(address.trim(), port.trim());
        self.add(mapping::expand(&format!("*:{}", listen.trim()), &[&to], place)?);
        Ok(())
    }

    fn rinetd(&mut self, place: Place, line: &str) -> Result<(), String> {
        let (line, options) = match line.split_once('[') {
            None => (line, ""),
            Some((line, options)) => (line, options.strip_suffix(']').ok_or("the options have no `]` at their end")?),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [verb @ ("allow" | "deny"), pattern] => self.access(verb, pattern),
            ["logfile" | "pidlogfile", ..] | ["logcommon"] => {
                let note = format!(
                    "line {}: rinetd's `{}` has no effect here; use --log for a connection log",
                    place.line, words[0]
                );
                self.table.notes.push(note);
                Ok(())
            }
            [bind, bind_port, connect, connect_port] => {
                let listen = host_and_port(&self.bind_address(bind)?, &self.port(bind_port)?);
                let to = host_and_port(connect, &self.port(connect_port)?);
                let mut rules = mapping::expand(&listen, &[&to], place)?;
                for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
                    rules.iter_mut().try_for_each(|rule| set_option(rule, option))?;
                }
                self.add(rules);
                Ok(())
            }
            _ => Err("write BIND_ADDRESS BIND_PORT CONNECT_ADDRESS CONNECT_PORT".to_owned()),
        }
    }

    fn access(&mut self, verb: &str, pattern: &str) -> Result<(), String> {
        if !pattern.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:*?".contains(&byte)) {
            return Err(format!("`{pattern}` is no pattern of addresses; write digits, `.`, `:`, `*` and `?`"));
        }
        let add = |access: &mut Access| {
            let patterns = if verb == "allow" { &mut access.allow } else { &mut access.deny };
            // Addresses are written in lower case (RFC 5952, section 4.3).
            patterns.push(Pattern::Text(pattern.to_ascii_lowercase()));
        };
        if self.last.is_empty() {
            add(&mut self.global);
        }
        for rule in &mut self.table.rules[self.last.clone()] {
            if rule.access.is_empty() {
                rule.access.push(Access::default());
            }
            add(&mut rule.access[0]);
        }
        Ok(())
    }

    fn bind_address(&self, host: &str) -> Result<String, String> {
        if host.parse::<IpAddr>().is_ok() || host.starts_with('[') {
            return Ok(host.to_owned());
        }
        let address = (self.lookup.host)(host);
        address.map(|address| address.to_string()).ok_or_else(|| {
            format!("`{host}` is not an address of this machine, nor a name that has one; write an IP address")
        })
    }

    fn port(&self, text: &str) -> Result<String, String> {
        let port = match text.split_once('/') {
            None => text,
            Some((port, "tcp")) => port,
            Some((_, protocol)) => return Err(format!("`{protocol}` is not forwarded, only tcp is")),
        };
        if port.starts_with(|character: char| character.is_ascii_digit()) {
            return Ok(port.to_owned());
        }
        (self.lookup.service)(port)
            .map(|port| port.to_string())
            .ok_or_else(|| format!("`{port}` is neither a port nor a service that /etc/services has"))
    }

    fn add(&mut self, rules: Vec<Rule>) {
        self.last = self.table.rules.len()..self.table.rules.len() + rules.len();
        self.table.rules.extend(rules);
    }
}

fn set_option(rule: &mut Rule, option: &str) -> Result<(), String> {
    match option.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
        Some(("src", value)) => {
            let address =
                mapping::address(value)?.ok_or_else(|| format!("`{value}` is not an IP address of this machine"))?;
            rule.source = rule.source.iter().chain([address]).collect();
        }
        // In rinetd's units; there, too, it is silence that counts.
        Some(("timeout", value)) => {
            let is_whole = value.bytes().all(|byte| byte.is_ascii_digit());
            let limit = units::seconds(value).ok().filter(|limit| is_whole && !limit.is_zero());
            rule.limits.idle = limit.ok_or_else(|| format!("`{value}` are no seconds"))?;
        }
        _ => return Err(format!("`{option}` is not supported; src=ADDRESS and timeout=SECONDS are")),
    }
    Ok(())
}

fn host_and_port(host: &str, port: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn table(text: &str) -> Result<Table, Fault> {
        let host = |name: &str| (name == "localhost").then(|| IpAddr::from([127, 0, 0, 1]));
        let service = |name: &str| (name == "http").then_some(80);
        read(text, &Lookup { host: &host, service: &service })
    }

    fn rules(text: &str) -> Result<Vec<String>, String> {
        let table = table(text).map_err(|fault| fault.to_string())?;
        Ok(table.rules.iter().map(|rule| format!("{} -> {}", rule.listen, rule.to[0])).collect())
    }

    #[test]
    fn port_fwds_file_is_read_as_its_report_shows_it() {
        let text = "# port forward table - each entry must be on its own \
                    line\n7000=192.168.0.18|7000\n\n8000=192.168.0.17|7000 # the second\n";
        let want = [
            "0.0.0.0:7000 -> 192.168.0.18:7000",
            "[::]:7000 -> 192.168.0.18:7000",
            "0.0.0.0:8000 -> 192.168.0.17:7000",
            "[::]:8000 -> 192.168.0.17:7000",
        ];
        assert_eq!(rules(text).expect("the report's file"), want);
    }

    #[test]
    fn rinetds_file_is_read() {
        let text = "# bindaddress bindport connectaddress connectport\n0.0.0.0 80 192.168.1.2 80\n127.0.0.1\t81/tcp \
                    example.org 82/tcp [src=10.0.0.1]\n:: 83 ::1 84\nlogfile /var/log/rinetd.log\n";
        let table = table(text).expect("rinetd's file");
        assert_eq!(
            rules(text).expect("rinetd's file"),
            ["0.0.0.0:80 -> 192.168.1.2:80", "127.0.0.1:81 -> example.org:82", "[::]:83 -> [::1]:84"]
        );
        assert_eq!(table.rules[1].source, [IpAddr::from([10, 0, 0, 1])].into_iter().collect());
        assert!(table.notes[0].contains("logfile"), "{:?}", table.notes);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused_with_its_place() {
        let cases = [
            ("7000=192.0.2.1|7000\n  8000=192.0.2.1|x\n", "line 2, column 3", "not a port"),
            ("7000=192.0.2.1|7000\n0.0.0.0 80 192.0.2.1 80\n", "line 2, column 1", "mixed"),
            ("7000=192.0.2.1|7000\n7000=192.0.2.2|7000\n", "line 2, column 1", "twice (the other is on line 1)"),
            ("0.0.0.0 80 192.0.2.1\n", "line 1, column 1", "BIND_ADDRESS"),
            ("0.0.0.0 53/udp 192.0.2.1 53/udp\n", "line 1, column 1", "only tcp"),
            ("allow 192.0.2.0/24\n0.0.0.0 80 192.0.2.1 80\n", "line 1, column 1", "no pattern of addresses"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=soon]\n", "line 1, column 1", "no seconds"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=0]\n", "line 1, column 1", "no seconds"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=1.5]\n", "line 1, column 1", "no seconds"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=9223372036854775807]\n", "line 1, column 1", "no seconds"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=60\n", "line 1, column 1", "no `]`"),
            ("0.0.0.0 80 192.0.2.1 80 [timeout=60]]\n", "line 1, column 1", "no seconds"),
            ("here 80 192.0.2.1 80\n", "line 1, column 1", "nor a name that has one"),
            ("0.0.0.0 www 192.0.2.1 80\n", "line 1, column 1", "neither a port nor a service"),
            ("0.0.0.0 80 192.0.2.1 80 [keepalive=off]\n", "line 1, column 1", "keepalive"),
            ("# nothing\n", "line 1, column 1", "no rule"),
        ];
        for (text, place, reason) in cases {
            let fault = rules(text).expect_err(text);
            assert!(fault.starts_with(place) && fault.contains(reason), "{text}: {fault}");
        }
    }

    #[test]
    fn rinetds_names_and_time_outs_are_read() {
        let text = "localhost http 192.0.2.1 http/tcp [timeout=90]\nlocalhost 81 example.org 82\n";
        assert_eq!(
            rules(text).expect("rinetd's file"),
            ["127.0.0.1:80 -> 192.0.2.1:80", "127.0.0.1:81 -> example.org:82"]
        );
        let table = table(text).expect("rinetd's file");
        assert_eq!(table.rules[0].limits.idle, Duration::from_secs(90));
        assert_eq!(table.rules[1].limits, super::super::Limits::default());
    }

    #[test]
    fn rinetds_allow_and_deny_are_for_all_rules_before_the_first_and_for_one_after_it() {
        let text =
            "deny 192.0.2.7\ndeny 2001:DB8::*\n0.0.0.0 80 192.0.2.1 80\nallow 192.0.2.*\n0.0.0.0 81 192.0.2.1 81\n";
        let table = table(text).expect("rinetd's file");
        let admits = |rule: usize, address: &str| {
            let address = address.parse().expect("an address");
            table.rules[rule].access.iter().all(|access| access.admits(Some(address)))
        };
        for (rule, address, admitted) in [
            (0, "192.0.2.1", true),
            (0, "192.0.2.7", false),
            (0, "198.51.100.1", false),
            (1, "198.51.100.1", true),
            (1, "192.0.2.7", false),
            (1, "2001:db8:1::1", true),
            (1, "2001:db8::1", false),
        ] {
            assert_eq!(admits(rule, address), admitted, "rule {rule}, {address}");
        }
    }
}
