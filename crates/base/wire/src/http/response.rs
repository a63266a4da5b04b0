//! Reads responses as a client does: bytes in, split anywhere; whole, or wrong, or not yet.
//!
//! Nothing is buffered but a head that came in parts. How a body ends follows RFC 9112, section
//! 6.3: never, where the status or the method forbids a body; by its chunks; by its Content-Length;
//! by the end of the connection.

use super::MOST_HEAD_BYTES;

/// Header fields that are parsed on the stack. A head with more is parsed again, on the heap.
const USUAL_FIELDS: usize = 100;

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    phase: Phase,
    /// The response is to a HEAD request, and has no body whatever it says.
    to_head: bool,
    keep: bool,
    status: u16,
    body_bytes: u64,
    /// A head, or a line of a chunked body, that has not come whole.
    #[expect(clippy::box_collection, reason = "a reader stands in every connection's slot: 8 bytes in place of 24")]
    part: Option<Box<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Head,
    /// So many bytes of a body of known length, or of a chunk, are still to come.
    Length(u64),
    Chunk(u64),
    /// The line end after a chunk's data: `true` once its CR was read.
    ChunkEnd(bool),
    /// A chunk's size: what was read of it, and whether any digit was.
    ChunkSize(u64, bool),
    /// The rest of a chunk's size line.
    ChunkExtension(u64),
    /// The trailer section; how many bytes its present line has so far.
    Trailer(u32),
    /// The body ends with the connection.
    UntilEnd,
    Done,
}

/// What a response is, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not complete yet.
    Partial,
    /// Complete.
    Complete,
    /// Not HTTP.
    Wrong,
}

impl Reader {
    /// A reader for the response to a HEAD request, or to any other.
    pub fn new(to_head: bool) -> Reader {
        Reader { to_head, ..Reader::default() }
    }

    /// The status, once the head has come.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body so far, without the framing of chunks.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the connection can be used for another request after this response.
    pub fn keeps_connection(&self) -> bool {
        self.keep
    }

