//! How bytes move between a socket and a service: by readiness for the four models that ask which
//! sockets are ready, by waiting for the two that give each connection a thread or a process.
//! io_uring completes requests instead, and has a loop of its own (`model::uring`).
//!
//! What they share: the conversation with the service ([`conversation`]), what it can ask
//! ([`environment`]), what could not be sent yet ([`unsent`]), time limits ([`limit`]), and how
//! long input is discarded before a connection is closed ([`linger`]).

pub(crate) mod blocking;
pub(crate) mod conversation;
pub(crate) mod environment;
pub(crate) mod limit;
pub(crate) mod linger;
pub(crate) mod readiness;
pub(crate) mod unsent;
