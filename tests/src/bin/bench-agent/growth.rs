//! How the cost of a scrape grows with CPUs, disks and NICs, on generated roots.

use std::{
    fs,
    io::{Write as _, stdout},
    os::unix::fs::PermissionsExt as _,
};

use anyhow::{Context as _, Result};
use virtfleet_tests::{
    measure::Table,
    parity::programs::Serve,
    roots::{self, Shape},
};

use crate::subject::in_turns;

const CPUS: [usize; 4] = [2, 16, 64, 256];
const OTHERS: [usize; 3] = [2, 16, 64];

/// Prints one line for each shape: CPU time and median of both programs, and samples per page.
pub(crate) fn print(scrapes: usize) -> Result<()> {
    let mut table = Table::new(&[
        "guest",
        "ours: CPU",
        "theirs: CPU",
        "ratio",
        "ours: p50",
        "theirs: p50",
        "ratio",
        "samples",
        "goal ≤ 1/5",
    ]);
    let small = Shape::SMALL;
    let shapes = CPUS
        .iter()
        .map(|cpus| (format!("{cpus} CPUs"), Shape { cpus: *cpus, ..small }));
    let shapes = shapes.chain(OTHERS.iter().map(|disks| {
        (
            format!("{disks} disks"),
            Shape {
                disks: *disks,
                ..small
            },
        )
    }));
    let shapes = shapes.chain(
        OTHERS
            .iter()
            .map(|nics| (format!("{nics} NICs"), Shape { nics: *nics, ..small })),
    );
    for (name, shape) in shapes {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        roots::write(folder.path(), shape)?;
        let serve = Serve::defaults(Some(folder.path()))?;
        let [mut ours, mut theirs] = in_turns(&serve, scrapes, true).with_context(|| name.clone())?;
        let (cpu, median) = (
            (ours.cpu(), theirs.cpu()),
            (ours.quantile(0.5), theirs.quantile(0.5)),
        );
        let time = |value: f64| format!("{value:.0} µs");
        table.row(&[
            &name,
            &time(cpu.0),
            &time(cpu.1),
            &format!("{:.3}", cpu.0 / cpu.1),
            &time(median.0),
            &time(median.1),
            &format!("{:.3}", median.0 / median.1),
            &format!("{} and {}", ours.samples, theirs.samples),
            if cpu.0 * 5.0 <= cpu.1 && median.0 * 5.0 <= median.1 {
                "met"
            } else {
                "MISSED"
            },
        ]);
    }
    writeln!(
        stdout(),
        "\nGrowth, on generated roots ({} CPUs, {} disks and {} NICs where not said), {scrapes} scrapes each in turns:\n{}",
        small.cpus,
        small.disks,
        small.nics,
        table.render()
    )
    .context("print")
}
