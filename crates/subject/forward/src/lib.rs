//! The port forwarder: relays TCP connections by a table.
//!
//! [`Forwarder::bind`] opens the listeners, so that the caller can say where they are; [`Forwarder::run`] relays until it is told to stop, and returns what
//! was counted. The rules of relaying are in `relay`, the table's in [`table`], both pure; all else waits on descriptors.
#![forbid(unsafe_code)]

mod acceptor;
mod connection;
mod coordinator;
mod error;
mod event_loop;
mod exchange;
mod forwarder;
mod listeners;
mod log;
mod mail;
mod outbox;
mod pool;
mod relay;
mod reload;
mod route;
mod shared;
pub mod table;
mod totals;
mod transfer;

pub use error::Error;
pub use forwarder::{Accept, Config, Forwarder, UnknownAccept};
pub use log::Ending;
pub use reload::{Source, Watch};
pub use totals::{Leaked, Totals};

/// Whether a table could be: its names resolve, and it leads nothing back to itself. Nothing is listened on.
pub fn check(table: &table::Table) -> Result<(), Error> {
    reload::routes(table).map(drop).map_err(Error::Table)
}

/// Takes a sentence for the person who runs the forwarder.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;
