//! Nameservers that a node must not use: addresses that the user cluster uses, or will use, on the
//! node.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    asked::Asked,
    seen::{Owner, Seen, Source},
};

/// Interface that NodeLocal DNS creates for its addresses.
const NODE_LOCAL_INTERFACE: &str = "nodelocaldns";
/// Addresses on which systemd-resolved answers (`DNSStubListener=`).
pub const STUBS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 53)),
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 54)),
];

/// Reason why an address must not be a nameserver of this guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum CollisionKind {
    /// Address of NodeLocal DNS, now or later: the cache would forward to itself.
    NodeLocal,
    /// Address of an interface of this guest.
    LocalAddress,
    /// Address of the user cluster's DNS.
    ClusterDns,
    /// Address in the user cluster's service range.
    ServiceRange,
    /// Stub of systemd-resolved, configured as its own upstream.
    Stub,
}

impl CollisionKind {
    /// Name in output.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collision {
    pub nameserver: IpAddr,
    pub kind: CollisionKind,
    /// Whether the address is on an interface now. Otherwise the collision is predicted.
    pub now: bool,
    /// Conflicting interface, range, setting or kubelet file.
    pub with: String,
    /// Origin of the nameserver: lease, file or setting.
    pub given_by: String,
}

/// Returns the collisions among the nameservers, given with their origins; at most one per
/// nameserver, of the most specific kind. An IPv4-mapped IPv6 address is treated as IPv4.
///
/// A loopback address alone is not a collision: a resolver of the guest (unbound, NetworkManager's
/// dnsmasq) listens there and has its own upstreams. It collides in three cases: it is the user
/// cluster's (by settings or kubelet); it is systemd-resolved's stub and systemd-resolved should
/// use it; or only a DHCP lease or a router advertisement names it, in which case the sender meant
/// itself.
pub fn find(asked: &Asked, seen: &Seen, nameservers: &[(IpAddr, String)]) -> Vec<Collision> {
    let mut found: Vec<Collision> = Vec::new();
    for (nameserver, given_by) in nameservers {
        let nameserver = nameserver.to_canonical();
        if found.iter().any(|one| one.nameserver == nameserver) {
            continue;
        }
        if let Some((kind, now, with)) = judge(asked, seen, nameserver) {
            found.push(Collision {
                nameserver,
                kind,
                now,
                with,
                given_by: given_by.clone(),
            });
        }
    }
    found
}

fn judge(asked: &Asked, seen: &Seen, nameserver: IpAddr) -> Option<(CollisionKind, bool, String)> {
    let at = interface(seen, nameserver);
    let now = at.is_some();
    let here = |otherwise: &str| at.map_or(otherwise.to_owned(), str::to_owned);
    if nameserver.is_unspecified() {
        return Some((CollisionKind::LocalAddress, true, "the guest itself".to_owned()));
    }
    if seen.owner == Owner::Resolved && STUBS.contains(&nameserver) {
        return Some((CollisionKind::Stub, true, "systemd-resolved's stub".to_owned()));
    }
    if at == Some(NODE_LOCAL_INTERFACE) || asked.node_local.contains(&nameserver) {
        return Some((CollisionKind::NodeLocal, now, here("dns.userCluster.nodeLocal")));
    }
    let kubelet = seen.kubelet.as_ref();
    if let Some(kubelet) = kubelet.filter(|kubelet| has(&kubelet.cluster_dns, nameserver)) {
        return Some((CollisionKind::ClusterDns, now, here(&kubelet.path)));
    }
    if asked.user_nameservers.contains(&nameserver) {
        return Some((
            CollisionKind::ClusterDns,
            now,
            here("dns.userCluster.nameservers"),
        ));
    }
    if let Some(range) = asked
        .service_ranges
        .iter()
        .find(|range| range.contains(nameserver))
    {
        return Some((CollisionKind::ServiceRange, now, here(&range.to_string())));
    }
    if nameserver.is_loopback() {
        let from_outside = only_from_outside(asked, seen, nameserver);
        return from_outside.then(|| (CollisionKind::LocalAddress, true, here("the loopback")));
    }
    at.map(|interface| (CollisionKind::LocalAddress, true, interface.to_owned()))
}

fn has(list: &[IpAddr], address: IpAddr) -> bool {
    list.iter().any(|one| one.to_canonical() == address)
}

/// Returns the interface with the address. If no interface shows it, a listener on the address
/// counts.
fn interface(seen: &Seen, address: IpAddr) -> Option<&str> {
    let local = seen
        .locals
        .iter()
        .find(|local| local.address.to_canonical() == address);
    match local {
        Some(local) => Some(&local.interface),
        None if !address.is_loopback() && has(&seen.listeners, address) => Some("a listener in this guest"),
        None => None,
    }
}

/// Whether a lease or an advertisement names it, and neither the settings nor a configuration in
/// the guest does.
fn only_from_outside(asked: &Asked, seen: &Seen, address: IpAddr) -> bool {
    let given = |outside: bool| {
        seen.links
            .iter()
            .flat_map(|link| &link.given)
            .filter(|given| matches!(given.source, Source::Dhcp | Source::Advertised) == outside)
            .any(|given| has(&given.conf.nameservers, address))
    };
    given(true) && !given(false) && !asked.nameservers.contains(&address)
}

#[cfg(test)]
mod tests;
