//! The packets of an interface, as they pass.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_sys::epoll::{Epoll, Trigger};
use plimsoll_sys::file;
use plimsoll_sys::packet::Ring;
use plimsoll_sys::readiness::Interest;
use plimsoll_sys::signal::Signals;
use thiserror::Error;

use crate::file::{FileError, Writer};
use crate::statistics::{Interval, Outcome, Statistics};

/// What to capture.
#[derive(Clone, Debug)]
pub struct Config {
    /// The interface's name.
    pub interface: String,
    /// The file to write packets to, if any.
    pub write: Option<PathBuf>,
    /// Bytes kept of each packet.
    pub snap: u32,
    /// Divides the time, and is not 0.
    pub interval: Duration,
    /// When to end; else at a signal.
    pub duration: Option<Duration>,
}

/// Why a capture cannot be made.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The interface cannot be captured.
    #[error("cannot capture on `{interface}`: {why}")]
    Interface {
        /// Its name.
        interface: String,
        /// What is wrong, and how to fix it.
        why: String,
    },
    /// The file cannot be made.
    #[error("cannot write `{}`: {source}; {}", path.display(), file::write_remedy(.source))]
    Create {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The packets cannot be written.
    #[error("cannot write `{}`: {error}; {}", path.display(), remedy(.error))]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: FileError,
    },
    /// The kernel's counts cannot be read.
    #[error(
        "cannot read what the kernel counted (PACKET_STATISTICS): {0}; without that, dropped packets would go unseen"
    )]
    Statistics(io::Error),
    /// The loop failed.
    #[error("cannot wait for packets: {0}")]
    Wait(#[from] io::Error),
}

impl CaptureError {
    /// Whether it is the environment that cannot run this, rather than something that failed.
    pub fn is_environment(&self) -> bool {
        matches!(self, CaptureError::Interface { .. })
    }
}

/// How long the kernel may keep a packet in a block that is not full, with room to spare.
const LAG: Duration = Duration::from_millis(100);

/// More than the ring has, so that a turn takes all that had come when it began; bounded, so that a
/// flood cannot keep the capture from ending.
const BLOCKS_A_TURN: usize = 64;

/// When to report again what could not be reported.
const REPORT_AGAIN: Duration = Duration::from_millis(5);

const PACKETS: u64 = 0;
const SIGNALS: u64 = 1;

/// A capture under way: packets are kept from the moment it is opened.
pub struct Capture<'a> {
    config: Config,
    signals: &'a Signals,
    ring: Ring,
    epoll: Epoll,
    sink: PacketSink,
    /// What the kernel has counted, as far as it was asked.
    received: u64,
    drops: u64,
}

/// Where packets go.
struct PacketSink {
    statistics: Statistics,
    writer: Option<Writer>,
    failure: Option<FileError>,
    /// Packets after this, since 1970, are not part of the capture.
    ends_at: Duration,
}

