//! `--source-ip`: the local addresses that connections come from in turn.

use std::net::IpAddr;

use anyhow::anyhow;

use crate::outcome::Usage;

/// More addresses than this out of one range would never be used: each has ports for some 14,000
/// connections.
const MOST_SOURCES: u128 = 8192;

/// The addresses of a CIDR range, without network and broadcast address where it has them, or the
/// one address.
fn addresses(text: &str) -> Option<Vec<IpAddr>> {
    let Some((address, length)) = text.split_once('/') else { return Some(vec![text.parse().ok()?]) };
    let length: u32 = length.parse().ok()?;
    let (bits, first, width) = match address.parse().ok()? {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), true, 32),
        IpAddr::V6(v6) => (v6.to_bits(), false, 128),
    };
    let host_bits = u32::checked_sub(width, length)?;
    let size = 1_u128.checked_shl(host_bits).unwrap_or(u128::MAX);
    let start = bits & !(size - 1);
    // RFC 3021: ranges of one or two IPv4 addresses have no network or broadcast address.
    let (skip, count) = if first && size > 2 { (1, size - 2) } else { (0, size) };
    let address = |bits: u128| {
        if width == 32 { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) }
    };
    Some((0..count.min(MOST_SOURCES)).map(|offset| address(start + skip + offset)).collect())
}

/// All that were given, in their order.
pub(crate) fn all(texts: &[String]) -> anyhow::Result<Vec<IpAddr>> {
    let mut all = Vec::new();
    for text in texts {
        let refused = || {
            anyhow!(Usage(format!(
                "--source-ip {text}: not an address or CIDR range; write one of this machine's, such as 192.0.2.7 or \
                 192.0.2.16/28"
            )))
        };
        all.extend(addresses(text).ok_or_else(refused)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_usable_addresses() {
        let list =
            |text: &str| -> Vec<String> { addresses(text).unwrap_or_default().iter().map(IpAddr::to_string).collect() };
        assert_eq!(list("192.0.2.7"), ["192.0.2.7"]);
        assert_eq!(list("192.0.2.17/30"), ["192.0.2.17", "192.0.2.18"]);
        assert_eq!(list("192.0.2.4/31"), ["192.0.2.4", "192.0.2.5"]);
        assert_eq!(list("2001:db8::/127"), ["2001:db8::", "2001:db8::1"]);
        assert_eq!(list("127.0.0.0/8").len(), MOST_SOURCES as usize);
        for wrong in ["", "x", "1.2.3.4/33", "1.2.3.4/x", "1.2.3/8"] {
            assert!(addresses(wrong).is_none(), "{wrong}");
        }
    }
}
