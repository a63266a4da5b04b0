//! The files that a run writes beside its summary, each by a thread of its own, so that no disk
//! holds up an event loop.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use plimsoll_load::record::{Phase, Records, Row, Second};
use plimsoll_load::warnings::signal_name;
use plimsoll_measure::summary::Summary;
use plimsoll_measure::tally::Errors;
use plimsoll_measure::times::{Times, TimesSummary};
use plimsoll_sys::file;
use plimsoll_sys::poll::{self, Place};
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::{self, Signal, Signals};
use serde::Serialize;

use crate::outcome::Usage;

/// Which files are wanted.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Records")]
pub(super) struct Wanted {
    /// A CSV row per request: time,connection,request,bytes,response_time_us,phase,outcome.
    #[arg(long, value_name = "FILE")]
    request_log: Option<PathBuf>,
    /// A JSON line per second and phase (warm_up, window, drain).
    #[arg(long, value_name = "FILE")]
    timeseries: Option<PathBuf>,
    /// Percentiles of the response time, for HdrHistogram's plotters (.hgrm).
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// What became of each connection.
    #[arg(long)]
    pub(super) per_connection: bool,
}

impl Wanted {
    /// Whether anything is recorded while the run goes on.
    pub(super) fn any_while_it_runs(&self) -> bool {
        self.request_log.is_some() || self.timeseries.is_some() || self.per_connection
    }
}

/// How often a record's end is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long a record may stand still once a signal has asked for the end of the program.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The threads that write.
pub(super) struct Files {
    writers: Vec<Writer>,
    hdr: Option<(PathBuf, File)>,
}

/// A thread that writes a record.
struct Writer {
    path: PathBuf,
    thread: JoinHandle<io::Result<()>>,
    written: Arc<AtomicU64>,
}

/// A record's file, and how many bytes of it were written.
struct Counted {
    file: File,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Wanted {
    /// Creates the files, before the run, and the records that fill them.
    pub(super) fn open(&self, connections_wanted: bool) -> anyhow::Result<(Records, Files)> {
        // Before one is emptied, and once all are there.
        self.refuse_shared()?;
        let mut files = Files { writers: Vec::new(), hdr: None };
        let mut records = Records { connections: self.per_connection || connections_wanted, ..Records::default() };
        let requests = self.request_log.as_deref().map(create).transpose()?;
        let seconds = self.timeseries.as_deref().map(create).transpose()?;
        files.hdr = self.hdr.as_ref().map(|path| create(path).map(|file| (path.clone(), file))).transpose()?;
        self.refuse_shared()?;
        if let (Some(path), Some(file)) = (&self.request_log, requests) {
            records.requests = Some(files.start(path, file, write_requests)?);
        }
        if let (Some(path), Some(file)) = (&self.timeseries, seconds) {
            records.seconds = Some(files.start(path, file, write_seconds)?);
        }
        Ok((records, files))
    }

    /// Refuses two records in one file or pipe, or one where the summary goes: each would lie over
    /// the other, or be mixed with it.
    fn refuse_shared(&self) -> anyhow::Result<()> {
        let mut seen = vec![Path::new(file::STDOUT)];
        for path in [&self.request_log, &self.timeseries, &self.hdr].into_iter().filter_map(Option::as_deref) {
            if let Some(other) = seen.iter().find(|other| file::is_same(other, path)) {
                let (one, other) = (path.display(), other.display());
                bail!(Usage(format!(
                    "{other} and {one} are the same file or pipe, where one would mix with the other; name another"
                )));
            }
            seen.push(path);
        }
        Ok(())
    }
}

impl Writer {
    /// Waits for its end; fails where a signal has asked for the program's, and the record stands
    /// still: the reader of a FIFO may take nothing.
    fn wait(&self, interrupted: Option<&str>) -> anyhow::Result<()> {
        let signals = Signals::take(&[Signal::Interrupt, Signal::Terminate])?;
        let mut told = interrupted.map(str::to_owned);
        let (mut written, mut moved) = (self.written.load(Ordering::Relaxed), Instant::now());
        while !self.thread.is_finished() {
            let _ = poll::wait(&mut [Place::new(signals.as_raw_fd(), Interest::READ)], Some(LOOK));
            told = told.or_else(|| signals.next().map(signal_name));
            let now = self.written.load(Ordering::Relaxed);
            if now != written {
                (written, moved) = (now, Instant::now());
            }
            if let Some(signal) = told.as_ref().filter(|_| moved.elapsed() >= STANDSTILL) {
                bail!(
                    "its reader or disk takes nothing, and {signal} ended the wait; have its reader read, or name \
                     another file"
                );
            }
        }
        Ok(())
    }
}

impl Files {
    fn start<T: Send + 'static>(
        &mut self,
        path: &Path,
        file: File,
        write: impl FnOnce(&Receiver<T>, BufWriter<Counted>) -> io::Result<()> + Send + 'static,
    ) -> anyhow::Result<Sender<T>> {
        let written = Arc::default();
        let file = BufWriter::new(Counted { file, written: Arc::clone(&written) });
        let (sender, receiver) = channel();
        // The writer starts before the run takes its signals: unblocked there, SIGTERM would end
        // the process with no summary and half a record.
        signal::block(&[Signal::Interrupt, Signal::Terminate])?;
        let name = "record writer".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || write(&receiver, file))?;
        self.writers.push(Writer { path: path.to_path_buf(), thread, written });
        Ok(sender)
    }

    /// Waits until everything is on its way to the disk. The senders must be gone. Fails
    /// where a part of a record could not be written.
    pub(super) fn finish(self, summary: &Summary) -> anyhow::Result<()> {
        for writer in self.writers {
            writer.wait(summary.interrupted.as_deref()).map_err(|why| incomplete(&writer.path, &format!("{why:#}")))?;
            let outcome = writer.thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            outcome.map_err(|error| unwritten(&writer.path, &error))?;
        }
        if let Some((path, mut file)) = self.hdr {
            let encoded = summary.histograms.get("response_time_ns").map_or("", String::as_str);
            let times = Times::decode(encoded, &summary.response_time_us)?;
            file.write_all(times.percentile_lines().as_bytes()).map_err(|error| unwritten(&path, &error))?;
        }
        Ok(())
    }
}

