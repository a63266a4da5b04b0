//! A thread that prints, so that a reader of standard output who does not read holds nothing up:
//! neither the frames of a link or the packets of a capture, nor their end.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll_sys::signal;
use serde::Serialize;

use crate::Output;
use crate::version::Versioned;

/// Lines that may wait for the reader. Past that they are left out.
const LINES_WAITING: usize = 1024;

/// A line is written in pieces of this many bytes, so that it is seen to be read: a page, as a full
/// pipe takes no less (pipe(7)).
const PIECE_BYTES: usize = 4096;

/// For how long a reader who takes nothing is waited for at the end. One who has kept the end
/// waiting for this long does so until a further signal at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the reader is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What an [`Output`] prints, without waiting for its reader before the end.
pub(crate) struct Printer {
    output: Output,
    lines: SyncSender<String>,
    /// Pieces that were written so far.
    written: Arc<AtomicU64>,
    /// What became of the last line.
    printed: Receiver<io::Result<()>>,
    /// When the end began to wait for the reader.
    waits_since: OnceCell<Instant>,
}

impl Printer {
    /// Starts the thread.
    pub(crate) fn start(output: Output) -> anyhow::Result<Printer> {
        let (lines, waiting) = mpsc::sync_channel::<String>(LINES_WAITING);
        let (tell, printed) = mpsc::sync_channel(1);
        let written = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&written);
        let stdout = io::stdout().as_fd().try_clone_to_owned().context("standard output cannot be written")?;
        let mut stdout = File::from(stdout);
        let print = move || {
            // Standard output that cannot be written ends nothing before the end.
            let mut last = Ok(());
            for mut line in waiting {
                line.push('\n');
                last = line.as_bytes().chunks(PIECE_BYTES).try_for_each(|piece| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    stdout.write_all(piece)
                });
            }
            // Nobody waits for it where the reader was waited for in vain.
            let _ = tell.send(last);
        };
        thread::Builder::new()
            .name("printer".to_owned())
            .spawn(print)
            .context("cannot start the thread that prints")?;
        Ok(Printer { output, lines, written, printed, waits_since: OnceCell::new() })
    }

    /// As [`Output::print`]: an interim record, or sentence unless all is to be quiet.
    pub(crate) fn print(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) {
        let _ = self.offer(record, sentence);
    }

    /// The same; returns whether there was room for it.
    pub(crate) fn offer(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> bool {
        !self.output.shows_progress() || self.lines.try_send(self.output.line(record, sentence)).is_ok()
    }

    /// The same once there is room for it; returns whether there was. For the end, when nothing
    /// else is held up.
    pub(crate) fn insist(&self, record: &impl Serialize, sentence: impl FnOnce() -> String) -> bool {
        !self.output.shows_progress() || self.send(self.output.line(record, sentence)).is_ok()
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

    fn finish(self, last: String) -> io::Result<()> {
        self.send(last)?;
        let mut patience = Patience::of(&self);
        drop(self.lines);
        loop {
            match self.printed.try_recv() {
                Ok(printed) => return printed,
                Err(TryRecvError::Empty) => patience.wait()?,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that prints panicked"));
                }
            }
        }
    }

    /// Has a line printed, and waits for room for it while the reader reads.
    fn send(&self, mut line: String) -> io::Result<()> {
        let mut patience = Patience::of(self);
        while let Err(TrySendError::Full(unsent)) = self.lines.try_send(line) {
            patience.wait()?;
            line = unsent;
        }
        Ok(())
    }
}

/// A wait for the reader that ends once it takes nothing any more.
struct Patience {
    written: Arc<AtomicU64>,
    before: u64,
    until: Instant,
    since: Instant,
}

impl Patience {
    fn of(printer: &Printer) -> Patience {
        let (written, now) = (Arc::clone(&printer.written), Instant::now());
        let before = written.load(Ordering::Relaxed);
        Patience { written, before, until: now + PATIENCE, since: *printer.waits_since.get_or_init(|| now) }
    }

    /// Waits for a moment, or says that it is over.
    fn wait(&mut self) -> io::Result<()> {
        let (written, now) = (self.written.load(Ordering::Relaxed), Instant::now());
        if std::mem::replace(&mut self.before, written) != written {
            self.until = now + PATIENCE;
        }
        if now >= self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has taken nothing for {PATIENCE:?}")));
        }
        if now >= self.since + PATIENCE {
            // Whoever asks once more does not want to wait.
            signal::release_all();
        }
        thread::sleep(LOOK_EVERY);
        Ok(())
    }
}
