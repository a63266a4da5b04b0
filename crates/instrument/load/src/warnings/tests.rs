use std::time::Duration;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_measure::tally::Tally;
use plimsoll_measure::times::Times;
use plimsoll_sys::signal::Signal;

use super::together::{judge_merged, judge_together};
use super::*;
use crate::config::Phase;
use crate::config::tests::config;

const WINDOW: Duration = Duration::from_secs(10);
/// Of an honest run: enough for the 99th percentile to be believed.
const REQUESTS: u64 = 10_000;
const MILLISECOND: u64 = 1_000_000;

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
    let mut outcome = Outcome {
        window,
        elapsed: WINDOW,
        offered_for: WINDOW,
        workers: 1,
        tables: 1,
        peak: 10,
        ..Outcome::nothing_yet()
    };
    outcome.connections.established = 10;
    outcome
}

/// Whether the result is valid, and the codes of its warnings.
fn judge(config: &Config, outcome: &Outcome) -> (bool, Vec<String>) {
    let summary = summarise(config, outcome);
    for warning in &summary.warnings {
        assert!(!warning.message.is_empty() && !warning.remedy.is_empty(), "a warning has its evidence and its remedy");
    }
    (summary.valid, summary.warnings.into_iter().map(|warning| warning.code).collect())
}

