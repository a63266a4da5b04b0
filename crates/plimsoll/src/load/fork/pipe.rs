//! What a process says to the one that started it: a line an event, and its record in the end.

use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, SystemTime};

use plimsoll_load::run::{Observer, Outcome, Progress, unix_seconds};
use plimsoll_sys::process::Child;

use super::memory::proportional_bytes;

pub(super) const OPENED: &str = "opened";
pub(super) const CLOSED: &str = "closed";
const MISSED: &str = "missed";
const PROGRESS: &str = "progress";
const BEGUN: &str = "begun";
const FAILED: &str = "failed";

/// Bytes taken at once: lines are short, but for the record in the end.
const READ_BYTES: usize = 4096;

/// Writes a child's events into the pipe to its parent.
pub(super) struct PipeObserver {
    pub(super) pipe: File,
    /// Its memory as its window closed, where the kernel tells.
    pub(super) memory_bytes: Option<u64>,
}

impl PipeObserver {
    fn report(&mut self, event: &str, at: SystemTime) {
        // A parent that is gone has taken this process with it.
        let _ = writeln!(self.pipe, "{event} {}", unix_seconds(at));
    }

    /// Says why it has no record.
    pub(super) fn report_failure(&mut self, error: &anyhow::Error) {
        let _ = writeln!(self.pipe, "{FAILED} {}", format!("{error:#}").replace('\n', " "));
    }

    /// Says when the last request of its window was begun, if any was.
    pub(super) fn report_last_begun(&mut self, outcome: &Outcome) {
        if !outcome.offered_for.is_zero() {
            let opened = SystemTime::UNIX_EPOCH + Duration::from_nanos(outcome.opened_unix_ns);
            self.report(BEGUN, opened + outcome.offered_for);
        }
    }
}

impl Observer for PipeObserver {
    /// Not reported: processes share no barrier, so none awaits a start.
    fn all_up(&mut self, _: u64, _: SystemTime) {}

    fn window_opened(&mut self, at: SystemTime) {
        self.report(OPENED, at);
    }

    fn window_closed(&mut self, at: SystemTime, _: Option<Duration>) {
        self.memory_bytes = proportional_bytes();
        self.report(CLOSED, at);
    }

    fn window_missed(&mut self, at: SystemTime) {
        self.memory_bytes = proportional_bytes();
        self.report(MISSED, at);
    }

    fn progress(&mut self, progress: &Progress) {
        let Progress { connections, completed, failed, in_window, .. } = progress;
        let _ = writeln!(self.pipe, "{PROGRESS} {connections} {completed} {failed} {in_window}");
    }
}

/// One process, and what it has said so far and was not looked at.
pub(super) struct ForkedGenerator {
    pub(super) child: Child,
    pub(super) pipe: Option<File>,
    pub(super) said: Vec<u8>,
    /// Whether it has said all it has to say.
    pub(super) has_ended: bool,
    /// Its connections, its completed and failed requests, and those completed in the window, as it
    /// last said.
    pub(super) progress: [u64; 4],
    /// When the last request of its window was begun.
    pub(super) last_begun: Option<SystemTime>,
    /// Why it has no record, where it says so.
    pub(super) failure: Option<String>,
    /// Its record.
    pub(super) result: Option<String>,
}

impl ForkedGenerator {
    /// Takes what the process has said, and returns its new lines.
    pub(super) fn hear(&mut self) -> Vec<String> {
        let mut buffer = [0; READ_BYTES];
        match self.pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
            Some(Ok(count @ 1..)) => self.said.extend_from_slice(&buffer[..count]),
            _ => self.has_ended = true,
        }
        let whole = self.said.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.said.drain(..whole).collect();
        String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect()
    }

    /// Takes one line; whether the process's window has opened or closed with it, or never opens,
    /// and when.
    pub(super) fn take(&mut self, line: String) -> Option<(&'static str, SystemTime)> {
        let mut words = line.split(' ');
        let event = words.next().unwrap_or_default();
        let mut instant = || {
            let at_s = words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
            SystemTime::UNIX_EPOCH + Duration::from_secs_f64(at_s)
        };
        if let Some(end) = [OPENED, CLOSED, MISSED].into_iter().find(|end| *end == event) {
            return Some((end, instant()));
        }
        if event == BEGUN {
            self.last_begun = Some(instant());
        } else if event == FAILED {
            self.failure = Some(words.collect::<Vec<_>>().join(" "));
        } else if event == PROGRESS {
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or_default();
            self.progress = [number(), number(), number(), number()];
        } else {
            self.result = Some(line);
            // It waits for the others now.
            self.has_ended = true;
        }
        None
    }
}
