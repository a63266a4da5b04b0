//! Several generators' records of one load become one, losslessly: counts and histogram buckets are
//! added, percentiles are never averaged, and a rate is over the union of the windows.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::summary::{
    ANSWERED, BACKOFF_WAIT, ESTABLISHMENT, POOL_WAIT, RECEIVE_LAG, RESPONSE, SCHEDULE_LAG, SCHEMA_VERSION, SERVICE,
    Summary, TRANSMISSION, TimeSets, UNANSWERED, WARM_UP, Warning, Window,
};
use crate::times::{DecodeError, Times, TimesSummary};

/// Windows that have less than this share of their union in common are worth a warning: a rate over
/// the union is then of a load that changed.
const COMMON_SHARE: f64 = 0.9;

/// Records that cannot be merged.
#[derive(Debug, Error)]
pub enum MergeError {
    /// There is none.
    #[error("no record to merge; name at least one")]
    Nothing,
    /// One is of another form.
    #[error(
        "record {number} has schema version {version}, and this program merges version {SCHEMA_VERSION}; merge it \
         with the version that wrote it"
    )]
    Version {
        /// Its place among the records, from 1.
        number: usize,
        /// Its version.
        version: u32,
    },
    /// The generators did not run at one time.
    #[error(
        "nobody measured for {gap_s:.3} s between two windows, so the records are not of one load; start the \
         generators together (--start-at, --await-start), or report them one by one"
    )]
    Apart {
        /// The time between two windows.
        gap_s: f64,
    },
    /// One is there twice.
    #[error("record {number} is record {of} once more, and its requests would count twice; name each record once")]
    Twice {
        /// Its place among the records, from 1.
        number: usize,
        /// The place of the same record before it.
        of: usize,
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

/// How the records' windows may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// Each overlaps another: generators that ran at one time.
    Together,
    /// In any way: processes of one run, which may begin one after another.
    OfOneRun,
}

/// Makes one record of several. Its window is the union of theirs, and a rate is over the union.
pub fn merge(records: &[Summary], windows: Windows) -> Result<Summary, MergeError> {
    if records.is_empty() {
        return Err(MergeError::Nothing);
    }
    for (record, number) in records.iter().zip(1..) {
        if record.schema_version != SCHEMA_VERSION {
            return Err(MergeError::Version { number, version: record.schema_version });
        }
    }
    if windows == Windows::Together
        && let Some((of, number)) = repeated(records)
    {
        return Err(MergeError::Twice { number, of });
    }
    let mut all = Summary { schema_version: SCHEMA_VERSION, valid: true, ..Summary::default() };
    let (window, elapsed_s) = union(records, windows)?;
    (all.window, all.elapsed_s) = (window, elapsed_s);
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
    if windows == Windows::Together {
        all.warnings.extend(uncommon(records, elapsed_s));
        all.warnings.extend(alike(records));
    }
    let all_open = records.iter().all(|record| record.intended_rate.is_some());
    all.intended_rate = all_open.then(|| records.iter().filter_map(|record| record.intended_rate).sum());
    all.failed_ratio = all.requests.failed_ratio();
    all.available_ratio = available_ratio(records, elapsed_s);
    let cpu_us = all.generator.cpu_cores * all.elapsed_s * 1e6;
    all.generator.cpu_us_per_request = cpu_us / all.requests.completed.max(1) as f64;
    add_times(&mut all, records)?;
    Ok(all)
}

/// The places, from 1, of two records that are one: no two generators have the same instants,
/// counts and times, unless they did nothing.
fn repeated(records: &[Summary]) -> Option<(usize, usize)> {
    records.iter().zip(1..).find_map(|(record, number)| {
        let before = records.iter().zip(1..number);
        let mut busy = before.filter(|_| record.requests.scheduled > 0);
        busy.find(|(other, _)| *other == record).map(|(_, of)| (of, number))
    })
}

