//! The validators of a file's state: ETag and Last-Modified (RFC 9110, section 8.8).

use std::io::Write;
use std::time::{Duration, SystemTime};

/// A file's tag and its time.
pub(super) struct Validators {
    tag: [u8; 64],
    tag_length: usize,
    modified: SystemTime,
}

impl Validators {
    /// Of a file of this length that was last written to at this time, now that it is `wall`.
    pub(super) fn new(length: u64, (seconds, nanoseconds): (i64, u32), wall: SystemTime) -> Validators {
        let mut tag = [0; 64];
        let mut rest = &mut tag[..];
        // Numbers of at most 16, 8 and 16 digits fit.
        let _ = write!(rest, "\"{seconds:x}-{nanoseconds:x}-{length:x}\"");
        let tag_length = 64 - rest.len();
        // HTTP dates have no fraction of a second. Times before 1970 count as 1970.
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799).unsigned_abs());
        // Nothing was modified after its answer's own date (RFC 9110, section 8.8.2.1).
        Validators { tag, tag_length, modified: modified.min(wall) }
    }

    pub(super) fn tag(&self) -> &[u8] {
        &self.tag[..self.tag_length]
    }

    /// When it was last modified, to the second.
    pub(super) fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Whether one of a list of tags is this one's. Ours are strong; a weak one is another unless
    /// weakness does not matter.
    pub(super) fn is_listed(&self, list: &[u8], weak_counts: bool) -> bool {
        list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
            let strong = tag.strip_prefix(b"W/").filter(|_| weak_counts).unwrap_or(tag);
            strong == self.tag()
        })
    }
}
