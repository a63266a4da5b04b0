//! Echo messages and HTTP/1.x: bytes to messages and back.
//!
//! Sans-I/O: bytes go in, split anywhere, and what they mean comes out. There is no socket and no
//! clock in here.
#![forbid(unsafe_code)]

pub mod echo;
pub mod http;
