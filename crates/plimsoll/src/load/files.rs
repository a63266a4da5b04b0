//! The files that a run writes beside its summary, each by a thread of its own, so that no disk holds up an event loop.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use plimsoll_load::record::{Records, Request, Second};
use plimsoll_measure::summary::Summary;
use plimsoll_measure::times::{Times, TimesSummary};
use serde::Serialize;

use crate::outcome::Usage;

/// Which files are wanted.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Records")]
pub(super) struct Wanted {
    /// A CSV row a completed request: time,connection,request,bytes,response_time_us.
    #[arg(long, value_name = "FILE")]
    request_log: Option<PathBuf>,
    /// A JSON line a second.
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

/// The threads that write.
pub(super) struct Files {
    writers: Vec<(PathBuf, JoinHandle<io::Result<()>>)>,
    hdr: Option<(PathBuf, File)>,
}

impl Wanted {
    /// Creates the files, before the run, and the records that fill them.
    pub(super) fn open(&self, connections_wanted: bool) -> anyhow::Result<(Records, Files)> {
        let mut files = Files { writers: Vec::new(), hdr: None };
        let mut records = Records { connections: self.per_connection || connections_wanted, ..Records::default() };
        if let Some(path) = &self.request_log {
            records.requests = Some(files.start(path, write_requests)?);
        }
        if let Some(path) = &self.timeseries {
            records.seconds = Some(files.start(path, write_seconds)?);
        }
        if let Some(path) = &self.hdr {
            files.hdr = Some((path.clone(), create(path)?));
        }
        Ok((records, files))
    }
}

impl Files {
    fn start<T: Send + 'static>(
        &mut self,
        path: &Path,
        write: impl FnOnce(&Receiver<T>, BufWriter<File>) -> io::Result<()> + Send + 'static,
    ) -> anyhow::Result<Sender<T>> {
        let file = BufWriter::new(create(path)?);
        let (sender, receiver) = channel();
        let name = "record writer".to_owned();
        let writer = std::thread::Builder::new().name(name).spawn(move || write(&receiver, file))?;
        self.writers.push((path.to_path_buf(), writer));
        Ok(sender)
    }

    /// Waits until everything is on its way to the disk. The senders must be gone.
    pub(super) fn finish(self, summary: &Summary) -> anyhow::Result<()> {
        for (path, writer) in self.writers {
            let outcome = writer.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            outcome.with_context(|| format!("the record {} is incomplete", path.display()))?;
        }
        if let Some((path, mut file)) = self.hdr {
            let encoded = summary.histograms.get("response_time_ns").map_or("", String::as_str);
            let times = Times::decode(encoded, &summary.response_time_us)?;
            file.write_all(times.percentile_lines().as_bytes())
                .with_context(|| format!("the percentiles {} are incomplete", path.display()))?;
        }
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).map_err(|error| {
        anyhow!(Usage(format!("cannot write {}: {error}; name a file in a folder that is yours", path.display())))
    })
}

fn write_requests(batches: &Receiver<Vec<Request>>, mut file: BufWriter<File>) -> io::Result<()> {
    writeln!(file, "time,connection,request,bytes,response_time_us")?;
    for request in batches.iter().flatten() {
        let Request { at, connection, request, bytes, response_ns } = request;
        let (seconds, micros) = (at / 1_000_000_000, at / 1000 % 1_000_000);
        let response_us = response_ns as f64 / 1000.0;
        writeln!(file, "{seconds}.{micros:06},{connection},{request},{bytes},{response_us}")?;
    }
    file.flush()
}

#[derive(Serialize)]
struct Line {
    second: u64,
    completed: u64,
    failed: u64,
    response_time_us: TimesSummary,
}

/// Seconds that loops may be behind each other: they hand each over as it ends, but a busy one comes to it late.
const PATIENCE: u64 = 2;

fn write_seconds(parts: &Receiver<Second>, mut file: BufWriter<File>) -> io::Result<()> {
    let mut pending: BTreeMap<u64, Second> = BTreeMap::new();
    let mut newest = 0;
    let mut written = 0;
    for part in parts {
        newest = newest.max(part.number);
        // One that comes too late for its own line enters the next: nothing is lost.
        let whole = pending.entry(part.number.max(written)).or_default();
        whole.completed += part.completed;
        whole.failed += part.failed;
        whole.response.add(&part.response);
        while let Some(first) = pending.first_entry().filter(|first| first.key() + PATIENCE < newest) {
            let (number, second) = first.remove_entry();
            written = number + 1;
            write_second(&mut file, number, &second)?;
            // Whoever follows the file sees each line as it comes.
            file.flush()?;
        }
    }
    for (number, second) in pending {
        write_second(&mut file, number, &second)?;
    }
    file.flush()
}

fn write_second(file: &mut impl Write, number: u64, second: &Second) -> io::Result<()> {
    let line = Line {
        second: number,
        completed: second.completed,
        failed: second.failed,
        response_time_us: second.response.summary(),
    };
    writeln!(file, "{}", serde_json::to_string(&line)?)
}
