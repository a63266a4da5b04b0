//! Words on the command line that are more than a number: think times, rates, CPUs.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn think_time_is_none_fixed_or_drawn() {
        assert_eq!(think("0"), Ok(Think::None));
        assert_eq!(think("2"), Ok(Think::Fixed(Duration::from_secs(2))));
        assert_eq!(think("5ms"), Ok(Think::Fixed(Duration::from_millis(5))));
        assert_eq!(think("exp:5ms"), Ok(Think::Exponential(Duration::from_millis(5))));
        assert!(think("exp:").is_err());
    }
}
