//! Interrupts of virtio devices: counts per CPU, and affinity.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::{
    procfs::{cpulist, interrupts},
    virtio::{Cpus, Vector, interrupts::handler},
};

use super::file_reader::FileReader;
use crate::read_once;

/// Maximum size of `/proc/interrupts` in bytes: a line per interrupt with 11 characters per CPU.
pub const MAX_INTERRUPTS_BYTES: usize = 32 << 20;
/// Maximum number of interrupts; a PCI device has at most 2048.
const MAX_VECTORS: usize = 1 << 16;

/// Interrupts by device (`virtio2`), as named by the device's handlers.
pub(super) fn of_devices(reader: &mut FileReader<'_>, cpus: &Cpus) -> BTreeMap<String, Vec<Vector>> {
    let path = reader.roots.proc("interrupts");
    let mut buffer = Vec::new();
    let text = match read_once(&path, &mut buffer, MAX_INTERRUPTS_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(bytes),
        Err(error) => {
            reader.note(&path, error);
            return BTreeMap::new();
        }
    };
    let mut found = BTreeMap::new();
    let read = read(&text, &mut found);
    reader.parsed(&path, read);
    for vector in found.values_mut().flatten() {
        read_affinity(reader, vector);
        add_offline_counts(reader, cpus, vector);
    }
    found
}

/// Adds the data of all lines but malformed ones, and returns the first of those.
fn read(
    text: &str,
    found: &mut BTreeMap<String, Vec<Vector>>,
) -> Result<(), virtfleet_agent_core::procfs::ParseError> {
    let table = interrupts::table(text)?;
    let mut taken = 0;
    let mut bad = None;
    let mut note = |error| {
        bad.get_or_insert(error);
    };
    table.rows(&mut Vec::new(), &mut note, |interrupt, counts| {
        let Some(irq) = interrupt.name.parse().ok().filter(|_| interrupt.is_numbered()) else {
            return;
        };
        for name in interrupt.handlers().split(',').map(str::trim) {
            let Some((device, _)) = handler(name) else {
                continue;
            };
            taken += 1;
            if taken > MAX_VECTORS {
                return;
            }
            let landed = table.cpus.iter().copied().zip(counts.iter().copied());
            found.entry(device.to_owned()).or_default().push(Vector {
                irq,
                name: name.to_owned(),
                landed: landed.filter(|one| one.1 > 0).collect(),
                ..Vector::default()
            });
        }
    });
    bad.map_or(Ok(()), Err)
}

/// The allowed and the effective CPUs of an interrupt. Kernels without
/// `GENERIC_IRQ_EFFECTIVE_AFF_MASK` do not report the latter.
fn read_affinity(reader: &mut FileReader<'_>, vector: &mut Vector) {
    let folder = reader.roots.proc(format!("irq/{}", vector.irq));
    let mut list = |name: &str| {
        let path: &Path = &folder.join(name);
        let text = reader.text(path)?;
        reader.parsed(path, cpulist::cpus(&text))
    };
    vector.affinity = list("smp_affinity_list").unwrap_or_default();
    vector.effective = list("effective_affinity_list").unwrap_or_default();
}

/// Adds counts of CPUs that are offline now. `/proc/interrupts` has no column for them, but the
/// kernel keeps the counts (`kernel/irq/irqdesc.c`, `per_cpu_count_show`). Without them a total
/// would decrease, which looks like a counter reset.
fn add_offline_counts(reader: &mut FileReader<'_>, cpus: &Cpus, vector: &mut Vector) {
    if cpus.online.is_empty() || cpus.possible.len() == cpus.online.len() {
        return;
    }
    let path = reader
        .roots
        .sys(format!("kernel/irq/{}/per_cpu_count", vector.irq));
    let Some(text) = reader.quiet(&path) else { return };
    let counts: Vec<u64> = text.split(',').map_while(|count| count.parse().ok()).collect();
    // On the largest guests the text is truncated within a number.
    if counts.len() != cpus.possible.len() {
        return;
    }
    let all = cpus.possible.iter().copied().zip(counts);
    let gone = all.filter(|(cpu, count)| *count > 0 && !cpus.online.contains(cpu));
    for one in gone {
        if vector.landed.iter().all(|known| known.0 != one.0) {
            vector.landed.push(one);
        }
    }
    vector.landed.sort_unstable();
}
