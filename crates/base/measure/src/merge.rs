//! Several generators' records of one load become one, losslessly: counts and histogram buckets are
//! added, percentiles are never averaged, and a rate is over the union of the windows.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::summary::{
    ANSWERED, BACKOFF_WAIT, ESTABLISHMENT, POOL_WAIT, RECEIVE_LAG, RESPONSE, SCHEDULE_LAG, SCHEMA_VERSION, SERVICE,
    Summary, TRANSMISSION, TimeSets, UNANSWERED, WARM_UP, Warning, Window,
};
use crate::tally::Requests;
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
    /// Its requests do not add up.
    #[error(
        "the requests of record {number} do not add up, so it was changed or is damaged; merge the records as \
         `load --json` printed them"
    )]
    Unbalanced {
        /// Its place among the records, from 1.
        number: usize,
    },
    /// The generators did not run at one time.
    #[error(
        "no generator measured for {gap_s:.3} s between two windows, so the records are not of one load; start the \
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
        if ![record.requests, record.warm_up.requests].iter().all(Requests::balance) {
            return Err(MergeError::Unbalanced { number });
        }
    }
    if windows == Windows::Together
        && let Some((of, number)) = repeated(records)
    {
        return Err(MergeError::Twice { number, of });
    }
    let mut all = Summary { schema_version: SCHEMA_VERSION, valid: true, counted: true, ..Summary::default() };
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
    all.available_ratio = available_ratio(records, &all);
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

/// The window from the first opening to the last closing, and its length in seconds. A window that
/// never opened is an instant at which nothing was measured, and may lie long before the others.
fn union(records: &[Summary], windows: Windows) -> Result<(Window, f64), MergeError> {
    let mut all: Vec<&Summary> = records.iter().filter(|record| record.elapsed_s > 0.0).collect();
    if all.is_empty() {
        return Ok((records[0].window, 0.0));
    }
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

/// The warning of windows that overlap little.
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

/// The warning of generators that share a seed: they send at the same instants, or the same
/// payload, although they should be independent.
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

/// Outside its own window a generator offered nothing: its connections were not available. After a
/// number of requests has ended it, they have nothing more to do, except those that were given up.
fn available_ratio(records: &[Summary], all: &Summary) -> f64 {
    let time = |record: &Summary| {
        let is_done = record.counted && record.interrupted.is_none() && record.elapsed_s > 0.0;
        let after_s = if is_done { all.window.closed_unix_s - record.window.closed_unix_s } else { 0.0 };
        let kept = record.connections.requested.saturating_sub(record.connections.failed);
        record.available_ratio * record.elapsed_s * record.connections.requested as f64 + after_s * kept as f64
    };
    let whole = all.connections.requested as f64 * all.elapsed_s;
    // A wall clock's digits may add up to more than the whole.
    if whole > 0.0 { (records.iter().map(time).sum::<f64>() / whole).min(1.0) } else { 1.0 }
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
    all.counted &= record.counted;
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
    // say. Whoever merges the processes of one run may know more.
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
mod tests;
