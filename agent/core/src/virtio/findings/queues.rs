//! Findings about the number of queues of network interfaces compared with vCPUs.

use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::Multiqueue,
};

use super::{
    view::{View, of_nic},
    words::count,
};
use crate::{
    nic::state::QueueStatus,
    virtio::{Channels, Nic},
};

/// Remedy for an interface with a single queue.
const MULTIQUEUE_REMEDY: &str = "set spec.template.spec.domain.devices.networkInterfaceMultiqueue: true in the VirtualMachine and restart it";

/// Remedy for an interface with fewer queues than there are vCPUs now.
const RESTART_REMEDY: &str = "restart the VM (a live migration is not sufficient): KubeVirt counts the vCPUs when the VM starts, and gives the interface one queue per vCPU";
/// Maximum number of queues that KubeVirt gives an interface.
const MAX_KUBEVIRT_QUEUES: u32 = 256;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    if !view.several_cpus() {
        return Vec::new();
    }
    let nics = view.machine.nics.iter().filter(|nic| view.counts(nic));
    nics.filter_map(|nic| of(view, nic, nic.channels?)).collect()
}

fn of(view: &View<'_>, nic: &Nic, channels: Channels) -> Option<Finding> {
    let finding = match channels {
        Channels { possible: 0, .. } => return None,
        Channels { possible: 1, .. } => single(view, nic),
        Channels { current, possible } if current < possible.min(view.cpus) => fewer(view, nic, channels)?,
        Channels { possible, .. } if possible < view.cpus.min(MAX_KUBEVIRT_QUEUES) => {
            too_few(view, nic, possible)
        }
        Channels { .. } => more(view, nic, channels)?,
    };
    Some(
        finding
            .with("queues", channels.current)
            .with("possible", channels.possible)
            .with("cpus", view.cpus),
    )
}

/// Finding for a single queue. A user of the platform measured 2 → 13 Gbit/s after enabling
/// multiqueue (cozystack #2801).
fn single(view: &View<'_>, nic: &Nic) -> Finding {
    let message = format!(
        "{} has one queue for {}: one vCPU handles all network traffic",
        nic.name,
        count(view.cpus, "vCPU")
    );
    of_nic(
        "virtio-nic-single-queue",
        Severity::Warning,
        nic,
        "SingleQueue",
        message,
    )
    .remedy(MULTIQUEUE_REMEDY)
}

fn fewer(view: &View<'_>, nic: &Nic, channels: Channels) -> Option<Finding> {
    let target = channels.possible.min(view.cpus);
    let standing = view.standing(nic);
    let word = standing.map_or(QueueStatus::Unknown, |one| one.standing);
    let has = format!("{} uses {} of {target} queues", nic.name, channels.current);
    match word {
        // Another finding reports it.
        QueueStatus::RolledBack => return None,
        QueueStatus::Manual => {
            let message =
                format!("{has}: an admin or another program set this number, and the agent keeps it");
            return Some(
                of_nic(
                    "virtio-nic-fewer-queues",
                    Severity::Info,
                    nic,
                    "ChosenByHand",
                    message,
                )
                .remedy("none if this is intended; otherwise set nic.keepManual: false"),
            );
        }
        _ => {}
    }
    if let Some(standing) = standing.filter(|one| one.refused.contains(&target)) {
        let message = format!("{has}: the driver refuses more");
        let finding = of_nic(
            "virtio-nic-fewer-queues",
            Severity::Warning,
            nic,
            "Refused",
            message,
        );
        return Some(finding.with("because", &standing.because).remedy(format!(
            "ip -d link show {0}: an XDP program needs a queue per vCPU for itself; with it no more are possible, without it sudo virtfleet-agent apply nic retries",
            nic.name
        )));
    }
    let remedy = if view.settings.multiqueue == Multiqueue::Auto {
        "sudo virtfleet-agent apply nic, and journalctl -b -u virtfleet-dns.service -u virtfleet-reconcile.service for the reason why it was not done"
    } else {
        "sudo virtfleet-agent apply nic, or set nic.multiqueue: auto"
    };
    // The kernel sets as many queues as there are CPUs when it finds the device, and never updates
    // them.
    let left_behind = standing.is_some_and(|one| {
        let grew = one.first_cpus < view.cpus;
        one.ours == Some(channels.current) || (one.first == channels.current && grew)
    });
    let (id, reason, message) = if left_behind {
        let message = format!("{has}: vCPUs were added, but no queues");
        ("virtio-nic-queues-left-behind", "LeftBehind", message)
    } else {
        ("virtio-nic-fewer-queues", "FewerQueues", has)
    };
    let mut finding = of_nic(id, Severity::Warning, nic, reason, message).remedy(remedy);
    if let Some(one) = standing {
        finding = finding.with("first", one.first);
        if one.first_cpus > 0 {
            finding = finding.with("firstCpus", one.first_cpus);
        }
    }
    Some(finding)
}

/// Finding for fewer possible queues than vCPUs. KubeVirt sets the maximum when the VM starts, so
/// vCPUs that are plugged in later have no queue. If no vCPUs were added, it may be intended.
fn too_few(view: &View<'_>, nic: &Nic, possible: u32) -> Finding {
    let first_cpus = view.standing(nic).map_or(0, |one| one.first_cpus);
    let has = format!(
        "{} can have {} for {}",
        nic.name,
        count(possible, "queue"),
        count(view.cpus, "vCPU")
    );
    let finding = if (1..view.cpus).contains(&first_cpus) {
        let message = format!("{has}: vCPUs were added, but no queues");
        of_nic(
            "virtio-nic-queues-left-behind",
            Severity::Warning,
            nic,
            "TooFewPossible",
            message,
        )
        .with("firstCpus", first_cpus)
    } else {
        let message = format!("{has}: some vCPUs share a queue");
        of_nic(
            "virtio-nic-fewer-queues",
            Severity::Info,
            nic,
            "TooFewPossible",
            message,
        )
    };
    finding.remedy(RESTART_REMEDY)
}

/// Finding for surplus queues. Each queue has its own buffers, in the guest and in virt-launcher
/// (kubevirt
/// #18012). Queues for vCPUs that are plugged in and offline are not surplus.
fn more(view: &View<'_>, nic: &Nic, channels: Channels) -> Option<Finding> {
    let present = u32::try_from(view.machine.cpus.present.len()).unwrap_or(u32::MAX);
    if channels.possible <= view.cpus.max(present) {
        return None;
    }
    let message = format!(
        "{} can have {} for {}: each takes memory and interrupts, and the surplus ones are not used",
        nic.name,
        count(channels.possible, "queue"),
        count(view.cpus, "vCPU")
    );
    let finding = of_nic(
        "virtio-nic-more-queues",
        Severity::Info,
        nic,
        "MoreQueues",
        message,
    );
    Some(finding.remedy("none in the guest; give the VM as many vCPUs as before, or restart it: KubeVirt gives an interface one queue per vCPU"))
}
