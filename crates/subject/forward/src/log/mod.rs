//! The logs: rows handed over a bounded queue to a thread that alone writes them.
//!
//! port_fwd's lines went through a pipe that filled, and then every connection stood still. Here handing a row over never waits: where the queue is full the row is
//! dropped and counted, and where the disk is, the thread waits, or drops what it could not write.

mod output;
mod row;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use output::Output;
pub(crate) use row::{ConnectionRow, TransferRow};

use crate::Say;
use crate::table::{LogFormat, LogTarget};

/// Rows that wait at most: a burst of this many ends between two writes. It takes about 4 MB.
const QUEUE: usize = 16 * 1024;
/// How long the last rows may take to be written when the forwarder ends: a reader that has stalled does not hold it up.
const LAST_ROWS: Duration = Duration::from_secs(2);

/// How a relayed connection ended, as the connection log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// The client ended its stream first, and the server followed.
    ClientClosed,
    /// The server ended its stream first, and the client followed.
    ServerClosed,
    /// The client reset the connection.
    ClientReset,
    /// The server reset the connection.
    ServerReset,
    /// No byte for as long as `idle_timeout`.
    Idle,
    /// One half had ended, and the other brought no byte for as long as `half_close`.
    HalfClose,
    /// Every destination refused.
    ConnectRefused,
    /// No destination answered in time.
    ConnectTimeout,
    /// Connecting failed for another reason: no route, no port, no name.
    ConnectFailed,
    /// The forwarder had no descriptor for the other half.
    Limit,
    /// Cut off at the end of the drain.
    Drained,
}

impl Ending {
    /// Its name in logs and totals.
    pub fn name(self) -> &'static str {
        match self {
            Ending::ClientClosed => "client_closed",
            Ending::ServerClosed => "server_closed",
            Ending::ClientReset => "client_reset",
            Ending::ServerReset => "server_reset",
            Ending::Idle => "idle",
            Ending::HalfClose => "half_close",
            Ending::ConnectRefused => "connect_refused",
            Ending::ConnectTimeout => "connect_timeout",
            Ending::ConnectFailed => "connect_failed",
            Ending::Limit => "limit",
            Ending::Drained => "drained",
        }
    }
}

/// The other end of a connection, in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Never connected.
    #[default]
    None,
    Tcp(SocketAddr),
    /// A Unix socket; of a client the path is not known.
    Unix(Option<PathBuf>),
}

pub(crate) enum Record {
    Connection(ConnectionRow),
    Transfer(TransferRow),
    /// Close the files and open them anew, as something may have moved them away.
    Reopen,
}

/// Where rows are handed over. Cloned for each event loop.
#[derive(Clone)]
pub(crate) struct Log {
    queue: Option<SyncSender<Record>>,
    pub(crate) connections: bool,
    pub(crate) transfers: bool,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    dropped: AtomicU64,
    said: AtomicBool,
}

