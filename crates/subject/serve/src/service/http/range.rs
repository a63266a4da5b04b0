//! The part of a body that is asked for (RFC 9110, section 14).

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// From the first to the last of these bytes.
    Part(u64, u64),
    /// A part that there is not.
    Nothing,
}

/// Reads a `Range`. A range that is malformed, has another unit than bytes, or several parts, is
/// ignored: a server may always send the whole.
pub(super) fn read(range: &[u8], total: u64) -> Wanted {
    let parts = std::str::from_utf8(range).ok().and_then(|text| {
        let (unit, parts) = text.split_once('=')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some(parts.trim())?.split_once('-')
    });
    match parts.map(|(first, last)| (number(first), number(last))) {
        Some((Some(first), Some(last))) if first > last => Wanted::Whole,
        Some((Some(first), _)) if first >= total && parts.is_some_and(|(_, last)| last_is_valid(last)) => {
            Wanted::Nothing
        }
        Some((Some(first), Some(last))) => Wanted::Part(first, last.min(total - 1)),
        Some((Some(first), None)) if parts.is_some_and(|(_, last)| last.is_empty()) => Wanted::Part(first, total - 1),
        Some((None, Some(0))) if parts.is_some_and(|(first, _)| first.is_empty()) => Wanted::Nothing,
        Some((None, Some(_))) if total == 0 => Wanted::Whole,
        Some((None, Some(suffix))) if parts.is_some_and(|(first, _)| first.is_empty()) => {
            Wanted::Part(total.saturating_sub(suffix), total - 1)
        }
        _ => Wanted::Whole,
    }
}

fn last_is_valid(text: &str) -> bool {
    text.is_empty() || number(text).is_some()
}

/// Digits only; more than there can be bytes is as much as there can be.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_range_means_what_the_rfc_says() {
        for (range, total, wanted) in [
            ("bytes=0-0", 10, Wanted::Part(0, 0)),
            ("bytes=2-5", 10, Wanted::Part(2, 5)),
            ("Bytes=2-", 10, Wanted::Part(2, 9)),
            ("bytes=2-99999999999999999999", 10, Wanted::Part(2, 9)),
            ("bytes=-3", 10, Wanted::Part(7, 9)),
            ("bytes=-30", 10, Wanted::Part(0, 9)),
            ("bytes=-0", 10, Wanted::Nothing),
            ("bytes=10-", 10, Wanted::Nothing),
            ("bytes=10-12", 10, Wanted::Nothing),
            ("bytes=0-", 0, Wanted::Nothing),
            ("bytes=-1", 0, Wanted::Whole),
            ("bytes=5-2", 10, Wanted::Whole),
            ("bytes=1-2,4-5", 10, Wanted::Whole),
            ("bytes=-", 10, Wanted::Whole),
            ("bytes=+1-2", 10, Wanted::Whole),
            ("bytes=20-x", 10, Wanted::Whole),
            ("lines=1-2", 10, Wanted::Whole),
            ("bytes", 10, Wanted::Whole),
        ] {
            assert_eq!(read(range.as_bytes(), total), wanted, "{range} of {total}");
        }
    }
}
