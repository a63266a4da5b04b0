//! A thread that prints, so that a reader of standard output who does not read holds nothing up:
//! neither the frames of a link or the packets of a capture, nor their end.

use std::cell::Cell;
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

/// For how long a reader who takes less than a piece is waited for at the end. One who has kept the
/// end waiting for this long does so until a further signal at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the reader is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What an [`Output`] prints, without waiting for its reader before the end.
pub(crate) struct Printer {
    output: Output,
    lines: SyncSender<String>,
    /// What became of the last line.
    printed: Receiver<io::Result<()>>,
    reader: Reader,
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
        Ok(Printer { output, lines, printed, reader: Reader { written, waits: Cell::new(None) } })
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
        drop(self.lines);
        loop {
            match self.printed.try_recv() {
                Ok(printed) => return printed,
                Err(TryRecvError::Empty) => self.reader.wait()?,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that prints panicked"));
                }
            }
        }
    }

    /// Has a line printed, and waits for room for it while the reader reads.
    fn send(&self, mut line: String) -> io::Result<()> {
        while let Err(TrySendError::Full(unsent)) = self.lines.try_send(line) {
            self.reader.wait()?;
            line = unsent;
        }
        Ok(())
    }
}

/// Whoever reads standard output, as far as what is written tells.
struct Reader {
    /// Pieces whose writing was begun so far.
    written: Arc<AtomicU64>,
    /// How the end waits for it, once it does.
    waits: Cell<Option<Waiting>>,
}

#[derive(Clone, Copy)]
struct Waiting {
    since: Instant,
    /// Pieces that were written at the last look, and since when no more were.
    written: u64,
    idle_since: Instant,
}

impl Reader {
    /// Waits for a moment, or says that it is over, as the reader takes nothing any more.
    fn wait(&self) -> io::Result<()> {
        let (written, now) = (self.written.load(Ordering::Relaxed), Instant::now());
        let mut waiting = self.waits.get().unwrap_or(Waiting { since: now, written, idle_since: now });
        if waiting.written != written {
            waiting = Waiting { written, idle_since: now, ..waiting };
        }
        self.waits.set(Some(waiting));
        if now >= waiting.idle_since + PATIENCE {
            let taken = format!("less than {} KiB of it was taken in {PATIENCE:?}", PIECE_BYTES / 1024);
            return Err(io::Error::new(io::ErrorKind::TimedOut, taken));
        }
        if now >= waiting.since + PATIENCE {
            // Whoever asks once more does not want to wait.
            signal::release_all();
        }
        thread::sleep(LOOK_EVERY);
        Ok(())
    }
}
