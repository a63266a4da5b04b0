//! A coordinator without threads to coordinate.

use std::sync::mpsc::channel;

use plimsoll_measure::arrivals::{Rate, Spacing, Think};
use plimsoll_sys::event::Event;

use super::*;
use crate::config::tests::config;
use crate::config::{Config, Opening, Pace, Phase as Start};
use crate::record::Records;
use crate::shared::tests::{echo, shared};

/// Keeps when it was told that the window opened and closed.
#[derive(Default)]
struct Seen {
    ends: Vec<SystemTime>,
}

impl Observer for Seen {
    fn all_up(&mut self, _: u64, _: SystemTime) {}

    fn window_opened(&mut self, at: SystemTime) {
        self.ends.push(at);
    }

    fn window_closed(&mut self, at: SystemTime, _: Option<Duration>) {
        self.ends.push(at);
    }

    fn progress(&mut self, _: &Progress) {}
}

/// No threads, which have all come to their end.
struct NoTeam(Event);

impl Team for NoTeam {
    fn wake(&self) {}

    fn is_finished(&self) -> bool {
        true
    }

    fn set_phase(&self, _: Phase) {}

    fn request(&self) -> &Event {
        &self.0
    }
}

fn closed_loop() -> Config {
    config(Pace::Closed { think: Think::None, phase: Start::Spread })
}

fn signals() -> Signals {
    Signals::take(&[]).expect("a descriptor")
}

#[test]
fn a_start_that_is_given_is_by_the_wall_clock_as_it_is_then() {
    let opening = Opening { barrier: true, await_start: true, ..closed_loop().opening };
    let shared = Arc::new(shared(Config { opening, ..closed_loop() }, echo()));
    let mut seen = Seen::default();
    let mut coordinator = Coordinator::new(&shared, &mut seen, signals(), 1, 0).expect("an input");
    let control = &shared.control;
    control.connection_up();
    control.set_wall_clock_back(Duration::from_secs(60));
    let ahead = Duration::from_secs(3600);
    coordinator.awaited = Some(Awaited { told: true, given: Some(SystemTime::now() + ahead) });
    let now = control.now();
    let start = Duration::from_nanos(coordinator.start(now).expect("it was given"));
    // Both clocks are read a moment later than the test read them.
    let error = start.abs_diff(Duration::from_nanos(now) + ahead);
    assert!(error < Duration::from_secs(30), "{error:?}");
    assert_eq!(coordinator.start_lag, Duration::ZERO);
}

#[test]
fn what_no_connection_takes_is_recorded_by_the_wall_clock_as_it_is_when_requests_may_begin() {
    let pace = Pace::Open { rate: Rate::constant(100.0), spacing: Spacing::Fixed };
    for is_given in [false, true] {
        let (seconds, received) = channel();
        let records = Records { seconds: Some(seconds), ..Records::default() };
        let opening = Opening { barrier: is_given, await_start: is_given, ..closed_loop().opening };
        let timeout = Duration::from_millis(500);
        let shared = Arc::new(shared(Config { opening, records, timeout, ..config(pace) }, echo()));
        let control = &shared.control;
        control.set_wall_clock_back(Duration::from_secs(60));
        let mut seen = Seen::default();
        let mut coordinator = Coordinator::new(&shared, &mut seen, signals(), 1, 0).expect("an input");
        if is_given {
            control.connection_up();
            coordinator.awaited = Some(Awaited { told: true, given: Some(SystemTime::now()) });
            coordinator.start(control.now()).expect("it was given");
        } else {
            coordinator.set_first_moments();
        }
        let wall_clock = control.wall_clock(control.now());
        let error = wall_clock.duration_since(SystemTime::now()).unwrap_or_else(|error| error.duration());
        assert!(error < Duration::from_secs(30), "{error:?}");
        shared.schedule.begin(0);
        coordinator.untaken.pass(2_000_000_000, control, &shared.schedule);
        assert_eq!(received.try_recv().map(|second| second.from), Ok(control.unix(0)), "{is_given}");
    }
}

