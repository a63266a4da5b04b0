//! The connection log: CSV, a row a closed connection.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use plimsoll_sys::file;

use crate::totals::ConnectionTotals;

/// Rows are gathered and written a buffer at a time; the last when the server ends.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

impl ConnectionLog {
    /// A FIFO without a reader is an error: signals wait until the server runs, so nothing could
    /// end a wait for a reader.
    pub(crate) fn create(path: &Path) -> io::Result<ConnectionLog> {
        let mut file = BufWriter::with_capacity(64 * 1024, file::create(path)?);
        writeln!(file, "client_address,client_port,requests,bytes")?;
        // At once, so that an unwritable disk is met at the start.
        file.flush()?;
        Ok(ConnectionLog { path: path.to_path_buf(), file: Mutex::new(file) })
    }

    /// Why it is not whole, once this has happened, and what to do.
    pub(crate) fn incomplete(&self, error: &io::Error) -> String {
        let (path, remedy) = (self.path.display(), file::write_remedy(error));
        format!("the connection log {path} is incomplete: {error}; {remedy}")
    }

    /// Adds a row. `bytes` are those received: an echo sends as many.
    pub(crate) fn record(&self, peer: SocketAddr, counts: &ConnectionTotals) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{},{},{},{}", peer.ip(), peer.port(), counts.requests, counts.bytes_received)
    }

    /// The file's descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).get_ref().as_raw_fd()
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}
