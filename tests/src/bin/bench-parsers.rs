//! Cost of the agent's parsers of `/proc` against procfs-core's in the same run: CPU time and
//! allocations per text.

use std::time::{Duration, Instant};

use virtfleet_tests::{
    measure::{
        Table,
        allocation::{self, Counting},
    },
    parsers::CASES,
};

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
    let before = allocation::allocations();
    parse(text);
    allocation::allocations() - before
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
