use std::time::Duration;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::tally::Tally;
use plimsoll_sys::signal::Signal;

use super::*;
use crate::config::{Engine, Extent, Opening, Part, Phase, Recovery};
use crate::record::Records;

const WINDOW: Duration = Duration::from_secs(10);
/// Of an honest run: enough for the 99th percentile to be believed.
const REQUESTS: u64 = 10_000;
const MILLISECOND: u64 = 1_000_000;

fn config(pace: Pace) -> Config {
    Config {
        targets: vec![([127, 0, 0, 1], 7).into()],
        connections: 10,
        extent: Extent::Lasts(WINDOW),
        pace,
        opening: Opening { rate: None, barrier: false, reconnect: false, sources: Vec::new() },
        warm_up: Duration::ZERO,
        timeout: Duration::from_secs(30),
        engine: Engine::Epoll,
        workers: 1,
        cpus: Vec::new(),
        start_at: None,
        seed: 1,
        recovery: Recovery::GiveUp,
        records: Records::default(),
        part: Part::ALONE,
    }
}

fn closed() -> Config {
    config(Pace::Closed { think: Think::None, phase: Phase::Spread })
}

fn open() -> Config {
    config(Pace::Open { rate: Rate::constant(1000.0), spacing: Spacing::Poisson })
}

/// A run in which nothing went wrong: every request was answered in 5 ms, and sent 20 us late.
fn honest() -> Outcome {
    let mut window = Tally::default();
    window.requests.scheduled = REQUESTS;
    window.requests.completed = REQUESTS;
    window.sent = REQUESTS;
    for _ in 0..REQUESTS {
        window.response.record_ns(5 * MILLISECOND);
        window.schedule_lag.record_ns(20_000);
    }
    let mut outcome = Outcome { window, elapsed: WINDOW, workers: 1, tables: 1, peak: 10, ..Outcome::nothing_yet() };
    outcome.connections.established = 10;
    outcome
}

/// Whether the result is valid, and the doubts about it.
fn judge(config: &Config, outcome: &Outcome) -> (bool, Vec<String>) {
    let summary = summarise(config, outcome);
    for warning in &summary.warnings {
        assert!(!warning.message.is_empty() && !warning.remedy.is_empty(), "a doubt has its evidence and its remedy");
    }
    (summary.valid, summary.warnings.into_iter().map(|warning| warning.code).collect())
}

fn doubts(codes: &[&str]) -> Vec<String> {
    codes.iter().map(|code| (*code).to_owned()).collect()
}

#[test]
fn an_honest_run_raises_no_doubt() {
    assert_eq!(judge(&closed(), &honest()), (true, doubts(&[])));
    assert_eq!(judge(&open(), &honest()), (true, doubts(&[])));
}

#[test]
fn a_loop_that_used_its_whole_core_was_the_limit() {
    let busy = Outcome { busiest_cpu: WINDOW.mul_f64(0.96), ..honest() };
    assert_eq!(judge(&closed(), &busy), (false, doubts(&["generator_saturated"])));
    let idler = Outcome { busiest_cpu: WINDOW.mul_f64(0.94), ..honest() };
    assert_eq!(judge(&closed(), &idler), (true, doubts(&[])));
}

#[test]
fn waiting_for_a_cpu_is_said_with_how_long_it_was() {
    let waiting = Outcome { run_queue: WINDOW.mul_f64(0.25), ..honest() };
    assert_eq!(judge(&closed(), &waiting), (true, doubts(&["cpu_contended"])));
    assert!(summarise(&closed(), &waiting).warnings[0].message.contains("25 %"));
}

#[test]
fn lag_that_makes_up_half_of_the_tail_is_the_generators_own_doing() {
    let late = |lag: u64| {
        let mut outcome = honest();
        for _ in 0..REQUESTS / 50 {
            outcome.window.response.record_ns(40 * MILLISECOND);
            outcome.window.schedule_lag.record_ns(lag);
        }
        outcome
    };
    assert_eq!(judge(&open(), &late(30 * MILLISECOND)), (false, doubts(&["generator_late"])));
    assert_eq!(judge(&open(), &late(10 * MILLISECOND)), (true, doubts(&["generator_late"])));
    assert_eq!(judge(&open(), &late(MILLISECOND / 2)), (true, doubts(&[])));
}

#[test]
fn pool_wait_is_the_servers_doing_and_leaves_the_result_valid() {
    let mut outcome = honest();
    for _ in 0..REQUESTS / 50 {
        outcome.window.response.record_ns(900 * MILLISECOND);
        outcome.window.pool_wait.record_ns(890 * MILLISECOND);
    }
    assert_eq!(judge(&open(), &outcome), (true, doubts(&["connections_busy"])));
}

#[test]
fn a_rate_that_was_not_offered_is_said() {
    let mut outcome = honest();
    outcome.window.sent = REQUESTS * 9 / 10;
    assert_eq!(judge(&open(), &outcome), (true, doubts(&["rate_not_offered"])));
    // What a Poisson process varies by is no shortfall.
    outcome.window.sent = REQUESTS - 200;
    assert_eq!(judge(&open(), &outcome), (true, doubts(&[])));
}

#[test]
fn an_interrupted_run_and_one_of_few_requests_say_so() {
    let stopped = Outcome { interrupted: Some(Signal::Interrupt), ..honest() };
    assert_eq!(judge(&closed(), &stopped), (true, doubts(&["interrupted"])));
    let mut few = honest();
    few.window.response = plimsoll_measure::times::Times::default();
    few.window.response.record_ns(MILLISECOND);
    assert_eq!(judge(&closed(), &few), (true, doubts(&["few_samples"])));
}
