//! Arrivals, histograms, tallies, records, merging. No socket, no clock.
#![forbid(unsafe_code)]
