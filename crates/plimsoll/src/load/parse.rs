//! Words on the command line that are more than a number: think times, rates, CPUs, addresses.

use std::net::IpAddr;
use std::time::Duration;

use plimsoll_measure::arrivals::{Rate, Think};
use plimsoll_measure::units;

#[derive(Clone, Debug)]
pub(super) struct CpuList(pub(super) Vec<usize>);

pub(super) fn cpus(text: &str) -> Result<CpuList, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < 4096 => all.extend(first..=last),
            _ => {
                return Err(format!(
                    "'{part}' is not a CPU or a range of them; write numbers and ranges such as 0,2-3"
                ));
            }
        }
    }
    Ok(CpuList(all))
}

pub(super) fn think(text: &str) -> Result<Think, units::UnitError> {
    match text.strip_prefix("exp:") {
        Some(mean) => Ok(Think::Exponential(units::seconds(mean)?)),
        None => Ok(match units::seconds(text)? {
            Duration::ZERO => Think::None,
            pause => Think::Fixed(pause),
        }),
    }
}

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let (from, to) = text.split_once(':').unwrap_or((text, text));
    let read = |text| units::rate(text).map_err(|error| error.to_string());
    let rate = Rate { from: read(from)?, to: read(to)?, ..Rate::constant(0.0) };
    // A thousand million a second is beyond every machine, and keeps instants apart in nanoseconds.
    if rate.from.max(rate.to) > 1e9 || rate.mean() <= 0.0 {
        return Err(format!(
            "'{text}' asks for nothing, or for too much; give a rate such as 10k, or two such as 1k:20k"
        ));
    }
    Ok(rate)
}

/// More addresses than this out of one range would never be reached: each carries some 14,000
/// connections.
const MOST_SOURCES: u128 = 8192;

/// The addresses of a CIDR range, without network and broadcast address where it has them, or the
/// one address.
pub(super) fn addresses(text: &str) -> Option<Vec<IpAddr>> {
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

    #[test]
    fn think_time_is_none_fixed_or_drawn() {
        assert_eq!(think("0"), Ok(Think::None));
        assert_eq!(think("2"), Ok(Think::Fixed(Duration::from_secs(2))));
        assert_eq!(think("5ms"), Ok(Think::Fixed(Duration::from_millis(5))));
        assert_eq!(think("exp:5ms"), Ok(Think::Exponential(Duration::from_millis(5))));
        assert!(think("exp:").is_err());
    }
}
