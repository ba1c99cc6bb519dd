//! An allocator that counts. A program installs it with `#[global_allocator]`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Passes each call to the system's allocator, and counts it.
#[derive(Debug)]
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator that counts has no safe interface")]
// SAFETY: each call is passed to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        HELD.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations of this process so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// Bytes that this process has allocated and not freed, without what the allocator adds.
pub fn held() -> u64 {
    HELD.load(Relaxed)
}
