//! Small pieces of the grammar (RFC 9110, section 5.6; RFC 3986, section 3.2).

use std::net::Ipv6Addr;

/// Whether these bytes are a token: a method, or a field's name.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !bytes.is_empty() && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

/// Whether these bytes are a host with or without a port (RFC 3986, section 3.2.2). The host may be
/// empty: a `Host` field says so of a target without an authority.
pub(super) fn is_authority(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let port = match text.strip_prefix('[') {
        Some(literal) => {
            let Some((address, rest)) = literal.split_once(']') else { return false };
            if address.parse::<Ipv6Addr>().is_err() && !is_future_address(address) {
                return false;
            }
            rest
        }
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            if !is_name(name.as_bytes()) {
                return false;
            }
            port
        }
    };
    match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    }
}

/// `reg-name`, of which an IPv4 address is one.
fn is_name(mut bytes: &[u8]) -> bool {
    while let [first, rest @ ..] = bytes {
        bytes = match (first, rest) {
            (b'%', [high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            (byte, _) if is_unreserved_or_delimiter(*byte) => rest,
            _ => return false,
        };
    }
    true
}

/// `IPvFuture`, of which there is none yet.
fn is_future_address(text: &str) -> bool {
    let Some((version, address)) = text.strip_prefix(['v', 'V']).and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_version && !address.is_empty() && address.bytes().all(|byte| byte == b':' || is_unreserved_or_delimiter(byte))
}

fn is_unreserved_or_delimiter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_the_rfc_says() {
        for host in [
            "",
            "h",
            "h:",
            "h:80",
            "127.0.0.1:8000",
            "[::1]",
            "[::1]:80",
            "a%20b",
            "[v1.x:y]",
            "a_b.example",
            "h:99999",
        ] {
            assert!(is_authority(host.as_bytes()), "{host}");
        }
        for host in
            ["a/b", "h:x", "[::1", "[::1]x", "[x]", "<script>", "a b", "a%2", "a%zz", "u@h", "h:80:80", "\u{e9}"]
        {
            assert!(!is_authority(host.as_bytes()), "{host}");
        }
    }
}
