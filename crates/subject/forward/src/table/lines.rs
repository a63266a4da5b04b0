//! The files of port_fwd and of rinetd, a rule a line, `#` before a comment.
//!
//! port_fwd: `LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT`, listening on every address. rinetd (rinetd(8)): `BIND_ADDRESS BIND_PORT CONNECT_ADDRESS CONNECT_PORT`, either port with `/tcp`, and
//! `[src=ADDRESS]` after it. What of rinetd has no counterpart here is refused, but for the names of its own log and pid files, which are noted.

use std::net::IpAddr;

use super::{Balance, Fault, Limits, Place, Rule, Table, mapping, refuse_twins};

/// Reads a file in either format; the first rule decides which.
pub fn read(text: &str) -> Result<Table, Fault> {
    let mut table = Table::default();
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
        let refused = |what: String| Fault::new(place, format!("cannot read `{trimmed}`: {what}"));
        if is_port_fwd {
            add(&mut table, place, port_fwd_line(trimmed), Vec::new()).map_err(refused)?;
        } else {
            rinetd_line(&mut table, place, trimmed).map_err(refused)?;
        }
    }
    if table.rules.is_empty() {
        let what =
            "the table has no rule; write LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT, or rinetd's four words, on a line";
        return Err(Fault::new(Place { line: 1, column: 1 }, what));
    }
    refuse_twins(&table.rules)?;
    Ok(table)
}

fn port_fwd_line(line: &str) -> Result<(String, String), String> {
    let malformed = || "write LISTEN_PORT=SERVER_ADDRESS|SERVER_PORT".to_owned();
    let (listen, server) = line.split_once('=').ok_or_else(malformed)?;
    let (address, port) = server.split_once('|').ok_or_else(malformed)?;
    Ok((format!("*:{}", listen.trim()), host_and_port(address.trim(), port.trim())))
}

fn rinetd_line(table: &mut Table, place: Place, line: &str) -> Result<(), String> {
    let (line, options) =
        line.split_once('[').map_or((line, ""), |(line, options)| (line, options.trim_end_matches(']')));
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["allow" | "deny", ..] => Err(format!("`{}` is not supported yet; leave the line out", words[0])),
        ["logfile" | "pidlogfile", ..] | ["logcommon"] => {
            let note = format!(
                "line {}: rinetd's `{}` has no effect here; use --log for a connection log",
                place.line, words[0]
            );
            table.notes.push(note);
            Ok(())
        }
        [bind, bind_port, connect, connect_port] => {
            let mut source = Vec::new();
            for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
                match option.split_once('=').map(|(name, value)| (name.trim(), value.trim().parse::<IpAddr>())) {
                    Some(("src", Ok(address))) => source.push(address),
                    _ => return Err(format!("`{option}` is not supported; only src=ADDRESS is")),
                }
            }
            let listen = host_and_port(bind, tcp_port(bind_port)?);
            add(table, place, Ok((listen, host_and_port(connect, tcp_port(connect_port)?))), source)
        }
        _ => Err("write BIND_ADDRESS BIND_PORT CONNECT_ADDRESS CONNECT_PORT".to_owned()),
    }
}

fn tcp_port(text: &str) -> Result<&str, String> {
    match text.split_once('/') {
        None => Ok(text),
        Some((port, "tcp")) => Ok(port),
        Some((_, protocol)) => Err(format!("`{protocol}` is not forwarded, only tcp is")),
    }
}

fn host_and_port(host: &str, port: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn add(
    table: &mut Table,
    place: Place,
    line: Result<(String, String), String>,
    source: Vec<IpAddr>,
) -> Result<(), String> {
    let (listen, to) = line?;
    for (listen, to) in mapping::expand(&listen, &[&to])? {
        let (balance, limits, source) = (Balance::default(), Limits::default(), source.clone());
        table.rules.push(Rule { listen, to, balance, limits, source, place });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<String>, String> {
        let table = read(text).map_err(|fault| fault.to_string())?;
        Ok(table.rules.iter().map(|rule| format!("{} -> {}", rule.listen, rule.to[0])).collect())
    }

    #[test]
    fn port_fwds_file_is_read_as_its_report_shows_it() {
        let text = "# port forward table - each entry must be on its own line\n7000=192.168.0.18|7000\n\n8000=192.168.0.17|7000 # the second\n";
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
        let text = "# bindaddress bindport connectaddress connectport\n0.0.0.0 80 192.168.1.2 80\n127.0.0.1\t81/tcp example.org 82/tcp [src=10.0.0.1]\n:: 83 ::1 84\nlogfile /var/log/rinetd.log\n";
        let table = read(text).expect("rinetd's file");
        assert_eq!(
            rules(text).expect("rinetd's file"),
            ["0.0.0.0:80 -> 192.168.1.2:80", "127.0.0.1:81 -> example.org:82", "[::]:83 -> [::1]:84"]
        );
        assert_eq!(table.rules[1].source, ["10.0.0.1".parse::<IpAddr>().expect("an address")]);
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
            ("allow 192.0.2.*\n0.0.0.0 80 192.0.2.1 80\n", "line 1, column 1", "`allow` is not supported yet"),
            ("0.0.0.0 80 192.0.2.1 80 [keepalive=off]\n", "line 1, column 1", "keepalive"),
            ("# nothing\n", "line 1, column 1", "no rule"),
        ];
        for (text, place, reason) in cases {
            let fault = rules(text).expect_err(text);
            assert!(fault.starts_with(place) && fault.contains(reason), "{text}: {fault}");
        }
    }
}