impl<'a> Capture<'a> {
    /// Begins. It ends at one of these signals, or after its time.
    pub fn open(config: Config, signals: &'a Signals) -> Result<Capture<'a>, CaptureError> {
        // The file comes last, as what was in it is lost: a capture that cannot begin leaves it.
        let ring = Ring::open(&config.interface, config.snap).map_err(|error| CaptureError::Interface {
            interface: config.interface.clone(),
            why: interface_error(&error),
        })?;
        let epoll = Epoll::new(2)?;
        epoll.add(&ring, PACKETS, Interest::READ, Trigger::Level)?;
        epoll.add(signals, SIGNALS, Interest::READ, Trigger::Level)?;
        let writer = config.write.as_ref().map(|path| Writer::create(path, &config.interface, config.snap));
        let writer = writer.transpose().map_err(|error| create_error(&config, error))?;
        let statistics = Statistics::new(config.interval);
        let sink = PacketSink { statistics, writer, failure: None, ends_at: Duration::MAX };
        Ok(Capture { config, signals, ring, epoll, sink, received: 0, drops: 0 })
    }

    /// Captures until the time is over, a signal comes, or it fails, which leaves what was counted
    /// until then. `report` is called with each interval that is over, by its number. Where it
    /// returns false, it is called with the same interval again. What is not reported by the end is
    /// in the summary.
    pub fn run(mut self, mut report: impl FnMut(usize, Interval) -> bool) -> Outcome<CaptureError> {
        let ended = match self.follow(&mut report) {
            Ok(()) => self.take_rest(),
            // What passed before the interface went away is handed over as ever.
            Err(gone @ CaptureError::Interface { .. }) => self.take_rest().and(Err(gone)),
            Err(failure) => Err(failure),
        };
        let failure = ended.and_then(|at| self.finish_file(at)).err();
        // If they cannot be read they are unknown.
        let drops = (!matches!(failure, Some(CaptureError::Statistics(_)))).then_some(self.drops);
        Outcome { summary: self.sink.statistics.summary(drops), failure }
    }

    fn follow(&mut self, report: &mut impl FnMut(usize, Interval) -> bool) -> Result<(), CaptureError> {
        let end = self.config.duration.map(|duration| Instant::now() + duration);
        let (mut is_over, mut reported, mut all_reported) = (false, 0, true);
        while !is_over {
            let now = Instant::now();
            let left = end.map(|end| end.saturating_duration_since(now));
            is_over = left.is_some_and(|left| left.is_zero());
            if !is_over {
                let report_again = (!all_reported).then_some(REPORT_AGAIN);
                let timeout = left.into_iter().chain(report_again).min();
                // Any signal that is taken asks to end.
                is_over = self.epoll.wait(timeout)?.any(|ready| ready.key == SIGNALS) && self.signals.next().is_some();
            }
            self.take()?;
            // The last may still grow.
            let intervals = self.sink.statistics.intervals();
            all_reported = report_all(&intervals[..intervals.len().saturating_sub(1)], &mut reported, report);
        }
        Ok(())
    }

    /// Takes what passed before now but has not been handed over yet. Returns the instant of now,
    /// since 1970.
    fn take_rest(&mut self) -> Result<Duration, CaptureError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.sink.ends_at = now;
        let deadline = Instant::now() + LAG;
        loop {
            self.take()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(now);
            }
            self.epoll.wait(Some(left))?.for_each(drop);
        }
    }

    /// Ends the file of a capture that came to its own end at this instant.
    fn finish_file(&mut self, at: Duration) -> Result<(), CaptureError> {
        let Some(writer) = self.sink.writer.take() else { return Ok(()) };
        writer.finish(at, self.received, self.drops).map_err(|error| file_error(&self.config, error))
    }

    fn take(&mut self) -> Result<(), CaptureError> {
        for _ in 0..BLOCKS_A_TURN {
            if !self.ring.take_block(|packet| self.sink.packet(packet.time, packet.bytes, packet.length)) {
                break;
            }
        }
        // Each time, as the kernel's own counters have 32 bits, and begin anew once they are read.
        let counted = self.ring.statistics().map_err(CaptureError::Statistics)?;
        self.received += counted.packets;
        self.drops += counted.drops;
        self.ring.take_error().map_err(|error| CaptureError::Interface {
            interface: self.config.interface.clone(),
            why: format!("it went down or away ({error}); bring it up, and keep it up for the capture"),
        })?;
        match self.sink.failure.take() {
            Some(error) => Err(file_error(&self.config, error)),
            None => Ok(()),
        }
    }
}

/// Reports intervals, from this number on, while that is possible. Whether all were.
fn report_all(intervals: &[Interval], reported: &mut usize, report: &mut impl FnMut(usize, Interval) -> bool) -> bool {
    while let Some(interval) = intervals.get(*reported)
        && report(*reported, *interval)
    {
        *reported += 1;
    }
    *reported >= intervals.len()
}

impl PacketSink {
    fn packet(&mut self, time: Duration, bytes: &[u8], length: u32) {
        if time > self.ends_at || self.failure.is_some() {
            return;
        }
        self.statistics.packet(time, bytes, length);
        if let Some(writer) = &mut self.writer {
            self.failure = writer.packet(time, bytes, length).err();
        }
    }
}

/// What to do about packets that cannot be written.
fn remedy(error: &FileError) -> &'static str {
    match error {
        FileError::Io(source) => file::write_remedy(source),
        _ => "leave --write out for the figures alone",
    }
}

fn file_error(config: &Config, error: FileError) -> CaptureError {
    CaptureError::File { path: config.write.clone().unwrap_or_default(), error }
}

fn create_error(config: &Config, error: FileError) -> CaptureError {
    match error {
        FileError::Io(source) => CaptureError::Create { path: config.write.clone().unwrap_or_default(), source },
        error => file_error(config, error),
    }
}

fn interface_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it needs CAP_NET_RAW; run as root, or in a user and network namespace of your own (unshare -rn)".to_owned()
        }
        io::ErrorKind::Unsupported => format!("{error}; capture on an Ethernet, TAP, veth or loopback interface"),
        _ if error.raw_os_error() == Some(19) => "there is no such interface here; `ip link` lists them".to_owned(),
        _ => error.to_string(),
    }
}
