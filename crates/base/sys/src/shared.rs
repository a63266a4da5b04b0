//! Numbers in memory that a process shares with those that it forks.

use std::io;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// So many numbers, all 0, for the rest of this process and of those that it forks from now on
/// (`MAP_SHARED`, mmap(2)). They are at most those that a page holds.
pub fn numbers<const COUNT: usize>() -> io::Result<&'static [AtomicU64; COUNT]> {
    const { assert!(COUNT * size_of::<u64>() <= 4096, "they fit in a page") };
    // SAFETY: a fresh mapping of at least a page at an address of the kernel's choice, which
    // nothing else knows.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            COUNT * size_of::<u64>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )
    }?;
    // SAFETY: the mapping is page-aligned, all zeros, which are numbers, large enough, and never
    // unmapped. Other processes touch it through this type alone.
    Ok(unsafe { &*page.cast::<[AtomicU64; COUNT]>() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    // That forked processes count in the same place is tested of the whole program: this one has
    // several threads, and so is not forked.
    #[test]
    fn numbers_begin_at_none_and_are_nobody_elses() {
        let [one, other] = numbers().expect("a page");
        let [third] = numbers().expect("another page");
        assert_eq!((one.fetch_add(1, Ordering::Relaxed), other.fetch_add(7, Ordering::Relaxed)), (0, 0));
        assert_eq!((one.load(Ordering::Relaxed), other.load(Ordering::Relaxed)), (1, 7));
        assert_eq!(third.load(Ordering::Relaxed), 0);
    }
}
