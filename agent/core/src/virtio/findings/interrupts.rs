//! Findings about the interrupts of queues, and the CPUs that handle them.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device},
    words::{count, few, named},
};
use crate::virtio::{Bus, Device, Kind, Role, Sharing, Vector};

/// Minimum number of interrupts of a device from which their distribution over CPUs is judged. With
/// fewer, a single burst would determine the result.
const MIN_INTERRUPTS: u64 = 10_000;
/// Percentage of a device's interrupts from which one CPU is considered to handle them all. Used if
/// the kernel does not report the effective affinity. It is below 100, because other CPUs may have
/// handled interrupts during the setup of the device.
const ONE_CPU_PERCENT: u128 = 99;

/// At most one finding per network or disk device. Other devices are skipped: a console, for
/// example, has more queues than vectors and always shares them.
pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = view.machine.devices.iter();
    devices
        .filter(|device| [Kind::NET, Kind::BLOCK, Kind::SCSI].contains(&device.kind))
        .filter_map(|device| shared_vector(view, device).or_else(|| one_cpu(view, device)))
        .collect()
}

/// Finding for a device whose queues share one vector or that has a legacy interrupt. `None` if the
/// performance of the device does not matter ([`View::works`]).
fn shared_vector(view: &View<'_>, device: &Device) -> Option<Finding> {
    if !view.works(device) {
        return None;
    }
    let name = named(&device.name, &device.parts);
    let (id, reason, message, remedy) = match device.sharing {
        // With one queue, no other queue shares its vector.
        Sharing::Shared if device.queues.len() != 1 => (
            "virtio-shared-vector",
            "SharedVector",
            format!("all queues of {name} share one interrupt, because there were not enough vectors"),
            "`virtfleet-agent virtio` shows the vectors in use; reduce the number of devices or queues, then restart the VM",
        ),
        // Memory-mapped devices have no other kind of interrupt, so only PCI is reported.
        Sharing::Intx if device.bus == Bus::Pci => (
            "virtio-intx",
            "Intx",
            format!("{name} has a single legacy interrupt (INTx)"),
            "remove pci=nomsi from the kernel command line, if it is set; otherwise find the reason: sudo dmesg | grep -i msi",
        ),
        _ => return None,
    };
    let irqs = few(device.vectors.iter().map(|vector| vector.irq));
    Some(
        of_device(id, Severity::Warning, device, reason, message)
            .with("interrupts", irqs)
            .remedy(remedy),
    )
}

/// Vectors of the queues in use, without duplicates.
fn vectors_in_use<'a>(view: &View<'_>, device: &'a Device) -> Vec<&'a Vector> {
    let channels = view.nic_of(device).and_then(|nic| nic.channels);
    let queue_pairs = channels.map_or(u32::MAX, |channels| channels.current);
    let queues = device.queues.iter().filter(|queue| match queue.role {
        Role::Input | Role::Output => device.kind == Kind::NET && queue.index < queue_pairs,
        Role::Request => device.kind != Kind::NET,
        _ => false,
    });
    let irqs: BTreeSet<u32> = queues.filter_map(|queue| queue.irq).collect();
    let vectors = device.vectors.iter();
    vectors.filter(|vector| irqs.contains(&vector.irq)).collect()
}

/// Finding for a device whose queues have a vector each, all handled by the same CPU.
fn one_cpu(view: &View<'_>, device: &Device) -> Option<Finding> {
    if !view.several_cpus() || device.sharing != Sharing::Own {
        return None;
    }
    let vectors = vectors_in_use(view, device);
    // The receive and the transmit vector of a queue pair belong on the same CPU.
    let min_vectors = if device.kind == Kind::NET { 3 } else { 2 };
    let active = vectors.iter().filter(|vector| vector.count() > 0).count();
    let total = vectors
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.count()));
    if vectors.len() < min_vectors || active < min_vectors || total < MIN_INTERRUPTS {
        return None;
    }
    let target_cpus = target_cpus(&vectors);
    let cpu = match target_cpus.first() {
        None => handling_cpu(view, &vectors)?,
        Some(cpu) if target_cpus.len() == 1 => *cpu,
        Some(_) => return None,
    };
    let name = named(&device.name, &device.parts);
    let message = format!(
        "the interrupts of all {} of {name} go to CPU {cpu}, although there are {}",
        count(vectors.len() as u64, "queue"),
        count(view.cpus, "vCPU")
    );
    let other = view.machine.cpus.online.iter().find(|one| **one != cpu)?;
    let last = vectors.last()?;
    let remedy = if device.kind == Kind::NET {
        format!(
            "find out what pins the interrupts, for example irqbalance, and distribute them: echo {other} | sudo tee /proc/irq/{}/smp_affinity_list",
            last.irq
        )
    } else {
        "restart the VM: the kernel distributes the interrupts when it sets up the device".to_owned()
    };
    Some(
        of_device(
            "virtio-interrupts-one-cpu",
            Severity::Warning,
            device,
            "OneCpu",
            message,
        )
        .with("cpu", cpu)
        .with("count", total)
        .with("interrupts", few(vectors.iter().map(|vector| vector.irq)))
        .remedy(remedy),
    )
}

/// CPUs to which the kernel delivers these interrupts. Empty if it does not report all of them.
fn target_cpus(vectors: &[&Vector]) -> BTreeSet<u32> {
    if vectors.iter().any(|vector| vector.effective.is_empty()) {
        return BTreeSet::new();
    }
    vectors.iter().flat_map(|one| &one.effective).copied().collect()
}

/// The online CPU that handled at least [`ONE_CPU_PERCENT`] of these interrupts, if there is one.
/// Those on offline CPUs do not count.
fn handling_cpu(view: &View<'_>, vectors: &[&Vector]) -> Option<u32> {
    let mut by_cpu: BTreeMap<u32, u128> = BTreeMap::new();
    let landed = vectors.iter().flat_map(|vector| &vector.landed);
    for (cpu, count) in landed.filter(|one| view.machine.cpus.online.contains(&one.0)) {
        *by_cpu.entry(*cpu).or_default() += u128::from(*count);
    }
    let total: u128 = by_cpu.values().sum();
    let (cpu, handled) = by_cpu.into_iter().max_by_key(|one| one.1)?;
    (handled * 100 >= total * ONE_CPU_PERCENT).then_some(cpu)
}
