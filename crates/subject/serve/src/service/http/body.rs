//! The body of a request, which is read and discarded. A body that breaks the rules is an error, as
//! it is unknown where the next request begins.

use super::syntax::is_token;

/// The longest body that is read past; a request with more is answered with 413.
const BODY_BYTES: u64 = 1 << 20;
/// Bytes in a chunk's size line, and in a line of the trailer, with its end: a longer one is
/// refused alike whether it comes whole or in pieces.
const LINE_BYTES: usize = 4096;

/// What is left of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    left: Left,
    /// Chunked bytes so far.
    read: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// This many bytes.
    Bytes(u64),
    /// A chunk's size line, and what follows.
    Size,
    /// This many bytes of a chunk with its line end, and what follows.
    Chunk(u64),
    /// The trailer.
    Trailer,
}

/// Bytes that are no body, or too many.
#[derive(Debug)]
pub(super) struct BadBody;

impl Body {
    pub(super) const NONE: Body = Body { left: Left::Bytes(0), read: 0 };

    pub(super) fn of(length: u64) -> Body {
        Body { left: Left::Bytes(length), read: 0 }
    }

    pub(super) fn chunked() -> Body {
        Body { left: Left::Size, read: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == Left::Bytes(0)
    }

    /// Whether it is short enough, as far as is known.
    pub(super) fn is_acceptable(&self) -> bool {
        !matches!(self.left, Left::Bytes(left) if left > BODY_BYTES)
    }

    /// Reads on; returns how many bytes were taken.
    pub(super) fn discard(&mut self, input: &[u8]) -> Result<usize, BadBody> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            match self.left {
                Left::Bytes(left) => {
                    let length = left.min(rest.len() as u64);
                    self.left = Left::Bytes(left - length);
                    return Ok(taken + length as usize);
                }
                Left::Size => {
                    let Some(line) = line(rest)? else { return Ok(taken) };
                    taken += line.len();
                    match chunk_size(line)? {
                        0 => self.left = Left::Trailer,
                        size => {
                            self.read = self.read.saturating_add(size);
                            if self.read > BODY_BYTES {
                                return Err(BadBody);
                            }
                            self.left = Left::Chunk(size + 2);
                        }
                    }
                }
                Left::Chunk(left) => {
                    // The two last bytes are the line's end.
                    let data = (left.saturating_sub(2)).min(rest.len() as u64);
                    let end = &rest[data as usize..];
                    let end = &end[..end.len().min((left - data) as usize)];
                    let expected = if left - data == 1 { &b"\n"[..] } else { &b"\r\n"[..] };
                    if left - data <= 2 && !expected.starts_with(end) {
                        return Err(BadBody);
                    }
                    let length = data as usize + if left - data <= 2 { end.len() } else { 0 };
                    taken += length;
                    self.left = Left::Chunk(left - length as u64);
                    if left != length as u64 {
                        return Ok(taken);
                    }
                    self.left = Left::Size;
                }
                Left::Trailer => {
                    let Some(line) = line(rest)? else { return Ok(taken) };
                    taken += line.len();
                    self.read += line.len() as u64;
                    if self.read > BODY_BYTES {
                        return Err(BadBody);
                    }
                    if trailer_is_over(line)? {
                        self.left = Left::Bytes(0);
                        return Ok(taken);
                    }
                }
            }
        }
    }
}

/// The line at the beginning of `bytes`, with its end; `None` where it has not come whole.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, BadBody> {
    let seen = &bytes[..bytes.len().min(LINE_BYTES)];
    match seen.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(&bytes[..=end])),
        None if bytes.len() < LINE_BYTES => Ok(None),
        None => Err(BadBody),
    }
}

