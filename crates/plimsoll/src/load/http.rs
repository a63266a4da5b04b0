//! The flags of `load http`, and the requests they make.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use plimsoll_load::http::Http;

use super::arguments::{Common, resolve, usage};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// What to fetch: http://HOST[:PORT]/PATH; several are fetched in turn.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// The version asked in. 1.0 closes each connection after its answer, unless a header asks to keep it.
    #[arg(long, value_enum, default_value = "1.1", help_heading = "HTTP")]
    http: Version,
    /// A header field, such as 'Accept: text/html' (repeatable).
    #[arg(short = 'H', long = "header", value_name = "FIELD", help_heading = "HTTP")]
    headers: Vec<String>,
    /// The method [default: GET, or POST with a body].
    #[arg(short, long, value_name = "METHOD", help_heading = "HTTP")]
    method: Option<String>,
    /// A file that is sent as the body of every request.
    #[arg(short, long, value_name = "FILE", help_heading = "HTTP")]
    body: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    #[value(name = "1.0")]
    Http10,
    #[value(name = "1.1")]
    Http11,
}

/// Where requests go, and what they are.
pub(super) struct Plan {
    pub(super) targets: Vec<SocketAddr>,
    pub(super) protocol: Http,
}

impl Arguments {
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let body = match &self.body {
            Some(path) => std::fs::read(path).with_context(|| format!("cannot read the body {}", path.display()))?,
            None => Vec::new(),
        };
        let method = self.method.clone().unwrap_or_else(|| if self.body.is_some() { "POST" } else { "GET" }.to_owned());
        if method.is_empty() || !method.bytes().all(is_token_byte) {
            return usage(format!("--method {method:?} is not a word that HTTP has as a method; give one such as GET"));
        }
        // Connections are dealt over distinct servers; each carries the requests of its own in turn.
        let mut servers: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
        for url in &self.urls {
            let url = Url::parse(url)?;
            let request = self.render(&method, &url, &body)?;
            match servers.iter_mut().find(|(server, _)| *server == url.server) {
                Some((_, requests)) => requests.push(request),
                None => servers.push((url.server, vec![request])),
            }
        }
        let targets = servers.iter().map(|(server, _)| resolve(server)).collect::<anyhow::Result<_>>()?;
        let requests = servers.into_iter().map(|(_, requests)| requests).collect();
        Ok(Plan { targets, protocol: Http::new(requests, method == "HEAD") })
    }

    fn render(&self, method: &str, url: &Url, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let version = if self.http == Version::Http10 { "1.0" } else { "1.1" };
        let mut head = format!("{method} {} HTTP/{version}\r\n", url.path);
        let mut given = Vec::new();
        for field in &self.headers {
            let Some((name, value)) = field.split_once(':') else {
                return usage(format!(
                    "--header {field:?} has no colon; write NAME: VALUE, such as 'Accept: text/html'"
                ));
            };
            if name.is_empty()
                || !name.bytes().all(is_token_byte)
                || value.bytes().any(|byte| byte < b' ' && byte != b'\t')
            {
                return usage(format!(
                    "--header {field:?} is not a header field; write NAME: VALUE, such as 'Accept: text/html'"
                ));
            }
            given.push(name.to_ascii_lowercase());
            head += &format!("{name}: {}\r\n", value.trim());
        }
        let absent = |name: &str| !given.iter().any(|known| known == name);
        if absent("host") {
            head += &format!("Host: {}\r\n", url.authority);
        }
        if self.common.reconnect && self.http == Version::Http11 && absent("connection") {
            // So that the server ends the connection, and the port rests on its side.
            head += "Connection: close\r\n";
        }
        if self.body.is_some() && absent("content-length") && absent("transfer-encoding") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        Ok([head.as_bytes(), b"\r\n", body].concat())
    }
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[derive(Debug, PartialEq, Eq)]
struct Url {
    /// HOST:PORT to connect to.
    server: String,
    /// What the Host field says: without the port where it is the default one.
    authority: String,
    /// Path and query.
    path: String,
}

impl Url {
    fn parse(text: &str) -> anyhow::Result<Url> {
        let wrong = |why: &str| {
            usage(format!(
                "cannot fetch `{text}`: {why}; write http://HOST:PORT/PATH, such as http://127.0.0.1:8000/index.html"
            ))
        };
        let Some((scheme, rest)) = text.split_once("://") else { return wrong("it does not begin with http://") };
        if !scheme.eq_ignore_ascii_case("http") {
            return wrong("only http is spoken");
        }
        // A fragment is the reader's own business, never sent (RFC 9110, section 4.2.5).
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return wrong("it names no host");
        }
        if authority.contains('@') {
            return wrong("names and passwords do not belong in it (use -H 'Authorization: ...')");
        }
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return wrong("it has a space or control character in it (write %20)");
        }
        let port = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
        let (server, authority) = match port {
            Some((host, "80")) => (authority.to_owned(), host.to_owned()),
            Some(_) => (authority.to_owned(), authority.to_owned()),
            None => (format!("{authority}:80"), authority.to_owned()),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { server, authority, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_server_an_authority_and_a_path() {
        for (text, server, authority, path) in [
            ("http://h", "h:80", "h", "/"),
            ("http://h:80/", "h:80", "h", "/"),
            ("http://h:8000/a/b?c=d#e", "h:8000", "h:8000", "/a/b?c=d"),
            ("HTTP://h?q", "h:80", "h", "/?q"),
            ("http://[::1]/x", "[::1]:80", "[::1]", "/x"),
            ("http://[::1]:81/x", "[::1]:81", "[::1]:81", "/x"),
        ] {
            let want = Url { server: server.into(), authority: authority.into(), path: path.into() };
            assert_eq!(Url::parse(text).expect(text), want);
        }
        for text in ["h", "ftp://h/", "http://", "http:///x", "http://u:p@h/", "http://h/a b"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
