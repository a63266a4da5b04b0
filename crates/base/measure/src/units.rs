//! Quantities as people write them: `250ms`, `64KB`, `10k`, `0.1%`. One grammar for flags, limits
//! and suites.

use std::time::Duration;

use thiserror::Error;

/// A quantity that could not be read: what it is, and how to write one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not {wanted}")]
pub struct UnitError {
    text: String,
    wanted: &'static str,
}

const DURATION: &str = "a duration: write a number and one of us, ms, s, m, h, such as 250ms";
const SIZE: &str = "a size: write a whole number of B, KB, MB, GB, KiB, MiB or GiB, such as 4KiB";
const COUNT: &str = "a count: write a whole number, with k or M for thousands or millions";
const RATE: &str = "a rate: write a number a second, with k or M for thousands or millions";
const BIT_RATE: &str =
    "a bit rate: write a number of bit, kbit, Mbit or Gbit a second, more than none, such as 100Mbit";
const RATIO: &str = "a ratio: write a percentage such as 0.1%";

/// The units of a duration and their length in nanoseconds, smallest first.
const DURATIONS: [(&str, f64); 5] = [("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
const SIZES: [(&str, f64); 8] = [
    ("", 1.0),
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
];
const COUNTS: [(&str, f64); 3] = [("", 1.0), ("k", 1e3), ("M", 1e6)];

const BIT_RATES: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];

/// `250ms`, `1.5s`, `2m`; a bare `0` needs no unit.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let nanoseconds = quantity(text, &DURATIONS, DURATION)?;
    // A century: beyond it sums of durations and instants would need checks everywhere.
    if nanoseconds > 3.2e18 {
        return Err(UnitError { text: text.to_owned(), wanted: DURATION });
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// As [`duration`]; a bare number is seconds, as the flags of other tools have it.
pub fn seconds(text: &str) -> Result<Duration, UnitError> {
    if text.trim().ends_with(|last: char| last.is_ascii_digit()) {
        // The error names what was written.
        return duration(&format!("{text}s")).map_err(|error| UnitError { text: text.to_owned(), ..error });
    }
    duration(text)
}

/// Bytes in `64B`, `4KB` (thousands), `1MiB` (powers of 1024) or a bare whole number.
pub fn size(text: &str) -> Result<u64, UnitError> {
    whole(text, &SIZES, SIZE)
}

/// The number in `10k`, `1M`, `2500`.
pub fn count(text: &str) -> Result<u64, UnitError> {
    whole(text, &COUNTS, COUNT)
}

/// Events a second in `10k`, `0.5`.
pub fn rate(text: &str) -> Result<f64, UnitError> {
    quantity(text, &COUNTS, RATE)
}

/// Bits a second in `100Mbit`, `1.5Gbit`, as tc(8) writes them; never 0.
pub fn bit_rate(text: &str) -> Result<u64, UnitError> {
    whole(text, &BIT_RATES, BIT_RATE).and_then(|rate| match rate {
        0 => Err(UnitError { text: text.to_owned(), wanted: BIT_RATE }),
        rate => Ok(rate),
    })
}

/// The fraction in `0.1%`, or in a bare `0.001`. A bare number above 1 is refused, as `5` was
/// meant to be `5%`.
pub fn ratio(text: &str) -> Result<f64, UnitError> {
    let error = || UnitError { text: text.to_owned(), wanted: RATIO };
    let number = quantity(text, &[("", 1.0), ("%", 1.0)], RATIO)?;
    if text.trim_end().ends_with('%') {
        // As a decimal: 0.7 % is 7 of 1,000, and 0.7 * 0.01 is less.
        return format!("{number}e-2").parse().map_err(|_| error());
    }
    if number > 1.0 { Err(error()) } else { Ok(number) }
}

/// A duration as a person would write it: the largest unit that leaves at least 1, three digits.
pub fn write_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos() as f64;
    if nanoseconds == 0.0 {
        return "0".to_owned();
    }
    let (unit, length) = DURATIONS.into_iter().rev().find(|(_, length)| nanoseconds >= *length).unwrap_or(DURATIONS[0]);
    format!("{}{unit}", three_digits(nanoseconds / length))
}

/// A number with three significant digits and without needless zeros: `1.5`, `23.4`, `12345`.
pub fn three_digits(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn whole(text: &str, units: &[(&str, f64)], wanted: &'static str) -> Result<u64, UnitError> {
    let number = quantity(text, units, wanted)?;
    // A decimal such as the 1.001 of `1.001k` is no float, nor is what it comes to exactly whole.
    let whole = number.round();
    // Below 2^53 every whole number is exact in a float.
    if (number - whole).abs() > whole * 4.0 * f64::EPSILON || whole > 9e15 {
        return Err(UnitError { text: text.to_owned(), wanted });
    }
    Ok(whole as u64)
}

fn quantity(text: &str, units: &[(&str, f64)], wanted: &'static str) -> Result<f64, UnitError> {
    let error = || UnitError { text: text.to_owned(), wanted };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    // `parse` would also take ".5" and "5.", which a typing slip makes more often than intent.
    if !number.starts_with(|c: char| c.is_ascii_digit()) || !number.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(error());
    }
    let number: f64 = number.parse().map_err(|_| error())?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(error)?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_written_with_three_digits() {
        for (number, text) in [
            (0.0, "0"),
            (0.0625, "0.062"),
            (0.25, "0.25"),
            (0.9994, "0.999"),
            (1.0, "1"),
            (1.256, "1.26"),
            (9.876, "9.88"),
            (10.0, "10"),
            (12.34, "12.3"),
            (-12.34, "-12.3"),
            (100.4, "100"),
            (12345.6, "12346"),
        ] {
            assert_eq!(three_digits(number), text, "{number}");
        }
        let written = |nanoseconds| write_duration(Duration::from_nanos(nanoseconds));
        assert_eq!([0, 10, 1_000, 999_000, 1_000_000].map(written), ["0", "0.01us", "1us", "999us", "1ms"]);
        assert_eq!([59_900_000_000, 60_000_000_000, 7_200_000_000_000].map(written), ["59.9s", "1m", "2h"]);
    }

    #[test]
    fn the_largest_values_are_read_and_larger_ones_refused() {
        assert_eq!(duration("888888h").expect("a century"), Duration::from_secs(888_888 * 3600));
        assert!(duration("888889h").is_err());
        assert_eq!(size("3GiB").expect("a size"), 3 << 30);
    }

    #[test]
    fn each_unit_means_what_it_says() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("7us", 7_000),
            ("1.5ms", 1_500_000),
            ("2 s", 2_000_000_000),
            ("1m", 60_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for (text, bytes) in [("64", 64), ("64B", 64), ("4KB", 4000), ("4KiB", 4096), ("1MiB", 1 << 20), ("0", 0)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for (text, number) in [("7", 7), ("10k", 10_000), ("1.5M", 1_500_000)] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for (text, bits) in [("1.005Mbit", 1_005_000), ("1.5Gbit", 1_500_000_000), ("8 kbit", 8000), ("1bit", 1)] {
            assert_eq!(bit_rate(text), Ok(bits), "{text}");
        }
        for (text, milliseconds) in
            [("10", 10_000), ("0.5", 500), (" 3 ", 3000), ("0", 0), ("10ms", 10), ("1m", 60_000)]
        {
            assert_eq!(seconds(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(ratio("0.5%"), Ok(0.005));
        assert_eq!(ratio("1"), Ok(1.0));
        assert_eq!(ratio("150%"), Ok(1.5));
        assert!(ratio("5").is_err(), "5 was meant to be 5%, and would be 500%");
        assert_eq!(rate("0.5"), Ok(0.5));
    }

    #[test]
    fn a_percentage_is_the_ratio_of_whole_numbers_that_it_names() {
        for tenths in 0..=1000_u32 {
            let text = format!("{}.{}%", tenths / 10, tenths % 10);
            assert_eq!(ratio(&text).expect(&text), f64::from(tenths) / 1000.0, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_the_way_to_write_one() {
        for text in ["", "s", "5", "-1s", ".5s", "5.s", "1..2s", "1e9s", "5 days", "5S", "9999999999999h"] {
            let error = duration(text).expect_err(text);
            assert!(error.to_string().contains("such as 250ms"), "{error}");
        }
        for text in ["", "-1", ".5", "5.", "1..2", "1e9", "10 x"] {
            let error = seconds(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("'{text}' ")) && error.contains("such as 250ms"), "{error}");
        }
        for text in ["1.5", "1.0001k", "9000.0000001M", "10K", "1G", "x", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text}");
        }
        for text in ["0Mbit", "100", "100mbit", "100Mbps", "1.5bit"] {
            assert!(bit_rate(text).is_err(), "{text}");
        }
        for text in ["1.5B", "4kb", "1TB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back_within_its_digits(nanoseconds in 1_000_u64..1 << 50) {
            let original = Duration::from_nanos(nanoseconds);
            let read = duration(&write_duration(original)).expect("it was just written");
            prop_assert!((read.as_secs_f64() / original.as_secs_f64() - 1.0).abs() < 0.006);
        }

        #[test]
        fn a_whole_number_is_one_however_many_of_its_digits_are_behind_the_point(number in 0_u64..1 << 50) {
            let (thousands, rest) = (number / 1000, number % 1000);
            prop_assert_eq!(count(&format!("{thousands}.{rest:03}k")), Ok(number));
            prop_assert_eq!(size(&format!("{thousands}.{rest:03}KB")), Ok(number));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (duration(&text), seconds(&text), size(&text), count(&text));
            let _ = (rate(&text), bit_rate(&text), ratio(&text));
        }
    }
}
