//! io_uring(7).
