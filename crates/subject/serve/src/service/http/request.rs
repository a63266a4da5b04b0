//! The head of a request (RFC 9112, sections 2 to 6), read in place.

use super::body::Body;
use super::status::Status;
use super::syntax::{is_authority, is_token};

/// Fields in a head: far more than any client sends.
const FIELDS: usize = 100;
/// Bytes in a head.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes in a request line: what RFC 9112, section 3, asks for at least.
const LINE_BYTES: usize = 8000;

/// What was parsed at the beginning of the input.
pub(super) enum ParsedHead<'a> {
    /// A head, and its length.
    Complete(Request<'a>, usize),
    /// The beginning of a head.
    Partial,
    /// A malformed head; this status answers it.
    Bad(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    /// Known to RFC 9110, and not for files that only go out.
    Known,
    /// Unknown.
    Other,
}

/// A head that makes sense.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) target: &'a str,
    /// The version after `HTTP/1.`
    pub(super) minor: u8,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) body: Body,
    pub(super) range: Option<&'a [u8]>,
    pub(super) if_range: Option<&'a [u8]>,
    pub(super) if_match: Lines<'a>,
    pub(super) if_none_match: Lines<'a>,
    pub(super) if_modified_since: Option<&'a [u8]>,
    pub(super) if_unmodified_since: Option<&'a [u8]>,
}

/// The lines of a field that is a list: as many lines as the client likes mean what one would (RFC
/// 9110, section 5.3).
#[derive(Default)]
pub(super) struct Lines<'a> {
    first: Option<&'a [u8]>,
    more: Vec<&'a [u8]>,
}

impl<'a> Lines<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.first.iter().chain(&self.more).copied()
    }

    fn add(&mut self, value: &'a [u8]) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.more.push(value),
        }
    }
}

pub(super) fn parse(input: &[u8]) -> ParsedHead<'_> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(&input[..input.len().min(HEAD_BYTES)]) {
        // Whatever arrives together, and whatever comes in pieces: the same line is too long.
        Ok(httparse::Status::Complete(length)) if length > LINE_BYTES && has_long_line(input) => {
            ParsedHead::Bad(Status::URI_TOO_LONG)
        }
        Ok(httparse::Status::Complete(length)) => {
            const COMPLETE: &str = "a complete head has a method, a target and a version";
            let (method, target) = (parsed.method.expect(COMPLETE), parsed.path.expect(COMPLETE));
            match read(method, target, parsed.version.expect(COMPLETE), parsed.headers) {
                Ok(request) => ParsedHead::Complete(request, length),
                Err(status) => ParsedHead::Bad(status),
            }
        }
        Ok(httparse::Status::Partial) => partial(input),
        Err(httparse::Error::TooManyHeaders) => ParsedHead::Bad(Status::FIELDS_TOO_LARGE),
        Err(httparse::Error::Version) => parse_other_version(input),
        Err(_) => ParsedHead::Bad(Status::BAD_REQUEST),
    }
}

/// Whether these bytes begin as a HEAD request, whatever follows. Empty lines may come before it
/// (RFC 9112, section 2.2).
pub(super) fn is_head(mut input: &[u8]) -> bool {
    while let Some(rest) = input.strip_prefix(b"\r\n").or_else(|| input.strip_prefix(b"\n")) {
        input = rest;
    }
    input.starts_with(b"HEAD ")
}

/// What a head is that has not come whole.
fn partial(input: &[u8]) -> ParsedHead<'_> {
    if has_long_line(input) {
        ParsedHead::Bad(Status::URI_TOO_LONG)
    } else if input.len() >= HEAD_BYTES {
        ParsedHead::Bad(Status::FIELDS_TOO_LARGE)
    } else {
        ParsedHead::Partial
    }
}

/// A head that is not of HTTP/1.0 or HTTP/1.1. A later minor version is read as the latest known
/// (RFC 9110, section 2.5); another major version cannot be.
fn parse_other_version(input: &[u8]) -> ParsedHead<'_> {
    let head = &input[..input.len().min(HEAD_BYTES)];
    let begun = head.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let Some(end) = head[begun..].iter().position(|byte| *byte == b'\n').map(|end| begun + end) else {
        return partial(input);
    };
    let line = head[begun..end].strip_suffix(b"\r").unwrap_or(&head[begun..end]);
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return ParsedHead::Bad(Status::BAD_REQUEST);
    };
    let is_target = !target.is_empty() && target.iter().all(|byte| byte.is_ascii_graphic() || *byte >= 0x80);
    let (Ok(method), Ok(target), true, true) =
        (std::str::from_utf8(method), std::str::from_utf8(target), is_token(method), is_target)
    else {
        return ParsedHead::Bad(Status::BAD_REQUEST);
    };
    match version.strip_prefix(b"HTTP/") {
        Some([b'1', b'.', b'2'..=b'9']) => {}
        Some([b'0'..=b'9', b'.', b'0'..=b'9']) => return ParsedHead::Bad(Status::VERSION_NOT_SUPPORTED),
        _ => return ParsedHead::Bad(Status::BAD_REQUEST),
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    match httparse::parse_headers(&head[end + 1..], &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) => {
            let length = end + 1 + length;
            if length > LINE_BYTES && has_long_line(input) {
                return ParsedHead::Bad(Status::URI_TOO_LONG);
            }
            match read(method, target, 1, fields) {
                Ok(request) => ParsedHead::Complete(request, length),
                Err(status) => ParsedHead::Bad(status),
            }
        }
        Ok(httparse::Status::Partial) => partial(input),
        Err(httparse::Error::TooManyHeaders) => ParsedHead::Bad(Status::FIELDS_TOO_LARGE),
        Err(_) => ParsedHead::Bad(Status::BAD_REQUEST),
    }
}

