//! Answers, written into the output's bytes.

use std::io::Write;

use httpdate::HttpDate;
use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::Version;
use super::stamp::Validators;
use super::status::Status;
use crate::service::{Chunk, Output};

/// What an answer says about the connection's going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// It goes on, as HTTP/1.1 takes for granted.
    Unsaid,
    /// It goes on, as an HTTP/1.0 client asked.
    KeptAlive,
    /// It ends.
    Closes,
}

/// The head of an answer while it is written.
pub(super) struct Answer<'a> {
    output: &'a mut Output,
    start: usize,
    status: Status,
}

impl<'a> Answer<'a> {
    pub(super) fn begin(
        output: &'a mut Output,
        version: Version,
        status: Status,
        date: &[u8],
        persistence: Persistence,
    ) -> Answer<'a> {
        let start = output.bytes.len();
        let version = match version {
            Version::Http10 => "HTTP/1.0 ",
            Version::Http11 => "HTTP/1.1 ",
        };
        let persistence = match persistence {
            Persistence::Unsaid => "\r\n",
            Persistence::KeptAlive => "\r\nConnection: keep-alive\r\n",
            Persistence::Closes => "\r\nConnection: close\r\n",
        };
        for part in [version, status.phrase(), "\r\nServer: plimsoll\r\nDate: "] {
            output.bytes.extend_from_slice(part.as_bytes());
        }
        output.bytes.extend_from_slice(date);
        output.bytes.extend_from_slice(persistence.as_bytes());
        Answer { output, start, status }
    }

    pub(super) fn field(self, name: &str, value: &str) -> Answer<'a> {
        let bytes = &mut self.output.bytes;
        for part in [name, ": ", value, "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        self
    }

    /// A `Location` on this host. What came as raw UTF-8 is encoded: a field holds ASCII (RFC 9110,
    /// section 5.5).
    pub(super) fn location(self, parts: &[&str]) -> Answer<'a> {
        let bytes = &mut self.output.bytes;
        bytes.extend_from_slice(b"Location: ");
        let encoded = parts.iter().flat_map(|part| utf8_percent_encode(part, CONTROLS));
        encoded.for_each(|piece| bytes.extend_from_slice(piece.as_bytes()));
        bytes.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn length(self, length: u64) -> Answer<'a> {
        let _ = write!(self.output.bytes, "Content-Length: {length}\r\n");
        self
    }

    pub(super) fn content_range(self, part: Option<(u64, u64)>, total: u64) -> Answer<'a> {
        let bytes = &mut self.output.bytes;
        let _ = match part {
            Some((first, last)) => write!(bytes, "Content-Range: bytes {first}-{last}/{total}\r\n"),
            None => write!(bytes, "Content-Range: bytes */{total}\r\n"),
        };
        self
    }

    pub(super) fn stamp(self, stamp: &Validators) -> Answer<'a> {
        let bytes = &mut self.output.bytes;
        let _ = write!(bytes, "Last-Modified: {}\r\nETag: ", HttpDate::from(stamp.modified()));
        bytes.extend_from_slice(stamp.tag());
        bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Ends the head and the answer with a sentence about the status, which a HEAD does not see.
    pub(super) fn text(self, visible: bool) {
        let (sentence, phrase) = (self.status.sentence(), self.status.phrase());
        let length = if sentence.is_empty() { phrase.len() + 1 } else { sentence.len() };
        let head = self.field("Content-Type", "text/plain; charset=utf-8").length(length as u64);
        let bytes = &mut head.output.bytes;
        bytes.extend_from_slice(b"\r\n");
        if visible && sentence.is_empty() {
            bytes.extend_from_slice(phrase.as_bytes());
            bytes.push(b'\n');
        } else if visible {
            bytes.extend_from_slice(sentence.as_bytes());
        }
        written(head.output, head.start);
    }

    /// Ends the head.
    pub(super) fn end(self) {
        self.output.bytes.extend_from_slice(b"\r\n");
        written(self.output, self.start);
    }
}

/// Has the peer send the body that it holds back (RFC 9110, section 15.2.1).
pub(super) fn go_on(output: &mut Output) {
    let start = output.bytes.len();
    output.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    written(output, start);
}

/// Writes a pattern over and over.
pub(super) fn repeat(output: &mut Output, pattern: &[u8], offset: u64, length: u64) {
    let start = output.bytes.len();
    let mut from = (offset % pattern.len() as u64) as usize;
    let end = start + length as usize;
    while output.bytes.len() < end {
        let piece = (pattern.len() - from).min(end - output.bytes.len());
        output.bytes.extend_from_slice(&pattern[from..from + piece]);
        from = 0;
    }
    written(output, start);
}

/// Has what was written since `start` sent: with what was written just before it, if nothing came
/// between.
fn written(output: &mut Output, start: usize) {
    let end = output.bytes.len();
    if let Some(Chunk::Written(range)) = output.chunks.last_mut()
        && range.end == start
    {
        range.end = end;
        return;
    }
    output.chunks.push(Chunk::Written(start..end));
}

/// What synthetic bodies consist of: lines of 64 bytes, a kilobyte times 64, so that one write
/// moves a good part.
pub(super) static PATTERN: &[u8] = &{
    let line = *b"Plimsoll: bytes from nowhere, to be counted, not to be believed\n";
    let mut pattern = [0; 64 * 1024];
    let mut position = 0;
    while position < pattern.len() {
        pattern[position] = line[position % line.len()];
        position += 1;
    }
    pattern
};
