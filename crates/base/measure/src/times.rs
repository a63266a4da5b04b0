//! A set of measured durations: a histogram for the percentiles, exact sums for mean and deviation.

use std::borrow::Cow;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Three significant digits: a percentile is within 0.1 % of the value recorded. It is what wrk2
/// and HdrHistogram's own examples use.
const DIGITS: u8 = 3;
/// Counts of a histogram of three digits for each doubling of its values; its least has as many.
const SUB_BUCKETS: usize = 2048;
const GROWS: &str = "an auto-resizing histogram takes any value";

/// Durations, recorded in nanoseconds: at 13 us one step of a histogram of whole microseconds would
/// be 7 %. Mean and standard deviation are kept exactly beside it.
///
/// A set takes no memory before its first value, and eight bytes a value until its histogram is
/// made. That grows with the largest value, so that recording allocates only while the range grows.
#[derive(Clone, Debug)]
pub struct Times {
    values: Values,
    /// Sum of the values, in microseconds.
    sum: f64,
    /// Sum of their squares.
    squares: f64,
    minimum_ns: u64,
    maximum_ns: u64,
}

/// What was recorded. Ten seconds in nanoseconds take a histogram of 200 KiB, and a generator with
/// a thread a connection has several of them each, most with few values.
#[derive(Clone, Debug)]
enum Values {
    /// One by one, while they take less memory than the least histogram.
    Few(Vec<u64>),
    Many(Box<Histogram<u64>>),
}

impl Values {
    fn record(&mut self, nanoseconds: u64, count: u64) {
        match self {
            Values::Many(histogram) => histogram.record_n(nanoseconds, count).expect(GROWS),
            Values::Few(few) if (few.len() as u64).saturating_add(count) <= SUB_BUCKETS as u64 => {
                few.extend((0..count).map(|_| nanoseconds));
            }
            Values::Few(_) => self.counts().record_n(nanoseconds, count).expect(GROWS),
        }
    }

    fn add(&mut self, other: &Values) {
        match other {
            Values::Few(few) => few.iter().for_each(|nanoseconds| self.record(*nanoseconds, 1)),
            Values::Many(histogram) => self.counts().add(&**histogram).expect(GROWS),
        }
    }

    /// Their histogram, from now on.
    fn counts(&mut self) -> &mut Histogram<u64> {
        if let Values::Few(few) = self {
            *self = Values::Many(Box::new(histogram_of(few)));
        }
        match self {
            Values::Many(histogram) => histogram,
            Values::Few(_) => unreachable!("they have just become many"),
        }
    }

    /// Their histogram, to read.
    fn histogram(&self) -> Cow<'_, Histogram<u64>> {
        match self {
            Values::Few(few) => Cow::Owned(histogram_of(few)),
            Values::Many(histogram) => Cow::Borrowed(histogram),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Values::Few(few) => few.len() as u64,
            Values::Many(histogram) => histogram.len(),
        }
    }
}

fn histogram_of(values: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new(DIGITS).expect("three digits are within HdrHistogram's 0 to 5");
    values.iter().for_each(|nanoseconds| histogram.record(*nanoseconds).expect(GROWS));
    histogram
}

impl Default for Times {
    fn default() -> Times {
        Times { values: Values::Few(Vec::new()), sum: 0.0, squares: 0.0, minimum_ns: u64::MAX, maximum_ns: 0 }
    }
}

