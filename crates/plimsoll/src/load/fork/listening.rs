//! Listens to the processes, and tells of their windows as of one.

use std::time::{Duration, Instant, SystemTime};

use plimsoll_load::run::{Observer, Progress, Stage};
use plimsoll_sys::clock;
use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::process::{self, End};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{Signal, Signals};

use super::memory::proportional_bytes;
use super::pipe::{CLOSED, ForkedGenerator, OPENED};

/// Events of one wait.
const EVENT_BATCH: usize = 256;
/// The key of signals; a process has its place as its key.
const SIGNALS: u64 = u64::MAX;
/// How often the progress of all is added up and shown: that looks at every process.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// What was heard of the processes together.
pub(super) struct Heard {
    pub(super) interrupted: Option<Signal>,
    /// CPU time of this process over the window of them all.
    pub(super) cpu: Duration,
    /// Its memory after that.
    pub(super) memory_bytes: u64,
}

/// Listens until every process has said all it has to say.
pub(super) fn listen(
    generators: &mut [ForkedGenerator],
    signals: &Signals,
    announce: &mut dyn Observer,
) -> std::io::Result<Heard> {
    let mut pipes = Epoll::new(EVENT_BATCH)?;
    pipes.add(signals, SIGNALS, Interest::READ, Trigger::Level)?;
    for (generator, key) in generators.iter().zip(0..) {
        if let Some(pipe) = &generator.pipe {
            pipes.add(pipe, key, Interest::READ, Trigger::Level)?;
        }
    }
    let (mut interrupted, mut asked) = (None, 0);
    let mut window = CommonWindow::of(generators.len());
    let begun = Instant::now();
    let mut shown: Option<(Stage, Duration)> = None;
    let mut speaking = generators.len();
    while speaking > 0 {
        let ready: Vec<u64> = pipes.wait(None)?.map(|event| event.key).collect();
        if let Some(signal) = signals.next() {
            // A terminal tells the children itself; `kill` tells only us. The second time they end
            // at once, and still say what they counted.
            asked += 1;
            let how = if asked > 2 { End::Kill } else { End::Finish };
            generators.iter().for_each(|generator| process::end(generator.child, how));
            interrupted = interrupted.or(Some(signal));
        }
        for key in ready.into_iter().filter(|key| *key != SIGNALS) {
            let generator = &mut generators[key as usize];
            for line in generator.hear() {
                match generator.take(line) {
                    Some((OPENED, at)) => window.open(at, announce),
                    Some((CLOSED, at)) => window.close(at, announce),
                    Some((_, at)) => window.miss(at, announce),
                    None => {}
                }
            }
            if let Some(pipe) = generator.pipe.take_if(|_| generator.has_ended) {
                pipes.remove(&pipe)?;
                speaking -= 1;
            }
        }
        let (stage, elapsed) = (window.stage(), begun.elapsed());
        if shown.is_none_or(|(last, at)| last != stage || elapsed - at >= SHOW_INTERVAL) {
            shown = Some((stage, elapsed));
            announce.progress(&progress(generators, stage, elapsed));
        }
    }
    window.finish(SystemTime::now(), announce);
    // Of a kernel that does not tell, the processes count what they share as well.
    Ok(Heard { interrupted, cpu: window.cpu, memory_bytes: proportional_bytes().unwrap_or_default() })
}

/// The window of all processes: from the first opening to the last closing.
#[derive(Default)]
struct CommonWindow {
    processes: usize,
    /// Processes whose windows have closed, or never open.
    ended: usize,
    /// The first opening, the last closing, and the latest end of a process without a window.
    opened_at: Option<SystemTime>,
    closed_at: Option<SystemTime>,
    missed_at: Option<SystemTime>,
    /// CPU time of this process as the first opened.
    cpu_before: Option<Duration>,
    /// CPU time of this process over the window.
    cpu: Duration,
}

impl CommonWindow {
    fn of(processes: usize) -> CommonWindow {
        CommonWindow { processes, ..CommonWindow::default() }
    }

    fn open(&mut self, at: SystemTime, announce: &mut dyn Observer) {
        if self.opened_at.is_none() {
            self.opened_at = Some(at);
            self.cpu_before = Some(clock::process_cpu_time());
            announce.window_opened(at);
        }
    }

    fn close(&mut self, at: SystemTime, announce: &mut dyn Observer) {
        self.closed_at = self.closed_at.max(Some(at));
        self.end_one(announce);
    }

