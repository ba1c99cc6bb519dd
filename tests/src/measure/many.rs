//! Objects for a benchmark, made several at a time.

use std::thread;

use anyhow::{Result, anyhow};

/// Calls `make` for every number below `count`, several at a time.
pub fn many(count: usize, make: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    const THREADS: usize = 8;
    let make = &make;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| scope.spawn(move || (worker..count).step_by(THREADS).try_for_each(make)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            let ended = worker.join();
            ended.map_err(|_| anyhow!("a thread has panicked"))?
        })
    })
}
