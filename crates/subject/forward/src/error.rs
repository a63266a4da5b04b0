//! Why there is no forwarder, or why it stopped.

use std::io;
use std::path::PathBuf;

use plimsoll_reactor::listening;
use plimsoll_sys::file;

use crate::table::Listen;

/// Why there is no forwarder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table is well formed, and cannot be.
    #[error("{0}")]
    Table(String),
    /// An address could not be listened on.
    #[error("cannot listen on {listen}: {}", listening::remedy(.source))]
    Listen {
        /// The address.
        listen: Listen,
        /// What the kernel said.
        source: io::Error,
    },
    /// A log could not be opened.
    #[error("cannot open the log {}: {source}; {}", path.display(), file::write_remedy(source))]
    Log {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process that runs could not be taken over from.
    #[error("cannot take over by {}: {source}; stop what runs, or choose another path", path.display())]
    Upgrade {
        /// The path of the socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The forwarder could not be started, or could not go on.
    #[error("the forwarder stopped: {0}")]
    Run(#[from] io::Error),
}
