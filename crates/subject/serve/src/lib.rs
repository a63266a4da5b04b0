//! The reference servers: one service, seven I/O models.
//!
//! [`Server::bind`] opens the listeners, so that the caller can say where they are; [`Server::run`]
//! serves until it is told to stop, and returns what was counted. What is served is a [`service`];
//! how it waits is a [`Model`].
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
