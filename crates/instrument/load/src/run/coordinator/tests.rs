//! A coordinator without threads to coordinate.

use plimsoll_measure::arrivals::Think;

use super::*;
use crate::config::tests::config;
use crate::config::{Config, Opening, Pace, Phase as Start};
use crate::shared::tests::{echo, shared};

struct Nobody;

impl Observer for Nobody {
    fn all_up(&mut self, _: u64, _: SystemTime) {}
    fn window_opened(&mut self, _: SystemTime) {}
    fn window_closed(&mut self, _: SystemTime, _: Option<Duration>) {}
    fn progress(&mut self, _: &Progress) {}
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
    let mut nobody = Nobody;
    let mut coordinator = Coordinator::new(&shared, &mut nobody, signals(), 1, 0).expect("an input");
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
fn cpu_time_of_a_window_to_which_the_coordinator_came_late_is_that_of_its_loops() {
    for (seen_ms, loops_ms, cpu_ms) in [(0, [30, 12], 42), (50, [30, 12], 50)] {
        let shared = Arc::new(shared(closed_loop(), echo()));
        let mut nobody = Nobody;
        let coordinator = Coordinator::new(&shared, &mut nobody, signals(), 2, 0).expect("an input");
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
fn a_run_is_late_by_the_time_from_its_instant_to_its_beginning() {
    let at = Some(UNIX_EPOCH + Duration::from_secs(5));
    for (start_at, began, late) in [(at, 5_000_000_007, 7), (at, 4_000_000_000, 0), (None, 5_000_000_007, 0)] {
        assert_eq!(lag(start_at, began), Duration::from_nanos(late));
    }
}
