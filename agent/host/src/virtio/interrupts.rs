//! The interrupts of virtio devices: how often each came and on which CPU, and where it may go.

use std::{collections::BTreeMap, path::Path};

use virtfleet_agent_core::{
    procfs::{cpulist, interrupts},
    virtio::{Cpus, Vector, interrupts::handler},
};

use super::look::Look;
use crate::slurp;

/// `/proc/interrupts` has a line for each interrupt with 11 characters for each CPU.
pub const LIMIT: usize = 32 << 20;
/// Interrupts that are taken: a PCI device has at most 2048.
const VECTORS: usize = 1 << 16;

/// The interrupts by device (`virtio2`), each as that device's handler has it.
pub(super) fn of_devices(look: &mut Look<'_>, cpus: &Cpus) -> BTreeMap<String, Vec<Vector>> {
    let path = look.roots.proc("interrupts");
    let mut buffer = Vec::new();
    let text = match slurp(&path, &mut buffer, LIMIT) {
        Ok(bytes) => String::from_utf8_lossy(bytes),
        Err(error) => {
            look.note(&path, error);
            return BTreeMap::new();
        }
    };
    let mut found = BTreeMap::new();
    let read = read(&text, &mut found);
    look.parsed(&path, read);
    for vector in found.values_mut().flatten() {
        aim(look, vector);
        remember(look, cpus, vector);
    }
    found
}

/// Fills in what lines tell before the first that is broken.
fn read(
    text: &str,
    found: &mut BTreeMap<String, Vec<Vector>>,
) -> Result<(), virtfleet_agent_core::procfs::ParseError> {
    let table = interrupts::table(text)?;
    let mut taken = 0;
    table.rows(&mut Vec::new(), |interrupt, counts| {
        let Some(irq) = interrupt.name.parse().ok().filter(|_| interrupt.is_numbered()) else {
            return;
        };
        for name in interrupt.handlers().split(',').map(str::trim) {
            let Some((device, _)) = handler(name) else {
                continue;
            };
            taken += 1;
            if taken > VECTORS {
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
    })
}

/// Where an interrupt may go and goes. Kernels without `GENERIC_IRQ_EFFECTIVE_AFF_MASK` do not say the latter.
fn aim(look: &mut Look<'_>, vector: &mut Vector) {
    let folder = look.roots.proc(format!("irq/{}", vector.irq));
    let mut list = |name: &str| {
        let path: &Path = &folder.join(name);
        let text = look.text(path)?;
        look.parsed(path, cpulist::cpus(&text))
    };
    vector.affinity = list("smp_affinity_list").unwrap_or_default();
    vector.effective = list("effective_affinity_list").unwrap_or_default();
}

/// Adds what came to CPUs that are offline now, for which `/proc/interrupts` has no column: the kernel has not forgotten it (`kernel/irq/irqdesc.c`,
/// `per_cpu_count_show`), and a count in all that went back would look as if all had begun anew.
fn remember(look: &mut Look<'_>, cpus: &Cpus, vector: &mut Vector) {
    if cpus.online.is_empty() || cpus.possible.len() == cpus.online.len() {
        return;
    }
    let path = look.roots.sys(format!("kernel/irq/{}/per_cpu_count", vector.irq));
    let Some(text) = look.quiet(&path) else { return };
    let counts: Vec<u64> = text.split(',').map_while(|count| count.parse().ok()).collect();
    // On the largest guests the text does not fit the file, and ends within a number.
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
