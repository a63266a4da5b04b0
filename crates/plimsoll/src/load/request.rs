//! The request that is sent, rendered once.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::url::Url;
use crate::outcome::usage;

/// What a request says.
#[derive(Args, Debug)]
pub(super) struct Form {
    /// The version asked in. 1.0 closes each connection after its answer, unless a header asks to
    /// keep it.
    #[arg(long, value_enum, default_value = "1.1", help_heading = "HTTP")]
    http: Version,
    /// A header field, such as 'Accept: text/html' (repeatable). 'NAME:' leaves out a field that is
    /// sent by default, and 'NAME;' sends an empty one.
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = field, help_heading = "HTTP")]
    headers: Vec<Field>,
    /// The method [default: GET, or POST with a body].
    #[arg(short, long, value_name = "METHOD", help_heading = "HTTP")]
    method: Option<String>,
    /// A file that is sent as the body of every request: with its length, or with -H
    /// 'Transfer-Encoding: chunked' in chunks.
    #[arg(short, long, value_name = "FILE", conflicts_with = "data", help_heading = "HTTP")]
    body: Option<PathBuf>,
    /// A text that is sent as the body of every request. Its type is yours to give: -H
    /// 'Content-Type: ...'.
    #[arg(long, value_name = "TEXT", help_heading = "HTTP")]
    data: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    #[value(name = "1.0")]
    Http10,
    #[value(name = "1.1")]
    Http11,
}

/// A header field as it was asked for. Without a value it is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    value: Option<String>,
}

impl Field {
    fn is_credential(&self) -> bool {
        CREDENTIALS.iter().any(|name| self.name.eq_ignore_ascii_case(name))
    }
}

fn field(text: &str) -> Result<Field, String> {
    let remedy = "write NAME: VALUE, such as 'Accept: text/html'";
    let (name, value) = match (text.split_once(':'), text.strip_suffix(';')) {
        (Some((name, value)), _) => (name, Some(value.trim()).filter(|value| !value.is_empty())),
        (None, Some(name)) => (name, Some("")),
        (None, None) => return Err(format!("'{text}' has no colon; {remedy}")),
    };
    // Control characters would end the field, or be refused (RFC 9110, section 5.5).
    let is_text = |value: &str| !value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
    if name.is_empty() || !name.bytes().all(is_token_byte) || !value.is_none_or(is_text) {
        return Err(format!("'{text}' is not a header field; {remedy}"));
    }
    Ok(Field { name: name.to_owned(), value: value.map(str::to_owned) })
}

/// Header fields that let their sender in. They are for the server that was named, as with curl.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The server of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// That of the URL that was given.
    Named,
    /// Another one, which a redirect leads to.
    Other,
}

impl Destination {
    /// That of a URL which the given one leads to.
    pub(super) fn of(url: &Url, given: &Url) -> Destination {
        if url.has_origin_of(given) { Destination::Named } else { Destination::Other }
    }
}

/// A request that only needs a URL.
pub(super) struct Template<'a> {
    form: &'a Form,
    method: &'a str,
    body: Option<Vec<u8>>,
    /// Whether each request has a connection of its own.
    reconnect: bool,
}

impl Form {
    /// Reads the body. `reconnect` says that each request has a connection of its own.
    pub(super) fn template(&self, reconnect: bool) -> anyhow::Result<Template<'_>> {
        let body = match (&self.body, &self.data) {
            (Some(path), _) => {
                let read = std::fs::read(path).with_context(|| format!("cannot read the body {}", path.display()));
                Some(read?)
            }
            (None, data) => data.as_ref().map(|text| text.as_bytes().to_vec()),
        };
        let method = self.method.as_deref().unwrap_or(if body.is_some() { "POST" } else { "GET" });
        if method.is_empty() || !method.bytes().all(is_token_byte) {
            return usage(format!("--method {method:?} is not a word that HTTP has as a method; give one such as GET"));
        }
        Ok(Template { form: self, method, body, reconnect })
    }
}

