//! Finding for vCPUs that are plugged in and offline.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_vm},
    words::ranges,
};

/// Values of `smt/control` with which the kernel keeps the second threads of cores offline, because
/// an admin disabled SMT (`Documentation/ABI/testing/sysfs-devices-system-cpu`).
const SMT_DISABLED: [&str; 2] = ["off", "forceoff"];

/// Linux leaves a new CPU offline unless a udev rule or its configuration sets it online (see
/// kubevirt
/// #13608).
pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let cpus = &view.machine.cpus;
    if cpus.smt.as_deref().is_some_and(|smt| SMT_DISABLED.contains(&smt)) {
        return Vec::new();
    }
    let present = cpus.present.iter();
    let offline: Vec<u32> = present
        .filter(|cpu| !cpus.online.contains(cpu))
        .copied()
        .collect();
    let (Some(first), false) = (offline.first(), cpus.online.is_empty()) else {
        return Vec::new();
    };
    let list = ranges(&offline);
    let message = format!(
        "vCPUs are plugged in but offline: {list}; the guest uses {} of {}",
        cpus.online.len(),
        cpus.present.len()
    );
    let finding = of_vm(
        "virtio-cpus-offline",
        Severity::Warning,
        "cpus",
        "CpusOffline",
        message,
    )
    .with("offline", list)
    .with("online", ranges(&cpus.online))
    .with("present", ranges(&cpus.present))
    .remedy(format!(
        "echo 1 | sudo tee /sys/devices/system/cpu/cpu{first}/online, and permanently a udev rule: \
         SUBSYSTEM==\"cpu\", ACTION==\"add\", ATTR{{online}}=\"1\""
    ));
    vec![finding]
}