fn codes(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_run_that_kept_up_has_no_warning() {
    assert_eq!(judge(&closed(), &honest()), (true, codes(&[])));
    assert_eq!(judge(&open(), &honest()), (true, codes(&[])));
}

#[test]
fn a_loop_that_used_its_whole_core_was_the_limit() {
    let busy = Outcome { busiest_work: WINDOW.mul_f64(0.96), ..honest() };
    assert_eq!(judge(&closed(), &busy), (false, codes(&["generator_saturated"])));
    let idler = Outcome { busiest_work: WINDOW.mul_f64(0.94), ..honest() };
    assert_eq!(judge(&closed(), &idler), (true, codes(&[])));
}

#[test]
fn a_loop_that_polls_before_requests_are_due_has_time_left() {
    let all = WINDOW * plimsoll_sys::process::available_cpus() as u32;
    let work = WINDOW.mul_f64(0.4);
    let polls = Outcome { cpu: all, busiest_cpu: WINDOW, busiest_work: work, polled: all - work, ..honest() };
    let config = Config { spin: Duration::from_micros(100), ..open() };
    assert_eq!(judge(&config, &polls), (true, codes(&[])));
    let told = summarise(&config, &polls).generator;
    let rest = told.cpu_cores - told.polling_cpu_cores.expect("it polls");
    assert!((rest - 0.4).abs() < 1e-9, "{rest}");
    assert_eq!(summarise(&open(), &honest()).generator.polling_cpu_cores, None);
    let busy = Outcome { cpu: all, polled: all.mul_f64(0.01), ..polls };
    assert_eq!(judge(&config, &busy), (false, codes(&["generator_saturated"])));
}

#[test]
fn lag_that_was_allowed_is_said_and_only_what_exceeds_it_is_lateness() {
    let mut late = honest();
    for _ in 0..REQUESTS {
        late.window.schedule_lag.record_ns(3 * MILLISECOND);
    }
    assert_eq!(judge(&open(), &late), (false, codes(&["generator_late"])));
    let allowing = |max_lag| Config { max_lag, ..open() };
    let (told, lateness) = (codes(&["lag_allowed"]), codes(&["generator_late", "lag_allowed"]));
    assert_eq!(judge(&allowing(Duration::from_millis(3)), &late), (true, told));
    // 40 and 60 % of a response time of 5 ms.
    assert_eq!(judge(&allowing(Duration::from_millis(1)), &late), (true, lateness.clone()));
    assert_eq!(judge(&allowing(Duration::from_micros(10)), &late), (false, lateness));
    let summary = summarise(&allowing(Duration::from_millis(3)), &late);
    assert_eq!(summary.generator.max_lag_us, Some(3000.0));
}

#[test]
fn a_run_that_began_too_late_to_measure_with_others_says_so_and_stays_valid() {
    let begun = |lag, window| judge(&closed(), &Outcome { start_lag: lag, elapsed: window, ..honest() });
    assert_eq!(begun(Duration::from_millis(100), WINDOW), (true, codes(&["late_start"])));
    assert_eq!(begun(Duration::from_millis(99), WINDOW), (true, codes(&[])));
    let short = Duration::from_millis(100);
    assert_eq!(begun(Duration::from_millis(10), short), (true, codes(&["late_start"])));
    assert_eq!(begun(Duration::from_millis(9), short), (true, codes(&[])));
}

#[test]
fn waiting_for_a_cpu_is_said_with_how_long_it_was() {
    let waiting = Outcome { run_queue: WINDOW.mul_f64(0.25), ..honest() };
    assert_eq!(judge(&closed(), &waiting), (true, codes(&["cpu_contended"])));
    assert!(summarise(&closed(), &waiting).warnings[0].message.contains("25 %"));
}

/// A run of which one request in `one_in` was answered in `response` and sent `lag` late.
fn late(one_in: u64, response: u64, lag: u64) -> Outcome {
    let mut outcome = honest();
    for _ in 0..2 * REQUESTS / one_in {
        outcome.window.response.record_ns(response);
        outcome.window.schedule_lag.record_ns(lag);
    }
    outcome
}

#[test]
fn lag_that_makes_up_half_of_the_tail_is_the_generators_own_doing() {
    let tail = |lag| late(100, 40 * MILLISECOND, lag);
    assert_eq!(judge(&open(), &tail(30 * MILLISECOND)), (false, codes(&["generator_late"])));
    assert_eq!(judge(&open(), &tail(10 * MILLISECOND)), (true, codes(&["generator_late"])));
    assert_eq!(judge(&open(), &tail(MILLISECOND / 2)), (true, codes(&[])));
}

#[test]
fn a_lag_is_judged_by_its_share_however_short_it_is() {
    let mut outcome = honest();
    outcome.window.response = Times::default();
    outcome.window.schedule_lag = Times::default();
    for _ in 0..REQUESTS {
        outcome.window.response.record_ns(100_000);
        outcome.window.schedule_lag.record_ns(60_000);
    }
    assert_eq!(judge(&open(), &outcome), (false, codes(&["generator_late"])));
}

#[test]
fn lag_while_ports_are_searched_for_asks_for_more_addresses() {
    let late = late(100, 40 * MILLISECOND, 30 * MILLISECOND);
    let [target, one, two] = ["192.0.2.9:7", "192.0.2.1", "192.0.2.2"];
    let mut config = closed();
    config.targets = vec![target.parse().expect("an address")];
    config.stop_condition = StopCondition::Each(60);
    let mut asks = |connections, sources: &[&str], warm_up| {
        config.connections = connections;
        config.opening.sources = sources.iter().map(|text| text.parse().expect("an address")).collect();
        config.warm_up = warm_up;
        let summary = summarise(&config, &late);
        assert_eq!(summary.warnings[0].code, "generator_late");
        summary.warnings[0].remedy.contains("--source-ip")
    };
    for (connections, sources, expected) in
        [(14_000, &[][..], false), (14_001, &[], true), (28_000, &[one, two], false), (28_001, &[one, two], true)]
    {
        assert_eq!(asks(connections, sources, Duration::ZERO), expected, "{connections} from {sources:?}");
    }
    assert!(!asks(20_000, &[], WINDOW), "they are up before the window");
}

#[test]
fn a_lag_that_only_the_furthest_percentiles_show_is_said_of_them() {
    let outcome = late(1000, 40 * MILLISECOND, 39 * MILLISECOND);
    assert_eq!(judge(&open(), &outcome), (true, codes(&["generator_late"])));
    assert!(summarise(&open(), &outcome).warnings[0].message.contains("99.9th percentile"));
}

#[test]
fn each_figure_is_doubted_by_the_lag_that_it_has_itself() {
    let doubted = |outcome: &Outcome| summarise(&open(), outcome).doubted;
    assert_eq!(doubted(&honest()), Vec::<String>::new());
    // Two of a hundred were sent 30 ms late: what half of all requests took is the server's.
    let tail = doubted(&late(100, 40 * MILLISECOND, 30 * MILLISECOND));
    assert_eq!(tail, ["stdev", "max", "p99", "p99_9", "p99_99"].map(|name| format!("response_time_us.{name}")));
    let further = doubted(&late(1000, 40 * MILLISECOND, 39 * MILLISECOND));
    assert!(further.contains(&"response_time_us.p99_9".to_owned()), "{further:?}");
    assert!(!further.contains(&"response_time_us.p99".to_owned()), "{further:?}");
    // Lag that --max-lag allows is no lateness.
    let lazy = Config { max_lag: Duration::from_millis(30), ..open() };
    assert_eq!(summarise(&lazy, &late(100, 40 * MILLISECOND, 30 * MILLISECOND)).doubted, Vec::<String>::new());
}

#[test]
fn lag_is_no_share_of_response_times_where_nothing_was_answered() {
    let mut outcome = honest();
    outcome.window.response = Tally::default().response;
    outcome.window.requests.completed = 0;
    outcome.window.requests.failed = REQUESTS;
    outcome.window.errors.closed = REQUESTS;
    assert_eq!(judge(&open(), &outcome), (true, codes(&["nothing_completed"])));
    assert_eq!(summarise(&open(), &outcome).doubted, Vec::<String>::new());
}

#[test]
fn answers_that_wait_for_those_before_them_are_said() {
    let mut outcome = honest();
    (0..REQUESTS).for_each(|_| outcome.window.receive_lag.record_ns(3 * MILLISECOND));
    assert_eq!(judge(&closed(), &outcome), (true, codes(&["answers_stamped_late"])));
}

#[test]
fn threads_that_use_every_cpu_together_were_the_limit() {
    let cpus = plimsoll_sys::process::available_cpus() as u32;
    let busy = Outcome { cpu: WINDOW * cpus, ..honest() };
    assert_eq!(judge(&closed(), &busy), (false, codes(&["generator_saturated"])));
}

#[test]
fn threads_that_use_every_cpu_that_was_named_for_them_were_the_limit() {
    let config = Config { cpus: vec![0, 0], ..closed() };
    let busy = Outcome { cpu: WINDOW.mul_f64(0.96), ..honest() };
    assert_eq!(judge(&config, &busy), (false, codes(&["generator_saturated"])));
    let idler = Outcome { cpu: WINDOW.mul_f64(0.94), ..honest() };
    assert_eq!(judge(&config, &idler), (true, codes(&[])));
}

#[test]
fn processes_that_use_every_cpu_together_were_the_limit_though_each_alone_was_not() {
    let config = Config { cpus: vec![0], ..closed() };
    let together = |cores: f64| {
        let mut summary = summarise(&config, &honest());
        summary.generator.cpu_cores = cores;
        judge_together(&mut summary, &config, None);
        (summary.valid, summary.warnings.into_iter().map(|warning| warning.code).collect())
    };
    assert_eq!(together(0.94), (true, codes(&[])));
    assert_eq!(together(0.96), (false, codes(&["generator_saturated"])));
}

/// The merged record of processes: the figures of the whole, and what each said of itself.
fn merged(config: &Config, whole: &Outcome, part: &Outcome) -> Summary {
    let Summary { valid, doubted, warnings, .. } = summarise(config, part);
    Summary { valid, doubted, warnings, ..summarise(config, whole) }
}

#[test]
fn lateness_is_that_of_all_processes_however_few_requests_each_has() {
    let codes_of =
        |summary: &Summary| summary.warnings.iter().map(|warning| warning.code.clone()).collect::<Vec<String>>();
    let (late, honest) = (late(100, 40 * MILLISECOND, 30 * MILLISECOND), honest());
    let mut together = merged(&open(), &late, &honest);
    judge_together(&mut together, &open(), None);
    assert_eq!((together.valid, codes_of(&together)), (false, codes(&["generator_late"])));
    assert!(together.doubted.contains(&"response_time_us.p99".to_owned()));
    // Generators of one load on several hosts, each of which has too few as well.
    let mut together = merged(&open(), &late, &honest);
    judge_merged(&mut together);
    assert_eq!((together.valid, codes_of(&together)), (false, codes(&["generator_late"])));
    assert!(together.doubted.contains(&"response_time_us.p99".to_owned()));
    // One process of which a request or two were late says nothing about the whole.
    let mut accident = merged(&open(), &honest, &late);
    assert!(!accident.valid);
    judge_together(&mut accident, &open(), None);
    assert_eq!((accident.valid, codes_of(&accident), accident.doubted.len()), (true, codes(&[]), 0));
    // One generator of several says so of itself: the figures of all are the server's.
    let mut accident = merged(&open(), &honest, &late);
    judge_merged(&mut accident);
    assert_eq!((accident.valid, codes_of(&accident), accident.doubted.len()), (true, codes(&["generator_late"]), 0));
    // One that could not ask for more was no accident.
    let full = Outcome { busiest_work: WINDOW, ..late };
    let mut saturated = merged(&open(), &honest, &full);
    judge_merged(&mut saturated);
    assert!(!saturated.valid);
    assert!(codes_of(&saturated).contains(&"generator_saturated".to_owned()));
}

#[test]
fn what_follows_from_figures_is_said_of_those_of_all_processes_and_not_of_those_of_each() {
    let config = Config { max_lag: Duration::from_micros(10), ..open() };
    let changed = |change: fn(&mut Outcome)| {
        let mut outcome = honest();
        change(&mut outcome);
        outcome
    };
    fn each(times: &mut Times, ns: u64) {
        (0..REQUESTS).for_each(|_| times.record_ns(ns));
    }
    let cases = [
        ("generator_late", late(100, 40 * MILLISECOND, 30 * MILLISECOND)),
        ("lag_allowed", changed(|outcome| each(&mut outcome.window.schedule_lag, MILLISECOND))),
        ("answers_stamped_late", changed(|outcome| each(&mut outcome.window.receive_lag, 4 * MILLISECOND))),
        ("connections_busy", changed(|outcome| each(&mut outcome.window.pool_wait, 4 * MILLISECOND))),
        ("rate_not_offered", changed(|outcome| outcome.window.sent /= 2)),
        (
            "connections_unavailable",
            changed(|outcome| {
                outcome.connections.ended_idle = 1;
                outcome.connections.unavailable_ns = 5 * WINDOW.as_nanos() as u64;
            }),
        ),
        (
            "connections_closed",
            changed(|outcome| (outcome.connections.reopened, outcome.connections.ended_idle) = (REQUESTS, REQUESTS)),
        ),
        (
            "nothing_completed",
            changed(|outcome| (outcome.window.requests.completed, outcome.window.requests.failed) = (0, REQUESTS)),
        ),
        ("redirects", changed(|outcome| outcome.window.statuses.count(301))),
        (
            "few_samples",
            changed(|outcome| {
                outcome.window.response = Times::default();
                outcome.window.response.record_ns(5 * MILLISECOND);
            }),
        ),
    ];
    let judged = |whole: &Outcome, part: &Outcome| {
        let mut together = merged(&config, whole, part);
        judge_together(&mut together, &config, None);
        (together.valid, together.warnings.into_iter().map(|warning| warning.code).collect::<Vec<String>>())
    };
    for (code, outcome) in &cases {
        let alone = judge(&config, outcome);
        assert!(alone.1.contains(&(*code).to_owned()), "{code}: {alone:?}");
        assert_eq!(judged(outcome, &honest()), alone, "{code} of all");
        assert_eq!(judged(outcome, outcome), alone, "{code} of all and of each");
        assert_eq!(judged(&honest(), outcome), (true, codes(&[])), "{code} of each");
    }
}

#[test]
fn a_rate_of_which_a_process_without_a_window_has_a_part_was_not_offered() {
    let mut half = honest();
    half.window.sent /= 2;
    let rate = Rate { from: 0.0, to: 2000.0, ..Rate::constant(0.0) };
    for (pace, ramps) in [(open().pace, false), (Pace::Open { rate, spacing: Spacing::Poisson }, true)] {
        let mut summary = summarise(&open(), &half);
        summary.warnings.clear();
        summary.intended_rate = Some(if ramps { 500.0 } else { 1000.0 });
        judge_together(&mut summary, &Config { pace, ..open() }, None);
        let told: Vec<_> = summary.warnings.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!((summary.intended_rate, told), (Some(1000.0), vec!["rate_not_offered"]), "{ramps}");
    }
}

#[test]
fn an_outage_is_a_figure_of_its_own_and_no_limit_on_failures_hides_it() {
    let mut outcome = honest();
    outcome.connections.ended_idle = 10;
    // Half of the time of ten connections.
    outcome.connections.unavailable_ns = 5 * WINDOW.as_nanos() as u64;
    assert_eq!(judge(&closed(), &outcome), (true, codes(&["connections_unavailable"])));
    let summary = summarise(&closed(), &outcome);
    assert_eq!((summary.available_ratio, summary.failed_ratio), (0.5, 0.0));
    let limit: plimsoll_measure::limits::Limit = "available_ratio > 99%".parse().expect("a limit");
    assert!(!limit.check(&summary).met);
}

#[test]
fn connects_that_failed_before_the_window_are_none_of_its_errors_and_explain_what_was_unavailable() {
    let mut outcome = honest();
    outcome.connections.count_failure(111);
    outcome.warm_up.errors.connect = 1;
    outcome.connections.unavailable_ns = 5 * WINDOW.as_nanos() as u64;
    let summary = summarise(&closed(), &outcome);
    assert_eq!((summary.errors.connect, summary.warm_up.errors.connect), (0, 1));
    assert_eq!(judge(&closed(), &outcome), (true, codes(&["connections_unavailable"])));
}

#[test]
fn a_server_that_ends_connections_after_an_answer_is_named() {
    let mut outcome = honest();
    outcome.connections.reopened = REQUESTS - 10;
    outcome.connections.ended_idle = REQUESTS - 10;
    assert_eq!(judge(&closed(), &outcome), (true, codes(&["connections_closed"])));
}

#[test]
fn connections_that_ended_in_the_warm_up_are_held_against_the_answers_there() {
    // One connection in a thousand answers ends, over a warm-up of ten windows.
    let mut outcome = honest();
    outcome.warm_up.requests.completed = 10 * REQUESTS;
    outcome.warm_up.requests.scheduled = 10 * REQUESTS;
    (outcome.window.requests.completed, outcome.window.requests.scheduled) = (100, 100);
    (outcome.connections.reopened, outcome.connections.ended_idle) = (REQUESTS / 100, REQUESTS / 100);
    assert_eq!(judge(&closed(), &outcome), (true, codes(&[])));
}

#[test]
fn a_count_is_offered_when_its_last_request_is_sent() {
    let mut outcome = honest();
    outcome.elapsed = WINDOW * 2;
    outcome.offered_for = WINDOW;
    assert_eq!(judge(&open(), &outcome), (true, codes(&[])));
    outcome.offered_for = WINDOW * 2;
    assert_eq!(judge(&open(), &outcome), (true, codes(&["rate_not_offered"])));
}

#[test]
fn pool_wait_is_the_servers_doing_and_leaves_the_result_valid() {
    let mut outcome = honest();
    for _ in 0..REQUESTS / 50 {
        outcome.window.response.record_ns(900 * MILLISECOND);
        outcome.window.pool_wait.record_ns(890 * MILLISECOND);
    }
    assert_eq!(judge(&open(), &outcome), (true, codes(&["connections_busy"])));
}

#[test]
fn a_ramp_that_was_ended_early_is_held_against_the_rates_it_came_to() {
    let rate = Rate { from: 0.0, to: 1000.0, ..Rate::constant(0.0) };
    let config = config(Pace::Open { rate, spacing: Spacing::Fixed });
    let mut outcome = Outcome { elapsed: WINDOW / 5, interrupted: Some(Signal::Interrupt), ..honest() };
    outcome.window.sent = 200;
    assert_eq!(summarise(&config, &outcome).intended_rate, Some(100.0));
    assert_eq!(judge(&config, &outcome), (true, codes(&["interrupted"])));
}

#[test]
fn a_rate_that_was_not_offered_is_said() {
    let mut outcome = honest();
    outcome.window.sent = REQUESTS * 9 / 10;
    assert_eq!(judge(&open(), &outcome), (true, codes(&["rate_not_offered"])));
    // What a Poisson process varies by is no shortfall.
    outcome.window.sent = REQUESTS - 200;
    assert_eq!(judge(&open(), &outcome), (true, codes(&[])));
}

#[test]
fn an_interrupted_run_and_one_of_few_requests_say_so() {
    let stopped = Outcome { elapsed: WINDOW / 2, interrupted: Some(Signal::Interrupt), ..honest() };
    assert_eq!(judge(&closed(), &stopped), (true, codes(&["interrupted"])));
    let after_its_window = Outcome { interrupted: Some(Signal::Interrupt), ..honest() };
    assert_eq!(judge(&closed(), &after_its_window), (true, codes(&[])));
    // A count is whole once all of it has ended, whatever the run waits for then.
    let counted = |requests| Config { stop_condition: StopCondition::Requests(requests), ..closed() };
    assert_eq!(judge(&counted(REQUESTS), &stopped), (true, codes(&[])));
    assert_eq!(judge(&counted(REQUESTS + 1), &stopped), (true, codes(&["interrupted"])));
    let mut few = honest();
    few.window.response = Times::default();
    few.window.response.record_ns(MILLISECOND);
    assert_eq!(judge(&closed(), &few), (true, codes(&["few_samples"])));
}

#[test]
fn a_window_without_length_has_no_share_of_a_core() {
    // As it is where nobody listens: CPU time over no time at all is no figure.
    let mut outcome = Outcome { busiest_work: Duration::from_millis(1), ..Outcome::nothing_yet() };
    assert!(!judge(&closed(), &outcome).1.contains(&"generator_saturated".to_owned()));
    outcome.elapsed = Duration::from_millis(1);
    assert!(judge(&closed(), &outcome).1.contains(&"generator_saturated".to_owned()));
}
