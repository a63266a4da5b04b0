//! The reference servers: one service, seven I/O models.
//!
//! [`Server::bind`] opens the listeners, so that the caller can print their addresses.
//! [`Server::run`] serves until a signal stops it, and returns the counts. A [`service`] is what is
//! served; a [`Model`] is how the server waits.
#![forbid(unsafe_code)]

mod accept;
mod acceptor;
mod config;
mod connection_log;
mod coordinator;
mod driver;
mod model;
mod server;
pub mod service;
mod state;
mod totals;

pub use accept::refusal;
pub use config::{Config, Error};
pub use model::{Model, UnknownModel};
pub use plimsoll_reactor::accept::{Strategy, UnknownStrategy};
pub use server::Server;
pub use state::Notify;
pub use totals::Totals;
