//! How queues get their interrupts, and where those land.

use std::collections::{BTreeMap, BTreeSet};

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device},
    words::{count, few, named},
};
use crate::virtio::{Bus, Device, Kind, Role, Sharing, Vector};

/// The least interrupts of a device from which it can be told where they go: before, one burst decides.
const ENOUGH: u64 = 10_000;
/// The share of the interrupts, in percent, from which they count as being on one CPU, where the kernel does not say to which they are sent. Those that came
/// while the device was set up may have gone elsewhere.
const ALL_PERCENT: u128 = 99;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = view.machine.devices.iter();
    devices
        .filter(|device| [Kind::NET, Kind::BLOCK, Kind::SCSI].contains(&device.kind))
        .filter_map(|device| shared(view, device).or_else(|| one_cpu(view, device)))
        .collect()
}

/// A console has more queues than vectors and shares them for good: only what carries traffic is looked at.
fn shared(view: &View<'_>, device: &Device) -> Option<Finding> {
    if !view.works(device) {
        return None;
    }
    let name = named(&device.name, &device.parts);
    let (id, reason, message, remedy) = match device.sharing {
        // With a single queue nothing is shared but changes of the configuration.
        Sharing::Shared if device.queues.len() != 1 => (
            "virtio-shared-vector",
            "SharedVector",
            format!("all queues of {name} share one interrupt, because there were not enough vectors"),
            "look at `virtfleet-agent virtio` for vectors in use; fewer devices or queues, then restart the VM",
        ),
        // Of memory-mapped devices it is how they are.
        Sharing::Intx if device.bus == Bus::Pci => (
            "virtio-intx",
            "Intx",
            format!("{name} has a single legacy interrupt (INTx) for all that it does"),
            "take pci=nomsi off the kernel's command line, if it is there; else look for why: sudo dmesg | grep -i msi",
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

/// The vectors of queues that are in use, each once.
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
    // A pair of queues is two vectors, and belongs on one CPU.
    let needed = if device.kind == Kind::NET { 3 } else { 2 };
    let came = vectors.iter().filter(|vector| vector.count() > 0).count();
    let total = vectors
        .iter()
        .fold(0u64, |sum, one| sum.saturating_add(one.count()));
    if vectors.len() < needed || came < needed || total < ENOUGH {
        return None;
    }
    let sent_to = sent_to(&vectors);
    let cpu = match sent_to.first() {
        None => landed_on(view, &vectors)?,
        Some(cpu) if sent_to.len() == 1 => *cpu,
        Some(_) => return None,
    };
    let name = named(&device.name, &device.parts);
    let message = format!(
        "the interrupts of all {} of {name} go to CPU {cpu}, of {}",
        count(vectors.len() as u64, "queue"),
        count(view.cpus, "vCPU")
    );
    let other = view.machine.cpus.online.iter().find(|one| **one != cpu)?;
    let last = vectors.last()?;
    let remedy = if device.kind == Kind::NET {
        format!(
            "find out who binds them, irqbalance for example, and spread them: echo {other} | sudo tee /proc/irq/{}/smp_affinity_list",
            last.irq
        )
    } else {
        "restart the VM: the kernel spreads them when it sets the device up".to_owned()
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

/// The CPUs to which they are sent; none where the kernel does not say.
fn sent_to(vectors: &[&Vector]) -> BTreeSet<u32> {
    if vectors.iter().any(|vector| vector.effective.is_empty()) {
        return BTreeSet::new();
    }
    vectors.iter().flat_map(|one| &one.effective).copied().collect()
}

/// The CPU on which as good as all of them came, of those that work.
fn landed_on(view: &View<'_>, vectors: &[&Vector]) -> Option<u32> {
    let mut by_cpu: BTreeMap<u32, u128> = BTreeMap::new();
    let landed = vectors.iter().flat_map(|vector| &vector.landed);
    for (cpu, count) in landed.filter(|one| view.machine.cpus.online.contains(&one.0)) {
        *by_cpu.entry(*cpu).or_default() += u128::from(*count);
    }
    let total: u128 = by_cpu.values().sum();
    let most = by_cpu.into_iter().max_by_key(|one| one.1)?;
    (most.1 * 100 >= total * ALL_PERCENT).then_some(most.0)
}
