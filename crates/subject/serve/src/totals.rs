//! What a server counted.

use std::collections::BTreeMap;
use std::io;

use plimsoll_reactor::leaked::Leaked;
use plimsoll_sys::descriptor;
use serde::Serialize;

/// Counts of one server, or of one part of it until they are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The most connections that were open at one moment.
    pub peak_connections: u64,
    /// Connections accepted and served.
    pub connections: u64,
    /// Requests answered. For echo, reads that returned data.
    pub requests: u64,
    /// Bytes read from peers.
    pub bytes_received: u64,
    /// Bytes the kernel took for sending to peers.
    pub bytes_sent: u64,
    /// Connections closed at once as the model cannot hold them.
    pub refused: u64,
    /// Connections of each worker, where there are workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections_per_worker: Vec<u64>,
    /// What was taken and not given back.
    pub leaked: Leaked,
    /// What went wrong, by cause: errno(3) in lower case, or a cause of our own (`fd_setsize`,
    /// `spawn`).
    pub errors: BTreeMap<String, u64>,
}

impl Totals {
    /// Counts one failure.
    pub(crate) fn count_error(&mut self, cause: &str) {
        match self.errors.get_mut(cause) {
            Some(count) => *count += 1,
            None => {
                self.errors.insert(cause.to_owned(), 1);
            }
        }
    }

    /// Counts one failure of a call.
    pub(crate) fn count_io_error(&mut self, error: &io::Error) {
        self.count_error(cause_of(error));
    }

    /// Adds a part's counts. The peak is not a sum: it comes from the server's limit of
    /// connections.
    pub(crate) fn add(&mut self, part: &Totals) {
        self.connections += part.connections;
        self.requests += part.requests;
        self.bytes_received += part.bytes_received;
        self.bytes_sent += part.bytes_sent;
        self.refused += part.refused;
        self.leaked.add(&part.leaked);
        for (cause, count) in &part.errors {
            *self.errors.entry(cause.clone()).or_default() += count;
        }
    }
}

/// The cause of a connection whose peer acknowledges nothing for too long.
pub(crate) const SEND_TIMEOUT: &str = "send_timeout";

/// The name of an error's cause, the same in every model.
fn cause_of(error: &io::Error) -> &'static str {
    match error.kind() {
        // After a call has reported a reset, the next write fails with EPIPE. Which call comes
        // first depends on the model. No model writes after ending its own half.
        io::ErrorKind::BrokenPipe => "econnreset",
        io::ErrorKind::UnexpectedEof => "file_shrank",
        // ETIMEDOUT is of the same kind: the kernel gave up, not this server.
        io::ErrorKind::TimedOut if error.raw_os_error().is_none() => SEND_TIMEOUT,
        _ => descriptor::error_name(error),
    }
}

/// What one connection did until it closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionTotals {
    pub(crate) requests: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

impl ConnectionTotals {
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        totals.requests += self.requests;
        totals.bytes_received += self.bytes_received;
        totals.bytes_sent += self.bytes_sent;
    }
}