/// Whether the request line is longer than a line may be, as far as it has come; its CR LF is no
/// part of that. Empty lines before it are skipped (RFC 9112, section 2.2).
fn has_long_line(input: &[u8]) -> bool {
    let begun = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
    input.len() - begun > LINE_BYTES + 1 && !input[begun..=begun + LINE_BYTES + 1].contains(&b'\n')
}

fn read<'a>(method: &str, target: &'a str, minor: u8, fields: &[httparse::Header<'a>]) -> Result<Request<'a>, Status> {
    let mut request = Request {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Method::Known,
            _ => Method::Other,
        },
        target,
        minor,
        close: false,
        keep_alive: false,
        expects_continue: false,
        body: Body::NONE,
        range: None,
        if_range: None,
        if_match: Lines::default(),
        if_none_match: Lines::default(),
        if_modified_since: None,
        if_unmodified_since: None,
    };
    let mut framing = Framing::default();
    for field in fields {
        read_field(&mut request, &mut framing, field.name, field.value.trim_ascii())?;
    }
    // RFC 9112, section 3.2.
    if framing.hosts > 1 || (framing.hosts == 0 && minor > 0) {
        return Err(Status::BAD_REQUEST);
    }
    request.body = framing.body(minor)?;
    Ok(request)
}

/// What says where a request ends, and how often its host is named.
#[derive(Default)]
struct Framing<'a> {
    hosts: usize,
    length: Option<u64>,
    codings: Lines<'a>,
}

impl Framing<'_> {
    fn body(&self, minor: u8) -> Result<Body, Status> {
        if self.codings.is_empty() {
            return Ok(self.length.map_or(Body::NONE, Body::of));
        }
        // Both, or a coding that HTTP/1.0 does not know, is how requests are smuggled (RFC 9112,
        // section 6.1).
        if self.length.is_some() || minor == 0 {
            return Err(Status::BAD_REQUEST);
        }
        // Empty members of a list mean nothing (RFC 9110, section 5.6.1.2).
        let members = self.codings.iter().flat_map(|line| line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii));
        let mut codings = members.filter(|coding| !coding.is_empty());
        match (codings.next(), codings.last()) {
            (Some(only), None) if is_chunked(only) => Ok(Body::chunked()),
            (Some(_), Some(last)) if is_chunked(last) => Err(Status::NOT_IMPLEMENTED),
            // It is unknown where the body ends (RFC 9112, section 6.3).
            _ => Err(Status::BAD_REQUEST),
        }
    }
}

fn is_chunked(coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(b"chunked")
}

fn read_field<'a>(
    request: &mut Request<'a>,
    framing: &mut Framing<'a>,
    name: &str,
    value: &'a [u8],
) -> Result<(), Status> {
    // By length first: most fields are none of these, and this finds out without looking at them.
    match name.len() {
        4 if name.eq_ignore_ascii_case("host") => {
            framing.hosts += 1;
            if !is_authority(value) {
                return Err(Status::BAD_REQUEST);
            }
        }
        5 if name.eq_ignore_ascii_case("range") => once(&mut request.range, value),
        6 if name.eq_ignore_ascii_case("expect") => {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Status::EXPECTATION_FAILED);
            }
            // A client of HTTP/1.0 would take the interim answer for the answer (RFC 9110, section
            // 10.1.1).
            request.expects_continue = request.minor > 0;
        }
        8 if name.eq_ignore_ascii_case("if-match") => request.if_match.add(value),
        8 if name.eq_ignore_ascii_case("if-range") => once(&mut request.if_range, value),
        10 if name.eq_ignore_ascii_case("connection") => {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                request.close |= option.eq_ignore_ascii_case(b"close");
                request.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
        13 if name.eq_ignore_ascii_case("if-none-match") => request.if_none_match.add(value),
        14 if name.eq_ignore_ascii_case("content-length") => {
            let read = content_length(value)?;
            if framing.length.replace(read).is_some_and(|before| before != read) {
                return Err(Status::BAD_REQUEST);
            }
        }
        17 if name.eq_ignore_ascii_case("transfer-encoding") => framing.codings.add(value),
        17 if name.eq_ignore_ascii_case("if-modified-since") => once(&mut request.if_modified_since, value),
        19 if name.eq_ignore_ascii_case("if-unmodified-since") => once(&mut request.if_unmodified_since, value),
        _ => {}
    }
    Ok(())
}

/// Keeps the value of a field that is no list. Of several lines none is the right one, so they are
/// as if malformed, which these fields may be: then the whole is sent.
fn once<'a>(field: &mut Option<&'a [u8]>, value: &'a [u8]) {
    *field = Some(if field.is_none() { value } else { b"" });
}

fn content_length(value: &[u8]) -> Result<u64, Status> {
    // `parse` would also take a sign.
    if !value.iter().all(u8::is_ascii_digit) {
        return Err(Status::BAD_REQUEST);
    }
    let text = std::str::from_utf8(value).map_err(|_| Status::BAD_REQUEST)?;
    match text.parse() {
        Ok(length) => Ok(length),
        // Digits only, so it is too large for a number, and for this server.
        Err(_) if !text.is_empty() => Err(Status::CONTENT_TOO_LARGE),
        Err(_) => Err(Status::BAD_REQUEST),
    }
}
