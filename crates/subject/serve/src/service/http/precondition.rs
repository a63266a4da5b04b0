//! Preconditions (RFC 9110, section 13): whether a file is sent at all, and whether a part of it
//! may be.

use std::time::SystemTime;

use super::request::Request;
use super::stamp::Validators;

/// What the preconditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    NotModified,
    Failed,
}

/// In the order of RFC 9110, section 13.2.2. What is no file has no validators: it is there (`*`),
/// has none of the tags, and conditions on its date are ignored.
pub(super) fn evaluate(request: &Request<'_>, stamp: Option<&Validators>) -> Verdict {
    let is_listed =
        |list: &[u8], weak_counts| list == b"*" || stamp.is_some_and(|stamp| stamp.is_listed(list, weak_counts));
    let modified = stamp.map(Validators::modified);
    let if_match = (!request.if_match.is_empty()).then_some(&request.if_match);
    let failed = match (if_match, request.if_unmodified_since.and_then(date).zip(modified)) {
        (Some(lists), _) => !lists.iter().any(|list| is_listed(list, false)),
        (None, Some((date, modified))) => modified > date,
        (None, None) => false,
    };
    if failed {
        return Verdict::Failed;
    }
    let if_none_match = (!request.if_none_match.is_empty()).then_some(&request.if_none_match);
    let unmodified = match (if_none_match, request.if_modified_since.and_then(date).zip(modified)) {
        (Some(lists), _) => lists.iter().any(|list| is_listed(list, true)),
        (None, Some((date, modified))) => modified <= date,
        (None, None) => false,
    };
    if unmodified { Verdict::NotModified } else { Verdict::Send }
}

/// Whether a range may be sent: not if it was asked for on the condition of another state
/// (`If-Range`).
pub(super) fn range_applies(request: &Request<'_>, stamp: Option<&Validators>) -> bool {
    match (request.if_range, stamp) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(tag), Some(stamp)) if tag.starts_with(b"\"") || tag.starts_with(b"W/") => tag == stamp.tag(),
        (Some(text), Some(stamp)) => date(text) == Some(stamp.modified()),
    }
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}
