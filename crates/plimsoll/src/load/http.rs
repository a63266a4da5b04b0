//! The flags of `load http`, and the requests they make.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use plimsoll_load::http::Http;
use plimsoll_load::secure::Trust;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;

use super::arguments::{Common, resolve, usage};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// What to fetch: `http://HOST:PORT/PATH` or `https://...`; several are fetched in turn.
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
    /// A file that is sent as the body of every request: with its length, or with -H 'Transfer-Encoding: chunked' in chunks.
    #[arg(short, long, value_name = "FILE", help_heading = "HTTP")]
    body: Option<PathBuf>,
    /// HTTPS: believe any certificate.
    #[arg(long, help_heading = "HTTP")]
    insecure: bool,
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
    /// Whom the targets have to prove to be, and to whose satisfaction; `None` is plain HTTP.
    pub(super) security: Option<(Vec<ServerName<'static>>, Trust)>,
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
        let urls = self.urls.iter().map(|url| Url::parse(url)).collect::<anyhow::Result<Vec<_>>>()?;
        let secure = urls[0].secure;
        if urls.iter().any(|url| url.secure != secure) {
            return usage("http:// and https:// in one run would be measured as one; load them in two runs");
        }
        // Connections are dealt over distinct servers; each carries the requests of its own in turn.
        let mut servers: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
        for url in urls {
            let request = self.render(&method, &url, &body)?;
            match servers.iter_mut().find(|(server, _)| *server == url.server) {
                Some((_, requests)) => requests.push(request),
                None => servers.push((url.server, vec![request])),
            }
        }
        let targets = servers.iter().map(|(server, _)| resolve(server)).collect::<anyhow::Result<_>>()?;
        let security = if secure { Some((names(&servers)?, self.trust()?)) } else { None };
        let requests = servers.into_iter().map(|(_, requests)| requests).collect();
        Ok(Plan { targets, protocol: Http::new(requests, method == "HEAD"), security })
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        if self.insecure {
            return Ok(Trust::Anyone);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return usage(
                "no certificate authority is known on this machine, so no server could be believed; install ca-certificates, name SSL_CERT_FILE, or use --insecure",
            );
        }
        Ok(Trust::Roots(roots.into()))
    }

    fn render(&self, method: &str, url: &Url, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let version = if self.http == Version::Http10 { "1.0" } else { "1.1" };
        let mut head = format!("{method} {} HTTP/{version}\r\n", url.path);
        let mut given = Vec::new();
        let mut chunked = false;
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
            chunked |= name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked");
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
        let chunks = if chunked { in_chunks(body) } else { Vec::new() };
        Ok([head.as_bytes(), b"\r\n", if chunked { &chunks } else { body }].concat())
    }
}

/// A chunk's size is the sender's choice; this one lets a large body have several.
const CHUNK_BYTES: usize = 16 * 1024;

/// A body in the chunked transfer coding (RFC 9112, section 7.1).
fn in_chunks(body: &[u8]) -> Vec<u8> {
    let mut chunks = Vec::new();
    for chunk in body.chunks(CHUNK_BYTES) {
        chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    chunks
}

/// The host names of HOST:PORT.
fn names(servers: &[(String, Vec<Vec<u8>>)]) -> anyhow::Result<Vec<ServerName<'static>>> {
    let name = |(server, _): &(String, Vec<Vec<u8>>)| {
        let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(host.clone()).or_else(|_| {
            usage(format!("cannot fetch from `{host}` by https: it is neither a host name nor an address; correct it"))
        })
    };
    servers.iter().map(name).collect()
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[derive(Debug, PartialEq, Eq)]
struct Url {
    /// https.
    secure: bool,
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
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return wrong("only http and https are spoken");
        }
        let default_port = if secure { "443" } else { "80" };
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
            Some((host, port)) if port == default_port => (authority.to_owned(), host.to_owned()),
            Some(_) => (authority.to_owned(), authority.to_owned()),
            None => (format!("{authority}:{default_port}"), authority.to_owned()),
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { secure, server, authority, path })
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
            ("https://h/x", "h:443", "h", "/x"),
            ("https://h:80/x", "h:80", "h:80", "/x"),
            ("http://[::1]/x", "[::1]:80", "[::1]", "/x"),
            ("http://[::1]:81/x", "[::1]:81", "[::1]:81", "/x"),
        ] {
            let secure = text.starts_with("https");
            let want = Url { secure, server: server.into(), authority: authority.into(), path: path.into() };
            assert_eq!(Url::parse(text).expect(text), want);
        }
        for text in ["h", "ftp://h/", "http://", "http:///x", "http://u:p@h/", "http://h/a b"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
