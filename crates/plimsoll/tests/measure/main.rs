//! Tests of times, which measure the machine as well as the program: `make measure` runs them one
//! after another, on a machine that does nothing else. `make test` leaves them out.
#![allow(clippy::print_stderr, reason = "a timed test prints what it saw")]

#[path = "../whole/support/mod.rs"]
#[allow(dead_code, unused_macros, unused_imports, reason = "these tests use a part of it")]
mod support;

mod fairness;
mod link;
mod pace;
mod parity;
