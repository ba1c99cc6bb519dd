//! Data that only root can read, from the last run.

use crate::{nic::state::NicState, virtio::Machine};

/// Adds data that an unprivileged observer cannot read: features offered by devices, and MTUs from
/// leases that only root can read. Existing data is kept.
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
