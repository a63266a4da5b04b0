//! What server, generator and forwarder share: timers, a slab of connections, groups of event loops
//! with descriptor tables of their own, listeners and the handing over of connections, and rotated
//! source addresses.
//!
//! It works on descriptors and threads. Protocols, models and measurements are not its business.
#![forbid(unsafe_code)]

pub mod accept;
pub mod deadline;
pub mod handoff;
#[cfg(test)]
mod interleavings;
pub mod leaked;
pub mod limit;
pub mod listening;
pub mod own_table;
pub mod progress;
pub mod shutdown;
pub mod slab;
pub mod source;
pub mod sparse_vec;
pub mod timer;
pub mod worker_group;
