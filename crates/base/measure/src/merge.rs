//! Several generators' records of one load become one, losslessly: counts and histogram buckets are added, percentiles are never averaged.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::summary::{
    ESTABLISHMENT, POOL_WAIT, RESPONSE, SCHEDULE_LAG, SCHEMA_VERSION, SERVICE, Summary, TRANSMISSION, WARM_UP, Warning,
};
use crate::times::{DecodeError, Times, TimesSummary};

/// Records that cannot be made one.
#[derive(Debug, Error)]
pub enum MergeError {
    /// There is none.
    #[error("no record to merge; name at least one")]
    Nothing,
    /// One is of another form.
    #[error(
        "record {number} has schema version {version}, and this program knows {SCHEMA_VERSION}; merge it with the version that wrote it"
    )]
    Version {
        /// Its place among the records, from 1.
        number: usize,
        /// Its version.
        version: u32,
    },
    /// A histogram is missing or damaged.
    #[error("record {number}, {name}: {source}")]
    Histogram {
        /// The record's place, from 1.
        number: usize,
        /// What it is of.
        name: &'static str,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// Makes one record of several. Rates are what all completed over the longest window; the generators are taken to have run at the same time.
pub fn merge(records: &[Summary]) -> Result<Summary, MergeError> {
    let Some(first) = records.first() else { return Err(MergeError::Nothing) };
    for (record, number) in records.iter().zip(1..) {
        if record.schema_version != SCHEMA_VERSION {
            return Err(MergeError::Version { number, version: record.schema_version });
        }
    }
    let mut all = Summary { schema_version: SCHEMA_VERSION, valid: true, ..Summary::default() };
    all.generator.engine.clone_from(&first.generator.engine);
    all.elapsed_s = records.iter().map(|record| record.elapsed_s).fold(0.0, f64::max);
    for (record, number) in records.iter().zip(1_usize..) {
        add_counts(&mut all, record);
        add_rates(&mut all, record);
        all.warnings.extend(
            record.warnings.iter().map(|warning| Warning {
                message: format!("generator {number}: {}", warning.message),
                ..warning.clone()
            }),
        );
    }
    let all_open = records.iter().all(|record| record.intended_rate.is_some());
    all.intended_rate = all_open.then(|| records.iter().filter_map(|record| record.intended_rate).sum());
    let requests = all.requests;
    let ended = requests.scheduled - requests.in_flight;
    let lost = requests.failed + requests.timed_out + requests.unsent;
    all.failed_ratio = if ended > 0 { lost as f64 / ended as f64 } else { 0.0 };
    let cpu_us = all.generator.cpu_cores * all.elapsed_s * 1e6;
    all.generator.cpu_us_per_request = cpu_us / requests.completed.max(1) as f64;
    add_times(&mut all, records)?;
    Ok(all)
}

fn add_counts(all: &mut Summary, record: &Summary) {
    all.valid &= record.valid;
    all.interrupted = all.interrupted.take().or_else(|| record.interrupted.clone());
    all.requests.add(&record.requests);
    all.errors.add(&record.errors);
    all.warm_up.requests.add(&record.warm_up.requests);
    all.warm_up.errors.add(&record.warm_up.errors);
    all.bytes_sent += record.bytes_sent;
    all.bytes_received += record.bytes_received;
    add_named(&mut all.status_codes, &record.status_codes);
    add_named(&mut all.statuses, &record.statuses);
    all.redirects += record.redirects;
    let (mine, theirs) = (&mut all.connections, &record.connections);
    mine.requested += theirs.requested;
    mine.established += theirs.established;
    // Each generator's peak is its own; that they came at one instant is likely, and no record can say.
    mine.peak += theirs.peak;
    mine.failed += theirs.failed;
    mine.reopened += theirs.reopened;
    mine.bytes_each = mine.bytes_each.max(theirs.bytes_each);
    all.generator.threads += record.generator.threads;
    all.generator.tables += record.generator.tables;
    all.generator.memory_bytes += record.generator.memory_bytes;
}

fn add_named(all: &mut BTreeMap<String, u64>, record: &BTreeMap<String, u64>) {
    for (name, count) in record {
        *all.entry(name.clone()).or_insert(0) += count;
    }
}

fn add_rates(all: &mut Summary, record: &Summary) {
    // A share of the longest window: 1 where all windows are alike.
    let share = if all.elapsed_s > 0.0 { record.elapsed_s / all.elapsed_s } else { 0.0 };
    all.offered_rate += record.offered_rate * share;
    all.completed_rate += record.completed_rate * share;
    all.goodput_bits_per_s += record.goodput_bits_per_s * share;
    all.generator.cpu_cores += record.generator.cpu_cores * share;
    all.generator.run_queue_wait_ratio = all.generator.run_queue_wait_ratio.max(record.generator.run_queue_wait_ratio);
    all.generator.busiest_thread_cpu_cores =
        all.generator.busiest_thread_cpu_cores.max(record.generator.busiest_thread_cpu_cores);
}

fn add_times(all: &mut Summary, records: &[Summary]) -> Result<(), MergeError> {
    let response = sum(records, RESPONSE, |record| record.response_time_us)?;
    let service = sum(records, SERVICE, |record| record.service_time_us)?;
    let pool_wait = sum(records, POOL_WAIT, |record| record.pool_wait_us)?;
    let schedule_lag = sum(records, SCHEDULE_LAG, |record| record.schedule_lag_us)?;
    let transmission = sum(records, TRANSMISSION, |record| record.transmission_time_us.unwrap_or_default())?;
    let establishment = sum(records, ESTABLISHMENT, |record| record.establishment_time_us)?;
    let warm_up = sum(records, WARM_UP, |record| record.warm_up.response_time_us)?;
    let unanswered = records.iter().filter_map(|record| record.response_time_us.unanswered).sum();
    all.response_time_us = TimesSummary { unanswered: Some(unanswered), ..response.summary() };
    all.service_time_us = service.summary();
    all.pool_wait_us = pool_wait.summary();
    all.schedule_lag_us = schedule_lag.summary();
    all.transmission_time_us = (transmission.count() > 0).then(|| transmission.summary());
    all.establishment_time_us = establishment.summary();
    all.warm_up.response_time_us = warm_up.summary();
    let named = [
        (RESPONSE, response),
        (SERVICE, service),
        (POOL_WAIT, pool_wait),
        (SCHEDULE_LAG, schedule_lag),
        (TRANSMISSION, transmission),
        (ESTABLISHMENT, establishment),
        (WARM_UP, warm_up),
    ];
    let kept = named.into_iter().filter(|(name, times)| times.count() > 0 || [RESPONSE, SERVICE].contains(name));
    all.histograms = kept.map(|(name, times)| (name.to_owned(), times.encode())).collect::<BTreeMap<_, _>>();
    Ok(())
}

fn sum(records: &[Summary], name: &'static str, summary: fn(&Summary) -> TimesSummary) -> Result<Times, MergeError> {
    let mut all = Times::default();
    for (record, number) in records.iter().zip(1..) {
        let told = summary(record);
        if told.count == 0 {
            continue;
        }
        let encoded = record.histograms.get(name).map_or("", String::as_str);
        let times = Times::decode(encoded, &told).map_err(|source| MergeError::Histogram { number, name, source })?;
        all.add(&times);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Connections, Tally};
    use proptest::prelude::*;
    use std::time::Duration;

    const WINDOW: Duration = Duration::from_secs(10);

    fn tally(responses: &[u64], failed: u64) -> Tally {
        let mut tally = Tally::default();
        for nanoseconds in responses {
            tally.response.record_ns(*nanoseconds);
        }
        tally.requests.completed = responses.len() as u64;
        tally.requests.failed = failed;
        tally.requests.scheduled = tally.requests.completed + failed;
        tally.sent = tally.requests.scheduled;
        tally.payload_bytes = 64 * tally.requests.completed;
        responses.iter().for_each(|_| tally.statuses.count(302));
        (0..failed).for_each(|_| tally.statuses.count(404));
        tally
    }

    fn record(tally: &Tally) -> Summary {
        Summary::of(tally, &Tally::default(), &Connections::default(), WINDOW)
    }

    #[test]
    fn nothing_is_no_record() {
        assert!(matches!(merge(&[]), Err(MergeError::Nothing)));
    }

    #[test]
    fn a_record_of_another_version_or_without_its_histogram_is_refused() {
        let other = Summary { schema_version: 7, ..Summary::default() };
        assert!(matches!(merge(&[other]), Err(MergeError::Version { number: 1, version: 7 })));
        let mut bare = record(&tally(&[5_000], 0));
        bare.histograms.clear();
        assert!(matches!(merge(&[bare]), Err(MergeError::Histogram { number: 1, name: RESPONSE, .. })));
    }

    #[test]
    fn one_doubtful_generator_makes_the_whole_doubtful() {
        let mut doubtful = record(&tally(&[5_000], 0));
        doubtful.valid = false;
        assert!(!merge(&[record(&tally(&[5_000], 0)), doubtful]).expect("they merge").valid);
    }

    proptest! {
        // As in `times`: a case makes many histograms.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_whole_is_what_one_generator_would_have_counted(
            parts in prop::collection::vec((prop::collection::vec(0_u64..1 << 36, 0..50), 0_u64..5), 1..5),
        ) {
            let mut whole = Tally::default();
            let mut records = Vec::new();
            for (responses, failed) in &parts {
                let tally = tally(responses, *failed);
                records.push(record(&tally));
                whole.add(&tally);
            }
            let (merged, whole) = (merge(&records).expect("they merge"), record(&whole));
            prop_assert_eq!(&merged.histograms, &whole.histograms);
            prop_assert_eq!(merged.requests, whole.requests);
            prop_assert_eq!((&merged.statuses, &merged.status_codes), (&whole.statuses, &whole.status_codes));
            prop_assert_eq!(merged.redirects, whole.redirects);
            prop_assert!((merged.completed_rate - whole.completed_rate).abs() < 1e-6);
            prop_assert!((merged.goodput_bits_per_s - whole.goodput_bits_per_s).abs() < 1e-3);
            prop_assert_eq!(merged.failed_ratio, whole.failed_ratio);
            let (a, b) = (merged.response_time_us, whole.response_time_us);
            prop_assert_eq!((a.count, a.min, a.max, a.p50, a.p99_99), (b.count, b.min, b.max, b.p50, b.p99_99));
            prop_assert!((a.mean - b.mean).abs() <= 1e-9 * b.mean.abs() + 1e-9);
        }
    }
}