impl Times {
    /// Adds one duration, in nanoseconds.
    pub fn record_ns(&mut self, nanoseconds: u64) {
        self.values.record(nanoseconds, 1);
        let microseconds = nanoseconds as f64 / 1000.0;
        self.sum += microseconds;
        self.squares += microseconds * microseconds;
        self.minimum_ns = self.minimum_ns.min(nanoseconds);
        self.maximum_ns = self.maximum_ns.max(nanoseconds);
    }

    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_ns(duration.as_nanos().try_into().unwrap_or(u64::MAX));
    }

    /// Adds everything that another set holds. Nothing is lost: bucket counts are added, not
    /// percentiles averaged.
    pub fn add(&mut self, other: &Times) {
        self.values.add(&other.values);
        self.sum += other.sum;
        self.squares += other.squares;
        self.minimum_ns = self.minimum_ns.min(other.minimum_ns);
        self.maximum_ns = self.maximum_ns.max(other.maximum_ns);
    }

    /// Adds those durations of another set that are not below `floor_ns`, at their bucket's value.
    /// Returns how many.
    pub fn add_from(&mut self, other: &Times, floor_ns: u64) -> u64 {
        let mut added = 0;
        for bucket in other.values.histogram().iter_recorded().filter(|bucket| bucket.value_iterated_to() >= floor_ns) {
            let (value, count) = (bucket.value_iterated_to(), bucket.count_since_last_iteration());
            // The bucket's upper end may lie above every value in it.
            let value = value.min(other.maximum_ns);
            self.values.record(value, count);
            let microseconds = value as f64 / 1000.0;
            self.sum += microseconds * count as f64;
            self.squares += microseconds * microseconds * count as f64;
            self.minimum_ns = self.minimum_ns.min(value);
            self.maximum_ns = self.maximum_ns.max(value);
            added += count;
        }
        added
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.values.count()
    }

    /// How many durations are at most this long, within the histogram's 0.1 %.
    pub fn count_up_to(&self, nanoseconds: u64) -> u64 {
        self.values.histogram().count_between(0, nanoseconds)
    }

    /// The value, in nanoseconds, that the given fraction of the durations do not exceed.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.quantile_of(&self.values.histogram(), quantile)
    }

    fn quantile_of(&self, histogram: &Histogram<u64>, quantile: f64) -> u64 {
        histogram.value_at_quantile(quantile).min(self.maximum_ns)
    }

    /// The percentiles as the format's plotters read them (.hgrm), in milliseconds as
    /// HdrHistogram's and wrk2's own output is, with as many digits as nanoseconds have.
    pub fn percentile_lines(&self) -> String {
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        let summary = self.summary();
        let histogram = self.values.histogram();
        if !histogram.is_empty() {
            let mut total = 0;
            // Five lines for each halving of the distance to 100 %, HdrHistogram's default.
            for step in histogram.iter_quantiles(5) {
                total += step.count_since_last_iteration();
                let quantile = step.quantile_iterated_to();
                let value = step.value_iterated_to().min(self.maximum_ns) as f64 / 1e6;
                text += &format!("{value:12.6} {quantile:14.12} {total:10}");
                text += &if quantile < 1.0 { format!(" {:14.2}\n", 1.0 / (1.0 - quantile)) } else { "\n".to_owned() };
            }
        }
        let buckets = histogram.buckets();
        text += &format!(
            "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n#[Max     = {:12.3}, Total count    = {:12}]\n#[Buckets \
             = {buckets:12}, SubBuckets     = {:12}]\n",
            summary.mean / 1000.0,
            summary.stdev / 1000.0,
            summary.max / 1000.0,
            summary.count,
            SUB_BUCKETS,
        );
        text
    }

    /// What is reported of the set; all zero where it is empty.
    pub fn summary(&self) -> TimesSummary {
        let count = self.count();
        if count == 0 {
            return TimesSummary::default();
        }
        let mean = self.sum / count as f64;
        let variance = if count > 1 { ((self.squares - self.sum * mean) / (count - 1) as f64).max(0.0) } else { 0.0 };
        let histogram = self.values.histogram();
        let quantile = |quantile| self.quantile_of(&histogram, quantile) as f64 / 1000.0;
        TimesSummary {
            count,
            min: self.minimum_ns as f64 / 1000.0,
            mean,
            stdev: variance.sqrt(),
            max: self.maximum_ns as f64 / 1000.0,
            p50: quantile(0.5),
            p75: quantile(0.75),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            p99_99: quantile(0.9999),
            unanswered: None,
        }
    }

    /// The histogram as HdrHistogram V2, compressed, in base64: the form (`HISTFAAA...`) that the
    /// format's libraries in any language decode.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // It names the range to which a histogram has grown, and that depends on the order of its
        // values.
        let mut histogram = histogram_of(&[]);
        histogram.add(&*self.values.histogram()).expect(GROWS);
        V2DeflateSerializer::new().serialize(&histogram, &mut bytes).expect("writing to memory does not fail");
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
    }

    /// Reads back what [`Times::encode`] and [`Times::summary`] wrote: counts from the one, the
    /// unrounded mean, deviation, minimum and maximum from the other.
    pub fn decode(encoded: &str, summary: &TimesSummary) -> Result<Times, DecodeError> {
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded)
            .map_err(|error| DecodeError(error.to_string()))?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| DecodeError(format!("{error:?}")))?;
        let mut times = Times::default();
        times.values.counts().add(&read).map_err(|error| DecodeError(error.to_string()))?;
        let count = times.count();
        if count != summary.count {
            return Err(DecodeError(format!("it holds {count} values, and the summary says {}", summary.count)));
        }
        if count > 0 {
            times.sum = summary.mean * count as f64;
            times.squares = summary.stdev.powi(2) * (count - 1) as f64 + times.sum * summary.mean;
            times.minimum_ns = (summary.min * 1000.0).round() as u64;
            times.maximum_ns = (summary.max * 1000.0).round() as u64;
        }
        Ok(times)
    }
}

