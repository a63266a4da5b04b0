//! Processes under test, and the peers they meet.

pub(crate) mod books;
pub(crate) mod forwarder;
pub(crate) mod http;
pub(crate) mod network;
pub(crate) mod peer;
pub(crate) mod ruled;
pub(crate) mod running;
pub(crate) mod server;
pub(crate) mod site;
