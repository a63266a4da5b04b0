//! What a server is to be, and why there may be none.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_reactor::accept::Strategy;
use plimsoll_reactor::listening;
use plimsoll_sys::file;

use crate::model::Model;

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it waits for its connections.
    pub model: Model,
    /// Where it listens. Port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Event loops; without meaning for the models that have none.
    pub workers: usize,
    /// How connections find their worker; likewise. [`Strategy::Single`] has one worker.
    pub accept: Strategy,
    /// How long connections may go on once the server is asked to stop.
    pub drain: Duration,
    /// Past so many connections at a time, accepting pauses.
    pub max_connections: Option<u64>,
    /// What files are beneath, for a service that asks for them.
    pub root: Option<PathBuf>,
    /// Where each closed connection gets a row.
    pub connection_log: Option<PathBuf>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {}", listening::remedy(.source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The files' folder could not be opened.
    #[error("cannot serve files from {}: {source}; name a folder that you can read", path.display())]
    Root {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection log could not be created.
    #[error(
        "cannot create the connection log {}: {source}; {}",
        path.display(),
        file::write_remedy(.source)
    )]
    ConnectionLog {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server could not be started, or could not go on.
    #[error("the server stopped: {0}")]
    Run(#[from] io::Error),
}
