//! Finding for an MTU that differs from DHCP: KubeVirt assigns that of the pod's network.

use virtfleet_wire::finding::{Finding, Severity};

use super::view::{View, of_nic};
use crate::virtio::Nic;

pub(super) fn findings(view: &View<'_>) -> Vec<Finding> {
    view.machine.nics.iter().filter_map(of).collect()
}

fn of(nic: &Nic) -> Option<Finding> {
    let given = nic.dhcp_mtu.filter(|given| *given != nic.mtu && nic.mtu != 0)?;
    let (severity, reason, so) = if nic.mtu > given {
        let so = "larger packets are dropped, unless path MTU discovery works";
        (Severity::Warning, "MtuTooLarge", so)
    } else {
        (
            Severity::Info,
            "MtuTooSmall",
            "packets are smaller than necessary",
        )
    };
    let message = format!(
        "{} has an MTU of {}, but DHCP assigned {given}: {so}",
        nic.name, nic.mtu
    );
    Some(
        of_nic("virtio-nic-mtu", severity, nic, reason, message)
            .with("mtu", nic.mtu)
            .with("dhcp", given)
            .remedy(format!(
                "sudo ip link set dev {} mtu {given}, and permanently in the network configuration (networkd: UseMTU=yes under [DHCPv4])",
                nic.name
            )),
    )
}
