//! A thread that prints, so that a reader of standard output who does not read holds nothing up:
//! neither the frames of a link, nor its end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use crate::Output;
use crate::version::Versioned;

/// Lines that may wait for the reader. Past that they are left out.
const LINES_WAITING: usize = 1024;

/// For how long a reader who reads nothing is waited for at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a reader who does not read is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What an [`Output`] prints, without waiting for its reader.
pub(crate) struct Printer {
    output: Output,
    lines: SyncSender<String>,
    /// Lines that are printed so far.
    count: Arc<AtomicU64>,
    /// What became of the last line.
    printed: Receiver<io::Result<()>>,
}

impl Printer {
    /// Starts the thread.
    pub(crate) fn start(output: Output) -> anyhow::Result<Printer> {
        let (lines, waiting) = mpsc::sync_channel::<String>(LINES_WAITING);
        let (tell, printed) = mpsc::sync_channel(1);
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let print = move || {
            // Standard output that cannot be written ends nothing before the end.
            let mut last = Ok(());
            for line in waiting {
                let mut stdout = io::stdout().lock();
                last = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
                counted.fetch_add(1, Ordering::Relaxed);
            }
            // Nobody waits for it where the reader was waited for in vain.
            let _ = tell.send(last);
        };
        thread::Builder::new()
            .name("printer".to_owned())
            .spawn(print)
            .context("cannot start the thread that prints")?;
        Ok(Printer { output, lines, count, printed })
    }

    /// As [`Output::print`]: an interim record, or sentence unless all is to be quiet.
    pub(crate) fn print(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        let _ = self.offer(record, sentence);
    }

    /// The same; returns whether there was room for it.
    pub(crate) fn offer(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> bool {
        !self.output.shows_progress() || self.lines.try_send(self.output.line(record, sentence)).is_ok()
    }

    /// As [`Output::print_result`].
    pub(crate) fn print_result(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        let _ = self.lines.try_send(self.output.line(record, sentence));
    }

    /// As [`Output::print_outcome`]: the last record, and an error where it cannot be written, or
    /// nobody reads what is printed.
    pub(crate) fn print_outcome(
        self,
        record: &impl Serialize,
        sentence: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let last = self.output.line(&Versioned::of(record), sentence);
        crate::check_written(self.finish(last))
    }

    fn finish(self, mut last: String) -> io::Result<()> {
        let (mut before, mut until) = (self.count.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        let mut has_stopped_to_read = || {
            let now = self.count.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, now) != now {
                until = Instant::now() + PATIENCE;
            }
            Instant::now() >= until
        };
        while let Err(TrySendError::Full(line)) = self.lines.try_send(last) {
            if has_stopped_to_read() {
                return Err(unread());
            }
            last = line;
            thread::sleep(LOOK_EVERY);
        }
        drop(self.lines);
        loop {
            match self.printed.recv_timeout(LOOK_EVERY) {
                Ok(printed) => return printed,
                Err(RecvTimeoutError::Timeout) if has_stopped_to_read() => return Err(unread()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that prints panicked"));
                }
            }
        }
    }
}

fn unread() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("its reader has read nothing for {PATIENCE:?}"))
}