/// The size in a chunk's first line (RFC 9112, section 7.1): digits, then extensions, which are
/// ignored.
fn chunk_size(line: &[u8]) -> Result<u64, BadBody> {
    let line = line.strip_suffix(b"\r\n").ok_or(BadBody)?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extensions) = line.split_at(digits);
    let extensions = extensions.trim_ascii_start();
    // More digits than a number has; what follows without a semicolon; what no line of text holds.
    if !(1..=16).contains(&digits)
        || !(extensions.is_empty() || extensions[0] == b';')
        || line.iter().any(|byte| is_control(*byte))
    {
        return Err(BadBody);
    }
    let size = std::str::from_utf8(size).map_err(|_| BadBody)?;
    u64::from_str_radix(size, 16).map_err(|_| BadBody)
}

/// Whether a line of the trailer is its end; if not, it is a field (RFC 9112, section 7.1.2), which
/// is ignored.
fn trailer_is_over(line: &[u8]) -> Result<bool, BadBody> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Ok(true);
    }
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let is_field = name.len() < line.len() && is_token(name) && !line.iter().any(|byte| is_control(*byte));
    if is_field { Ok(false) } else { Err(BadBody) }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads past the body at the beginning of `bytes`, handed in with a cut; returns its length,
    /// or `None` where it is none.
    fn length(bytes: &[u8], cut: usize) -> Option<usize> {
        let mut body = Body::chunked();
        let taken = body.discard(&bytes[..cut]).ok()?;
        if body.is_over() {
            return Some(taken);
        }
        let more = body.discard(&bytes[taken..]).ok()?;
        body.is_over().then_some(taken + more)
    }

    #[test]
    fn a_chunked_body_ends_where_it_ends_wherever_it_is_cut() {
        for (bytes, end) in [
            (&b"0\r\n\r\nGET"[..], 5),
            (b"5\r\nhello\r\n0\r\n\r\nGET", 15),
            (b"5 ; a=\"b\"\r\nhello\r\n00\r\nX:\r\n\r\nGET", 28),
            (b"A;name=value\r\n0123456789\r\n3\r\nabc\r\n0\r\nTrailer: x\r\n\r\nGET", 51),
        ] {
            for cut in 0..=bytes.len() {
                assert_eq!(length(bytes, cut), Some(end), "{} cut at {cut}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn what_is_no_chunked_body_is_refused_wherever_it_is_cut() {
        for bytes in [
            &b"x\r\n"[..],
            b"5\r\nhelloX\n0\r\n\r\n",
            b"5\r\nhello\rX0\r\n\r\n",
            b"-1\r\n",
            b"FFFFFFFFFFFFFFFFF\r\n",
            b"200000\r\n",
            b"\r\n\r\n",
            b";x\r\n\r\n",
            b"  \r\n\r\n",
            b"0\n\r\n",
            b"5 x\r\nhello\r\n0\r\n\r\n",
            b"5;\x01\r\nhello\r\n0\r\n\r\n",
            b"00000000000000005\r\nhello\r\n0\r\n\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\n: no name\r\n\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\nX: \x00\r\n\r\n",
            b"0\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            for cut in 0..=bytes.len() {
                assert_eq!(length(bytes, cut), None, "{} cut at {cut}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn a_body_of_the_most_bytes_is_taken_and_one_more_is_not() {
        assert!(Body::of(BODY_BYTES).is_acceptable());
        assert!(!Body::of(BODY_BYTES + 1).is_acceptable());
    }

    #[test]
    fn a_line_is_too_long_alike_wherever_it_is_cut() {
        for (before, after) in [("1;", "\r\nx\r\n0\r\n\r\n"), ("0\r\nX: ", "\r\n\r\n")] {
            let line = before.rsplit('\n').next().expect("a line").len() + 2;
            for (long, refused) in [(LINE_BYTES, false), (LINE_BYTES + 1, true)] {
                let bytes = [before, &"y".repeat(long - line), after].concat();
                for cut in 0..=bytes.len() {
                    assert_eq!(length(bytes.as_bytes(), cut).is_none(), refused, "{before:?} of {long}, cut at {cut}");
                }
            }
        }
    }
}