/// The window from the first opening to the last closing, and its length in seconds.
fn union(records: &[Summary], windows: Windows) -> Result<(Window, f64), MergeError> {
    let mut all: Vec<&Summary> = records.iter().collect();
    all.sort_by(|a, b| a.window.opened_unix_s.total_cmp(&b.window.opened_unix_s));
    let mut union = all[0].window;
    let mut longest = 0.0_f64;
    for record in &all {
        let gap_s = record.window.opened_unix_s - union.closed_unix_s;
        if gap_s > 0.0 && windows == Windows::Together {
            return Err(MergeError::Apart { gap_s });
        }
        union.closed_unix_s = union.closed_unix_s.max(record.window.closed_unix_s);
        longest = longest.max(record.elapsed_s);
    }
    // A wall clock has digits for a fraction of a microsecond; a window alone has its length
    // exactly.
    Ok((union, longest.max(union.closed_unix_s - union.opened_unix_s)))
}

/// The doubt about windows that have little in common.
fn uncommon(records: &[Summary], elapsed_s: f64) -> Option<Warning> {
    let opened = records.iter().map(|record| record.window.opened_unix_s).fold(f64::MIN, f64::max);
    let closed = records.iter().map(|record| record.window.closed_unix_s).fold(f64::MAX, f64::min);
    let common = (closed - opened).max(0.0);
    (common < COMMON_SHARE * elapsed_s).then(|| Warning {
        code: "windows_apart".to_owned(),
        message: format!("the generators measured together for {common:.3} s of {elapsed_s:.3} s"),
        remedy: "start the generators together (--start-at, --await-start) and give them one --duration".to_owned(),
    })
}

/// The doubt about generators that drew from one seed: their requests come together, or are of one
/// payload, where they were to be independent.
fn alike(records: &[Summary]) -> Option<Warning> {
    let drawn = |number: usize| records[..number].iter().flat_map(|record| &record.seeds);
    let twice = |number: &usize| records[*number].seeds.iter().find(|seed| drawn(*number).any(|other| other == *seed));
    let (number, seed) = (1..records.len()).find_map(|number| Some((number, twice(&number)?)))?;
    Some(Warning {
        code: "seeds_alike".to_owned(),
        message: format!(
            "generator {} drew from seed {seed}, as one before it did: they are not independent",
            number + 1
        ),
        remedy: "leave --seed out, or give each generator a seed of its own".to_owned(),
    })
}

/// Outside its own window a generator offered nothing: its connections were not available.
fn available_ratio(records: &[Summary], elapsed_s: f64) -> f64 {
    let connections: f64 = records.iter().map(|record| record.connections.requested as f64).sum();
    let time = |record: &Summary| record.available_ratio * record.connections.requested as f64 * record.elapsed_s;
    let whole = connections * elapsed_s;
    if whole > 0.0 { records.iter().map(time).sum::<f64>() / whole } else { 1.0 }
}

fn add_counts(all: &mut Summary, record: &Summary) {
    add_name(&mut all.version, &record.version);
    add_name(&mut all.generator.engine, &record.generator.engine);
    for target in &record.targets {
        if !all.targets.contains(target) {
            all.targets.push(target.clone());
        }
    }
    for seed in &record.seeds {
        if !all.seeds.contains(seed) {
            all.seeds.push(*seed);
        }
    }
    all.valid &= record.valid;
    for figure in &record.doubted {
        if !all.doubted.contains(figure) {
            all.doubted.push(figure.clone());
        }
    }
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
    if let Some(theirs) = record.tls_handshakes {
        let mine = all.tls_handshakes.get_or_insert_default();
        mine.full += theirs.full;
        mine.resumed += theirs.resumed;
    }
    let (mine, theirs) = (&mut all.connections, &record.connections);
    mine.requested += theirs.requested;
    mine.established += theirs.established;
    // Each generator's peak is its own; that they came at one instant is likely, and no record can
    // say.
    mine.peak += theirs.peak;
    mine.failed += theirs.failed;
    mine.reopened += theirs.reopened;
    mine.ended_idle += theirs.ended_idle;
    mine.unrequested += theirs.unrequested;
    mine.bytes_each = mine.bytes_each.max(theirs.bytes_each);
    all.generator.threads += record.generator.threads;
    all.generator.max_lag_us = all.generator.max_lag_us.into_iter().chain(record.generator.max_lag_us).reduce(f64::max);
    all.generator.tables += record.generator.tables;
    all.generator.memory_bytes += record.generator.memory_bytes;
}

