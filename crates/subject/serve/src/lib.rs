//! The reference servers: one service, seven I/O models.
//!
//! [`Server::bind`] opens the listeners, so that the caller can say where they are; [`Server::run`] serves until it is told to stop, and
//! returns what was counted. What is served is a [`service`]; how it waits is a [`Model`].
#![forbid(unsafe_code)]

mod accept;
mod acceptor;
mod connection_log;
mod driver;
mod ledger;
mod model;
mod server;
pub mod service;
mod totals;

pub use accept::{Strategy, UnknownStrategy};
pub use ledger::Say;
pub use model::{Model, UnknownModel};
pub use server::{Config, Error, Server};
pub use totals::Totals;