impl Template<'_> {
    pub(super) fn method(&self) -> &str {
        self.method
    }

    /// Whether a request says that its connection ends with the answer: over HTTP/1.0 it does
    /// unless a field asks to keep it (RFC 9112, section 9.3).
    pub(super) fn ends_connections(&self) -> bool {
        let fields = self.form.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
        let options: Vec<&str> =
            fields.filter_map(|field| field.value.as_deref()).flat_map(|list| list.split(',')).collect();
        let has = |option: &str| options.iter().any(|other| other.trim().eq_ignore_ascii_case(option));
        has("close") || self.form.http == Version::Http10 && !has("keep-alive")
    }

    /// The names of the fields that no other server than the named one is sent.
    pub(super) fn credentials(&self) -> Vec<&str> {
        let fields = self.form.headers.iter().filter(|field| field.is_credential() && field.value.is_some());
        fields.map(|field| field.name.as_str()).collect()
    }

    /// The request for a URL as it goes over the wire, head and body.
    pub(super) fn render(&self, url: &Url, destination: Destination) -> Vec<u8> {
        let version = if self.form.http == Version::Http10 { "1.0" } else { "1.1" };
        let body = self.body.as_deref().unwrap_or_default();
        let mut head = format!("{} {} HTTP/{version}\r\n", self.method, url.path);
        for (name, value) in self.defaults(url) {
            if !self.form.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name)) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        let is_sent = |field: &&Field| destination == Destination::Named || !field.is_credential();
        for Field { name, value } in self.form.headers.iter().filter(is_sent) {
            if let Some(value) = value {
                head += &format!("{name}: {value}\r\n");
            }
        }
        let chunks = if self.is_chunked() { in_chunks(body) } else { Vec::new() };
        [head.as_bytes(), b"\r\n", if self.is_chunked() { &chunks } else { body }].concat()
    }

    /// The fields that are sent unless others are asked for.
    fn defaults(&self, url: &Url) -> Vec<(&'static str, String)> {
        // Host is first, where servers look for it (RFC 9110, section 7.2).
        let mut fields = vec![
            ("Host", url.authority()),
            ("User-Agent", concat!("plimsoll/", env!("CARGO_PKG_VERSION")).to_owned()),
            ("Accept", "*/*".to_owned()),
        ];
        if self.reconnect && self.form.http == Version::Http11 {
            // So that the server ends the connection, and the port stays taken on its side.
            fields.push(("Connection", "close".to_owned()));
        }
        // These methods expect a body, so that one of no length is said to have none (RFC 9110,
        // section
        // 8.6).
        let expects_body = ["POST", "PUT", "PATCH"].contains(&self.method);
        if !self.has_transfer_encoding() && (self.body.is_some() || expects_body) {
            fields.push(("Content-Length", self.body.as_ref().map_or(0, Vec::len).to_string()));
        }
        fields
    }

    fn transfer_codings(&self) -> impl Iterator<Item = &str> {
        let fields = self.form.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("transfer-encoding"));
        fields.filter_map(|field| field.value.as_deref())
    }

    fn has_transfer_encoding(&self) -> bool {
        self.transfer_codings().next().is_some()
    }

    /// Whether the last transfer coding is chunked.
    fn is_chunked(&self) -> bool {
        let last = self.transfer_codings().last().and_then(|value| value.split(',').next_back());
        last.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
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

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        form: Form,
    }

    fn rendered(arguments: &[&str], reconnect: bool) -> String {
        let flags = Flags::try_parse_from([[""].as_slice(), arguments].concat()).expect("flags");
        let url = Url::parse("http://h:81/p?q").expect("a URL");
        let template = flags.form.template(reconnect).expect("a template");
        String::from_utf8(template.render(&url, Destination::Named)).expect("text")
    }

    #[test]
    fn a_request_has_the_usual_fields_unless_others_are_given() {
        let agent = concat!("User-Agent: plimsoll/", env!("CARGO_PKG_VERSION"), "\r\n");
        for (arguments, reconnect, want) in [
            (&[] as &[&str], false, format!("GET /p?q HTTP/1.1\r\nHost: h:81\r\n{agent}Accept: */*\r\n\r\n")),
            (&["--http", "1.0"], true, format!("GET /p?q HTTP/1.0\r\nHost: h:81\r\n{agent}Accept: */*\r\n\r\n")),
            (
                &["-H", "accept: text/html", "-H", "user-agent:", "-H", "X;", "-H", "Y: a:b "],
                true,
                "GET /p?q HTTP/1.1\r\nHost: h:81\r\nConnection: close\r\naccept: text/html\r\nX: \r\nY: a:b\r\n\r\n"
                    .to_owned(),
            ),
            (
                &["-m", "PUT", "-H", "Accept:", "-H", "User-Agent:", "-H", "Host:"],
                false,
                "PUT /p?q HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_owned(),
            ),
            (
                &["--data", "a=1", "-H", "Accept:", "-H", "User-Agent:"],
                false,
                "POST /p?q HTTP/1.1\r\nHost: h:81\r\nContent-Length: 3\r\n\r\na=1".to_owned(),
            ),
            (
                &[
                    "--data",
                    "a=1",
                    "-m",
                    "DELETE",
                    "-H",
                    "Accept:",
                    "-H",
                    "User-Agent:",
                    "-H",
                    "Transfer-Encoding: gzip, Chunked",
                ],
                false,
                "DELETE /p?q HTTP/1.1\r\nHost: h:81\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n3\r\na=1\r\n0\r\n\r\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(rendered(arguments, reconnect), want, "{arguments:?}");
        }
    }

    #[test]
    fn a_request_asks_for_the_end_of_its_connection_by_its_version_or_by_a_field() {
        for (arguments, ends) in [
            (&[] as &[&str], false),
            (&["-H", "Connection: Keep-Alive"], false),
            (&["-H", "connection: x, Close"], true),
            (&["-H", "Connection: keep-alive", "-H", "Connection: close"], true),
            (&["--http", "1.0"], true),
            (&["--http", "1.0", "-H", "Connection:"], true),
            (&["--http", "1.0", "-H", "Connection: keep-alive"], false),
        ] {
            let flags = Flags::try_parse_from([[""].as_slice(), arguments].concat()).expect("flags");
            let template = flags.form.template(false).expect("a template");
            assert_eq!(template.ends_connections(), ends, "{arguments:?}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for text in ["Accept", "", ":x", ": x", "A B: x", "A: x\r\nB: y", "A: \u{7f}", "\u{e4}: x"] {
            assert!(field(text).expect_err(text).contains("write NAME: VALUE"), "{text}");
        }
    }
}