    /// Takes bytes that have arrived, and returns those behind a response that is complete.
    pub fn take<'a>(&mut self, mut bytes: &'a [u8]) -> (Progress, &'a [u8]) {
        loop {
            let step = match self.phase {
                Phase::Head => self.head(bytes),
                Phase::Done => return (Progress::Complete, bytes),
                _ if bytes.is_empty() => return (Progress::Partial, bytes),
                Phase::Length(left) => Some(self.data(bytes, left, Phase::Length, Phase::Done)),
                Phase::Chunk(left) => Some(self.data(bytes, left, Phase::Chunk, Phase::ChunkEnd(false))),
                Phase::UntilEnd => {
                    self.body_bytes += bytes.len() as u64;
                    Some(bytes.len())
                }
                Phase::ChunkEnd(_) | Phase::ChunkSize(..) | Phase::ChunkExtension(_) | Phase::Trailer(_) => {
                    self.framing(bytes[0]).map(|phase| {
                        self.phase = phase;
                        1
                    })
                }
            };
            match step {
                None => return (Progress::Wrong, bytes),
                // A head that needs more bytes.
                Some(0) => return (Progress::Partial, &[]),
                Some(used) => bytes = &bytes[used..],
            }
        }
    }

    /// Takes the end of the connection.
    pub fn end(&mut self) -> Progress {
        self.keep = false;
        match self.phase {
            Phase::UntilEnd | Phase::Done => {
                self.phase = Phase::Done;
                Progress::Complete
            }
            _ => Progress::Partial,
        }
    }

    /// Reads a head from what was kept of it and `bytes`: how many of `bytes` it took, 0 where it
    /// is not whole yet.
    fn head(&mut self, bytes: &[u8]) -> Option<usize> {
        let Some(mut part) = self.part.take() else {
            let used = self.parse_head(bytes)?;
            if used == 0 && !bytes.is_empty() {
                self.part = Some(Box::new(bytes.to_vec()));
            }
            return Some(used);
        };
        let before = part.len();
        part.extend_from_slice(bytes);
        let used = self.parse_head(&part)?;
        if used > 0 {
            return Some(used - before);
        }
        self.part = Some(part);
        Some(0)
    }

    fn parse_head(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut fields = [httparse::EMPTY_HEADER; USUAL_FIELDS];
        match self.parse_fields(bytes, &mut fields) {
            Err(TooManyFields) => {
                // Each field ends with a line feed, so there are no more fields than line feeds.
                let most = bytes.iter().take(MOST_HEAD_BYTES).filter(|byte| **byte == b'\n').count();
                self.parse_fields(bytes, &mut vec![httparse::EMPTY_HEADER; most + 1]).unwrap_or(None)
            }
            Ok(used) => used,
        }
    }

    /// `Ok(None)` where this is no head of a response.
    fn parse_fields<'b>(
        &mut self,
        bytes: &'b [u8],
        fields: &mut [httparse::Header<'b>],
    ) -> Result<Option<usize>, TooManyFields> {
        let mut response = httparse::Response::new(fields);
        // A recipient takes a folded line for one with spaces (RFC 9112, section 5.2).
        let used = httparse::ParserConfig::default()
            .allow_obsolete_multiline_headers_in_responses(true)
            .parse_response(&mut response, bytes);
        match used {
            // The limit holds whether the head comes in one read or in several.
            Ok(httparse::Status::Complete(used)) if used <= MOST_HEAD_BYTES => Ok(self.begin_body(&response, used)),
            Ok(httparse::Status::Partial) if bytes.len() <= MOST_HEAD_BYTES => Ok(Some(0)),
            Err(httparse::Error::TooManyHeaders) => Err(TooManyFields),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Decides from a head of so many bytes how the body ends (RFC 9112, section 6.3), and returns
    /// the number; `None` where the head contradicts itself.
    fn begin_body(&mut self, response: &httparse::Response<'_, '_>, used: usize) -> Option<usize> {
        // There are no codes below 100, so such a number has no class and no meaning (RFC 9110,
        // section 15).
        self.status = response.code.filter(|status| *status >= 100)?;
        let framing = Framing::of(response.headers)?;
        // HTTP/1.1 keeps a connection unless a field says otherwise, HTTP/1.0 only if a field says
        // so (RFC 9112, section 9.3). HTTP/1.0 has no transfer codings: an answer that claims one
        // may be framed wrongly, and ends with its connection (section 6.1).
        self.keep = match response.version {
            Some(1) => !framing.close,
            _ => framing.keep_alive && !framing.close && framing.coding == Coding::None,
        };
        self.phase = match self.status {
            // Upgrading was never asked for.
            101 => return None,
            // An interim response: the final one is still to come.
            100..200 => Phase::Head,
            204 | 304 => Phase::Done,
            _ if self.to_head => Phase::Done,
            _ => match (framing.coding, framing.length) {
                (Coding::Chunked, _) => Phase::ChunkSize(0, false),
                (Coding::Other, _) | (Coding::None, None) => Phase::UntilEnd,
                (Coding::None, Some(0)) => Phase::Done,
                (Coding::None, Some(length)) => Phase::Length(length),
            },
        };
        if self.phase == Phase::UntilEnd {
            self.keep = false;
        }
        Some(used)
    }

    /// Takes data of which `left` bytes are still to come.
    fn data(&mut self, bytes: &[u8], left: u64, more: fn(u64) -> Phase, end: Phase) -> usize {
        let used = left.min(bytes.len() as u64);
        self.body_bytes += used;
        self.phase = if used == left { end } else { more(left - used) };
        used as usize
    }

    /// The phase after one byte of a chunked body's framing; `None` where it has no place there
    /// (RFC 9112, section 7.1).
    fn framing(&self, byte: u8) -> Option<Phase> {
        match (self.phase, byte) {
            (Phase::ChunkEnd(false), b'\r') => Some(Phase::ChunkEnd(true)),
            (Phase::ChunkEnd(_), b'\n') => Some(Phase::ChunkSize(0, false)),
            (Phase::ChunkSize(size, _), digit) if digit.is_ascii_hexdigit() => {
                let digit = u64::from(char::from(digit).to_digit(16)?);
                Some(Phase::ChunkSize(size.checked_mul(16)? | digit, true))
            }
            (Phase::ChunkSize(size, true) | Phase::ChunkExtension(size), b'\n') => {
                Some(if size == 0 { Phase::Trailer(0) } else { Phase::Chunk(size) })
            }
            (Phase::ChunkSize(size, true), b'\r' | b';' | b' ' | b'\t') | (Phase::ChunkExtension(size), _) => {
                Some(Phase::ChunkExtension(size))
            }
            (Phase::Trailer(0), b'\n') => Some(Phase::Done),
            (Phase::Trailer(_), b'\n') => Some(Phase::Trailer(0)),
            (Phase::Trailer(length), b'\r') => Some(Phase::Trailer(length)),
            (Phase::Trailer(length), _) if (length as usize) < MOST_HEAD_BYTES => Some(Phase::Trailer(length + 1)),
            _ => None,
        }
    }
}

/// What bytes are that answer no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrequested {
    /// The beginning of a response 408, which servers send on a connection that was idle for too
    /// long (RFC 9110, section 15.5.9).
    RequestTimeout,
    /// They may become that.
    Partial,
    /// Anything else.
    Other,
}

