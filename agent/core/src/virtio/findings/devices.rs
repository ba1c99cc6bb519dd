//! Findings for devices that do not work (broken, failed, without driver), and for a missing random
//! source.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device, of_vm},
    words::named,
};
use crate::virtio::{Device, Kind};

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = &view.machine.devices;
    let mut all: Vec<Finding> = devices.iter().filter_map(of).collect();
    // KubeVirt adds no random device by default, and CPUs with random instructions need none. A
    // guest without any virtio device is not a KubeVirt VM.
    let wanted = view.machine.cpus.random == Some(false);
    if wanted && !devices.is_empty() && !devices.iter().any(|device| device.kind == Kind::RNG) {
        let message = "the VM has no random number device and its CPUs have no random number instruction: interrupts are the only source";
        all.push(
            of_vm("virtio-no-rng", Severity::Info, "rng", "NoRng", message)
                .remedy("set spec.template.spec.domain.devices.rng: {} in the VirtualMachine and restart it"),
        );
    }
    all
}

fn of(device: &Device) -> Option<Finding> {
    let name = named(&device.name, &device.parts);
    let broken = |id: &str, reason: &str, message: String| {
        let status = device.status.unwrap_or_default();
        of_device(id, broken_severity(device.kind), device, reason, message)
            .with("status", format!("{status:#x}"))
            .remedy(format!(
                "sudo dmesg | grep {}; then restart the VM, which resets the device",
                device.name
            ))
    };
    if device.needs_reset() {
        let message = format!("{name} had an error that requires a reset, and does not work");
        return Some(broken("virtio-device-needs-reset", "NeedsReset", message));
    }
    if device.failed() {
        let message = format!("the guest has given up {name}, and it does not work");
        return Some(broken("virtio-device-failed", "Failed", message));
    }
    if device.driver.is_some() {
        return None;
    }
    let (module, severity) = module(device.kind);
    let message = format!(
        "{} ({}) has no driver, so the guest cannot use it",
        device.name, device.kind
    );
    let remedy = module.map_or_else(
        || "use a kernel that has a driver for it, or remove the device from the VM's spec".to_owned(),
        |module| format!("sudo modprobe {module}; if the module is missing, install the distribution's package of additional kernel modules"),
    );
    Some(of_device("virtio-no-driver", severity, device, "NoDriver", message).remedy(remedy))
}

/// Severity of a broken device: high for traffic and data, low for devices that a server hardly
/// uses.
fn broken_severity(kind: Kind) -> Severity {
    match kind {
        Kind::BALLOON | Kind::RNG | Kind::CRYPTO => Severity::Warning,
        Kind::GPU | Kind::INPUT | Kind::SOUND => Severity::Info,
        _ => Severity::Critical,
    }
}

/// Kernel module for a type, and the severity if it is missing.
fn module(kind: Kind) -> (Option<&'static str>, Severity) {
    let serious = Severity::Warning;
    match kind {
        Kind::NET => (Some("virtio_net"), serious),
        Kind::BLOCK => (Some("virtio_blk"), serious),
        Kind::SCSI => (Some("virtio_scsi"), serious),
        // KubeVirt's guest agent uses it.
        Kind::CONSOLE => (Some("virtio_console"), serious),
        Kind::FS => (Some("virtiofs"), serious),
        Kind::VSOCK => (Some("vmw_vsock_virtio_transport"), serious),
        Kind::MEM => (Some("virtio_mem"), serious),
        Kind::BALLOON => (Some("virtio_balloon"), Severity::Info),
        Kind::RNG => (Some("virtio_rng"), Severity::Info),
        Kind::GPU => (Some("virtio_gpu"), Severity::Info),
        Kind::INPUT => (Some("virtio_input"), Severity::Info),
        Kind::CRYPTO => (Some("virtio_crypto"), Severity::Info),
        _ => (None, Severity::Info),
    }
}
