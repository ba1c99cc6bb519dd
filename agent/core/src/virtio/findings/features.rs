//! Features that matter and that device and driver did not agree on.

use virtfleet_wire::finding::{Finding, Severity};

use super::{
    view::{View, of_device},
    words::named,
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
    view.machine.devices.iter().filter_map(missing).collect()
}

/// What device and driver agreed on is known once they are done with it.
fn agreed(device: &Device) -> bool {
    let done = status::FEATURES_OK | status::DRIVER_OK;
    let works = device.status.is_none_or(|now| now & done != 0);
    device.driver.is_some() && device.negotiated.0 != 0 && works
}

fn missing(device: &Device) -> Option<Finding> {
    let own: &[Wanted] = match device.kind {
        Kind::NET => &OF_NET,
        Kind::BLOCK | Kind::SCSI => &[],
        _ => return None,
    };
    if !agreed(device) {
        return None;
    }
    let lacking: Vec<&Wanted> = OF_ALL
        .iter()
        .chain(own)
        .filter(|wanted| !device.negotiated.has(wanted.bit))
        .collect();
    if lacking.is_empty() {
        return None;
    }
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
        "{} works without {}: {}",
        named(&device.name, &device.parts),
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
    Some(finding.remedy(remedy(device, any_refused)))
}

fn remedy(device: &Device, refused: bool) -> &'static str {
    match (device.offered, refused, device.kind) {
        (Some(_), true, Kind::NET) => {
            "the guest's driver refuses what is offered: look at /sys/module/virtio_net/parameters/{csum,gso} and /etc/modprobe.d, or take a newer kernel"
        }
        (Some(_), true, _) => "the guest's driver refuses what is offered: take a newer kernel",
        (Some(_), false, _) => {
            "the hypervisor does not offer it: look at the interface's binding and model, or the machine type, in the VM's spec; nothing that the guest could do"
        }
        (None, ..) => {
            "sudo virtfleet-agent virtio says whether the hypervisor offers it, on kernels with CONFIG_VIRTIO_DEBUG; if not, look at the interface's binding, or the machine type, in the VM's spec"
        }
    }
}
