//! URLs of servers, and references relative to them (RFC 3986).

use std::fmt;
use std::net::Ipv6Addr;

use crate::outcome::usage;

/// What a URL of HTTP names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// https.
    pub(super) secure: bool,
    /// A name or an address, without the brackets of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> anyhow::Result<Url> {
        let wrong = |why: &str| {
            usage(format!(
                "cannot fetch `{text}`: {why}; write http://HOST:PORT/PATH, such as http://127.0.0.1:8000/index.html"
            ))
        };
        let Some((scheme, rest)) = text.split_once("://") else { return wrong("it does not begin with http://") };
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return wrong("only http and https are spoken");
        }
        // A fragment is never sent (RFC 9110, section 4.2.5).
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return wrong("names and passwords do not belong in it (use -H 'Authorization: ...')");
        }
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return wrong("it has a space or control character in it (write %20)");
        }
        let (host, port) = match split_authority(authority) {
            Ok(parts) => parts,
            Err(why) => return wrong(why),
        };
        let port = match port {
            "" if secure => 443,
            "" => 80,
            digits => match digits.parse() {
                Ok(port) if digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
                _ => return wrong("its port is not a number from 1 to 65535"),
            },
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { secure, host: host.to_owned(), port, path })
    }

    /// HOST:PORT to connect to.
    pub(super) fn server(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// Whether both have one scheme, host and port (RFC 6454, section 4).
    pub(super) fn has_origin_of(&self, other: &Url) -> bool {
        (self.secure, self.port) == (other.secure, other.port) && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// What the Host field says: without the port where it is the default one (RFC 9110, section
    /// 7.2).
    pub(super) fn authority(&self) -> String {
        if self.port == if self.secure { 443 } else { 80 } { bracketed(&self.host) } else { self.server() }
    }

    /// The URL of a reference in an answer of this URL (RFC 3986, section 5.2.2), as text.
    pub(super) fn join(&self, reference: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let reference = reference.split('#').next().unwrap_or_default();
        let own_path = self.path.split('?').next().unwrap_or_default();
        let path = match reference {
            absolute if has_scheme(absolute) => return absolute.to_owned(),
            other if other.starts_with("//") => return format!("{scheme}:{other}"),
            "" => self.path.clone(),
            query if query.starts_with('?') => format!("{own_path}{query}"),
            absolute if absolute.starts_with('/') => without_dots(absolute),
            relative => {
                let folder = &own_path[..=own_path.rfind('/').unwrap_or(0)];
                without_dots(&format!("{folder}{relative}"))
            }
        };
        format!("{scheme}://{}{path}", self.authority())
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}{}", if self.secure { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// An IPv6 address in brackets; a name as it is.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Host and port; an empty port is the default one (RFC 3986, section 3.2.3).
fn split_authority(authority: &str) -> Result<(&str, &str), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let Some((host, after)) = rest.split_once(']') else { return Err("its bracket is not closed") };
        if host.parse::<Ipv6Addr>().is_err() {
            return Err("the text in brackets is no IPv6 address");
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, port)),
            None if after.is_empty() => Ok((host, "")),
            None => Err("after the bracket only a port may follow"),
        };
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    if port.contains(':') {
        return Err("an IPv6 address needs brackets, such as http://[::1]:8000/");
    }
    if host.is_empty() {
        return Err("it names no host");
    }
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    if !host.bytes().all(is_host_byte) {
        return Err("its host has a character that no name has (write a name of other letters as xn--...)");
    }
    Ok((host, port))
}

/// RFC 3986, section 3.1.
fn has_scheme(reference: &str) -> bool {
    let (scheme, _) = reference.split_at(reference.find([':', '/', '?']).unwrap_or(0));
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && reference[scheme.len()..].starts_with(':')
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// A path without `.` and `..` (RFC 3986, section 5.2.4). The query stays as it is.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (place, segment) in segments.iter().enumerate() {
        let last = place + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_server_an_authority_and_a_path() {
        for (text, server, authority, path) in [
            ("http://h", "h:80", "h", "/"),
            ("http://h:80/", "h:80", "h", "/"),
            ("http://h:/", "h:80", "h", "/"),
            ("http://h:8000/a/b?c=d#e", "h:8000", "h:8000", "/a/b?c=d"),
            ("HTTP://h?q", "h:80", "h", "/?q"),
            ("https://h/x", "h:443", "h", "/x"),
            ("https://h:80/x", "h:80", "h:80", "/x"),
            ("http://[::1]/x", "[::1]:80", "[::1]", "/x"),
            ("http://[::1]:81/x", "[::1]:81", "[::1]:81", "/x"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!((url.server(), url.authority(), url.path.as_str()), (server.into(), authority.into(), path));
            assert_eq!(url.secure, text.starts_with("https"));
        }
    }

    #[test]
    fn another_scheme_port_or_host_is_another_origin() {
        let given = Url::parse("http://h/x").expect("a URL");
        for (text, is_same) in [
            ("http://H:80/y?z", true),
            ("https://h/x", false),
            ("https://h:80/x", false),
            ("http://h:81/x", false),
            ("http://h.example/x", false),
        ] {
            assert_eq!(Url::parse(text).expect(text).has_origin_of(&given), is_same, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_reason() {
        for (text, says) in [
            ("h", "does not begin with http://"),
            ("ftp://h/", "only http and https"),
            ("http://", "names no host"),
            ("http:///x", "names no host"),
            ("http://:80/x", "names no host"),
            ("http://u:p@h/", "do not belong in it"),
            ("http://h/a b", "write %20"),
            ("http://::1:8000/", "needs brackets, such as http://[::1]:8000/"),
            ("http://::1/", "needs brackets"),
            ("http://[::1:8000/", "is not closed"),
            ("http://[h]/", "no IPv6 address"),
            ("http://[::1]8000/", "only a port"),
            ("http://h:+80/", "its port is not a number"),
            ("http://h:65536/", "its port is not a number"),
            ("http://h:80x/", "its port is not a number"),
            ("http://<h>/", "no name has"),
            ("http://h\u{f6}/", "xn--"),
        ] {
            let error = Url::parse(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_reference_leads_where_rfc_3986_says() {
        let base = Url::parse("http://a:81/b/c/d;p?q").expect("a URL");
        // Of section 5.4, what HTTP can fetch.
        for (reference, target) in [
            ("g", "http://a:81/b/c/g"),
            ("./g", "http://a:81/b/c/g"),
            ("g/", "http://a:81/b/c/g/"),
            ("/g", "http://a:81/g"),
            ("//g", "http://g"),
            ("?y", "http://a:81/b/c/d;p?y"),
            ("g?y", "http://a:81/b/c/g?y"),
            ("#s", "http://a:81/b/c/d;p?q"),
            ("g#s", "http://a:81/b/c/g"),
            ("", "http://a:81/b/c/d;p?q"),
            (".", "http://a:81/b/c/"),
            ("./", "http://a:81/b/c/"),
            ("..", "http://a:81/b/"),
            ("../g", "http://a:81/b/g"),
            ("../../../g", "http://a:81/g"),
            ("/./g", "http://a:81/g"),
            ("/../g", "http://a:81/g"),
            ("g;x=1/../y", "http://a:81/b/c/y"),
            ("g?y/../x", "http://a:81/b/c/g?y/../x"),
            ("https://h/x", "https://h/x"),
            ("g:h", "g:h"),
        ] {
            assert_eq!(base.join(reference), target, "{reference}");
        }
    }
}
