//! The emulated link: rate, one-way delay, jitter, loss and a bounded queue between hosts, and the
//! switches that join links.
//!
//! [`config`] reads what is asked for. The emulation itself is pure: [`queue`] (one direction of
//! one link), `switch` (which port leads to an address) and [`network`] (all of them, joined) take
//! the time as an argument and touch no device. [`run`] moves frames between them and TAP devices,
//! and writes each [`report`]; `standby` wakes it where its CPU does not. [`kernel`] makes the same
//! network of the kernel's devices. Namespaces, addresses and the content of frames do not matter
//! here.
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
