//! What is shown while a run goes on: a status line on a terminal, plain lines elsewhere, events
//! for programs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use plimsoll_load::config::{Config, Engine, StopCondition};
use plimsoll_load::run::{Observer, Progress, Stage, unix_seconds};
use plimsoll_measure::units::three_digits;
use serde::Serialize;

use super::csv;
use crate::Output;

/// Without a terminal a line a second would fill a log: a line this often shows that the run goes
/// on.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);
/// A status line four times a second; events wake the coordinator more often.
const LIVE_INTERVAL: Duration = Duration::from_millis(240);

pub(super) struct Live {
    json: bool,
    /// What is counted down aloud on standard output, as tcpbenchmark does: the seconds last said.
    countdown: Option<u64>,
    /// The threads that tcpbenchmark would name, until they are named.
    threads: Option<usize>,
    form: Form,
    stop_condition: StopCondition,
    connections: usize,
    last: Option<(Stage, Duration, u64)>,
    rate: f64,
    window_began: Duration,
}

enum Form {
    None,
    /// One line, written over.
    Status,
    Lines,
}

#[derive(Serialize)]
struct Event {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    unix_s: f64,
    /// For how long at most connections stay up from here on, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds_s: Option<f64>,
}

impl Event {
    fn of(event: &'static str, at: SystemTime) -> Event {
        Event { event, connections: None, unix_s: unix_seconds(at), holds_s: None }
    }
}

impl Live {
    /// `countdown` is the number of seconds to count down aloud, in tcpbenchmark's form.
    pub(super) fn new(output: Output, config: &Config, countdown: Option<u64>) -> Live {
        let form = match (output.quiet, std::io::stderr().is_terminal()) {
            (true, _) => Form::None,
            (false, true) => Form::Status,
            (false, false) => Form::Lines,
        };
        Live {
            json: output.json,
            threads: countdown.filter(|_| config.engine == Engine::Threads).map(|_| config.connections),
            countdown: countdown.map(|seconds| seconds + 1),
            form,
            stop_condition: config.stop_condition,
            connections: config.connections,
            last: None,
            rate: 0.0,
            window_began: Duration::ZERO,
        }
    }