impl Log {
    /// Hands a row over, or drops it: never waits.
    pub(crate) fn hand(&self, record: Record) {
        if let Some(queue) = &self.queue
            && queue.try_send(record).is_err()
        {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread that writes.
pub(crate) struct Writer {
    log: Log,
    /// Closed when the thread has ended.
    ended: Option<Receiver<()>>,
    lost: Arc<AtomicU64>,
}

impl Writer {
    /// Opens the logs that are asked for, and starts the thread if there are any.
    pub(crate) fn start(
        connections: Option<&LogTarget>,
        transfers: Option<PathBuf>,
        say: Arc<Say>,
    ) -> Result<Writer, (PathBuf, io::Error)> {
        let mut outputs = Outputs {
            connections: connections.map(open_connections).transpose()?,
            transfers: transfers.map(|path| open(&path, row::TRANSFER_HEADER)).transpose()?,
            format: connections.map_or(LogFormat::Csv, |target| target.format),
            clock: Clock::now(),
            line: String::new(),
            say,
            lost: Arc::new(AtomicU64::new(0)),
        };
        let wanted = (outputs.connections.is_some(), outputs.transfers.is_some());
        let lost = Arc::clone(&outputs.lost);
        let (queue, ended) = if wanted == (false, false) {
            (None, None)
        } else {
            let (queue, rows) = sync_channel(QUEUE);
            let (end, ended) = sync_channel(0);
            let write = move || {
                outputs.write_all(&rows);
                drop(end);
            };
            let thread = std::thread::Builder::new().name("log".to_owned()).spawn(write);
            thread.map_err(|error| (PathBuf::from("the log's thread"), error))?;
            (Some(queue), Some(ended))
        };
        let log = Log { queue, connections: wanted.0, transfers: wanted.1, counts: Arc::default() };
        Ok(Writer { log, ended, lost })
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Says once that rows are being dropped, when they are.
    pub(crate) fn say_drops(&self, say: &Say) {
        let dropped = self.log.counts.dropped.load(Ordering::Relaxed);
        if dropped > 0 && !self.log.counts.said.swap(true, Ordering::Relaxed) {
            say(
                "log rows are dropped, as they are not written fast enough: whatever reads the log, or its disk, is slower than the connections",
            );
        }
    }

    /// Lets the thread write what waits, and returns how many rows were dropped or lost.
    pub(crate) fn finish(self) -> u64 {
        let Writer { log, ended, lost } = self;
        let Log { queue, counts, .. } = log;
        drop(queue);
        if let Some(ended) = ended {
            let _ = ended.recv_timeout(LAST_ROWS);
        }
        counts.dropped.load(Ordering::Relaxed) + lost.load(Ordering::Relaxed)
    }
}

/// Ties the monotonic clock, in which connections are timed, to the time of day.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    instant: Instant,
    unix: Duration,
}

impl Clock {
    fn now() -> Clock {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { instant: Instant::now(), unix }
    }

    /// Time since 1970 at `instant`.
    pub(crate) fn unix(&self, instant: Instant) -> Duration {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.unix + after,
            None => self.unix.saturating_sub(self.instant - instant),
        }
    }
}

struct Outputs {
    connections: Option<Output>,
    transfers: Option<Output>,
    format: LogFormat,
    clock: Clock,
    line: String,
    say: Arc<Say>,
    lost: Arc<AtomicU64>,
}

impl Outputs {
    fn write_all(&mut self, rows: &Receiver<Record>) {
        while let Ok(first) = rows.recv() {
            // The time of day may have been set since.
            self.clock = Clock::now();
            self.take(first);
            // What is there is gathered and written together.
            rows.try_iter().take(QUEUE).for_each(|record| self.take(record));
            self.flush();
        }
    }

    fn take(&mut self, record: Record) {
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
            Record::Reopen => {
                self.flush();
                for output in [&mut self.connections, &mut self.transfers].into_iter().flatten() {
                    if let Err(error) = output.reopen() {
                        (self.say)(&format!("the log is written on where it was: it cannot be opened anew: {error}"));
                    }
                }
                return;
            }
        };
        if let Some(output) = output
            && output.add(&self.line)
        {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for output in [&mut self.connections, &mut self.transfers].into_iter().flatten() {
            if let Some((rows, error)) = output.flush()
                && self.lost.fetch_add(rows, Ordering::Relaxed) == 0
            {
                (self.say)(&format!("log rows are lost, as they cannot be written: {error}; free space on the disk"));
            }
        }
    }
}

fn open_connections(target: &LogTarget) -> Result<Output, (PathBuf, io::Error)> {
    let header = match target.format {
        LogFormat::Csv => row::CONNECTION_HEADER,
        LogFormat::Json => "",
    };
    match &target.path {
        Some(path) => open(path, header),
        None => Output::stdout(header).map_err(|error| (PathBuf::from("standard output"), error)),
    }
}

fn open(path: &std::path::Path, header: &'static str) -> Result<Output, (PathBuf, io::Error)> {
    Output::open(path, header).map_err(|error| (path.to_owned(), error))
}
