//! A process per connection: a copy of the server for each, isolated from all others by the kernel.
//!
//! The rule: after the fork there are two of everything, and each side closes what it does not
//! need: the parent the connection (or it never ends for the peer), the child the listeners (or the
//! port stays taken after the parent has gone). Fork only while there is one thread.
//!
//! The classic mistakes are zombies (one SIGCHLD may be for many children: reap until none is
//! left), leaked listeners, and children that outlive their killed parent (each asks the kernel to
//! be killed with it, PR_SET_PDEATHSIG).
//!
//! A child reports its counts in one record on a pipe; writes of that size are atomic (pipe(7),
//! PIPE_BUF).

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_reactor::worker_group::Phase;
use plimsoll_sys::file::Root;
use plimsoll_sys::poll;
use plimsoll_sys::process::{self, Child, End, Ended};
use plimsoll_sys::readiness::Interest;

use crate::acceptor::{SpawnError, Spawner};
use crate::driver::blocking;
use crate::driver::environment::Workspace;
use crate::service::Service;
use crate::state::ServerState;
use crate::totals::{ConnectionTotals, Totals};

pub(crate) struct Fork<P> {
    prototype: P,
    state: Arc<ServerState>,
    reports: PipeReader,
    report_to: PipeWriter,
    /// Children that have not been reaped, each with its peer until it has reported.
    children: HashMap<Child, Option<SocketAddr>>,
    totals: Totals,
}

/// How long children that are stopped at once have to report their counts.
const REPORT_WITHIN: Duration = Duration::from_millis(500);
/// How often ended children are reaped meanwhile.
const REAP_EVERY: Duration = Duration::from_millis(2);

impl<P: Service> Fork<P> {
    pub(crate) fn new(prototype: P, state: Arc<ServerState>) -> io::Result<Fork<P>> {
        let (reports, report_to) = io::pipe()?;
        Ok(Fork { prototype, state, reports, report_to, children: HashMap::new(), totals: Totals::default() })
    }

    /// Takes in every report that is in the pipe.
    fn read_reports(&mut self) -> io::Result<()> {
        loop {
            if !poll::is_ready(&self.reports, Interest::READ)? {
                return Ok(());
            }
            // All writes have a record's size, so a read of several records' size is never cut
            // inside one.
            let mut records = [0; 64 * Report::BYTES];
            let length = self.reports.read(&mut records)?;
            for record in records[..length].chunks_exact(Report::BYTES) {
                let report = Report::decode(record.try_into().expect("a chunk has a record's size"));
                let child = Child::from_number(report.child);
                if let Some(peer) = child.and_then(|child| self.children.get_mut(&child)?.take()) {
                    self.state.closed(peer, &report.counts, &mut self.totals);
                }
                if let Some(error) = decode(report.error) {
                    self.totals.count_io_error(&error);
                }
            }
        }
    }
}

impl<P: Service> Spawner for Fork<P> {
    fn begin(&mut self, socket: OwnedFd, peer: SocketAddr) -> Result<(), SpawnError> {
        let root = self.state.root();
        let mut keep = vec![socket.as_fd(), self.report_to.as_fd()];
        keep.extend(root.as_ref().map(|root| root.as_fd()));
        let (service, report_to) = (&self.prototype, &self.report_to);
        match process::fork(&keep, || serve(&socket, service, root.clone(), report_to)) {
            Ok(child) => {
                self.state.opened(&mut self.totals);
                self.children.insert(child, Some(peer));
                Ok(())
            }
            Err(error) => Err(SpawnError { socket, error }),
        }
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.reports.as_fd()
    }

    fn collect(&mut self) -> io::Result<()> {
        while let Some((child, ended)) = process::reap() {
            // A child reports before it ends, so its report is in the pipe by now.
            self.read_reports()?;
            if let Some(peer) = self.children.remove(&child).flatten() {
                self.state.closed(peer, &ConnectionTotals::default(), &mut self.totals);
                self.totals.count_error(if matches!(ended, Ended::Signal(_)) {
                    "child_killed"
                } else {
                    "child_failed"
                });
            }
        }
        self.read_reports()
    }

    fn open(&self) -> usize {
        self.children.len()
    }

    fn drain(&mut self) {
        for child in self.children.keys() {
            process::end(*child, End::Finish);
        }
    }