    /// Clears the status line.
    pub(super) fn finish(&self) {
        if matches!(self.form, Form::Status) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn event(&self, event: &Event) {
        if self.json {
            let line = serde_json::to_string(event).unwrap_or_default();
            let mut stdout = std::io::stdout().lock();
            // A closed standard output ends nothing: the run is on its way.
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
    }

    fn count_down(&mut self, progress: &Progress) {
        let Some(said) = self.countdown else { return };
        let mut stdout = std::io::stdout().lock();
        if let Some(threads) = self.threads.take() {
            let _ = csv::write_threads(&mut stdout, threads);
        }
        let left = progress.left.as_secs_f64().ceil() as u64;
        if progress.stage != Stage::Waiting {
            self.countdown = None;
            let _ = writeln!(stdout, "Thread Start!!");
        } else if left < said && left > 0 {
            self.countdown = Some(left);
            let _ = writeln!(stdout, "start count down: {left}");
        }
        let _ = stdout.flush();
    }

    fn line(&self, progress: &Progress) -> String {
        let Progress { elapsed, connections, failed, in_window, .. } = *progress;
        let seconds = elapsed.as_secs_f64();
        let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        match progress.stage {
            Stage::Waiting => "waiting for the start".to_owned(),
            Stage::Opening => {
                format!("{seconds:.1} s: opening connections, {connections} of {} up{failures}", self.connections)
            }
            Stage::AllUp => format!("{seconds:.1} s: {connections} connections up, waiting for the start to be given"),
            Stage::WarmUp => format!("{seconds:.1} s: warming up, {}/s{failures}", three_digits(self.rate)),
            Stage::Drain => format!("{seconds:.1} s: finishing what is under way"),
            Stage::Window => {
                let since = elapsed.saturating_sub(self.window_began).as_secs_f64();
                let done = match self.stop_condition {
                    StopCondition::Time(length) => {
                        format!("{since:.1} of {} s", three_digits(length.as_secs_f64()))
                    }
                    StopCondition::Requests(requests) => format!("{in_window} of {requests} requests"),
                    StopCondition::Each(each) => format!("{in_window} of {} requests", each * self.connections as u64),
                };
                format!("{done}: {}/s, {connections} connections up{failures}", three_digits(self.rate))
            }
        }
    }
}

impl Observer for Live {
    fn all_up(&mut self, connections: u64, at: SystemTime) {
        self.event(&Event { connections: Some(connections), ..Event::of("all_up", at) });
    }

    fn window_opened(&mut self, at: SystemTime) {
        self.event(&Event::of("window_opened", at));
    }

    fn window_closed(&mut self, at: SystemTime, holds: Option<Duration>) {
        let holds_s = holds.map(|time| time.as_secs_f64());
        self.event(&Event { holds_s, ..Event::of("window_closed", at) });
    }

    fn progress(&mut self, progress: &Progress) {
        self.count_down(progress);
        let interval = match self.form {
            Form::None => return,
            Form::Status => LIVE_INTERVAL,
            Form::Lines => PLAIN_INTERVAL,
        };
        // Time counts from the start once the wait for it is over.
        let waited = self.last.is_some_and(|(stage, ..)| stage == Stage::Waiting) && progress.stage != Stage::Waiting;
        if waited {
            self.last = Some((Stage::Opening, Duration::ZERO, 0));
        }
        let (stage, since, completed) = self.last.unwrap_or((Stage::Waiting, Duration::ZERO, 0));
        let passed = progress.elapsed.saturating_sub(since);
        if stage != progress.stage && progress.stage == Stage::Window {
            self.window_began = progress.elapsed;
        }
        let first = self.last.is_none();
        if !first && passed < interval {
            if stage != progress.stage {
                self.last = Some((progress.stage, since, completed));
            }
            return;
        }
        if !passed.is_zero() {
            self.rate = progress.completed.saturating_sub(completed) as f64 / passed.as_secs_f64();
        }
        self.last = Some((progress.stage, progress.elapsed, progress.completed));
        if first && !matches!(self.form, Form::Status) {
            return;
        }
        let line = self.line(progress);
        let mut stderr = std::io::stderr().lock();
        let _ = match self.form {
            Form::Status => write!(stderr, "\r\x1b[K{line}"),
            _ => writeln!(stderr, "{line}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stop_condition: StopCondition) -> Live {
        Live {
            json: false,
            countdown: None,
            threads: None,
            form: Form::Lines,
            stop_condition,
            connections: 4,
            last: None,
            rate: 0.0,
            window_began: Duration::ZERO,
        }
    }

    #[test]
    fn a_count_is_shown_by_what_its_window_has_of_it() {
        let mut live =
            Live { rate: 250.0, window_began: Duration::from_secs(2), ..shown(StopCondition::Requests(100)) };
        let mut progress = Progress {
            stage: Stage::Window,
            elapsed: Duration::from_secs(3),
            left: Duration::ZERO,
            connections: 4,
            completed: 384,
            failed: 0,
            in_window: 12,
        };
        assert_eq!(live.line(&progress), "12 of 100 requests: 250/s, 4 connections up");
        live.stop_condition = StopCondition::Each(25);
        progress.failed = 1;
        assert_eq!(live.line(&progress), "12 of 100 requests: 250/s, 4 connections up, 1 failed");
        live.stop_condition = StopCondition::Time(Duration::from_secs(5));
        assert_eq!(live.line(&progress), "1.0 of 5 s: 250/s, 4 connections up, 1 failed");
        progress.stage = Stage::WarmUp;
        assert_eq!(live.line(&progress), "3.0 s: warming up, 250/s, 1 failed");
    }

    #[test]
    fn the_first_rate_counts_from_the_start_and_not_from_the_wait_for_it() {
        let mut live = shown(StopCondition::Time(Duration::from_secs(20)));
        let at = |stage, seconds: f64, completed| Progress {
            stage,
            elapsed: Duration::from_secs_f64(seconds),
            left: Duration::ZERO,
            connections: 4,
            completed,
            failed: 0,
            in_window: completed,
        };
        live.progress(&at(Stage::Waiting, 0.0, 0));
        live.progress(&at(Stage::Waiting, 60.0, 0));
        for second in 0_u32..=20 {
            live.progress(&at(Stage::Window, f64::from(second), 1000 * u64::from(second)));
        }
        assert_eq!((live.rate, live.window_began), (1000.0, Duration::ZERO));
    }
}
