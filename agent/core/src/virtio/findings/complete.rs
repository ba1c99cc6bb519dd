//! What only root can see, from its last pass.

use crate::{nic::state::NicState, virtio::Machine};

/// Fills in what an observer without rights could not see: features that devices offer, and MTUs of leases that only root can read. What was seen stays.
pub fn complete(machine: &mut Machine, state: &NicState) {
    for device in &mut machine.devices {
        if device.offered.is_none() {
            device.offered = state.offered.get(&device.name).copied();
        }
    }
    for nic in &mut machine.nics {
        let same = state.nics.get(&nic.name).is_none_or(|one| one.mac == nic.mac);
        if nic.dhcp_mtu.is_none() && same {
            nic.dhcp_mtu = state.dhcp_mtu.get(&nic.name).copied();
        }
    }
}
