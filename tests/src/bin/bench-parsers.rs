//! Cost of the agent's parsers of `/proc` against procfs-core's in the same run: CPU time and
//! allocations per text.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use virtfleet_tests::{measure::Table, parsers::CASES};

/// Allocator that counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[expect(unsafe_code, reason = "an allocator that counts has no safe interface")]
// SAFETY: each call is passed to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// CPUs, disks and network devices of the guest whose files are parsed.
const SIZE: usize = 8;
/// Measurements of each parser, alternating; the median is used.
const MEASUREMENTS: usize = 31;
/// Minimum duration of one measurement.
const MIN_MEASUREMENT: Duration = Duration::from_millis(3);

/// Nanoseconds per text.
fn time(parse: fn(&str), text: &str) -> u64 {
    let began = Instant::now();
    let mut count: u32 = 0;
    while began.elapsed() < MIN_MEASUREMENT {
        for _ in 0..20 {
            parse(text);
        }
        count += 20;
    }
    u64::try_from((began.elapsed() / count).as_nanos()).unwrap_or(u64::MAX)
}

/// Allocations per text.
fn allocations(parse: fn(&str), text: &str) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    parse(text);
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let mut table = Table::new(&[
        "file",
        "bytes",
        "ours ns",
        "procfs-core ns",
        "ratio",
        "ours allocations",
        "procfs-core allocations",
    ]);
    let mut random = fastrand::Rng::with_seed(1);
    for case in CASES {
        let text = (case.text)(&mut random, SIZE);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..MEASUREMENTS {
            ours.push(time(case.parse_ours, &text));
            theirs.push(time(case.parse_procfs, &text));
        }
        let (ours, theirs) = (median(ours), median(theirs));
        // In hundredths, without floating point.
        let ratio = ours * 100 / theirs.max(1);
        table.row(&[
            case.file,
            &text.len().to_string(),
            &ours.to_string(),
            &theirs.to_string(),
            &format!("{}.{:02}", ratio / 100, ratio % 100),
            &allocations(case.parse_ours, &text).to_string(),
            &allocations(case.parse_procfs, &text).to_string(),
        ]);
    }
    print!("{}", table.render());
    println!(
        "\nratio: ours / procfs-core, medians of {MEASUREMENTS} alternating measurements; texts of a guest with {SIZE} CPUs, disks, NICs and mounts"
    );
}