/// Adds a name to a list with commas, unless it is there.
fn add_name(all: &mut String, name: &str) {
    if all.is_empty() {
        name.clone_into(all);
    } else if !all.split(", ").any(|known| known == name) {
        all.push_str(", ");
        all.push_str(name);
    }
}

fn add_named(all: &mut BTreeMap<String, u64>, record: &BTreeMap<String, u64>) {
    for (name, count) in record {
        *all.entry(name.clone()).or_insert(0) += count;
    }
}

fn add_rates(all: &mut Summary, record: &Summary) {
    // The window's share of the union: 1 where all windows are alike.
    let share = if all.elapsed_s > 0.0 { record.elapsed_s / all.elapsed_s } else { 0.0 };
    all.offered_rate += record.offered_rate * share;
    all.completed_rate += record.completed_rate * share;
    all.goodput_bits_per_s += record.goodput_bits_per_s * share;
    all.generator.cpu_cores += record.generator.cpu_cores * share;
    if let Some(polling) = record.generator.polling_cpu_cores {
        *all.generator.polling_cpu_cores.get_or_insert_default() += polling * share;
    }
    all.generator.run_queue_wait_ratio = all.generator.run_queue_wait_ratio.max(record.generator.run_queue_wait_ratio);
    all.generator.busiest_thread_cpu_cores =
        all.generator.busiest_thread_cpu_cores.max(record.generator.busiest_thread_cpu_cores);
}

fn add_times(all: &mut Summary, records: &[Summary]) -> Result<(), MergeError> {
    let answered = sum(records, |record| match record.answered_time_us {
        Some(answered) => (ANSWERED, answered),
        None => (RESPONSE, record.response_time_us),
    })?;
    all.set_times(&TimeSets {
        answered: &answered,
        unanswered: &sum(records, |record| (UNANSWERED, record.unanswered_age_us.unwrap_or_default()))?,
        service: &sum(records, |record| (SERVICE, record.service_time_us))?,
        pool_wait: &sum(records, |record| (POOL_WAIT, record.pool_wait_us))?,
        backoff_wait: &sum(records, |record| (BACKOFF_WAIT, record.backoff_wait_us.unwrap_or_default()))?,
        schedule_lag: &sum(records, |record| (SCHEDULE_LAG, record.schedule_lag_us))?,
        receive_lag: &sum(records, |record| (RECEIVE_LAG, record.receive_lag_us))?,
        transmission: &sum(records, |record| (TRANSMISSION, record.transmission_time_us.unwrap_or_default()))?,
        establishment: &sum(records, |record| (ESTABLISHMENT, record.establishment_time_us))?,
        warm_up: &sum(records, |record| (WARM_UP, record.warm_up.response_time_us))?,
    });
    Ok(())
}

