//! The head of a request (RFC 9112, sections 2 to 6), read in place.

use super::body::Body;
use super::response::Status;

/// Fields in a head: far more than any client sends.
const FIELDS: usize = 100;
/// Bytes in a head.
const HEAD_BYTES: usize = 16 * 1024;
/// Bytes in a request line: what RFC 9112, section 3, asks for at least.
const LINE_BYTES: usize = 8000;

/// What stands at the beginning of the input.
pub(super) enum Head<'a> {
    /// A head, and its length.
    Whole(Request<'a>, usize),
    /// The beginning of one.
    Partial,
    /// No head that can be answered otherwise than by this.
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
    pub(super) if_match: Option<&'a [u8]>,
    pub(super) if_none_match: Option<&'a [u8]>,
    pub(super) if_modified_since: Option<&'a [u8]>,
    pub(super) if_unmodified_since: Option<&'a [u8]>,
}

pub(super) fn parse(input: &[u8]) -> Head<'_> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(&input[..input.len().min(HEAD_BYTES)]) {
        // Whatever arrives together, and whatever comes in pieces: the same line is too long.
        Ok(httparse::Status::Complete(length)) if length > LINE_BYTES && has_long_line(input) => {
            Head::Bad(Status::URI_TOO_LONG)
        }
        Ok(httparse::Status::Complete(length)) => match read(&parsed) {
            Ok(request) => Head::Whole(request, length),
            Err(status) => Head::Bad(status),
        },
        Ok(httparse::Status::Partial) => {
            if has_long_line(input) {
                Head::Bad(Status::URI_TOO_LONG)
            } else if input.len() >= HEAD_BYTES {
                Head::Bad(Status::FIELDS_TOO_LARGE)
            } else {
                Head::Partial
            }
        }
        Err(httparse::Error::TooManyHeaders) => Head::Bad(Status::FIELDS_TOO_LARGE),
        Err(httparse::Error::Version) => Head::Bad(Status::VERSION_NOT_SUPPORTED),
        Err(_) => Head::Bad(Status::BAD_REQUEST),
    }
}

/// Whether the request line is longer than a line may be, as far as it has come. Empty lines before it are skipped (RFC 9112, section 2.2).
fn has_long_line(input: &[u8]) -> bool {
    let begun = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
    input.len() - begun > LINE_BYTES && !input[begun..=begun + LINE_BYTES].contains(&b'\n')
}

fn read<'a>(parsed: &httparse::Request<'_, 'a>) -> Result<Request<'a>, Status> {
    const COMPLETE: &str = "a complete head has a method, a target and a version";
    let target = parsed.path.expect(COMPLETE);
    let mut request = Request {
        method: match parsed.method.expect(COMPLETE) {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Method::Known,
            _ => Method::Other,
        },
        target,
        minor: parsed.version.expect(COMPLETE),
        close: false,
        keep_alive: false,
        expects_continue: false,
        body: Body::NONE,
        range: None,
        if_range: None,
        if_match: None,
        if_none_match: None,
        if_modified_since: None,
        if_unmodified_since: None,
    };
    let (mut hosts, mut length, mut coding) = (0, None, None);
    for field in parsed.headers.iter() {
        let value = field.value.trim_ascii();
        // By length first: most fields are none of these, and this finds out without looking at them.
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => hosts += 1,
            5 if field.name.eq_ignore_ascii_case("range") => request.range = Some(value),
            6 if field.name.eq_ignore_ascii_case("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Status::EXPECTATION_FAILED);
                }
                request.expects_continue = true;
            }
            8 if field.name.eq_ignore_ascii_case("if-match") => request.if_match = Some(value),
            8 if field.name.eq_ignore_ascii_case("if-range") => request.if_range = Some(value),
            10 if field.name.eq_ignore_ascii_case("connection") => {
                for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    request.close |= option.eq_ignore_ascii_case(b"close");
                    request.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            13 if field.name.eq_ignore_ascii_case("if-none-match") => request.if_none_match = Some(value),
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let read = content_length(value)?;
                if length.replace(read).is_some_and(|before| before != read) {
                    return Err(Status::BAD_REQUEST);
                }
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                // Twice is once, with a comma (RFC 9110, section 5.3): a list of codings, of which none is known.
                coding = Some(if coding.is_none() { value } else { b"several" });
            }
            17 if field.name.eq_ignore_ascii_case("if-modified-since") => request.if_modified_since = Some(value),
            19 if field.name.eq_ignore_ascii_case("if-unmodified-since") => request.if_unmodified_since = Some(value),
            _ => {}
        }
    }
    // RFC 9112, section 3.2.
    if hosts > 1 || (hosts == 0 && request.minor > 0) {
        return Err(Status::BAD_REQUEST);
    }
    request.body = match (length, coding) {
        (None, None) => Body::NONE,
        (Some(length), None) => Body::of(length),
        // Both, or a coding that HTTP/1.0 does not know, is how requests are smuggled (RFC 9112, section 6.1).
        (Some(_), Some(_)) => return Err(Status::BAD_REQUEST),
        (None, Some(_)) if request.minor == 0 => return Err(Status::BAD_REQUEST),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Body::chunked(),
        (None, Some(_)) => return Err(Status::NOT_IMPLEMENTED),
    };
    Ok(request)
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
