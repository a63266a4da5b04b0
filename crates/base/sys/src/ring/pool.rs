//! Buffers that the kernel receives into, choosing one only when bytes have arrived
//! (io_uring_register_buf_ring(3)).
//!
//! A buffer is on one of two sides: in the kernel's ring of free ones, or taken, as a [`Buffer`]
//! that only one owner has.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use io_uring::types::BufRingEntry;

/// A buffer with received bytes. It must go back with `Ring::recycle`, or the pool has one less.
#[derive(Debug)]
pub struct Buffer {
    id: u16,
    length: u32,
    /// Whose it is: another pool's buffer of the same number is not the same memory.
    pool: u32,
}

impl Buffer {
    /// How many bytes are in it.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether no byte is in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// The kernel requires that the ring of free buffers begins at a page.
const PAGE: usize = 4096;

pub(super) struct Pool {
    number: u32,
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: u16,
    buffer_bytes: u32,
    tail: u16,
    free: usize,
    leaked: bool,
}

impl Pool {
    /// `count` buffers of `buffer_bytes` each, all free. The memory is not touched, so it is none
    /// until it is received into.
    pub(super) fn new(count: u16, buffer_bytes: u32) -> Pool {
        assert!(count.is_power_of_two() && buffer_bytes > 0, "a pool has a power of two of buffers, with room in each");
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut pool = Pool {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            entries: allocate(entries_layout(count)).cast(),
            memory: allocate(memory_layout(count, buffer_bytes)),
            count,
            buffer_bytes,
            tail: 0,
            free: 0,
            leaked: false,
        };
        (0..count).for_each(|id| pool.offer(id));
        pool
    }

    pub(super) fn entries_address(&self) -> u64 {
        self.entries.as_ptr() as u64
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// The buffer that the kernel says it has chosen and filled.
    pub(super) fn take(&mut self, id: u16, length: usize) -> Buffer {
        assert!(id < self.count && length <= self.buffer_bytes as usize, "the kernel fills buffers it was given");
        self.free -= 1;
        Buffer { id, length: length as u32, pool: self.number }
    }

    pub(super) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        assert_eq!(buffer.pool, self.number, "a buffer belongs to one pool");
        // SAFETY: the buffer lies within the pool's memory, its bytes are initialised, and the
        // kernel does not write to a buffer that is taken; the borrow of the pool keeps it from
        // being recycled.
        unsafe { std::slice::from_raw_parts(self.memory.add(self.offset(buffer.id)).as_ptr(), buffer.len()) }
    }

    pub(super) fn recycle(&mut self, buffer: Buffer) {
        assert_eq!(buffer.pool, self.number, "a buffer belongs to one pool");
        self.offer(buffer.id);
    }

    /// Keeps the memory for ever, as the kernel may still use it.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }

    fn offset(&self, id: u16) -> usize {
        usize::from(id) * self.buffer_bytes as usize
    }

    fn offer(&mut self, id: u16) {
        let place = usize::from(self.tail % self.count);
        // SAFETY: `place` is within the ring's `count` entries, of which the kernel reads only
        // those before the tail, and this one is not. The tail lies in the ring's first entry, is
        // aligned as an entry is, and only this writes it.
        unsafe {
            let entry = self.entries.add(place).as_mut();
            entry.set_addr(self.memory.add(self.offset(id)).as_ptr() as u64);
            entry.set_len(self.buffer_bytes);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut())
                .store(self.tail, Ordering::Release);
        }
        self.free += 1;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: allocated with these layouts in `new`; the ring has ended every request
            // before it drops its pool.
            unsafe {
                dealloc(self.entries.as_ptr().cast(), entries_layout(self.count));
                dealloc(self.memory.as_ptr(), memory_layout(self.count, self.buffer_bytes));
            }
        }
    }
}

fn entries_layout(count: u16) -> Layout {
    Layout::array::<BufRingEntry>(usize::from(count)).and_then(|layout| layout.align_to(PAGE)).expect("small")
}

fn memory_layout(count: u16, buffer_bytes: u32) -> Layout {
    // No more than what calloc(3) aligns to: past it the allocator clears the memory itself, which
    // touches every page.
    Layout::from_size_align(usize::from(count) * buffer_bytes as usize, 16).expect("below 128 TiB")
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout here has a size of 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_buffer_is_not_free_until_it_is_recycled() {
        let mut pool = Pool::new(4, 16);
        let buffers: Vec<Buffer> = (0..4).map(|id| pool.take(id, 16)).collect();
        assert_eq!(pool.free(), 0);
        for buffer in buffers {
            assert_eq!(pool.bytes(&buffer), [0; 16]);
            pool.recycle(buffer);
        }
        assert_eq!(pool.free(), 4);
    }

    #[test]
    #[should_panic(expected = "a buffer belongs to one pool")]
    fn a_buffer_of_another_pool_is_refused() {
        let buffer = Pool::new(1, 16).take(0, 1);
        Pool::new(1, 16).recycle(buffer);
    }
}
