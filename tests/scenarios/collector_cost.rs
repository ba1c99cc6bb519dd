//! The memory of the collector's core as a number of allocated bytes, which does not depend on the
//! machine.

use std::time::Duration;

use anyhow::{Context as _, Result};
use virtfleet_tests::{bins, measure::ratchet, process::Launch};

/// Most bytes for each of 1,000 guests: facts, answer, history, verdict and enrolment.
const BYTES_PER_GUEST: u64 = 13_800;

#[test]
fn a_guest_takes_a_bounded_number_of_bytes() -> Result<()> {
    let text = Launch::new(bins::bench_health()?)
        .args(["--vms", "1000", "--runs", "1"])
        .text(Duration::from_mins(2))?;
    let bytes = text.lines().find_map(|line| {
        let (before, _) = line.split_once(" bytes allocated per VM")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    let bytes = bytes.with_context(|| format!("bench-health prints {text:?}"))?;
    println!("{bytes} bytes per guest");
    ratchet("bytes per guest", bytes, "BYTES_PER_GUEST", BYTES_PER_GUEST)
}