fn incomplete(path: &Path, why: &str) -> anyhow::Error {
    anyhow!("the record {} is incomplete: {why}", path.display())
}

fn unwritten(path: &Path, error: &io::Error) -> anyhow::Error {
    incomplete(path, &format!("{error}; {}", file::write_remedy(error)))
}

fn create(path: &Path) -> anyhow::Result<File> {
    file::create(path).map_err(|error| {
        anyhow!(Usage(format!("cannot write {}: {error}; {}", path.display(), file::write_remedy(&error))))
    })
}

fn write_requests(batches: &Receiver<Vec<Row>>, mut file: BufWriter<Counted>) -> io::Result<()> {
    writeln!(file, "time,connection,request,bytes,response_time_us,phase,outcome")?;
    for batch in batches {
        for Row { at, connection, request, bytes, response_ns, phase, outcome } in batch {
            let (seconds, micros) = (at / 1_000_000_000, at / 1000 % 1_000_000);
            let response_us = response_ns as f64 / 1000.0;
            let (phase, outcome) = (phase.name(), outcome.name());
            writeln!(file, "{seconds}.{micros:06},{connection},{request},{bytes},{response_us},{phase},{outcome}")?;
        }
        // Event loops hand over each second: a reader of the file sees the rows as they come.
        file.flush()?;
    }
    file.flush()
}

#[derive(Serialize)]
struct SecondRow {
    second: u64,
    unix_s: f64,
    /// Where the part of the second begins that lies in the phase, and its length: counts are of
    /// that part.
    from_unix_s: f64,
    covers_s: f64,
    phase: &'static str,
    completed: u64,
    failed: u64,
    timed_out: u64,
    errors: Errors,
    response_time_us: TimesSummary,
}

/// Seconds that loops may be behind each other: they hand each over as it ends, but a busy one
/// comes to it late.
const PATIENCE: u64 = 2;

fn write_seconds(parts: &Receiver<Second>, mut file: BufWriter<Counted>) -> io::Result<()> {
    let mut pending: BTreeMap<(u64, Phase), Second> = BTreeMap::new();
    let mut newest = 0;
    let mut written = 0;
    for part in parts {
        newest = newest.max(part.number);
        // A part that comes too late for its own line enters the next: nothing is lost.
        let number = part.number.max(written);
        if number != part.number && part.is_empty() {
            continue;
        }
        let began = part.began + (number - part.number) * 1_000_000_000;
        let nothing = Second { began, from: u64::MAX, ..Second::default() };
        let whole = pending.entry((number, part.phase)).or_insert(nothing);
        if number == part.number {
            (whole.from, whole.to) = (whole.from.min(part.from), whole.to.max(part.to));
        }
        whole.completed += part.completed;
        whole.failed += part.failed;
        whole.timed_out += part.timed_out;
        whole.errors.add(&part.errors);
        whole.response.add(&part.response);
        while let Some(first) = pending.first_entry().filter(|first| first.key().0 + PATIENCE < newest) {
            let (key, second) = first.remove_entry();
            written = key.0 + 1;
            write_second(&mut file, key, &second)?;
        }
        // A reader of the file sees each line as it comes.
        file.flush()?;
    }
    for (key, second) in pending {
        write_second(&mut file, key, &second)?;
    }
    file.flush()
}

fn write_second(file: &mut impl Write, (number, phase): (u64, Phase), second: &Second) -> io::Result<()> {
    if second.is_empty() && phase != Phase::Window {
        // A phase that a second only touches.
        return Ok(());
    }
    let row = SecondRow {
        second: number,
        unix_s: second.began as f64 / 1e9,
        from_unix_s: second.from.min(second.began.max(second.to)) as f64 / 1e9,
        covers_s: second.to.saturating_sub(second.from) as f64 / 1e9,
        phase: phase.name(),
        completed: second.completed,
        failed: second.failed,
        timed_out: second.timed_out,
        errors: second.errors,
        response_time_us: second.response.summary(),
    };
    writeln!(file, "{}", serde_json::to_string(&row)?)
}
