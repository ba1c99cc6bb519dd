//! MTUs that are not what DHCP gave: KubeVirt hands out that of the pod's network.

use virtfleet_wire::finding::{Finding, Severity};

use super::view::{View, of_nic};
use crate::virtio::Nic;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    view.machine.nics.iter().filter_map(of).collect()
}

fn of(nic: &Nic) -> Option<Finding> {
    let given = nic.dhcp_mtu.filter(|given| *given != nic.mtu && nic.mtu != 0)?;
    let (severity, reason, so) = if nic.mtu > given {
        let so = "larger packets do not get through, or only where somebody tells of it";
        (Severity::Warning, "MtuTooLarge", so)
    } else {
        (
            Severity::Info,
            "MtuTooSmall",
            "packets are smaller than they could be",
        )
    };
    let message = format!(
        "{} has an MTU of {}, and DHCP gave {given}: {so}",
        nic.name, nic.mtu
    );
    Some(
        of_nic("virtio-nic-mtu", severity, nic, reason, message)
            .with("mtu", nic.mtu)
            .with("dhcp", given)
            .remedy(format!(
                "sudo ip link set dev {} mtu {given}, and for good in the network's configuration (networkd: UseMTU=yes under [DHCPv4])",
                nic.name
            )),
    )
}
