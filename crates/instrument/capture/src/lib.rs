//! Packets in, pcapng and TCP statistics out.
//!
//! [`headers`] finds the TCP segment in a frame, [`tcp`] judges segments, and [`statistics`] adds
//! up; all three are pure and take the packets' own times. [`mod@file`] reads and writes pcapng,
//! and [`live`] captures an interface. Payload is not kept: every figure follows from headers.
#![forbid(unsafe_code)]

pub mod file;
pub mod headers;
pub mod live;
pub mod statistics;
pub mod tcp;
