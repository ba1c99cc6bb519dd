//! The addresses that this process's network namespace holds, from the kernel (`getifaddrs`).
//!
//! It answers for the machine that we run on, so it is asked only when the roots are the real ones; for another tree the
//! files in its procfs are read instead (`agent_core::identity::net`).

use std::{collections::BTreeMap, net::IpAddr};

use nix::{errno::Errno, ifaddrs::getifaddrs};

/// The kernel did not say.
#[derive(Debug, thiserror::Error)]
#[error("getifaddrs: {0}")]
pub struct AddressesError(Errno);

/// Addresses with their prefix length, by interface.
pub type Held = BTreeMap<String, Vec<(IpAddr, u8)>>;

/// Every IPv4 and IPv6 address of every interface.
pub fn held_addresses() -> Result<Held, AddressesError> {
    let mut held = Held::new();
    for entry in getifaddrs().map_err(AddressesError)? {
        let Some(address) = entry.address else { continue };
        let (address, prefix): (IpAddr, u32) = if let Some(v4) = address.as_sockaddr_in() {
            let mask = entry
                .netmask
                .and_then(|mask| Some(u32::from(mask.as_sockaddr_in()?.ip())));
            (v4.ip().into(), mask.unwrap_or(u32::MAX).leading_ones())
        } else if let Some(v6) = address.as_sockaddr_in6() {
            let mask = entry
                .netmask
                .and_then(|mask| Some(u128::from(mask.as_sockaddr_in6()?.ip())));
            (v6.ip().into(), mask.unwrap_or(u128::MAX).leading_ones())
        } else {
            continue;
        };
        let prefix = u8::try_from(prefix).unwrap_or_default();
        held.entry(entry.interface_name)
            .or_default()
            .push((address, prefix));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_always_there() {
        let held = held_addresses().unwrap();
        assert!(
            held["lo"].contains(&("127.0.0.1".parse().unwrap(), 8)),
            "{held:?}"
        );
    }
}
