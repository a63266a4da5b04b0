//! The emulated link: rate, one-way delay, jitter, loss and a bounded queue between hosts, and the
//! switches that join links.
//!
//! [`config`] reads what is asked for. The emulation itself is pure: [`queue`] (one direction of
//! one link), `switch` (who is where) and [`network`] (all of them, joined) take the time as an
//! argument and touch no device. [`run`] moves frames between them and TAP devices, and tells of
//! them in a [`report`]; `standby` wakes it where its CPU does not. [`kernel`] says how the kernel
//! would make the same network. Nothing here knows namespaces, addresses or what the frames carry.
#![forbid(unsafe_code)]

pub mod config;
mod disturbance;
pub mod frame;
pub mod kernel;
pub mod network;
pub mod queue;
pub mod report;
pub mod run;
mod standby;
mod switch;