/// A histogram that could not be read back.
#[derive(Debug, Error)]
#[error("not an HdrHistogram V2 in base64: {0}")]
pub struct DecodeError(String);

/// The figures reported of a set of durations, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimesSummary {
    /// How many durations.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation.
    pub stdev: f64,
    /// The longest.
    pub max: f64,
    /// The median.
    pub p50: f64,
    /// Three quarters are no longer than this.
    pub p75: f64,
    /// 90 % are no longer than this.
    pub p90: f64,
    /// 99 % are no longer than this.
    pub p99: f64,
    /// 99.9 % are no longer than this.
    pub p99_9: f64,
    /// 99.99 % are no longer than this.
    pub p99_99: f64,
    /// How many of them are ages of requests that were not answered, where such are among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
}

/// Reads one figure of a set of durations.
pub type ReadFigure = fn(&TimesSummary) -> f64;

/// The figures of a set of durations, in microseconds, by their names.
pub const TIMES_FIGURES: [(&str, ReadFigure); 10] = [
    ("min", |times| times.min),
    ("mean", |times| times.mean),
    ("stdev", |times| times.stdev),
    ("max", |times| times.max),
    ("p50", |times| times.p50),
    ("p75", |times| times.p75),
    ("p90", |times| times.p90),
    ("p99", |times| times.p99),
    ("p99_9", |times| times.p99_9),
    ("p99_99", |times| times.p99_99),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(nanoseconds: &[u64]) -> Times {
        let mut times = Times::default();
        for value in nanoseconds {
            times.record_ns(*value);
        }
        times
    }

    #[test]
    fn an_empty_set_reports_zeros() {
        assert_eq!(Times::default().summary(), TimesSummary::default());
    }

    #[test]
    fn figures_are_not_rounded_to_microseconds() {
        let summary = times(&[1_200, 1_400]).summary();
        assert!((summary.mean - 1.3).abs() < 1e-9);
        assert!((summary.stdev - 0.02_f64.sqrt()).abs() < 1e-9);
        assert_eq!((summary.min, summary.max), (1.2, 1.4));
        assert_eq!((summary.p50, summary.p99), (1.2, 1.4));
    }

    #[test]
    fn ages_of_hours_and_days_have_their_mean_and_deviation() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let ages = times(&[HOUR_NS, 2 * HOUR_NS, 72 * HOUR_NS]);
        // At their buckets' values.
        let mut added = Times::default();
        assert_eq!(added.add_from(&ages, 2), 3);
        for summary in [ages.summary(), added.summary()] {
            let hours = [summary.min, summary.mean, summary.stdev, summary.max].map(|figure| figure / 3.6e9);
            // Of 1, 2 and 72 the squares of the distances to 25 are 576, 529 and 2209.
            for (figure, expected) in hours.into_iter().zip([1.0, 25.0, 1657_f64.sqrt(), 72.0]) {
                assert!((figure - expected).abs() <= expected * 0.002, "{hours:?}");
            }
        }
    }

    #[test]
    fn durations_are_counted_up_to_a_length() {
        let times = times(&[1_000, 2_000, 2_000, 1_000_000]);
        assert_eq!([0, 1_000, 1_900, 2_000, 999_999_999].map(|length| times.count_up_to(length)), [0, 1, 1, 3, 4]);
        assert_eq!(Times::default().count_up_to(u64::MAX), 0);
    }

    #[test]
    fn percentile_lines_have_the_form_that_plotters_read() {
        let mut times = Times::default();
        for microseconds in 1..=1000 {
            times.record_ns(microseconds * 1000);
        }
        let text = times.percentile_lines();
        let line = |number: usize| text.lines().nth(number).unwrap_or_default();
        assert_eq!(line(0), "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(line(2), "    0.001000 0.000000000000          1           1.00");
        assert!(text.contains("    0.500223 0.500000000000        500           2.00"), "{text}");
        assert!(text.contains("    1.000000 1.000000000000       1000\n#[Mean    =        0.500, "), "{text}");
        assert!(Times::default().percentile_lines().contains("Total count    =            0"));
    }

    #[test]
    fn a_histogram_is_made_where_the_values_alone_would_take_more() {
        // A second and more: its histogram has 170 KiB.
        let mut few = times(&[1_000_000_000; SUB_BUCKETS]);
        assert!(matches!(&few.values, Values::Few(values) if values.capacity() == SUB_BUCKETS));
        let mut many = few.clone();
        many.record_ns(2_000_000_000);
        assert!(matches!(&many.values, Values::Many(_)));
        few.add(&times(&[2_000_000_000]));
        assert_eq!(few.encode(), many.encode());
        assert_eq!((few.summary(), few.count()), (many.summary(), SUB_BUCKETS as u64 + 1));
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        for text in ["", "AAAA", "not base64!"] {
            assert!(Times::decode(text, &TimesSummary::default()).is_err(), "{text}");
        }
        let encoded = times(&[1_000]).encode();
        assert!(Times::decode(&encoded, &TimesSummary::default()).is_err(), "its count disagrees");
    }

    #[test]
    fn the_encoded_form_begins_as_other_libraries_expect() {
        // HdrHistogram's own log files: the cookie 0x1c849314 in base64.
        assert!(times(&[5_000]).encode().starts_with("HISTF"));
    }

    #[test]
    fn only_values_at_or_above_the_floor_are_added() {
        let mut all = times(&[10_000]);
        assert_eq!(all.add_from(&times(&[5_000, 20_000, 30_000]), 20_000), 2);
        assert_eq!((all.count(), all.quantile_ns(1.0)), (3, 30_000));
    }

    proptest! {
        // Each case makes several histograms of ten thousands of counts: slow without optimisation,
        // and 64 of them are enough.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn merging_parts_equals_recording_the_whole(
            values in prop::collection::vec(0_u64..1 << 42, 0..300),
            repeats in 1_usize..20,
            cut in any::<prop::sample::Index>(),
        ) {
            let values = values.repeat(repeats);
            let whole = times(&values);
            let (left, right) = values.split_at(cut.index(values.len() + 1));
            let mut merged = times(left);
            merged.add(&times(right));
            prop_assert_eq!(merged.values.histogram(), whole.values.histogram());
            prop_assert_eq!(merged.count(), values.len() as u64);
            let (a, b) = (merged.summary(), whole.summary());
            prop_assert!((a.mean - b.mean).abs() <= 1e-9 * b.mean.abs());
            prop_assert_eq!((a.min, a.max, a.p50, a.p99), (b.min, b.max, b.p50, b.p99));
        }

        #[test]
        fn writing_and_reading_loses_nothing(
            values in prop::collection::vec(0_u64..1 << 42, 0..300), repeats in 1_usize..20,
        ) {
            let original = times(&values.repeat(repeats));
            let read = Times::decode(&original.encode(), &original.summary()).expect("it was just written");
            prop_assert_eq!(read.values.histogram(), original.values.histogram());
            let (a, b) = (read.summary(), original.summary());
            prop_assert_eq!((a.count, a.min, a.max, a.p99_9), (b.count, b.min, b.max, b.p99_9));
            prop_assert!((a.mean - b.mean).abs() <= 1e-9 * b.mean.abs());
            prop_assert!((a.stdev - b.stdev).abs() <= 1e-3 + 1e-3 * b.stdev);
        }

        #[test]
        fn a_percentile_is_within_a_thousandth(values in prop::collection::vec(1_u64..1 << 40, 1..300)) {
            let times = times(&values);
            let mut sorted: Vec<f64> = values.iter().map(|ns| *ns as f64).collect();
            sorted.sort_by(f64::total_cmp);
            for quantile in [0.5, 0.9, 0.99, 1.0] {
                let exact = sorted[((quantile * sorted.len() as f64).ceil() as usize).max(1) - 1];
                let told = times.quantile_ns(quantile) as f64;
                prop_assert!((told - exact).abs() <= exact * 0.001, "{quantile}: {told} for {exact}");
            }
        }
    }
}
