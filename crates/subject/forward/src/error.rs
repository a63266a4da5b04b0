//! Why there is no forwarder, or why it stopped.

use std::io;
use std::path::PathBuf;

use crate::table::Listen;

/// Why there is no forwarder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The table is well formed, and cannot be.
    #[error("{0}")]
    Table(String),
    /// An address could not be listened on.
    #[error("cannot listen on {listen}: {}", listen_remedy(.source))]
    Listen {
        /// The address.
        listen: Listen,
        /// What the kernel said.
        source: io::Error,
    },
    /// A log could not be opened.
    #[error("cannot open the log {}: {source}; {}", path.display(), log_remedy(source))]
    Log {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The forwarder could not be started, or could not go on.
    #[error("the forwarder stopped: {0}")]
    Run(#[from] io::Error),
}

fn listen_remedy(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop what listens there (`ss -ltnp` names it), or choose another port; 0 picks a free one"
        }
        io::ErrorKind::AddrNotAvailable => "choose an address of this machine (`ip address` lists them)",
        io::ErrorKind::PermissionDenied => "choose a port of 1024 or more, or run as root",
        _ if error.raw_os_error() == Some(24) => "raise `ulimit -n`, or listen on fewer ports",
        _ => "choose another address",
    };
    format!("{error}; {remedy}")
}

fn log_remedy(error: &io::Error) -> &'static str {
    if plimsoll_sys::file::is_without_reader(error) {
        "nobody reads this FIFO: start its reader first"
    } else {
        "name a file in a folder that you can write to"
    }
}
