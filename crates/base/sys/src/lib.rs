//! What the kernel offers, made safe.
//!
//! The only crate with `unsafe`, each use with its reason. It has no notion of servers or
//! generators: a module wraps one mechanism of the kernel. A caller's mistake is impossible by the
//! types, or refused with an error.

#[cfg(not(target_os = "linux"))]
compile_error!("Plimsoll measures Linux I/O models; build it on Linux 6.1 or later");

pub mod batch;
pub mod clock;
pub mod cpu;
pub mod descriptor;
pub mod epoll;
pub mod event;
pub mod file;
pub mod inherited;
pub mod net;
pub mod packet;
pub mod passing;
pub mod pipe;
pub mod poll;
pub mod process;
pub mod readiness;
pub mod ring;
pub mod select;
pub mod shared;
pub mod signal;
pub mod tap;
pub mod timestamp;
pub mod unix;
