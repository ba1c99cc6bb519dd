//! Memory that several streams share: each has a part that the others cannot take.
//!
//! One half of the memory is divided equally among the streams. A stream may use more than its part
//! while all together use at most the other half. So one stream that uses much affects itself, and
//! a few that use more than the others are not limited without need.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Memory of all streams.
#[derive(Debug)]
pub struct MemoryPool {
    max_bytes: usize,
    used: AtomicUsize,
    /// Number of [`MemoryShare`]s.
    shares: AtomicUsize,
}

#[derive(Debug)]
pub struct MemoryShare {
    pool: Arc<MemoryPool>,
    /// Bytes that the stream uses. What it has counted may outlive it.
    used: Arc<AtomicUsize>,
}

/// Memory that is counted; dropping it releases the bytes.
#[derive(Debug)]
pub struct CountedMemory {
    pool: Arc<MemoryPool>,
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl MemoryPool {
    /// A pool of `max_bytes` that is not used yet.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_bytes,
            used: AtomicUsize::new(0),
            shares: AtomicUsize::new(0),
        })
    }

    /// A share for one more stream. The parts of the others become smaller.
    pub fn share(self: &Arc<Self>) -> MemoryShare {
        self.shares.fetch_add(1, Ordering::Relaxed);
        MemoryShare {
            pool: Arc::clone(self),
            used: Arc::default(),
        }
    }

    /// Bytes that all streams use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl MemoryShare {
    /// Bytes that the other streams cannot take.
    pub fn part(&self) -> usize {
        let shares = self.pool.shares.load(Ordering::Relaxed);
        self.pool.max_bytes / 2 / shares.max(1)
    }

    /// Bytes that the stream uses.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts memory, whether or not there is room for it.
    pub fn count(&self, bytes: usize) -> CountedMemory {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.pool.used.fetch_add(bytes, Ordering::Relaxed);
        CountedMemory {
            pool: Arc::clone(&self.pool),
            used: Arc::clone(&self.used),
            bytes,
        }
    }

    /// Whether the stream uses more than it may at present.
    pub fn is_over(&self) -> bool {
        self.pool.used() > self.pool.max_bytes / 2 && self.used() > self.part()
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.pool.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.pool.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stream_takes_the_part_of_another() {
        let pool = MemoryPool::new(1000);
        let greedy = pool.share();
        let mut held = Vec::new();
        while !greedy.is_over() {
            held.push(greedy.count(10));
        }
        // Alone, it has the free half, and is over with the next piece.
        assert_eq!((pool.used(), greedy.part()), (510, 500));
        held.pop();
        let others: Vec<_> = (0..4).map(|_| pool.share()).collect();
        assert_eq!(greedy.part(), 100);
        let parts: Vec<_> = others.iter().map(|share| share.count(share.part())).collect();
        assert!(others.iter().all(|share| !share.is_over()), "each has its part");
        assert!(
            greedy.is_over(),
            "it has more than its part, and the free half is used up"
        );
        assert_eq!((pool.used(), others[0].used()), (900, 100));
        // All together stay within the memory.
        while greedy.is_over() {
            held.pop();
        }
        assert_eq!(greedy.used(), 100);
        drop((parts, held));
        assert_eq!(pool.used(), 0);
        drop(others);
        assert_eq!(greedy.part(), 500);
    }

    #[test]
    fn what_is_counted_may_outlive_its_stream() {
        let pool = MemoryPool::new(1000);
        let (gone, stays) = (pool.share(), pool.share());
        let counted = gone.count(700);
        drop(gone);
        assert_eq!((pool.used(), stays.part()), (700, 500));
        drop(counted);
        assert_eq!(pool.used(), 0);
    }
}
