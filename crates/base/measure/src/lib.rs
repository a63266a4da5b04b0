//! Arrivals, histograms, tallies, records, merging.
//!
//! Pure: time and randomness are arguments, and there is no socket, clock or file in here.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod limits;
pub mod merge;
pub mod statuses;
pub mod summary;
pub mod tally;
pub mod times;
pub mod units;
