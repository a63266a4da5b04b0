//! The load generator.
//!
//! It combines three independent parts: a *protocol* (bytes to send, bytes expected:
//! [`protocol`]), a *pace* (when requests are due: [`config::Pace`]) and an *engine* (how sockets
//! are driven: [`config::Engine`]). A coordinator ([`run`]) opens and closes the window. The
//! summary is made of what was counted in it, with the reasons to mistrust it ([`warnings`]).
//!
//! It must never import a server of ours, so that no fault is on both sides of a measurement.
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
