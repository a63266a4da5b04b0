//! The logs: rows handed over a bounded queue to a thread that alone writes them.
//!
//! port_fwd's lines went through a pipe that filled, and then every connection stopped. Here
//! handing a row over never waits: if the queue is full the row is dropped and counted. If the disk
//! is full the thread waits, or drops rows that it could not write.

mod output;
mod row;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use output::Output;
use plimsoll_sys::file;
use row::Clock;
pub(crate) use row::{ConnectionRow, LoopNumber, Peer, TransferRow};

use crate::Say;
use crate::table::{LogFormat, LogTarget};

/// Rows that wait at most: a burst of this many ends between two writes. It takes about 4 MB.
const QUEUE: usize = 16 * 1024;
/// How long the last rows may take to be written when the forwarder ends: a reader that has stalled
/// does not hold it up.
const LAST_ROWS: Duration = Duration::from_secs(2);

pub(crate) enum Record {
    Connection(ConnectionRow),
    Transfer(TransferRow),
    /// Something is wanted of the thread: see [`Wanted`].
    Look,
}

/// Where rows are handed over. Cloned for each event loop.
#[derive(Clone)]
pub(crate) struct Log {
    queue: SyncSender<Record>,
    pub(crate) transfers: bool,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// A log of connections is open.
    connections: AtomicBool,
    /// Rows that were handed over.
    handed: AtomicU64,
    /// Of these, rows that are written, or that no log was open for.
    done: AtomicU64,
    /// Rows that the queue had no room for.
    dropped: AtomicU64,
    /// Rows that could not be written.
    lost: AtomicU64,
    said: AtomicBool,
    wanted: Mutex<Wanted>,
}

/// What the thread is asked for. It is no row of the queue, as a full queue drops rows.
#[derive(Default)]
struct Wanted {
    /// Close the files and open them anew, as something may have moved them away.
    reopen: bool,
    /// Write the rows of connections there from now on, or nowhere.
    target: Option<Option<(Output, LogFormat)>>,
}

impl Log {
    /// Whether rows of connections are wanted.
    pub(crate) fn wants_connections(&self) -> bool {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Rows that went missing so far: the queue, or the disk, had no room for them.
    pub(crate) fn missing(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed) + self.state.lost.load(Ordering::Relaxed)
    }

