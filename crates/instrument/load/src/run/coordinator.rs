//! The coordinator: opens and closes the window, answers signals, shows progress, gathers what was
//! counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_reactor::worker_group::Phase;
use plimsoll_sys::clock;
use plimsoll_sys::poll;
use plimsoll_sys::signal::{Signal, Signals};

use super::input::Input;
use super::untaken::Untaken;
use super::{Observer, Outcome, Progress, RunError, Stage, TICK, kernel, place};
use crate::config::StopCondition;
use crate::protocol::Protocol;
use crate::shared::{Shared, Team, ThreadResult};

/// From this number on, the memory that connections added can be separated from the rest.
const MANY: u64 = 10_000;
/// How long requests under way at the window's end may take to come to their own end before their
/// connections are closed.
const DRAIN: Duration = Duration::from_secs(1);
/// How long connections stay up after the window for a program that never lets them close.
const LONGEST_HOLD: Duration = Duration::from_secs(5);
/// The place of standard input among the descriptors that are waited for.
const INPUT: usize = 3;

/// What the coordinator noted when the window closed.
pub(super) struct Ends {
    /// When it was to open, in nanoseconds from the run's origin.
    opens: Option<u64>,
    /// When it closed; `None` where every loop came to its own end.
    closed: Option<u64>,
    cpu: Duration,
    memory_bytes: u64,
    /// The most connections that were up at once until then.
    peak: u64,
}

/// A start that another program gives.
#[derive(Default)]
struct Awaited {
    /// Whether `all_up` was reported to the other program.
    told: bool,
    given: Option<SystemTime>,
}

impl Awaited {
    /// Whether the line is due.
    fn listens(&self) -> bool {
        self.told && self.given.is_none()
    }
}

pub(super) struct Coordinator<'a, P> {
    shared: &'a Arc<Shared<P>>,
    workers: usize,
    /// What an idle connection takes in the engine's own memory.
    slot_bytes: u64,
    observer: &'a mut dyn Observer,
    signals: Signals,
    interrupted: Option<Signal>,
    memory_before: u64,
    /// CPU time of the process when the window opened.
    cpu: Option<Duration>,
    /// From the instant that the run was to start at until it began.
    start_lag: Duration,
    /// `None` where requests begin as soon as every connection is up.
    awaited: Option<Awaited>,
    /// Whether connections stay up until they may close.
    holds: bool,
    /// Where another program says either.
    input: Option<Input>,
    untaken: Untaken,
}

