//! Network interfaces: that all are there, and their model and queues.

use super::{
    check::{NOT_REPORTED, SpecCheck},
    value::{SpecPath, SpecValue},
};
use crate::{
    facts::Vmi,
    guest_hardware::{GuestHardware, GuestNic},
    health::HealthCause,
    vmi_spec::{InterfaceSpec, VmiSpec},
};
use virtfleet_wire::ids::MacAddr;

/// Maximum number of queues of a tap device: `multiQueueMaxQueues` of KubeVirt.
const MAX_TAP_QUEUES: u32 = 256;
/// Path of the list.
const INTERFACES: &str = "spec.domain.devices.interfaces";
/// Models with the drivers that Linux has for them.
const DRIVERS: [(&str, &[&str]); 5] = [
    ("e1000", &["e1000"]),
    ("e1000e", &["e1000e"]),
    ("rtl8139", &["8139cp", "8139too"]),
    ("ne2k_pci", &["ne2k-pci"]),
    ("pcnet", &["pcnet32"]),
];

pub(super) fn checks<'a>(
    vmi: &Vmi,
    spec: &'a VmiSpec,
    guest: &'a GuestHardware,
    all: &mut Vec<SpecCheck<'a>>,
) {
    if spec.interfaces.is_empty() {
        return;
    }
    all.push(count(spec, guest));
    let nics = guest.nics.as_deref();
    for interface in &spec.interfaces {
        let Some(mac) = mac(vmi, interface) else { continue };
        let found = nics.and_then(|nics| nics.iter().find(|nic| nic.mac == Some(mac)));
        let path = SpecPath::Item(INTERFACES, &interface.name, "macAddress");
        let Some(found) = found else {
            // A bond, or the namespace of a pod, changes or hides the address. The devices are
            // counted.
            let why = "no interface of the guest has this address: it may be in a bond or in the namespace of a pod";
            let why = if nics.is_some() { why } else { NOT_REPORTED };
            all.push(SpecCheck::not_seen(path, SpecValue::Mac(mac), why));
            continue;
        };
        all.push(SpecCheck::new(
            path,
            SpecValue::Mac(mac),
            SpecValue::Mac(mac),
            true,
            "",
        ));
        all.extend(model(interface, found));
        all.extend(queues(spec, interface, found));
    }
}

/// The address that KubeVirt gives the interface.
fn mac(vmi: &Vmi, interface: &InterfaceSpec) -> Option<MacAddr> {
    let named = vmi.interfaces.iter().find(|one| *one.name == *interface.name);
    let reported = named.filter(|one| !one.mac_claimed).and_then(|one| one.mac);
    interface.mac.or(reported)
}

/// Devices are counted, because an interface in the namespace of a pod is still a device.
fn count<'a>(spec: &VmiSpec, guest: &GuestHardware) -> SpecCheck<'a> {
    let path = SpecPath::Field(INTERFACES);
    let number = |count: usize| SpecValue::Number(count as u64);
    let asked = spec.interfaces.len();
    let (Some(nics), Some(devices)) = (guest.nics.as_deref(), guest.virtio) else {
        return SpecCheck::not_seen(path, number(asked), NOT_REPORTED);
    };
    let others = nics.iter().filter(|nic| !nic.is_virtio()).count();
    let seen = others + devices.nics as usize;
    if seen < asked {
        SpecCheck::new(
            path,
            number(asked),
            number(seen),
            false,
            "the guest lacks an interface of the VM",
        )
        .matters(HealthCause::Vm, "InterfaceMissing")
    } else {
        // More are normal: passed-through devices.
        SpecCheck::new(path, number(asked), number(seen), true, "")
    }
}

fn model<'a>(interface: &'a InterfaceSpec, found: &'a GuestNic) -> Option<SpecCheck<'a>> {
    if !interface.is_tap {
        return None;
    }
    let path = SpecPath::Item(INTERFACES, &interface.name, "model");
    let asked = interface.model.as_deref().unwrap_or("virtio");
    let value = SpecValue::Text(asked);
    let Some(driver) = found.driver.as_deref() else {
        return Some(SpecCheck::not_seen(path, value, NOT_REPORTED));
    };
    let known = DRIVERS.iter().find(|(model, _)| *model == asked);
    let agrees = match known {
        Some((_, drivers)) => drivers.contains(&driver),
        None if interface.is_virtio() => found.is_virtio(),
        None => {
            return Some(SpecCheck::not_seen(
                path,
                value,
                "the driver of this model is not known",
            ));
        }
    };
    let why = "an emulated interface reaches a tenth of the rate of a virtio interface";
    Some(SpecCheck::new(path, value, SpecValue::Text(driver), agrees, why))
}

fn queues<'a>(spec: &VmiSpec, interface: &'a InterfaceSpec, found: &GuestNic) -> Option<SpecCheck<'a>> {
    let (topology, _) = spec.cpu.topology?;
    if !spec.network_multi_queue || !interface.is_tap || !interface.is_virtio() {
        return None;
    }
    let asked = u64::from(topology.vcpus().min(MAX_TAP_QUEUES));
    Some(SpecCheck::compare(
        SpecPath::Item(INTERFACES, &interface.name, "networkInterfaceMultiqueue"),
        SpecValue::Number(asked),
        found.queues.map(|seen| SpecValue::Number(seen.into())),
        |seen| matches!(seen, SpecValue::Number(seen) if seen >= asked),
        "the interface has fewer queues than the VM has vCPUs; vCPUs that were added get queues after a restart",
    ))
}
