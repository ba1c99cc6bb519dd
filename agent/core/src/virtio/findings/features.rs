//! Findings for important features that were not negotiated.

use std::collections::BTreeMap;

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device},
    words::{few, named},
};
use crate::virtio::{
    Device, Features, Kind,
    features::{bit_name, net, transport},
    status,
};

/// Important feature, and the effect if it is missing.
struct ImportantFeature {
    bit: u32,
    without: &'static str,
    /// Whether its lack costs something for every packet.
    per_packet: bool,
}

const fn important(bit: u32, without: &'static str, per_packet: bool) -> ImportantFeature {
    ImportantFeature {
        bit,
        without,
        per_packet,
    }
}

/// Features of every device with traffic.
const IMPORTANT_TRANSPORT: [ImportantFeature; 2] = [
    important(transport::EVENT_IDX, "more interrupts and kicks", false),
    important(transport::INDIRECT_DESC, "fewer requests in a queue", false),
];

/// Features of network devices. Offloads for UDP and tunnels are newer than common kernels and
/// hypervisors, so their lack is not reported.
const IMPORTANT_NET: [ImportantFeature; 7] = [
    important(net::MRG_RXBUF, "large receive buffers, most of them empty", true),
    important(net::CSUM, "checksums of sent packets cost CPU time", true),
    important(
        net::GUEST_CSUM,
        "checksums of received packets cost CPU time",
        true,
    ),
    important(
        net::HOST_TSO4,
        "the guest splits sent data into packets itself",
        true,
    ),
    important(
        net::HOST_TSO6,
        "the guest splits sent data into packets itself",
        true,
    ),
    important(net::GUEST_TSO4, "received data arrives in small packets", true),
    important(net::GUEST_TSO6, "received data arrives in small packets", true),
];

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = view.machine.devices.iter();
    // Devices of one type usually lack the same features: report them in one finding.
    let mut alike: BTreeMap<(Kind, u128, Option<u128>), Vec<&Device>> = BTreeMap::new();
    for device in devices.filter(|device| view.works(device)) {
        let lacking: Features = Features::of(lacking(device).map(|important| important.bit));
        if lacking.0 != 0 {
            let offered = device.offered.map(|offered| offered.0 & lacking.0);
            alike
                .entry((device.kind, lacking.0, offered))
                .or_default()
                .push(device);
        }
    }
    alike
        .values()
        .filter_map(|devices| missing(view, devices))
        .collect()
}

/// Whether the negotiation of features is finished.
fn agreed(device: &Device) -> bool {
    let done = status::FEATURES_OK | status::DRIVER_OK;
    let works = device.status.is_none_or(|now| now & done != 0);
    device.driver.is_some() && device.negotiated.0 != 0 && works
}

/// Important features that were not negotiated.
fn lacking(device: &Device) -> impl Iterator<Item = &'static ImportantFeature> {
    let (all, own): (&'static [ImportantFeature], &'static [ImportantFeature]) = match device.kind {
        Kind::NET => (&IMPORTANT_TRANSPORT, &IMPORTANT_NET),
        Kind::BLOCK | Kind::SCSI => (&IMPORTANT_TRANSPORT, &[]),
        _ => (&[], &[]),
    };
    let important = all.iter().chain(own).filter(|_| agreed(device));
    important.filter(|important| !device.negotiated.has(important.bit))
}

/// Finding for devices that lack the same features.
fn missing(view: &View<'_>, devices: &[&Device]) -> Option<Finding> {
    let device = *devices.first()?;
    let lacking: Vec<&ImportantFeature> = lacking(device).collect();
    let names = |of: &dyn Fn(&ImportantFeature) -> bool| -> String {
        let bits = lacking.iter().filter(|important| of(important));
        let names = bits.filter_map(|important| bit_name(device.kind, important.bit));
        names.collect::<Vec<_>>().join(" ")
    };
    let offers = |offered: Features, important: &ImportantFeature| offered.has(important.bit);
    let refused = device.offered.map(|offered| names(&|one| offers(offered, one)));
    let any_refused = refused.as_ref().is_some_and(|names| !names.is_empty());
    let severity = if any_refused || lacking.iter().any(|one| one.per_packet) {
        Severity::Warning
    } else {
        Severity::Info
    };
    let mut costs: Vec<&str> = lacking.iter().map(|one| one.without).collect();
    costs.dedup();
    let message = format!(
        "{} {} without {}: {}",
        few(devices.iter().map(|one| named(&one.name, &one.parts))),
        if devices.len() == 1 { "works" } else { "work" },
        names(&|_| true).replace(' ', ", "),
        costs.join("; ")
    );
    let reason = if any_refused {
        "FeaturesRefused"
    } else {
        "FeaturesMissing"
    };
    let mut finding = of_device("virtio-features-missing", severity, device, reason, message)
        .with("missing", names(&|_| true))
        .with("negotiated", device.negotiated);
    if let (Some(offered), Some(refused)) = (device.offered, &refused) {
        finding = finding
            .with("refused", refused)
            .with("notOffered", names(&|one| !offers(offered, one)));
    }
    if devices.len() > 1 {
        finding = finding.with("devices", few(devices.iter().map(|one| &one.name)));
    }
    Some(finding.remedy(remedy(view, device, any_refused)))
}

/// Whether root has read the offered features; what is unknown then is unknown to this kernel.
fn asked(view: &View<'_>) -> bool {
    view.machine.asked_offered || view.state.is_some()
}

fn remedy(view: &View<'_>, device: &Device, refused: bool) -> &'static str {
    match (device.offered, refused, device.kind) {
        (Some(_), true, Kind::NET) => {
            "the guest's driver does not accept offered features: check /sys/module/virtio_net/parameters/{csum,gso} and /etc/modprobe.d, or use a newer kernel"
        }
        (Some(_), true, _) => "the guest's driver does not accept offered features: use a newer kernel",
        (Some(_), false, Kind::NET) => {
            "the hypervisor does not offer it: check the interface's binding and model, or the machine type, in the VM's spec; the guest cannot change this"
        }
        (Some(_), false, _) => {
            "the hypervisor does not offer it: check the machine type in the VM's spec; the guest cannot change this"
        }
        (None, _, kind) => match (asked(view), kind) {
            (false, _) => {
                "sudo virtfleet-agent virtio shows whether the hypervisor offers it, on kernels with CONFIG_VIRTIO_DEBUG"
            }
            (true, Kind::NET) => {
                "this kernel does not show whether the hypervisor offers it: check the interface's binding and model, or the machine type, in the VM's spec, \
                 and /sys/module/virtio_net/parameters/{csum,gso} in the guest"
            }
            (true, _) => {
                "this kernel does not show whether the hypervisor offers it: check the machine type in the VM's spec, then try a newer kernel"
            }
        },
    }
}