    /// A process without a window moves no end of that of the others.
    fn miss(&mut self, at: SystemTime, announce: &mut dyn Observer) {
        self.missed_at = self.missed_at.max(Some(at));
        self.end_one(announce);
    }

    fn end_one(&mut self, announce: &mut dyn Observer) {
        self.ended += 1;
        if self.ended == self.processes {
            self.tell_end(announce);
        }
    }

    /// No process says anything more: one that was ended while it waited for the start has said
    /// nothing of a window, and one that was killed nothing of its end.
    fn finish(&mut self, now: SystemTime, announce: &mut dyn Observer) {
        if self.ended < self.processes {
            self.missed_at = self.missed_at.max(self.opened_at.and(Some(now)));
            self.tell_end(announce);
        }
    }

    fn tell_end(&mut self, announce: &mut dyn Observer) {
        self.cpu = self.cpu_before.map_or(Duration::ZERO, |before| clock::process_cpu_time().saturating_sub(before));
        match (self.closed_at, self.missed_at) {
            (Some(at), _) => announce.window_closed(at, None),
            // Every process that opened its window was killed in it.
            (None, Some(at)) if self.opened_at.is_some() => announce.window_closed(at, None),
            (None, Some(at)) => announce.window_missed(at),
            (None, None) => {}
        }
    }

    fn stage(&self) -> Stage {
        if self.ended == self.processes {
            Stage::Drain
        } else if self.opened_at.is_none() {
            Stage::Opening
        } else {
            Stage::Window
        }
    }
}

/// Where the processes stand together.
fn progress(generators: &[ForkedGenerator], stage: Stage, elapsed: Duration) -> Progress {
    let sum = |place: usize| generators.iter().map(|generator| generator.progress[place]).sum();
    let (connections, completed, failed, in_window) = (sum(0), sum(1), sum(2), sum(3));
    Progress { stage, elapsed, left: Duration::ZERO, connections, completed, failed, in_window }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what it is told of windows, with the seconds since 1970.
    #[derive(Default)]
    struct Told(Vec<(&'static str, u64)>);

    impl Told {
        fn keep(&mut self, what: &'static str, at: SystemTime) {
            self.0.push((what, at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()));
        }
    }

    impl Observer for Told {
        fn all_up(&mut self, _: u64, _: SystemTime) {}

        fn window_opened(&mut self, at: SystemTime) {
            self.keep("opened", at);
        }

        fn window_closed(&mut self, at: SystemTime, _: Option<Duration>) {
            self.keep("closed", at);
        }

        fn window_missed(&mut self, at: SystemTime) {
            self.keep("missed", at);
        }

        fn progress(&mut self, _: &Progress) {}
    }

    #[test]
    fn a_window_is_that_of_the_processes_which_measured_and_is_told_once() {
        // What the processes say, in turn, and what comes of it.
        type Case = (&'static [(&'static str, u64)], &'static [&'static str]);
        let cases: [Case; 8] = [
            (&[("missed", 1), ("opened", 2), ("opened", 3), ("closed", 5), ("closed", 4)], &["opened 2", "closed 5"]),
            (&[("opened", 2), ("closed", 4), ("missed", 9), ("missed", 8)], &["opened 2", "closed 4"]),
            (&[("missed", 1), ("missed", 3), ("missed", 2)], &["missed 3"]),
            // Two were ended while they waited for the start.
            (&[("opened", 2), ("closed", 4)], &["opened 2", "closed 4"]),
            // The first was killed in its window, and the others were ended before theirs; the last
            // one was killed; all were killed.
            (&[("opened", 2), ("missed", 3), ("missed", 4)], &["opened 2", "closed 9"]),
            (&[("missed", 3), ("missed", 4), ("opened", 5)], &["opened 5", "closed 9"]),
            (&[("opened", 2), ("opened", 3)], &["opened 2", "closed 9"]),
            (&[], &[]),
        ];
        for (said, told) in cases {
            let (mut window, mut seen) = (CommonWindow::of(3), Told::default());
            for (event, second) in said {
                let at = SystemTime::UNIX_EPOCH + Duration::from_secs(*second);
                match *event {
                    "opened" => window.open(at, &mut seen),
                    "closed" => window.close(at, &mut seen),
                    _ => window.miss(at, &mut seen),
                }
            }
            window.finish(SystemTime::UNIX_EPOCH + Duration::from_secs(9), &mut seen);
            let seen: Vec<String> = seen.0.iter().map(|(what, second)| format!("{what} {second}")).collect();
            assert_eq!(seen, told, "{said:?}");
        }
    }
}
