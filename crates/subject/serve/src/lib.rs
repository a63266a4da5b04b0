//! The reference servers.
#![forbid(unsafe_code)]
