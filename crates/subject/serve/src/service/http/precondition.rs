//! Preconditions (RFC 9110, section 13): whether a file is sent at all, and whether a part of it may be.

use std::io::Write;
use std::time::{Duration, SystemTime};

use httpdate::HttpDate;

use super::request::Request;

/// What tells one state of a file from another.
pub(super) struct Stamp {
    tag: [u8; 64],
    tag_length: usize,
    modified: SystemTime,
}

/// What the preconditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    NotModified,
    Failed,
}

impl Stamp {
    pub(super) fn new(length: u64, (seconds, nanoseconds): (i64, u32)) -> Stamp {
        let mut tag = [0; 64];
        let mut rest = &mut tag[..];
        // Numbers of at most 16, 8 and 16 digits fit.
        let _ = write!(rest, "\"{seconds:x}-{nanoseconds:x}-{length:x}\"");
        let tag_length = 64 - rest.len();
        // HTTP knows no time before 1970 to speak of, and no fraction of a second.
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799).unsigned_abs());
        Stamp { tag, tag_length, modified }
    }

    pub(super) fn tag(&self) -> &[u8] {
        &self.tag[..self.tag_length]
    }

    pub(super) fn modified(&self) -> HttpDate {
        HttpDate::from(self.modified)
    }

    /// Whether one of a list of tags, or `*`, is this one's. Ours are strong; a weak one is another unless weakness does not matter.
    fn is_listed(&self, list: &[u8], weak_counts: bool) -> bool {
        list == b"*"
            || list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
                let strong = tag.strip_prefix(b"W/").filter(|_| weak_counts).unwrap_or(tag);
                strong == self.tag()
            })
    }
}

/// In the order of RFC 9110, section 13.2.2.
pub(super) fn judge(request: &Request<'_>, stamp: &Stamp) -> Verdict {
    let failed = match (request.if_match, request.if_unmodified_since.and_then(date)) {
        (Some(list), _) => !stamp.is_listed(list, false),
        (None, Some(date)) => stamp.modified > date,
        (None, None) => false,
    };
    if failed {
        return Verdict::Failed;
    }
    let unmodified = match (request.if_none_match, request.if_modified_since.and_then(date)) {
        (Some(list), _) => stamp.is_listed(list, true),
        (None, Some(date)) => stamp.modified <= date,
        (None, None) => false,
    };
    if unmodified { Verdict::NotModified } else { Verdict::Send }
}

/// Whether a range may be sent: not if it was asked for on the condition of another state (`If-Range`).
pub(super) fn range_applies(request: &Request<'_>, stamp: &Stamp) -> bool {
    match request.if_range {
        None => true,
        Some(tag) if tag.starts_with(b"\"") || tag.starts_with(b"W/") => tag == stamp.tag(),
        Some(text) => date(text) == Some(stamp.modified),
    }
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}
