//! The load generator.
//!
//! Three things meet here and know nothing of each other: a *protocol* (bytes to send, bytes
//! expected: [`protocol`]), a *pace* (when requests are due: [`config::Pace`]) and an *engine* (how
//! sockets are driven: [`config::Engine`]). A coordinator ([`run`]) opens and closes the window;
//! what was counted in it becomes the summary, and what speaks against it a warning ([`warnings`]).
//!
//! It must never import a server of ours: the instrument does not know what it measures.
#![forbid(unsafe_code)]

mod backoff;
pub mod config;
mod control;
pub mod echo;
mod event_loop;
pub mod http;
mod ledger;
pub mod protocol;
pub mod record;
pub mod run;
mod schedule;
pub mod secure;
pub mod seed;
mod shared;
mod threads;
pub mod warnings;

pub use threads::STACK_BYTES;
