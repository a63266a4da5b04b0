//! Response times as a chart of characters: how many requests took how long, and how many took no
//! longer. 80 columns, the same on a terminal and in a pipe.

use std::time::Duration;

use plimsoll_measure::times::Times;
use plimsoll_measure::units::write_duration;

/// Most lines of a chart. The upper ends of their times have one ratio to each other, so that fast
/// answers and a long tail are both seen.
pub(super) const LINES: usize = 12;
/// Upper ends of two lines differ by at least 5 %: they are written with three digits.
const LEAST_STEP: f64 = 0.05;
/// Characters of the longest bar: with the columns before it a line has 80.
const BAR: usize = 38;

/// The chart, its header first.
pub(super) fn chart(times: &Times) -> Vec<String> {
    let header = format!("{:<15}{:>12}{:>13}", "response time", "requests", "cumulative");
    let (least, most) = (times.quantile_ns(0.0).max(1), times.quantile_ns(1.0).max(1));
    let ratio = most as f64 / least as f64;
    let lines = ((ratio.ln() / LEAST_STEP) as usize).clamp(1, LINES);
    let upper_end = |line: usize| (least as f64 * ratio.powf(line as f64 / lines as f64)) as u64;
    let ends = (1..lines).map(upper_end).chain([most]);
    // The number of requests up to each end, and from the end before to it.
    let cumulative: Vec<(u64, u64)> = ends.map(|end| (end, times.count_up_to(end))).collect();
    let counts = cumulative.iter().scan(0, |before, (_, up_to)| Some(up_to - std::mem::replace(before, *up_to)));
    let counts: Vec<u64> = counts.collect();
    let largest = counts.iter().copied().max().unwrap_or_default().max(1);
    let lines = cumulative.iter().zip(&counts).map(|((end, up_to), count)| {
        let percent = 100.0 * *up_to as f64 / times.count().max(1) as f64;
        // A line that has requests has a bar, however short.
        let bar = "#".repeat((u128::from(*count) * BAR as u128).div_ceil(largest.into()) as usize);
        let end = write_duration(Duration::from_nanos(*end));
        format!("  up to {end:<7}{count:>12}{percent:>11.3} %  {bar}").trim_end().to_owned()
    });
    std::iter::once(header).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nanoseconds: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::default();
        nanoseconds.into_iter().for_each(|value| times.record_ns(value));
        times
    }

    #[test]
    fn each_request_is_in_one_line_and_the_last_line_has_them_all_behind_it() {
        let all = times((1..=4096).map(|number| number * 1_000));
        let lines = chart(&all);
        assert_eq!(lines.len(), LINES + 1);
        let cell = |line: &str, place: usize| line.split_whitespace().nth(place).expect("a cell").to_owned();
        let counts: Vec<u64> = lines[1..].iter().map(|line| cell(line, 3).parse().expect("a count")).collect();
        assert_eq!(counts.iter().sum::<u64>(), 4096);
        // Twelve doublings of evenly spread times: each line has about twice as many as the one
        // before, as far as whole numbers allow.
        assert!(counts.windows(2).skip(4).all(|pair| (1.5..2.6).contains(&(pair[1] as f64 / pair[0] as f64))));
        assert_eq!((cell(&lines[LINES], 2), cell(&lines[LINES], 4)), ("4.1ms".to_owned(), "100.000".to_owned()));
        assert_eq!(lines[LINES].matches('#').count(), BAR);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(lines[1..].iter().all(|line| line.contains('#')), "a line with requests has a bar");
    }

    #[test]
    fn a_line_has_80_columns_at_most_whatever_the_times() {
        assert_eq!(chart(&times([1_000_000, 1_030_000])).len(), 2, "all times are alike");
        for values in [vec![1], vec![0], vec![7; 100], vec![1, 1 << 60], vec![123_456_789; 3]] {
            let count = values.len() as u64;
            let lines = chart(&times(values));
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
            assert!(lines.last().is_some_and(|line| line.contains("100.000 %")), "{count}: {lines:#?}");
        }
    }
}
