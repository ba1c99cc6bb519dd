//! The number of queues of network interfaces, against vCPUs.

use virtfleet_wire::{
    finding::{Finding, Severity},
    settings::Multiqueue,
};

use super::{
    view::{View, of_nic},
    words::count,
};
use crate::{
    nic::state::Standing,
    virtio::{Channels, Nic},
};

/// What gives an interface several queues.
const MULTIQUEUE: &str = "set spec.template.spec.domain.devices.networkInterfaceMultiqueue: true in the VirtualMachine and restart it";

/// What gives it more, where it has fewer than there are vCPUs now.
const RESTART: &str = "restart the VM, for which a live migration does not stand in: KubeVirt counts the vCPUs when the VM starts, and gives the interface a queue for each then";
/// The most queues that KubeVirt gives an interface.
const MOST: u32 = 256;

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
        Channels { possible, .. } if possible < view.cpus.min(MOST) => too_few(view, nic, possible),
        Channels { .. } => more(view, nic, channels)?,
    };
    Some(
        finding
            .with("queues", channels.current)
            .with("possible", channels.possible)
            .with("cpus", view.cpus),
    )
}

/// A user of the platform measured 2 → 13 Gbit/s from this (cozystack #2801).
fn single(view: &View<'_>, nic: &Nic) -> Finding {
    let message = format!(
        "{} has one queue for {}: one of them does the work of the network alone",
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
    .remedy(MULTIQUEUE)
}

fn fewer(view: &View<'_>, nic: &Nic, channels: Channels) -> Option<Finding> {
    let target = channels.possible.min(view.cpus);
    let standing = view.standing(nic);
    let word = standing.map_or(Standing::Unknown, |one| one.standing);
    let has = format!("{} uses {} of {target} queues", nic.name, channels.current);
    match word {
        // A finding of its own says so.
        Standing::RolledBack => return None,
        Standing::Manual => {
            let message = format!("{has}: somebody has chosen so, and it is left alone");
            return Some(
                of_nic(
                    "virtio-nic-fewer-queues",
                    Severity::Info,
                    nic,
                    "ChosenByHand",
                    message,
                )
                .remedy("nothing, if it is meant so; else set nic.keepManual: false"),
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
            "ip -d link show {0}: an XDP program needs a queue for each vCPU and for itself; with it there can be no more, without it sudo virtfleet-agent apply nic tries again",
            nic.name
        )));
    }
    let remedy = if view.settings.multiqueue == Multiqueue::Auto {
        "sudo virtfleet-agent apply nic, and journalctl -b -u virtfleet-dns.service -u virtfleet-reconcile.service for why it was not done"
    } else {
        "sudo virtfleet-agent apply nic, or set nic.multiqueue: auto"
    };
    // The kernel sets up as many as there are CPUs when it finds the device, and does not come back to it.
    let left_behind = standing.is_some_and(|one| {
        let grew = one.first_cpus < view.cpus;
        one.ours == Some(channels.current) || (one.first == channels.current && grew)
    });
    let (id, reason, message) = if left_behind {
        let message = format!("{has}: vCPUs were added, and its queues did not follow");
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

/// KubeVirt sets how many there can be when the VM starts: vCPUs that are plugged in later get none. Where nobody has seen vCPUs come, it may have been meant so.
fn too_few(view: &View<'_>, nic: &Nic, possible: u32) -> Finding {
    let first_cpus = view.standing(nic).map_or(0, |one| one.first_cpus);
    let has = format!(
        "{} can have {} for {}",
        nic.name,
        count(possible, "queue"),
        count(view.cpus, "vCPU")
    );
    let finding = if (1..view.cpus).contains(&first_cpus) {
        let message = format!("{has}: vCPUs were added, and the VM's queues did not follow");
        of_nic(
            "virtio-nic-queues-left-behind",
            Severity::Warning,
            nic,
            "TooFewPossible",
            message,
        )
        .with("firstCpus", first_cpus)
    } else {
        let message = format!("{has}: some vCPUs share one");
        of_nic(
            "virtio-nic-fewer-queues",
            Severity::Info,
            nic,
            "TooFewPossible",
            message,
        )
    };
    finding.remedy(RESTART)
}

/// Each queue has buffers of its own, in the guest and in virt-launcher (kubevirt #18012). Queues for vCPUs that are plugged in and offline are not too many.
fn more(view: &View<'_>, nic: &Nic, channels: Channels) -> Option<Finding> {
    let present = u32::try_from(view.machine.cpus.present.len()).unwrap_or(u32::MAX);
    if channels.possible <= view.cpus.max(present) {
        return None;
    }
    let message = format!(
        "{} can have {} for {}: each takes memory and interrupts, and none of those beyond is of use",
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
    Some(finding.remedy("nothing that the guest could do; give the VM as many vCPUs as before, or restart it: KubeVirt gives an interface a queue for each vCPU"))
}