    /// A killed child could not report its counts, so each is asked to stop at once first. A child
    /// that computes does not notice.
    fn stop(&mut self) {
        for child in self.children.keys() {
            process::end(*child, End::Cut);
        }
        let until = Instant::now() + REPORT_WITHIN;
        while !self.children.is_empty() && Instant::now() < until {
            std::thread::sleep(REAP_EVERY);
            if self.collect().is_err() {
                break;
            }
        }
        for child in self.children.keys() {
            process::end(*child, End::Kill);
        }
    }

    fn totals(self) -> Totals {
        self.totals
    }
}

/// The child's whole life.
fn serve(socket: &OwnedFd, service: &impl Service, root: Option<Arc<Root>>, mut report_to: &PipeWriter) -> i32 {
    let workspace = Workspace::new(root, service.is_timed());
    let mut counts = ConnectionTotals::default();
    let outcome = process::end_waits_on_signals(socket.as_fd())
        .and_then(|()| blocking::serve(socket, service, workspace, phase, &mut counts));
    // An error of a connection that was ended at once is the end's doing, and not counted.
    let error = outcome.err().filter(|_| phase() != Phase::Stop).map_or(0, |error| encode(&error));
    let report = Report { child: std::process::id() as i32, error, counts };
    match report_to.write_all(&report.encode()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// How far the server's end has come, from the parent's signals.
fn phase() -> Phase {
    match process::asked() {
        None => Phase::Run,
        Some(End::Finish) => Phase::Drain,
        Some(End::Cut | End::Kill) => Phase::Stop,
    }
}

/// Errors without a number of the kernel's, which therefore take the negative ones.
const OWN: [io::ErrorKind; 2] = [io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof];
/// Any other error without a number.
const OTHER: i32 = i32::MIN;

/// An error as a number that is not 0.
fn encode(error: &io::Error) -> i32 {
    let own = || OWN.iter().position(|kind| *kind == error.kind()).map_or(OTHER, |place| -1 - place as i32);
    error.raw_os_error().unwrap_or_else(own)
}

/// The error that has this number; `None` for 0.
fn decode(number: i32) -> Option<io::Error> {
    match number {
        0 => None,
        1.. => Some(io::Error::from_raw_os_error(number)),
        _ => Some(OWN.get((-1 - i64::from(number)) as usize).map_or(io::ErrorKind::Other, |kind| *kind).into()),
    }
}

/// What a child did.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    child: i32,
    /// The error that ended the connection, as [`encode`] has it; 0 where it ended well.
    error: i32,
    counts: ConnectionTotals,
}

impl Report {
    const BYTES: usize = 32;

    fn encode(&self) -> [u8; Report::BYTES] {
        let ConnectionTotals { requests, bytes_received, bytes_sent } = self.counts;
        let mut record = [0; Report::BYTES];
        let identity = (u64::from(self.child as u32) << 32) | u64::from(self.error as u32);
        for (place, value) in record.chunks_exact_mut(8).zip([identity, requests, bytes_received, bytes_sent]) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        record
    }

    fn decode(record: [u8; Report::BYTES]) -> Report {
        let (values, _) = record.as_chunks::<8>();
        let [identity, requests, bytes_received, bytes_sent] =
            [0, 1, 2, 3].map(|index| u64::from_ne_bytes(values[index]));
        Report {
            child: (identity >> 32) as i32,
            error: identity as i32,
            counts: ConnectionTotals { requests, bytes_received, bytes_sent },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_means_the_same_to_parent_and_child() {
        for kind in OWN {
            assert_eq!(decode(encode(&kind.into())).map(|error| error.kind()), Some(kind));
        }
        assert_eq!(decode(encode(&io::Error::other("any"))).map(|error| error.kind()), Some(io::ErrorKind::Other));
        let reset = io::Error::from_raw_os_error(104);
        assert_eq!(decode(encode(&reset)).and_then(|error| error.raw_os_error()), Some(104));
        assert!(decode(0).is_none());
    }

    #[test]
    fn a_report_survives_the_pipe() {
        let counts = ConnectionTotals { requests: 1, bytes_received: u64::MAX, bytes_sent: 3 };
        let report = Report { child: 32_767, error: 104, counts };
        assert_eq!(Report::decode(report.encode()), report);
    }
}