#[test]
fn a_warm_up_begins_once_other_processes_are_up_or_its_own_connections_where_that_is_later() {
    let hour = Duration::from_secs(3600);
    let (later, before) = (SystemTime::now() + hour, SystemTime::now() - hour);
    for (is_up, reconnect, interrupted, others_up_at, waits) in [
        (true, false, None, later, true),
        (true, false, None, before, false),
        // It has nothing to measure.
        (false, false, None, later, false),
        // Each request opens its connection.
        (false, true, None, later, true),
        (true, false, Some(Signal::Terminate), later, false),
    ] {
        let opening = Opening { reconnect, ..closed_loop().opening };
        let shared = Arc::new(shared(Config { opening, others_up_at: Some(others_up_at), ..closed_loop() }, echo()));
        let mut seen = Seen::default();
        let mut coordinator = Coordinator::new(&shared, &mut seen, signals(), 1, 0).expect("an input");
        coordinator.interrupted = interrupted;
        if is_up {
            shared.control.connection_up();
        }
        let now = shared.control.now();
        let start = coordinator.start(now).expect("no line is awaited");
        // Both clocks are read a moment later than the test read them.
        let told = (start == now, Duration::from_nanos(start - now) > hour / 2);
        assert_eq!(told, (!waits, waits), "{is_up} {reconnect} {interrupted:?} {others_up_at:?}");
    }
}

#[test]
fn cpu_time_of_a_window_to_which_the_coordinator_came_late_is_that_of_its_loops() {
    for (seen_ms, loops_ms, cpu_ms) in [(0, [30, 12], 42), (50, [30, 12], 50)] {
        let shared = Arc::new(shared(closed_loop(), echo()));
        let mut seen = Seen::default();
        let coordinator = Coordinator::new(&shared, &mut seen, signals(), 2, 0).expect("an input");
        let cpu = Duration::from_millis(seen_ms);
        let ends = Ends { opens: Some(0), closed: Some(1_000_000_000), cpu, memory_bytes: 0, peak: 0 };
        let results = loops_ms.into_iter().zip(0..).map(|(cpu_ms, worker)| {
            let cpu = Duration::from_millis(cpu_ms);
            ThreadResult { cpu, ..ThreadResult::new(worker) }
        });
        let outcome = coordinator.gather(results.collect(), ends);
        assert_eq!(outcome.cpu, Duration::from_millis(cpu_ms));
    }
}

#[test]
fn the_ends_of_a_window_are_told_as_they_were_however_late_they_are_noticed() {
    let shared = Arc::new(shared(closed_loop(), echo()));
    let mut seen = Seen::default();
    let mut coordinator = Coordinator::new(&shared, &mut seen, signals(), 1, 0).expect("an input");
    let control = &shared.control;
    control.opens.set(1);
    control.closes.set(1000);
    coordinator.run_until_done(&NoTeam(Event::new().expect("an event"))).expect("no start is awaited");
    assert!(control.now() > 1000);
    assert_eq!(seen.ends, [1, 1000].map(|at| control.wall_clock(at)));
}

#[test]
fn a_run_is_late_by_the_time_from_its_instant_to_its_beginning() {
    let at = Some(UNIX_EPOCH + Duration::from_secs(5));
    for (start_at, began, late) in [(at, 5_000_000_007, 7), (at, 4_000_000_000, 0), (None, 5_000_000_007, 0)] {
        assert_eq!(lag(start_at, began), Duration::from_nanos(late));
    }
}

#[test]
fn what_a_count_asks_for_is_never_sent_where_a_signal_ends_it_before_its_start() {
    let length = StopCondition::Time(Duration::from_secs(1));
    for (stop_condition, unsent) in [(StopCondition::Requests(7), 7), (StopCondition::Each(3), 30), (length, 0)] {
        let config = Config { stop_condition, ..closed_loop() };
        let requests = Outcome::nothing(&config, Signal::Interrupt).window.requests;
        assert_eq!((requests.scheduled, requests.unsent), (unsent, unsent), "{stop_condition:?}");
    }
}
