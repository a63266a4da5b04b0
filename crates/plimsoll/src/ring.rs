//! Whether this machine lets programs make rings (io_uring(7)): old kernels cannot, and
//! administrators and containers forbid it.

use anyhow::anyhow;
use plimsoll_sys::ring::{Ring, Sizes};

use crate::outcome::Environment;

/// Refuses to go on where no ring can be made, as ours are made; `instead` is the flag that needs
/// none.
pub(crate) fn require(instead: &str) -> anyhow::Result<()> {
    let sizes = Sizes { submissions: 1, completions: 2, slots: 1, buffers: 1, buffer_bytes: 1, accepts: 0 };
    match Ring::new(sizes) {
        Ok(_) => Ok(()),
        Err(error) => Err(anyhow!(Environment(format!(
            "io_uring cannot be used here: {error}; use {instead}, or allow it (sysctl kernel.io_uring_disabled, the \
             container's seccomp profile)"
        )))),
    }
}