/// Says what these bytes are, all that came since the connection is idle.
pub fn unrequested(bytes: &[u8]) -> Unrequested {
    const STATUS_LINES: [&[u8]; 4] = [b"HTTP/1.1 408 ", b"HTTP/1.1 408\r", b"HTTP/1.0 408 ", b"HTTP/1.0 408\r"];
    if STATUS_LINES.iter().any(|line| bytes.starts_with(line)) {
        Unrequested::RequestTimeout
    } else if STATUS_LINES.iter().any(|line| line.starts_with(bytes)) {
        Unrequested::Partial
    } else {
        Unrequested::Other
    }
}

/// A head has more fields than there was room for.
struct TooManyFields;

/// The last transfer coding of a message, which decides how it ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Chunked,
    /// Any other: the body ends with the connection.
    Other,
}

/// What the header fields say of a message's end.
#[derive(Default)]
struct Framing {
    coding: Coding,
    length: Option<u64>,
    close: bool,
    keep_alive: bool,
}

impl Framing {
    /// `None` where they contradict each other.
    fn of(fields: &[httparse::Header<'_>]) -> Option<Framing> {
        let mut framing = Framing::default();
        for field in fields {
            // By length first: most fields are none of these.
            match field.name.len() {
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    framing.close |= has_token(field.value, "close");
                    framing.keep_alive |= has_token(field.value, "keep-alive");
                }
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    let length = decimal(field.value)?;
                    if framing.length.is_some_and(|known| known != length) {
                        return None;
                    }
                    framing.length = Some(length);
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    for coding in tokens(field.value) {
                        // Chunks are applied once, and chunks of chunks are refused (RFC 9112,
                        // section 6.1).
                        framing.coding = match (framing.coding, coding.eq_ignore_ascii_case(b"chunked")) {
                            (Coding::None | Coding::Other, true) => Coding::Chunked,
                            (Coding::Chunked, true) => return None,
                            (_, false) => Coding::Other,
                        };
                    }
                }
                _ => {}
            }
        }
        Some(framing)
    }
}

/// The elements of a comma-separated list, of which empty ones do not count (RFC 9110, section
/// 5.6.1).
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

fn has_token(value: &[u8], token: &str) -> bool {
    tokens(value).any(|part| part.eq_ignore_ascii_case(token.as_bytes()))
}

fn decimal(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
