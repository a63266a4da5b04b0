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

/// In the order of RFC 9110, section 13.2.2.
pub(super) fn evaluate(request: &Request<'_>, stamp: &Validators) -> Verdict {
    let if_match = (!request.if_match.is_empty()).then_some(&request.if_match);
    let failed = match (if_match, request.if_unmodified_since.and_then(date)) {
        (Some(lists), _) => !lists.iter().any(|list| stamp.is_listed(list, false)),
        (None, Some(date)) => stamp.modified() > date,
        (None, None) => false,
    };
    if failed {
        return Verdict::Failed;
    }
    let if_none_match = (!request.if_none_match.is_empty()).then_some(&request.if_none_match);
    let unmodified = match (if_none_match, request.if_modified_since.and_then(date)) {
        (Some(lists), _) => lists.iter().any(|list| stamp.is_listed(list, true)),
        (None, Some(date)) => stamp.modified() <= date,
        (None, None) => false,
    };
    if unmodified { Verdict::NotModified } else { Verdict::Send }
}

/// Whether a range may be sent: not if it was asked for on the condition of another state
/// (`If-Range`).
pub(super) fn range_applies(request: &Request<'_>, stamp: &Validators) -> bool {
    match request.if_range {
        None => true,
        Some(tag) if tag.starts_with(b"\"") || tag.starts_with(b"W/") => tag == stamp.tag(),
        Some(text) => date(text) == Some(stamp.modified()),
    }
}

fn date(text: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()
}
