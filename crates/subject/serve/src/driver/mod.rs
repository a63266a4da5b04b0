//! How bytes move between a socket and a service: by readiness for the four models that ask who is ready, by waiting for the two
//! that give each connection a thread or a process. io_uring completes instead of reporting, and has a way of its own (`model::uring`).

pub(crate) mod blocking;
pub(crate) mod readiness;
mod unsent;