    /// Hands a row over, or drops it: never waits.
    pub(crate) fn hand(&self, record: Record) {
        self.state.handed.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(record).is_err() {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.state.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        // Where the queue is full the thread has rows to write, and looks after them.
        let _ = self.queue.try_send(Record::Look);
    }
}

/// The thread that writes.
pub(crate) struct Writer {
    log: Log,
    /// Where the rows of transfers go.
    transfers: Option<PathBuf>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Writer {
    /// Opens the logs that are asked for, and starts the thread.
    pub(crate) fn start(
        connections: Option<&LogTarget>,
        transfers: Option<PathBuf>,
        say: Arc<Say>,
    ) -> Result<Writer, (PathBuf, io::Error)> {
        // Nothing is in a file that is both before it is refused.
        let mut rows = transfers.as_deref().map(|path| open(path, row::TRANSFER_HEADER)).transpose()?;
        let connections_log = connections.map(|target| open_connections(target, transfers.as_deref())).transpose()?;
        if let (Some(rows), Some(path)) = (&mut rows, &transfers) {
            rows.begin().map_err(|error| (path.clone(), error))?;
        }
        let mut outputs = Outputs {
            connections: connections_log,
            transfers: rows,
            format: connections.map_or(LogFormat::Csv, |target| target.format),
            clock: Clock::now(),
            line: String::new(),
            taken: 0,
            say,
        };
        let state = Arc::new(State::default());
        state.connections.store(outputs.connections.is_some(), Ordering::Relaxed);
        let (queue, rows) = sync_channel(QUEUE);
        let (end, ended) = sync_channel(0);
        let shared = Arc::clone(&state);
        let write = move || {
            outputs.write_all(&rows, &shared);
            // Closed by the time that the end is told.
            drop((outputs, shared));
            drop(end);
        };
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(write);
        thread.map_err(|error| (PathBuf::from("the log's thread"), error))?;
        Ok(Writer { log: Log { queue, transfers: transfers.is_some(), state }, transfers, ended })
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Has the files opened anew, as something may have moved them away.
    pub(crate) fn reopen(&self) {
        self.log.want(|wanted| wanted.reopen = true);
    }

    /// Has the rows of connections written elsewhere, or nowhere. Where the new log cannot be
    /// opened the old one goes on.
    pub(crate) fn retarget(&self, target: Option<&LogTarget>) -> Result<(), (PathBuf, io::Error)> {
        let open = |target| open_connections(target, self.transfers.as_deref());
        let opened = target.map(|target| open(target).map(|output| (output, target.format))).transpose()?;
        self.log.state.connections.store(opened.is_some(), Ordering::Relaxed);
        self.log.want(|wanted| wanted.target = Some(opened));
        Ok(())
    }

    /// Says once that rows are being dropped, when they are.
    pub(crate) fn say_drops(&self, say: &Say) {
        let state = &self.log.state;
        if state.dropped.load(Ordering::Relaxed) > 0 && !state.said.swap(true, Ordering::Relaxed) {
            say("log rows are dropped, as they are not written fast enough: whatever reads the log, or its disk, is \
                 slower than the connections");
        }
    }

    /// Lets the thread write what waits.
    pub(crate) fn finish(self) -> Written {
        let Writer { log, ended, .. } = self;
        let Log { queue, state, .. } = log;
        drop(queue);
        let has_ended = ended.recv_timeout(LAST_ROWS) == Err(RecvTimeoutError::Disconnected);
        let missing = state.handed.load(Ordering::Relaxed) - state.done.load(Ordering::Relaxed);
        Written { missing, has_ended }
    }
}

/// What became of the rows.
pub(crate) struct Written {
    /// Rows that are not known to be written.
    pub(crate) missing: u64,
    /// The thread has written the others, and closed the files. If not, it still waits for whatever
    /// reads the log.
    pub(crate) has_ended: bool,
}

struct Outputs {
    connections: Option<Output>,
    transfers: Option<Output>,
    format: LogFormat,
    clock: Clock,
    line: String,
    /// Rows since the outputs were flushed.
    taken: u64,
    say: Arc<Say>,
}

impl Outputs {
    fn write_all(&mut self, rows: &Receiver<Record>, state: &State) {
        while let Ok(first) = rows.recv() {
            // The time of day may have been set since.
            self.clock = Clock::now();
            self.take(first, state);
            // What is there is gathered and written together.
            rows.try_iter().take(QUEUE).for_each(|record| self.take(record, state));
            self.flush(state);
            self.follow(state);
        }
    }

    /// Does what the thread was asked for.
    fn follow(&mut self, state: &State) {
        let Wanted { reopen, target } =
            std::mem::take(&mut *state.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        if !reopen && target.is_none() {
            return;
        }
        self.flush(state);
        if reopen {
            for output in [&mut self.connections, &mut self.transfers].into_iter().flatten() {
                if let Err(error) = output.reopen() {
                    (self.say)(&format!("the log is written on where it was: it cannot be opened anew: {error}"));
                }
            }
        }
        if let Some(target) = target {
            let (output, format) = target.map_or((None, self.format), |(output, format)| (Some(output), format));
            (self.connections, self.format) = (output, format);
        }
    }

    fn take(&mut self, record: Record, state: &State) {
        self.line.clear();
        let output = match record {
            Record::Connection(row) => {
                row.write(&mut self.line, self.format, &self.clock);
                self.connections.as_mut()
            }
            Record::Transfer(row) => {
                row.write(&mut self.line, &self.clock);
                self.transfers.as_mut()
            }
            Record::Look => return self.follow(state),
        };
        self.taken += 1;
        if let Some(output) = output
            && output.add(&self.line)
        {
            self.flush(state);
        }
    }

    fn flush(&mut self, state: &State) {
        let mut done = std::mem::take(&mut self.taken);
        for output in [&mut self.connections, &mut self.transfers].into_iter().flatten() {
            let Some((rows, error)) = output.flush() else { continue };
            done -= rows;
            if state.lost.fetch_add(rows, Ordering::Relaxed) == 0 {
                let remedy = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space on the disk",
                    io::ErrorKind::BrokenPipe => "; what read the log has ended: start it again",
                    _ => "",
                };
                (self.say)(&format!("log rows are lost, as they cannot be written: {error}{remedy}"));
            }
        }
        state.done.fetch_add(done, Ordering::Relaxed);
    }
}

/// Opens the log of connections, unless the rows of transfers go there.
fn open_connections(target: &LogTarget, transfers: Option<&Path>) -> Result<Output, (PathBuf, io::Error)> {
    let path = target.path.as_deref().unwrap_or(Path::new(file::STDOUT));
    if transfers.is_some_and(|other| file::is_same(path, other)) {
        return Err((path.to_owned(), io::Error::other("it has the rows of transfers, which have another form")));
    }
    let header = match target.format {
        LogFormat::Csv => row::CONNECTION_HEADER,
        LogFormat::Json => "",
    };
    let mut output = match &target.path {
        Some(path) => open(path, header),
        None => Output::stdout(header).map_err(|error| (PathBuf::from("standard output"), error)),
    }?;
    output.begin().map_err(|error| (path.to_owned(), error))?;
    Ok(output)
}

fn open(path: &std::path::Path, header: &'static str) -> Result<Output, (PathBuf, io::Error)> {
    Output::open(path, header).map_err(|error| (path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_opened_anew_although_rows_fill_the_queue() {
        let folder = std::env::temp_dir().join(format!("plimsoll-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written to");
        let (path, moved) = (folder.join("connections.csv"), folder.join("moved.csv"));
        let (queue, rows) = sync_channel(1);
        let log = Log { queue, transfers: false, state: Arc::default() };
        let mut outputs = Outputs {
            connections: Some(open(&path, row::CONNECTION_HEADER).expect("a file")),
            transfers: None,
            format: LogFormat::Csv,
            clock: Clock::now(),
            line: String::new(),
            taken: 0,
            say: Arc::new(Box::new(|_: &str| {})),
        };
        // The thread has not got to it yet.
        log.hand(Record::Look);
        std::fs::rename(&path, &moved).expect("it is there");
        log.want(|wanted| wanted.reopen = true);
        log.hand(Record::Look);
        assert_eq!(log.missing(), 1, "the queue is full");
        let state = Arc::clone(&log.state);
        drop(log);
        outputs.write_all(&rows, &state);
        let text = std::fs::read_to_string(&path).expect("it is opened anew");
        assert_eq!(text.trim_end(), row::CONNECTION_HEADER);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
