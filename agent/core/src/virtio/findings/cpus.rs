//! vCPUs that were plugged in and that nobody has brought online.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_vm},
    words::ranges,
};

/// What the kernel says where it keeps the second threads of cores offline, because somebody has switched SMT off (`Documentation/ABI/testing/sysfs-devices-system-cpu`).
const WITHOUT_SMT: [&str; 2] = ["off", "forceoff"];

/// Linux leaves a CPU that is plugged in offline unless a udev rule or its configuration says otherwise (KubeVirt's users met it: kubevirt #13608).
pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let cpus = &view.machine.cpus;
    if cpus.smt.as_deref().is_some_and(|smt| WITHOUT_SMT.contains(&smt)) {
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
        "vCPUs are plugged in and not online: {list}; the guest works with {} of {}",
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
        "echo 1 | sudo tee /sys/devices/system/cpu/cpu{first}/online, and for good a udev rule: \
         SUBSYSTEM==\"cpu\", ACTION==\"add\", ATTR{{online}}=\"1\""
    ));
    vec![finding]
}
