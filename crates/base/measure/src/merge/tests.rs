//! Records that become one.

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
fn a_record_whose_requests_do_not_add_up_is_refused() {
    let sound = record(&tally(&[5_000], &[]));
    let mut changed = record(&tally(&[5_001], &[]));
    // Fewer due than under way: a share of those that ended would be beyond all bounds.
    changed.requests.in_flight = 2;
    let refused = merge(&[sound.clone(), changed], Windows::Together);
    assert!(matches!(refused, Err(MergeError::Unbalanced { number: 2 })), "{refused:?}");
    let mut huge = sound;
    huge.warm_up.requests.unsent = u64::MAX;
    huge.warm_up.requests.failed = 1;
    assert!(matches!(merge(&[huge], Windows::OfOneRun), Err(MergeError::Unbalanced { number: 1 })));
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

#[test]
fn connections_that_have_done_their_part_of_a_count_are_available_and_those_that_were_given_up_are_not() {
    let [one, other] = [5_000, 5_001].map(|response| tally(&[response], &[]));
    // The second ends when half of the first's window is over. Each has four connections.
    let mut records = [record_of(&one, 100.0, WINDOW), record_of(&other, 100.0, WINDOW / 2)];
    records.iter_mut().for_each(|record| record.connections.requested = 4);
    let expect = |records: &[Summary], ratio: f64| {
        for windows in [Windows::Together, Windows::OfOneRun] {
            let merged = merge(records, windows).expect("they merge");
            assert!((merged.available_ratio - ratio).abs() < 1e-9, "{windows:?}: {}", merged.available_ratio);
            assert_eq!(merged.counted, records.iter().all(|record| record.counted), "{windows:?}");
        }
    };
    expect(&records, 0.75);
    records[0].counted = true;
    expect(&records, 0.75);
    records[1].counted = true;
    expect(&records, 1.0);
    // Given up at once, and never of use.
    (records[1].connections.failed, records[1].available_ratio) = (1, 0.75);
    expect(&records, 0.875);
    (records[1].connections.failed, records[1].available_ratio) = (0, 1.0);
    records[1].interrupted = Some("terminate".to_owned());
    expect(&records, 0.75);
}

#[test]
fn a_window_that_never_opened_makes_no_rate_lower() {
    let [one, other] = [5_000, 5_001].map(|response| tally(&[response; 100], &[]));
    // Long before, as every connection was refused.
    let nothing = record_of(&Tally::default(), 92.0, Duration::ZERO);
    let records = [nothing, record_of(&one, 100.0, WINDOW), record_of(&other, 100.0, WINDOW)];
    for windows in [Windows::OfOneRun, Windows::Together] {
        let merged = merge(&records, windows).expect("they merge");
        assert_eq!((merged.elapsed_s, merged.completed_rate, merged.connections.requested), (10.0, 20.0, 3));
        assert_eq!(merged.window, Window { opened_unix_s: 100.0, closed_unix_s: 110.0 });
        assert!((merged.available_ratio - 2.0 / 3.0).abs() < 1e-9);
        let apart = merged.warnings.iter().any(|warning| warning.code == "windows_apart");
        assert_eq!(apart, windows == Windows::Together, "one of them measured nothing");
    }
    let nothing = merge(&records[..1], Windows::Together).expect("it merges");
    assert_eq!((nothing.elapsed_s, nothing.completed_rate), (0.0, 0.0));
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

/// What one record counts, each count another number.
fn counted(from: u64) -> Summary {
    let mut number = from;
    let mut next = || {
        number += 1;
        number
    };
    let mut record = record(&tally(&[5_000, 6_000], &[7_000]));
    record.seeds = vec![next()];
    record.targets = vec!["one".to_owned(), format!("{from}")];
    let errors = &mut record.errors;
    for count in [&mut errors.connect, &mut errors.read, &mut errors.write, &mut errors.timeout] {
        *count = next();
    }
    record.warm_up.errors.status = next();
    record.warm_up.requests.scheduled = next();
    record.warm_up.requests.failed = record.warm_up.requests.scheduled;
    (record.bytes_sent, record.bytes_received, record.redirects) = (next(), next(), next());
    record.tls_handshakes = Some(crate::summary::Handshakes { full: next(), resumed: next() });
    let connections = &mut record.connections;
    connections.requested = next();
    connections.established = next();
    connections.peak = next();
    connections.failed = next();
    connections.reopened = next();
    connections.ended_idle = next();
    connections.unrequested = next();
    let generator = &mut record.generator;
    (generator.threads, generator.tables, generator.memory_bytes) = (next(), next(), next());
    record
}

#[test]
fn every_count_of_the_whole_is_the_sum_of_its_parts() {
    let (one, other) = (counted(0), counted(1000));
    let all = merge(&[one.clone(), other.clone()], Windows::Together).expect("they fit");
    let counts: &[fn(&Summary) -> u64] = &[
        |record| record.requests.scheduled,
        |record| record.requests.completed,
        |record| record.errors.connect,
        |record| record.errors.read,
        |record| record.errors.write,
        |record| record.errors.timeout,
        |record| record.warm_up.errors.status,
        |record| record.warm_up.requests.failed,
        |record| record.bytes_sent,
        |record| record.bytes_received,
        |record| record.redirects,
        |record| record.statuses["302"],
        |record| record.tls_handshakes.map_or(0, |handshakes| handshakes.full),
        |record| record.tls_handshakes.map_or(0, |handshakes| handshakes.resumed),
        |record| record.connections.requested,
        |record| record.connections.established,
        |record| record.connections.peak,
        |record| record.connections.failed,
        |record| record.connections.reopened,
        |record| record.connections.ended_idle,
        |record| record.connections.unrequested,
        |record| record.generator.threads,
        |record| record.generator.tables,
        |record| record.generator.memory_bytes,
    ];
    for (place, count) in counts.iter().enumerate() {
        assert!(count(&one) > 0, "{place}");
        assert_eq!(count(&all), count(&one) + count(&other), "{place}");
    }
    assert_eq!((all.seeds, all.valid, all.schema_version), (vec![1, 1001], true, SCHEMA_VERSION));
    assert_eq!(all.targets, ["one", "0", "1000"]);
}

#[test]
fn a_rate_of_the_whole_is_of_each_part_for_as_long_as_it_measured() {
    // One has measured for the first 10 s, the other from the fifth second to the twentieth.
    let mut records = [
        record_of(&tally(&[5_000, 6_000], &[]), 100.0, WINDOW),
        record_of(&tally(&[], &[]), 105.0, Duration::from_secs(15)),
    ];
    for (record, rate) in records.iter_mut().zip([100.0, 1000.0]) {
        (record.offered_rate, record.completed_rate, record.goodput_bits_per_s) = (rate, 2.0 * rate, 3.0 * rate);
        (record.generator.cpu_cores, record.generator.polling_cpu_cores) = (4.0 * rate, Some(5.0 * rate));
        (record.generator.run_queue_wait_ratio, record.generator.busiest_thread_cpu_cores) = (rate, 6.0 * rate);
    }
    let all = merge(&records, Windows::Together).expect("they overlap");
    let mean = 0.5 * 100.0 + 0.75 * 1000.0;
    assert_eq!((all.offered_rate, all.completed_rate, all.goodput_bits_per_s), (mean, 2.0 * mean, 3.0 * mean));
    let generator = &all.generator;
    assert_eq!((generator.cpu_cores, generator.polling_cpu_cores), (4.0 * mean, Some(5.0 * mean)));
    assert_eq!((generator.run_queue_wait_ratio, generator.busiest_thread_cpu_cores), (1000.0, 6000.0));
    // Two requests in 20 s.
    assert_eq!(generator.cpu_us_per_request, 4.0 * mean * 20.0 * 1e6 / 2.0);
    let apart: Vec<&Warning> = all.warnings.iter().filter(|warning| warning.code == "windows_apart").collect();
    assert!(apart[0].message.contains("5.000 s of 20.000 s"), "{apart:?}");
    records[1].warnings.push(Warning { code: "x".to_owned(), message: "late".to_owned(), remedy: String::new() });
    let all = merge(&records, Windows::OfOneRun).expect("they are of one run");
    assert_eq!(all.warnings.len(), 1, "of processes of one run it is none that they began apart");
    assert_eq!((&all.warnings[0].code[..], &all.warnings[0].message[..]), ("x", "generator 2: late"));
}
