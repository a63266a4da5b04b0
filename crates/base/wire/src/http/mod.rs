//! HTTP/1.0 and HTTP/1.1 (RFC 9110, RFC 9112).

pub mod head;
pub mod response;

/// A longer head is refused, and so is a longer trailer line: Chromium's limit (net/http,
/// `kMaxHeaderBufSize`).
const MOST_HEAD_BYTES: usize = 256 * 1024;
