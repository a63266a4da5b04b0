//! The memory of processes that share pages.

/// Resident memory of this process, in which a page that several processes share counts for each
/// with its part of it (Pss, Documentation/filesystems/proc.rst): the parts of all add up to what
/// is occupied. `None` where the kernel does not tell.
pub(super) fn proportional_bytes() -> Option<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kib: u64 =
        rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
