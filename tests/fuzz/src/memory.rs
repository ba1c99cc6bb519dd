//! How much memory a run holds at once, counted in the allocator.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that a run may hold whatever its input: tables, a schema of the settings, a regular
/// expression.
const ANY: usize = 8 << 20;
/// Bytes that it may hold for each byte of its input.
const EACH: usize = 1_000;

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(size: usize) {
    MOST.fetch_max(HELD.fetch_add(size, Relaxed) + size, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(place, layout) }
    }
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `play`, and panics when it held more than an input of `length` bytes may cost.
pub(crate) fn bounded(length: usize, play: impl FnOnce()) {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    play();
    let held = MOST.load(Relaxed).saturating_sub(before);
    assert!(
        held <= ANY + EACH * length,
        "{held} bytes held for an input of {length}"
    );
}
