//! Features that matter and that device and driver did not agree on.

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

/// A feature that matters, and what is lost without it.
struct Wanted {
    bit: u32,
    without: &'static str,
    /// Whether every packet pays for it.
    dear: bool,
}

const fn wanted(bit: u32, without: &'static str, dear: bool) -> Wanted {
    Wanted { bit, without, dear }
}

/// Of every device that carries traffic.
const OF_ALL: [Wanted; 2] = [
    wanted(transport::EVENT_IDX, "more interrupts and kicks", false),
    wanted(transport::INDIRECT_DESC, "fewer requests in a queue", false),
];

/// Of network devices. UDP's offloads and those of tunnels are younger than kernels and hypervisors in use, and are not missed.
const OF_NET: [Wanted; 7] = [
    wanted(net::MRG_RXBUF, "large receive buffers, most of them empty", true),
    wanted(net::CSUM, "checksums of what is sent cost CPU", true),
    wanted(net::GUEST_CSUM, "checksums of what is received cost CPU", true),
    wanted(
        net::HOST_TSO4,
        "what is sent is cut into packets by the guest",
        true,
    ),
    wanted(
        net::HOST_TSO6,
        "what is sent is cut into packets by the guest",
        true,
    ),
    wanted(net::GUEST_TSO4, "what is received comes in small packets", true),
    wanted(net::GUEST_TSO6, "what is received comes in small packets", true),
];

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    let devices = view.machine.devices.iter();
    // Of one type usually all lack the same: one finding says it.
    let mut alike: BTreeMap<(Kind, u128, Option<u128>), Vec<&Device>> = BTreeMap::new();
    for device in devices.filter(|device| view.works(device)) {
        let lacking: Features = Features::of(lacking(device).map(|wanted| wanted.bit));
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

/// What device and driver agreed on is known once they are done with it.
fn agreed(device: &Device) -> bool {
    let done = status::FEATURES_OK | status::DRIVER_OK;
    let works = device.status.is_none_or(|now| now & done != 0);
    device.driver.is_some() && device.negotiated.0 != 0 && works
}

/// What matters and was not agreed on.
fn lacking(device: &Device) -> impl Iterator<Item = &'static Wanted> {
    let (all, own): (&'static [Wanted], &'static [Wanted]) = match device.kind {
        Kind::NET => (&OF_ALL, &OF_NET),
        Kind::BLOCK | Kind::SCSI => (&OF_ALL, &[]),
        _ => (&[], &[]),
    };
    let wanted = all.iter().chain(own).filter(|_| agreed(device));
    wanted.filter(|wanted| !device.negotiated.has(wanted.bit))
}

/// Of devices that lack the same.
fn missing(view: &View<'_>, devices: &[&Device]) -> Option<Finding> {
    let device = *devices.first()?;
    let lacking: Vec<&Wanted> = lacking(device).collect();
    let names = |of: &dyn Fn(&Wanted) -> bool| -> String {
        let bits = lacking.iter().filter(|wanted| of(wanted));
        let names = bits.filter_map(|wanted| bit_name(device.kind, wanted.bit));
        names.collect::<Vec<_>>().join(" ")
    };
    let offers = |offered: Features, wanted: &Wanted| offered.has(wanted.bit);
    let refused = device.offered.map(|offered| names(&|one| offers(offered, one)));
    let any_refused = refused.as_ref().is_some_and(|names| !names.is_empty());
    let severity = if any_refused || lacking.iter().any(|one| one.dear) {
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

/// Whether somebody has asked as root what devices offer: what is not known then, this kernel does not tell.
fn asked(view: &View<'_>) -> bool {
    view.machine.asked_offered || view.state.is_some()
}

fn remedy(view: &View<'_>, device: &Device, refused: bool) -> &'static str {
    match (device.offered, refused, device.kind) {
        (Some(_), true, Kind::NET) => {
            "the guest's driver refuses what is offered: look at /sys/module/virtio_net/parameters/{csum,gso} and /etc/modprobe.d, or take a newer kernel"
        }
        (Some(_), true, _) => "the guest's driver refuses what is offered: take a newer kernel",
        (Some(_), false, Kind::NET) => {
            "the hypervisor does not offer it: look at the interface's binding and model, or the machine type, in the VM's spec; nothing that the guest could do"
        }
        (Some(_), false, _) => {
            "the hypervisor does not offer it: look at the machine type in the VM's spec; nothing that the guest could do"
        }
        (None, _, kind) => match (asked(view), kind) {
            (false, _) => {
                "sudo virtfleet-agent virtio says whether the hypervisor offers it, on kernels with CONFIG_VIRTIO_DEBUG"
            }
            (true, Kind::NET) => {
                "this kernel does not tell whether the hypervisor offers it: look at the interface's binding and model, or the machine type, in the VM's spec, \
                 and at /sys/module/virtio_net/parameters/{csum,gso} in the guest"
            }
            (true, _) => {
                "this kernel does not tell whether the hypervisor offers it: look at the machine type in the VM's spec, then for a newer kernel"
            }
        },
    }
}
