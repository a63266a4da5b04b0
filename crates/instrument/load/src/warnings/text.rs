//! The text of warnings.

use std::time::Duration;

use plimsoll_measure::summary::Warning;
use plimsoll_measure::units::{three_digits, write_duration};

/// A warning: what was seen, and what to do about it.
pub(super) fn warning(code: &str, message: String, remedy: &str) -> Warning {
    Warning { code: code.to_owned(), message, remedy: remedy.to_owned() }
}

/// A part of a whole.
pub(super) fn percent(ratio: f64) -> String {
    format!("{} %", three_digits(ratio * 100.0))
}

/// Microseconds, with a unit that suits them.
pub(super) fn time(microseconds: f64) -> String {
    write_duration(Duration::from_nanos((microseconds * 1000.0) as u64))
}
