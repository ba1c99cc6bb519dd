//! Findings about the interrupts of queues, and the CPUs that handle them.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device},
    words::{count, few, named},
};
use crate::virtio::{Bus, Device, Kind, Role, Sharing, Vector};

/// Minimum number of interrupts of a device to judge their distribution; below it a single burst
/// decides.
const MIN_INTERRUPTS: u64 = 10_000;
/// Percentage of interrupts on one CPU that counts as all, if the kernel does not report the
/// effective affinity. Interrupts during the setup of the device may have gone elsewhere.
const ONE_CPU_PERCENT: u128 = 99;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = view.machine.devices.iter();
    devices
        .filter(|device| [Kind::NET, Kind::BLOCK, Kind::SCSI].contains(&device.kind))
        .filter_map(|device| shared(view, device).or_else(|| one_cpu(view, device)))
        .collect()
}

/// Only devices with traffic: a console has more queues than vectors and always shares them.
fn shared(view: &View<'_>, device: &Device) -> Option<Finding> {
    if !view.works(device) {
        return None;
    }
    let name = named(&device.name, &device.parts);
    let (id, reason, message, remedy) = match device.sharing {
        // A device with one queue shares the vector only with configuration changes.
        Sharing::Shared if device.queues.len() != 1 => (
            "virtio-shared-vector",
            "SharedVector",
            format!("all queues of {name} share one interrupt, because there were not enough vectors"),
            "`virtfleet-agent virtio` shows the vectors in use; reduce the number of devices or queues, then restart the VM",
        ),
        // Normal for memory-mapped devices.
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

/// Vectors of queues in use, without duplicates.
fn in_use<'a>(view: &View<'_>, device: &'a Device) -> Vec<&'a Vector> {
    let channels = view.nic_of(device).and_then(|nic| nic.channels);
    let most = channels.map_or(u32::MAX, |channels| channels.current);
    let queues = device.queues.iter().filter(|queue| match queue.role {
        Role::Input | Role::Output => device.kind == Kind::NET && queue.index < most,
        Role::Request => device.kind != Kind::NET,
        _ => false,
    });
    let irqs: BTreeSet<u32> = queues.filter_map(|queue| queue.irq).collect();
    let vectors = device.vectors.iter();
    vectors.filter(|vector| irqs.contains(&vector.irq)).collect()
}

fn one_cpu(view: &View<'_>, device: &Device) -> Option<Finding> {
    if !view.several_cpus() || device.sharing != Sharing::Own {
        return None;
    }
    let vectors = in_use(view, device);
    // The two vectors of a queue pair belong on one CPU.
    let needed = if device.kind == Kind::NET { 3 } else { 2 };
    let came = vectors.iter().filter(|vector| vector.count() > 0).count();
    let total = vectors
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.count()));
    if vectors.len() < needed || came < needed || total < MIN_INTERRUPTS {
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
            "find out what pins them, for example irqbalance, and distribute them: echo {other} | sudo tee /proc/irq/{}/smp_affinity_list",
            last.irq
        )
    } else {
        "restart the VM: the kernel distributes them when it sets up the device".to_owned()
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

/// CPUs to which they are delivered; empty if the kernel does not report it.
fn target_cpus(vectors: &[&Vector]) -> BTreeSet<u32> {
    if vectors.iter().any(|vector| vector.effective.is_empty()) {
        return BTreeSet::new();
    }
    vectors.iter().flat_map(|one| &one.effective).copied().collect()
}

/// The CPU that handled nearly all of them, if there is one.
fn handling_cpu(view: &View<'_>, vectors: &[&Vector]) -> Option<u32> {
    let mut by_cpu: BTreeMap<u32, u128> = BTreeMap::new();
    let landed = vectors.iter().flat_map(|vector| &vector.landed);
    for (cpu, count) in landed.filter(|one| view.machine.cpus.online.contains(&one.0)) {
        *by_cpu.entry(*cpu).or_default() += u128::from(*count);
    }
    let total: u128 = by_cpu.values().sum();
    let most = by_cpu.into_iter().max_by_key(|one| one.1)?;
    (most.1 * 100 >= total * ONE_CPU_PERCENT).then_some(most.0)
}