/// The sum of one set of times over all records; `told` names its histogram and its figures.
fn sum(records: &[Summary], told: fn(&Summary) -> (&'static str, TimesSummary)) -> Result<Times, MergeError> {
    let mut all = Times::default();
    for (record, number) in records.iter().zip(1..) {
        let (name, figures) = told(record);
        if figures.count == 0 {
            continue;
        }
        let encoded = record.histograms.get(name).map_or("", String::as_str);
        let times =
            Times::decode(encoded, &figures).map_err(|source| MergeError::Histogram { number, name, source })?;
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

    fn tally(responses: &[u64], unanswered: &[u64]) -> Tally {
        let mut tally = Tally::default();
        for nanoseconds in responses {
            tally.response.record_ns(*nanoseconds);
        }
        for nanoseconds in unanswered {
            tally.unanswered.record_ns(*nanoseconds);
        }
        tally.requests.completed = responses.len() as u64;
        tally.requests.timed_out = unanswered.len() as u64;
        tally.requests.scheduled = tally.requests.completed + tally.requests.timed_out;
        tally.sent = tally.requests.scheduled;
        tally.payload_bytes = 64 * tally.requests.completed;
        responses.iter().for_each(|_| tally.statuses.count(302));
        unanswered.iter().for_each(|_| tally.statuses.count(404));
        tally
    }

    fn record(tally: &Tally) -> Summary {
        record_of(tally, 100.0, WINDOW)
    }

    fn record_of(tally: &Tally, opened_unix_s: f64, length: Duration) -> Summary {
        let mut summary = Summary::of(tally, &Tally::default(), &Connections::default(), length);
        summary.window = Window { opened_unix_s, closed_unix_s: opened_unix_s + length.as_secs_f64() };
        summary.connections.requested = 1;
        summary
    }

    #[test]
    fn nothing_is_no_record() {
        assert!(matches!(merge(&[], Windows::Together), Err(MergeError::Nothing)));
    }

    #[test]
    fn a_record_of_another_version_or_without_its_histogram_is_refused() {
        let other = Summary { schema_version: 1, ..Summary::default() };
        assert!(matches!(merge(&[other], Windows::Together), Err(MergeError::Version { number: 1, version: 1 })));
        let mut bare = record(&tally(&[5_000], &[]));
        bare.histograms.clear();
        let refused = merge(&[bare], Windows::Together);
        assert!(matches!(refused, Err(MergeError::Histogram { number: 1, name: RESPONSE, .. })));
    }

    #[test]
    fn a_record_that_is_given_twice_is_refused() {
        let [one, other] = [[5_000], [5_001]].map(|responses| record(&tally(&responses, &[])));
        let refused = merge(&[other.clone(), one.clone(), one.clone()], Windows::Together);
        assert!(matches!(refused, Err(MergeError::Twice { number: 3, of: 2 })), "{refused:?}");
        assert!(merge(&[one, other], Windows::Together).is_ok(), "two that differ in one time");
        let idle = record(&Tally::default());
        assert!(merge(&[idle.clone(), idle], Windows::Together).is_ok(), "two that did nothing");
    }

    #[test]
    fn one_doubtful_generator_makes_the_whole_doubtful() {
        let mut doubtful = record(&tally(&[5_000], &[]));
        doubtful.valid = false;
        doubtful.doubted = vec!["response_time_us.p99".to_owned()];
        let records = [record(&tally(&[5_000], &[])), doubtful.clone(), record(&tally(&[5_001], &[]))];
        let merged = merge(&records, Windows::Together).expect("they merge");
        assert_eq!((merged.valid, merged.doubted), (false, doubtful.doubted));
    }

    #[test]
    fn every_engine_of_the_generators_is_named_once() {
        let engines = ["epoll", "uring", "epoll"];
        let records: Vec<Summary> = engines
            .into_iter()
            .zip(5_000..)
            .map(|(engine, response)| {
                let mut record = record(&tally(&[response], &[]));
                record.generator.engine = engine.to_owned();
                record
            })
            .collect();
        let merged = merge(&records, Windows::Together).expect("they merge");
        assert_eq!(merged.generator.engine, "epoll, uring");
    }

    #[test]
    fn the_seeds_of_all_are_kept_and_generators_that_share_one_are_doubted() {
        let merged = |seeds: &[u64], windows| {
            let record = |(seed, response): (&u64, u64)| {
                let seeds = vec![*seed];
                Summary { seeds, ..record(&tally(&[response], &[])) }
            };
            let records: Vec<Summary> = seeds.iter().zip(5_000..).map(record).collect();
            let merged = merge(&records, windows).expect("they merge");
            (merged.seeds, merged.warnings.iter().filter(|warning| warning.code == "seeds_alike").count())
        };
        assert_eq!(merged(&[7, 9, 8], Windows::Together), (vec![7, 9, 8], 0));
        assert_eq!(merged(&[7, 9, 7], Windows::Together), (vec![7, 9], 1));
        // Each process has streams of its own.
        assert_eq!(merged(&[7, 7], Windows::OfOneRun), (vec![7], 0));
    }

    #[test]
    fn a_rate_is_over_the_union_of_the_windows() {
        let one = tally(&[5_000; 100], &[]);
        let mut records = [record_of(&one, 100.0, WINDOW), record_of(&one, 105.0, WINDOW)];
        records[1].generator.polling_cpu_cores = Some(0.3);
        let merged = merge(&records, Windows::Together).expect("they overlap");
        assert!(merged.generator.polling_cpu_cores.is_some_and(|cores| (cores - 0.2).abs() < 1e-9));
        assert_eq!(merged.elapsed_s, 15.0);
        assert!((merged.completed_rate - 200.0 / 15.0).abs() < 1e-9);
        assert_eq!(merged.window, Window { opened_unix_s: 100.0, closed_unix_s: 115.0 });
        assert_eq!(merged.warnings.iter().map(|warning| warning.code.as_str()).collect::<Vec<_>>(), ["windows_apart"]);
        assert!((merged.available_ratio - 20.0 / 30.0).abs() < 1e-9);
    }

    #[test]
    fn windows_with_time_between_them_are_refused_unless_of_one_run() {
        let one = tally(&[5_000], &[]);
        let short = Duration::from_millis(1);
        let records = [record_of(&one, 102.0, short), record_of(&one, 100.0, short)];
        let refused = merge(&records, Windows::Together);
        assert!(matches!(refused, Err(MergeError::Apart { gap_s }) if (gap_s - 1.999).abs() < 1e-6));
        let merged = merge(&records, Windows::OfOneRun).expect("a run may have pauses");
        assert!((merged.elapsed_s - 2.001).abs() < 1e-6 && (merged.completed_rate - 2.0 / 2.001).abs() < 1e-6);
    }

    proptest! {
        // As in `times`: a case makes many histograms.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_whole_is_what_one_generator_would_have_counted(
            parts in prop::collection::vec(
                (prop::collection::vec(0_u64..1 << 36, 0..50), prop::collection::vec(0_u64..1 << 36, 0..9)),
                1..5,
            ),
        ) {
            let mut whole = Tally::default();
            let mut records = Vec::new();
            for (responses, unanswered) in &parts {
                let tally = tally(responses, unanswered);
                records.push(record(&tally));
                whole.add(&tally);
            }
            let (merged, whole) = (merge(&records, Windows::Together).expect("they merge"), record(&whole));
            prop_assert_eq!(&merged.histograms, &whole.histograms);
            prop_assert_eq!(merged.requests, whole.requests);
            prop_assert_eq!((&merged.statuses, &merged.status_codes), (&whole.statuses, &whole.status_codes));
            prop_assert_eq!(merged.redirects, whole.redirects);
            prop_assert!((merged.completed_rate - whole.completed_rate).abs() < 1e-6);
            prop_assert!((merged.goodput_bits_per_s - whole.goodput_bits_per_s).abs() < 1e-3);
            prop_assert_eq!(merged.failed_ratio, whole.failed_ratio);
            let (a, b) = (merged.response_time_us, whole.response_time_us);
            prop_assert_eq!((a.count, a.min, a.max, a.unanswered), (b.count, b.min, b.max, b.unanswered));
            prop_assert_eq!((a.p50, a.p99_99), (b.p50, b.p99_99));
            prop_assert!((a.mean - b.mean).abs() <= 1e-9 * b.mean.abs() + 1e-9);
        }
    }
}