impl<'a, P: Protocol> Coordinator<'a, P> {
    pub(super) fn new(
        shared: &'a Arc<Shared<P>>,
        observer: &'a mut dyn Observer,
        signals: Signals,
        workers: usize,
        slot_bytes: u64,
    ) -> Result<Coordinator<'a, P>, RunError> {
        let memory_before = resident_bytes();
        let start_lag = Duration::ZERO;
        let awaited = shared.config.opening.await_start.then(Awaited::default);
        let listens = awaited.is_some() || shared.config.await_end;
        let input = listens.then(Input::open).transpose().map_err(kernel("standard input cannot be read"))?;
        let untaken = Untaken::new(&shared.config, &shared.control);
        Ok(Coordinator {
            shared,
            workers,
            slot_bytes,
            observer,
            signals,
            interrupted: None,
            memory_before,
            cpu: None,
            start_lag,
            awaited,
            holds: false,
            input,
            untaken,
        })
    }

    /// Sets the instants that are known before the first connection: requests may be sent at once
    /// unless there is a barrier, and a run of counted requests is measured from its first connect
    /// on, or from the barrier.
    pub(super) fn set_first_moments(&mut self) {
        let Shared { config, control, .. } = &**self.shared;
        // It may have been set while threads waited for their start.
        control.follow_wall_clock();
        self.untaken.follow_clock(control);
        let now = control.now();
        if !config.opening.barrier && !config.pace.is_open() {
            control.gate.set(now);
            if config.stop_condition.is_count() && config.warm_up.is_zero() {
                control.opens.set(now);
                self.note_opened();
            }
        }
        self.shared.control.starts.set(now);
        self.start_lag = lag(config.start_at, control.unix(now));
    }

    /// Fails where requests await a start and none can come any more; the threads are then told to
    /// stop.
    pub(super) fn run_until_done(&mut self, team: &dyn Team) -> Result<Ends, RunError> {
        loop {
            let has_input = self.wait(team, self.next_deadline());
            self.take_signals(team);
            if has_input
                && self.interrupted.is_none()
                && let Err(error) = self.take_start()
            {
                team.set_phase(Phase::Stop);
                return Err(error);
            }
            self.advance(team);
            self.release(team);
            let Shared { control, schedule, .. } = &**self.shared;
            self.untaken.pass(control.now(), control, schedule);
            self.pass_opening();
            let control = &self.shared.control;
            if team.is_finished() || control.closes.has_come(control.now()) || control.has_given_up() {
                break;
            }
        }
        // It may have come since, with all that there was to do.
        self.pass_opening();
        let Shared { config, control, .. } = &**self.shared;
        let now = control.now();
        let ends = Ends {
            opens: control.opens.get(),
            // Earlier than planned, where every connection was given up.
            closed: control.closes.get().map(|closes| closes.min(now)),
            cpu: self.cpu.map_or(Duration::ZERO, |before| clock::process_cpu_time().saturating_sub(before)),
            memory_bytes: resident_bytes(),
            peak: control.peak(),
        };
        let may_hold = config.await_end && self.interrupted.is_none() && control.up() > 0;
        self.holds = may_hold && !self.input.as_mut().is_some_and(Input::take_line);
        let at = control.wall_clock(ends.closed.unwrap_or(now));
        match self.cpu {
            Some(_) => self.observer.window_closed(at, self.holds.then_some(LONGEST_HOLD)),
            None => self.observer.window_missed(at),
        }
        self.hold(team);
        self.drain(team);
        Ok(ends)
    }

    /// Keeps connections up until they may close, where that is said on standard input. A signal
    /// lets them close as well.
    fn hold(&mut self, team: &dyn Team) {
        let control = &self.shared.control;
        let deadline = control.now() + LONGEST_HOLD.as_nanos() as u64;
        while self.holds {
            let is_let_go = self.wait(team, Some(deadline)) && self.input.as_mut().is_none_or(Input::read_any_line);
            self.interrupted = self.signals.next();
            let is_over = is_let_go || self.interrupted.is_some() || control.now() >= deadline;
            self.holds = !is_over && control.up() > 0 && !control.has_given_up();
        }
    }

    fn drain(&mut self, team: &dyn Team) {
        team.set_phase(Phase::Drain);
        let control = &self.shared.control;
        let already_interrupted = self.interrupted.is_some();
        let waits = already_interrupted || !control.has_ended_count();
        // The connections of a count that are yet to be opened have the time that they take.
        let deadline = waits.then(|| control.now() + DRAIN.as_nanos() as u64);
        let is_over = |at: u64| control.now() >= at;
        while !team.is_finished() && !deadline.is_some_and(is_over) && !control.has_given_up() {
            self.wait(team, deadline);
            if let Some(signal) = self.signals.next() {
                // Asked once more, or for the first time: the measurement is over either way.
                self.interrupted =
                    if already_interrupted { self.interrupted } else { self.interrupted.or(Some(signal)) };
                break;
            }
        }
        team.set_phase(Phase::Stop);
    }

    /// Sets the moments that follow from what has happened.
    fn advance(&mut self, team: &dyn Team) {
        let Shared { config, control, .. } = &**self.shared;
        let settled_already = control.opens.get().is_some() && control.gate.get().is_some();
        if settled_already || !control.all_settled() {
            return;
        }
        let now = control.now();
        let Some(start) = self.start(now) else { return };
        if control.opens.get().is_none() {
            let opens = start.saturating_add(config.warm_up.as_nanos() as u64);
            if let StopCondition::Time(length) = config.stop_condition {
                control.closes.set(opens.saturating_add(length.as_nanos() as u64));
            }
            if control.peak() == 0 && !config.opening.reconnect {
                // Not one connection: there is nothing to wait for.
                control.closes.set(opens.min(now));
            }
            control.opens.set(opens.min(control.closes.get().unwrap_or(opens)));
        }
        // Last, so that a loop which sees the gate open sees the window too.
        if control.gate.get().is_none() {
            control.gate.set(start);
        }
        team.wake();
    }

    /// When the warm-up begins, now that every connection is up: at once, unless other processes
    /// are yet to come up, or a start is awaited. `None` until that has been given; one that has
    /// passed means now.
    fn start(&mut self, now: u64) -> Option<u64> {
        let Shared { config, control, .. } = &**self.shared;
        // Without a connection there is nothing to begin, and a signal ends the run.
        let has_none = control.peak() == 0 && !config.opening.reconnect;
        let begins_alone = has_none || self.interrupted.is_some();
        let Some(awaited) = self.awaited.as_mut().filter(|_| !begins_alone) else {
            let others = config.others_up_at.filter(|_| !begins_alone);
            return Some(others.map_or(now, |at| control.run_time(at).max(now)));
        };
        if !awaited.told {
            awaited.told = true;
            self.observer.all_up(control.up(), SystemTime::now());
        }
        let given = awaited.given?;
        control.follow_wall_clock();
        self.untaken.follow_clock(control);
        // Windows are to open together: when the connections began to open matters no more.
        self.start_lag = lag(Some(given), control.unix(now));
        Some(control.run_time(given).max(now))
    }

    fn take_start(&mut self) -> Result<(), RunError> {
        if let Some(awaited) = self.awaited.as_mut().filter(|awaited| awaited.listens()) {
            awaited.given = self.input.as_mut().map_or(Ok(None), Input::read_start)?;
        }
        Ok(())
    }

    /// Ends the window where connections stay up together and not one has anything more to do.
    fn release(&self, team: &dyn Team) {
        let control = &self.shared.control;
        if control.all_finished() && control.closes.get().is_none() {
            control.closes.set(control.now());
            team.wake();
        }
    }

    fn take_signals(&mut self, team: &dyn Team) {
        if let Some(signal) = self.signals.next() {
            let control = &self.shared.control;
            self.interrupted = Some(signal);
            control.interrupt(control.now());
            team.wake();
        }
    }

    fn pass_opening(&mut self) {
        let control = &self.shared.control;
        if self.cpu.is_none() && control.opens.has_come(control.now()) && !control.has_no_window() {
            self.note_opened();
        }
    }

    fn note_opened(&mut self) {
        self.cpu = Some(clock::process_cpu_time());
        let control = &self.shared.control;
        let now = control.now();
        // When it was, however late this is noticed.
        let opened = control.opens.get().map_or(now, |opens| opens.min(now));
        self.observer.window_opened(control.wall_clock(opened));
    }

    /// The next instant, from the run's origin, at which the coordinator has something to do.
    fn next_deadline(&self) -> Option<u64> {
        let control = &self.shared.control;
        if self.cpu.is_none() { control.opens.get() } else { control.closes.get() }
    }

    /// Waits for news, or until `deadline`. Whether there is something to read on standard input.
    fn wait(&mut self, team: &dyn Team, deadline: Option<u64>) -> bool {
        let control = &self.shared.control;
        let left = deadline.map_or(TICK, |at| Duration::from_nanos(at.saturating_sub(control.now())));
        let mut places = vec![place(&self.signals), place(&control.news), place(team.request())];
        let listens = self.holds || self.awaited.as_ref().is_some_and(Awaited::listens);
        places.extend(self.input.as_ref().filter(|_| listens).map(place));
        // A failing wait would only make the coordinator look more often.
        let _ = poll::wait(&mut places, Some(left.min(TICK)));
        control.news.lower();
        team.request().lower();
        self.show();
        places.get(INPUT).is_some_and(|place| place.readable())
    }

    fn show(&mut self) {
        let control = &self.shared.control;
        let now = control.now();
        let stage = if control.closes.has_come(now) {
            Stage::Drain
        } else if control.opens.has_come(now) {
            Stage::Window
        } else if self.awaited.as_ref().is_some_and(Awaited::listens) {
            Stage::AllUp
        } else if control.all_settled() {
            Stage::WarmUp
        } else {
            Stage::Opening
        };
        let sum = |figure: fn(&crate::control::Gauge) -> u64| control.gauges.iter().map(figure).sum();
        self.observer.progress(&Progress {
            stage,
            elapsed: Duration::from_nanos(now),
            left: Duration::ZERO,
            connections: control.up(),
            completed: sum(|gauge| gauge.completed.load(Ordering::Relaxed)),
            failed: sum(|gauge| gauge.failed.load(Ordering::Relaxed)) + self.untaken.timed_out(),
            in_window: sum(|gauge| gauge.in_window.load(Ordering::Relaxed)),
        });
    }

    pub(super) fn gather(self, results: Vec<ThreadResult>, ends: Ends) -> Outcome {
        let control = &self.shared.control;
        let books = || results.iter().filter_map(|result| result.books.as_ref());
        let last_end = books().map(|books| books.ended_at).max().unwrap_or(0);
        let last_begun = books().map(|books| books.last_begun).max().unwrap_or(0);
        let closed = ends.closed.unwrap_or(last_end);
        // The window of a run that ended in its warm-up is the instant at which it ended.
        let opened = ends.opens.map_or(closed, |opens| opens.min(closed));
        let mut outcome = Outcome {
            peak: control.peak(),
            opened_unix_ns: control.unix(opened),
            elapsed: Duration::from_nanos(closed - opened),
            start_lag: self.start_lag,
            offered_for: Duration::from_nanos(last_begun.saturating_sub(opened)),
            cpu: ends.cpu,
            workers: self.workers,
            tables: self.shared.tables_per_worker * self.workers,
            memory_bytes: ends.memory_bytes,
            bytes_each: match ends.peak {
                // Over fewer the loops' own buffers and histograms would be taken for the
                // connections'.
                peak @ MANY.. => ends.memory_bytes.saturating_sub(self.memory_before) / peak,
                _ => self.slot_bytes,
            },
            report: self.shared.protocol.report(),
            interrupted: self.interrupted,
            ..Outcome::nothing_yet()
        };
        // The coordinator may come late to either end of the window. A loop that does has had no
        // CPU to use meanwhile.
        outcome.cpu = outcome.cpu.max(results.iter().map(|part| part.cpu).sum());
        let mut cpu_by_worker = vec![Duration::ZERO; outcome.workers];
        let mut work_by_worker = cpu_by_worker.clone();
        for part in results {
            cpu_by_worker[part.worker] += part.cpu;
            work_by_worker[part.worker] += part.cpu.saturating_sub(part.polled);
            outcome.polled += part.polled;
            outcome.run_queue = outcome.run_queue.max(part.run_queue);
            let Some(books) = part.books else { continue };
            outcome.window.add(&books.window);
            outcome.connections.add(&books.connections);
            // A loop ends before the window where it has given up all that it had to do.
            let after = closed.saturating_sub(books.ended_at.max(opened));
            outcome.connections.unavailable_ns += after * books.unusable;
            outcome.sequences.extend(books.sequences);
            if let Some(warm_up) = books.warm_up {
                outcome.warm_up.add(&warm_up);
            }
        }
        outcome.sequences.sort_unstable_by_key(|sequence| sequence.number);
        outcome.busiest_cpu = cpu_by_worker.into_iter().max().unwrap_or_default();
        outcome.busiest_work = work_by_worker.into_iter().max().unwrap_or_default();
        let Shared { config, control, schedule, .. } = &**self.shared;
        if config.stop_condition.is_count() {
            let unsent = control.unclaimed() + schedule.claimed_and_returned();
            outcome.window.requests.scheduled += unsent;
            outcome.window.requests.unsent += unsent;
        }
        if let Some(books) = self.untaken.finish(closed, control, schedule) {
            outcome.window.add(&books.window);
            if let Some(warm_up) = books.warm_up {
                outcome.warm_up.add(&warm_up);
            }
        }
        outcome
    }
}

/// How long after `start_at` the run began, in nanoseconds since 1970.
fn lag(start_at: Option<SystemTime>, began: u64) -> Duration {
    let intended = start_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    intended.map_or(Duration::ZERO, |intended| Duration::from_nanos(began).saturating_sub(intended))
}

/// The process's resident memory (proc_pid_statm(5), second field, in pages).
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|statm| statm.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

/// Linux on x86-64 and by default on AArch64.
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests;
