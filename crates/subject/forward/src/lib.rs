//! The port forwarder: relays TCP connections by a table.
//!
//! [`Forwarder::bind`] opens the listeners, and [`Forwarder::start`] starts the event loops: then
//! the caller can say that it is ready. [`Started::run`] relays until a signal stops it, and
//! returns the counts. The rules of relaying are in `relay`, the table's in [`table`], both pure;
//! all else works on descriptors.
#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod balance;
mod bulk_detector;
mod checks;
mod connection;
mod coordinator;
mod counts;
mod ending;
mod error;
mod event_loop;
mod failures;
mod file_watch;
mod forwarder;
mod inherited;
mod limit;
mod listeners;
mod log;
mod message;
mod meter;
mod names;
mod outbox;
mod pool;
mod proxy;
mod relay;
mod reload;
mod route;
mod shared;
mod speaker;
pub mod table;
mod totals;
mod transfer;
mod upgrade;

pub use ending::Ending;
pub use error::Error;
pub use file_watch::FileWatch;
pub use forwarder::{Config, Forwarder, Started};
pub use inherited::Inherited;
pub use plimsoll_reactor::accept::{Strategy, UnknownStrategy};
pub use plimsoll_reactor::leaked::Leaked;
pub use reload::Source;
pub use totals::Totals;

/// Whether a table is valid: its names resolve, its sources are addresses of this machine, and no
/// rule connects to a listener of the table in a circle. It opens no listener.
pub fn check(table: &table::Table) -> Result<(), Error> {
    reload::routes(table, &names::Names::of_the_machine()).map(drop).map_err(Error::Table)
}

/// Takes a sentence for the person who runs the forwarder.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;
