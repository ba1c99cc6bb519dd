//! Dial rules: which addresses of a VM the collector may dial, and which one it chooses.
//!
//! An address must be in a range of `allowCIDRs`. Special ranges need an explicit entry: loopback,
//! link-local (which includes the cloud metadata address), multicast, unspecified and the cluster's
//! service range. There an entry of `allowCIDRs` applies only if it lies wholly inside the range:
//! `127.0.0.0/8` allows loopback, `0.0.0.0/0` does not. An IPv4-mapped IPv6 address
//! (`::ffff:a.b.c.d`) is checked as the IPv4 address that the kernel would connect to.
//!
//! The addresses of a VM are those of its virt-launcher pod (`status.podIPs`), which the CNI plugin
//! assigned. KubeVirt overwrites the VMI's `status.interfaces` with what the guest agent reports
//! (kubevirt #18753, #18760), so in a live cluster they are never dialled. In a folder an admin
//! vouches for each manifest: for VMs without a pod there, interface addresses that the guest agent
//! did not report are dialled.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net};
use virtfleet_wire::{
    ids::{Uid, VmKey},
    settings::AGENT_PORT,
};

use crate::{
    facts::{LauncherPod, Vmi, VmiInterface},
    pull_result::{Failure, FailureClass},
    special_ranges::{SpecialRange, check_ranges, check_special, v4, v6},
    way::AgentWay,
};

/// Address of an agent, and the identity that its certificate must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialTarget {
    pub key: VmKey,
    /// UID of the VMI: an answer is used only while the VMI has this UID, and the certificate may
    /// name it.
    pub uid: Option<Uid>,
    /// UID of its VirtualMachine, which survives restarts: the certificate may name it instead.
    pub vm_uid: Option<Uid>,
    pub address: SocketAddr,
    /// How to reach that address.
    pub way: AgentWay,
}

impl DialTarget {
    /// Whether a certificate for `uid` identifies this VM; if the inventory has no UID, any does.
    pub fn accepts(&self, uid: &Uid) -> bool {
        let mut known = self.uids().peekable();
        known.peek().is_none() || known.any(|own| own == uid)
    }

    /// UID of the VM's incarnation: of its VirtualMachine, else of its VMI.
    pub fn incarnation(&self) -> Option<&Uid> {
        self.vm_uid.as_ref().or(self.uid.as_ref())
    }

    /// The UIDs that a certificate may name.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.uid.iter().chain(&self.vm_uid)
    }
}

/// Which addresses may be dialled, and on which port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialRules {
    allow: Arc<[IpNet]>,
    service: Vec<IpNet>,
    /// Source of `service`, for messages.
    service_from: &'static str,
    port: u16,
    pods_only: bool,
    pulls: bool,
    pull_interval: Option<Duration>,
}

/// Why an address may not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The guest agent may have reported the address.
    ReportedByGuest,
    /// Not an address of the virt-launcher pod.
    NotPodAddress,
    /// In a special range, which only an entry inside it allows.
    Special(SpecialRange),
    /// In no range of `allowCIDRs`.
    NotAllowed,
}

impl From<SpecialRange> for Refusal {
    fn from(special: SpecialRange) -> Self {
        Self::Special(special)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReportedByGuest => f.write_str("reported by the guest agent"),
            Self::NotPodAddress => f.write_str("not an address of the virt-launcher pod"),
            Self::Special(special) => write!(
                f,
                "{special}, which only an entry of scrape.allowCIDRs inside that range allows"
            ),
            Self::NotAllowed => f.write_str("not in scrape.allowCIDRs"),
        }
    }
}

/// Private addresses: RFC 1918, carrier-grade NAT (RFC 6598, which pod networks use), IPv6 unique
/// local (RFC 4193).
pub const DEFAULT_ALLOW: [IpNet; 5] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
    v6(0xfc00, 7),
];
/// kubeadm's default service range.
pub const DEFAULT_SERVICE: [IpNet; 1] = [v4(10, 96, 0, 0, 12)];

impl Default for DialRules {
    fn default() -> Self {
        Self::new(DEFAULT_ALLOW.to_vec(), DEFAULT_SERVICE.to_vec(), AGENT_PORT)
            .with_default_service_networks()
    }
}

impl DialRules {
    /// Rules with these allowed ranges (`scrape.allowCIDRs`), service ranges
    /// (`scrape.serviceCIDRs`) and port.
    pub fn new(allow: Vec<IpNet>, service: Vec<IpNet>, port: u16) -> Self {
        Self {
            allow: allow.into_iter().map(unmap_net).collect(),
            service: service.into_iter().map(unmap_net).collect(),
            service_from: "a service address by scrape.serviceCIDRs",
            port,
            pods_only: false,
            pulls: true,
            pull_interval: None,
        }
    }

    /// Rules of a collector that pulls at this interval (`scrape.interval`).
    #[must_use]
    pub fn with_pull_interval(mut self, interval: Duration) -> Self {
        self.pull_interval = Some(interval);
        self
    }

    /// The interval of pulls, if it is known.
    pub fn pull_interval(&self) -> Option<Duration> {
        self.pull_interval
    }

    /// Rules that allow addresses of virt-launcher pods only: for live clusters, where the guest
    /// agent may have reported `status.interfaces`.
    #[must_use]
    pub fn pods_only(mut self) -> Self {
        self.pods_only = true;
        self
    }

    /// Rules of a collector that pulls no agent: it shows addresses and reports no agent as silent.
    #[must_use]
    pub fn without_pulls(self) -> Self {
        Self { pulls: false, ..self }
    }

    /// Whether agents are pulled.
    pub fn pulls(&self) -> bool {
        self.pulls
    }

    /// Rules whose service networks are the default, because the settings have none.
    #[must_use]
    pub fn with_default_service_networks(mut self) -> Self {
        self.service_from = "a service address by the default of scrape.serviceCIDRs";
        self
    }

    /// Replaces the service networks by those of the infra cluster. Returns whether they changed.
    pub fn set_service_networks(&mut self, networks: Vec<IpNet>) -> bool {
        const FROM: &str = "a service address by the infra cluster's ServiceCIDRs";
        let networks: Vec<_> = networks.into_iter().map(unmap_net).collect();
        let is_change = self.service != networks || self.service_from != FROM;
        (self.service, self.service_from) = (networks, FROM);
        is_change
    }

    pub fn allowed(&self) -> &Arc<[IpNet]> {
        &self.allow
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Checks whether an address may be dialled.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Refusal> {
        let address = address.to_canonical();
        check_special(address, &self.allow)?;
        let service = self.service.iter().map(|range| (self.service_from, *range));
        check_ranges(service, address, &self.allow)?;
        if self.allow.iter().any(|allowed| allowed.contains(&address)) {
            Ok(())
        } else {
            Err(Refusal::NotAllowed)
        }
    }

    fn check_on(
        &self,
        interface: &VmiInterface,
        pod: Option<&LauncherPod>,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        match pod {
            Some(pod) if !pod.addresses.contains(&address) => Err(Refusal::NotPodAddress),
            None if self.pods_only => Err(Refusal::NotPodAddress),
            None if interface.addresses_claimed => Err(Refusal::ReportedByGuest),
            _ => self.check(address),
        }
    }

    /// The address to dial for the agent of `vmi`: the first allowed one, in the order of the pod's
    /// `status.podIPs`; without a `pod`, in the order of `status.interfaces` and of the addresses
    /// in each. Neither IP family is preferred: Kubernetes lists the primary address first.
    ///
    /// # Errors
    /// [`FailureClass::NoAddress`]: there is no address yet. [`FailureClass::NotAllowed`]: none of
    /// them may be dialled.
    pub fn choose(&self, vmi: &Vmi, pod: Option<&LauncherPod>) -> Result<SocketAddr, Failure> {
        let mut refused = Vec::new();
        let mut allowed = |address: IpAddr, checked: Result<(), Refusal>| match checked {
            Ok(()) => Some(SocketAddr::new(address.to_canonical(), self.port)),
            Err(refusal) => {
                refused.push(format!("{address}: {refusal}"));
                None
            }
        };
        let chosen = match pod {
            Some(pod) => pod
                .addresses
                .iter()
                .find_map(|address| allowed(*address, self.check(*address))),
            None if self.pods_only => return Err(no_pod(vmi)),
            None => vmi.interfaces.iter().find_map(|interface| {
                let mut addresses = interface.addresses.iter();
                addresses.find_map(|address| allowed(*address, self.check_on(interface, None, *address)))
            }),
        };
        let key = &vmi.key;
        match (chosen, pod) {
            (Some(address), _) => Ok(address),
            (None, _) if !refused.is_empty() => {
                let (all, named) = (refused.len(), refused.iter().take(MAX_NAMED_ADDRESSES));
                let mut named = named.cloned().collect::<Vec<_>>().join("; ");
                if all > MAX_NAMED_ADDRESSES {
                    named.push_str("; …");
                }
                Err(Failure::new(
                    FailureClass::NotAllowed,
                    format_args!(
                        "no address of {key} may be dialled ({named}); add its network to scrape.allowCIDRs; if the folder \
                         has only addresses that the guest agent reported, add the virt-launcher pod"
                    ),
                ))
            }
            (None, Some(pod)) => Err(Failure::new(
                FailureClass::NoAddress,
                format_args!(
                    "the virt-launcher pod {} of {key} has no address in status.podIPs; wait for its network, or check: \
                     kubectl -n {} get pod {} -o wide",
                    pod.name, key.namespace, pod.name
                ),
            )),
            (None, None) => Err(Failure::new(
                FailureClass::NoAddress,
                format_args!(
                    "{key} has no address in status.interfaces; wait for it to boot, or check: kubectl -n {} get vmi {} \
                     -o wide",
                    key.namespace, key.name
                ),
            )),
        }
    }

    /// For display: `yes: 10.0.0.5`, or `no: ` and the reason for each address.
    pub fn explain(&self, interface: &VmiInterface, pod: Option<&LauncherPod>) -> String {
        let mut refused = Vec::new();
        for address in &interface.addresses {
            match self.check_on(interface, pod, *address) {
                Ok(()) => return format!("yes: {address}"),
                Err(refusal) => refused.push(format!("{address} is {refusal}")),
            }
        }
        if refused.is_empty() {
            "no: it has no address".to_owned()
        } else {
            format!("no: {}", refused.join("; "))
        }
    }
}

/// Maximum refused addresses that a failure message names.
const MAX_NAMED_ADDRESSES: usize = 4;

fn no_pod(vmi: &Vmi) -> Failure {
    let key = &vmi.key;
    Failure::new(
        FailureClass::NoAddress,
        format_args!(
            "no running virt-launcher pod of {key} on its node is known, and only that pod's address is dialled; check: \
             kubectl -n {} get pod -l kubevirt.io=virt-launcher -o wide",
            key.namespace
        ),
    )
}

/// Maps `::ffff:10.0.0.0/104` to `10.0.0.0/8`; other networks stay unchanged.
fn unmap_net(net: IpNet) -> IpNet {
    if let IpNet::V6(v6) = net
        && v6.prefix_len() >= 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Ok(v4) = Ipv4Net::new(v4, v6.prefix_len() - 96)
    {
        return IpNet::V4(v4);
    }
    net
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{launcher, vmi};

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn allowed_addresses() {
        let closed = DialRules::default();
        let wide = DialRules::new(nets(&["0.0.0.0/0", "::/0"]), DEFAULT_SERVICE.to_vec(), 1);
        let open = DialRules::new(
            nets(&[
                "127.0.0.0/8",
                "169.254.10.0/24",
                "10.96.7.0/24",
                "fe80::/64",
                "::1/128",
                "10.0.0.0/8",
            ]),
            DEFAULT_SERVICE.to_vec(),
            1,
        );
        let mapped = DialRules::new(nets(&["::ffff:127.0.0.0/104"]), vec![], 1);
        // address, default rules, everything allowed, special ranges opened
        for (address, by_default, by_wide, by_open) in [
            ("10.0.0.5", true, true, true),
            ("172.16.0.1", true, true, false),
            ("192.168.1.1", true, true, false),
            ("100.64.0.1", true, true, false),
            ("fd00::1", true, true, false),
            ("::ffff:10.0.0.5", true, true, true),
            ("8.8.8.8", false, true, false),
            ("2001:db8::1", false, true, false),
            ("127.0.0.1", false, false, true),
            ("::1", false, false, true),
            ("::ffff:127.0.0.1", false, false, true),
            ("169.254.169.254", false, false, false),
            ("169.254.10.1", false, false, true),
            ("::ffff:169.254.169.254", false, false, false),
            ("fe80::1", false, false, true),
            ("fe80:0:0:1::1", false, false, false),
            ("224.0.0.1", false, false, false),
            ("ff02::1", false, false, false),
            ("0.0.0.0", false, false, false),
            ("0.1.2.3", false, false, false),
            ("::", false, false, false),
            ("255.255.255.255", false, false, false),
            ("10.96.0.1", false, false, false),
            ("10.111.255.255", false, false, false),
            ("10.112.0.1", true, true, true),
            ("10.96.7.1", false, false, true),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(closed.check(address).is_ok(), by_default, "{address} by default");
            assert_eq!(
                wide.check(address).is_ok(),
                by_wide,
                "{address} with everything allowed"
            );
            assert_eq!(
                open.check(address).is_ok(),
                by_open,
                "{address} with special ranges opened"
            );
        }
        assert!(mapped.check("127.0.0.1".parse().unwrap()).is_ok());
        assert!(mapped.check("::ffff:127.0.0.1".parse().unwrap()).is_ok());
    }

    #[test]
    fn the_first_allowed_address_is_chosen() {
        let interface = |addresses: &[&str], claimed| VmiInterface {
            name: "n".into(),
            mac: None,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            addresses_claimed: claimed,
            mac_claimed: claimed,
        };
        let rules = DialRules::default();
        let mut vmi = vmi("ns", "a");
        vmi.interfaces = vec![];
        assert_eq!(
            rules.choose(&vmi, None).unwrap_err().class,
            FailureClass::NoAddress
        );
        vmi.interfaces = vec![
            interface(&["10.1.1.1"], true),
            interface(&["fe80::1", "8.8.8.8"], false),
        ];
        let failure = rules.choose(&vmi, None).unwrap_err();
        assert_eq!(failure.class, FailureClass::NotAllowed);
        for part in [
            "10.1.1.1: reported by the guest agent",
            "fe80::1: link-local (fe80::/10)",
            "8.8.8.8: not in",
        ] {
            assert!(failure.message().contains(part), "{}", failure.message());
        }
        vmi.interfaces.push(interface(&["fd00::5", "10.1.1.2"], false));
        vmi.interfaces.push(interface(&["10.1.1.3"], false));
        assert_eq!(
            rules.choose(&vmi, None).unwrap(),
            "[fd00::5]:10911".parse().unwrap()
        );
        assert_eq!(rules.explain(&vmi.interfaces[2], None), "yes: fd00::5");
        assert_eq!(
            rules.explain(&vmi.interfaces[0], None),
            "no: 10.1.1.1 is reported by the guest agent"
        );
    }

    #[test]
    fn only_addresses_of_the_launcher_pod_are_chosen() {
        let rules = DialRules::default();
        let mut vmi = vmi("ns", "a");
        vmi.interfaces[0].addresses_claimed = true;
        let mut pod = launcher("ns", "a", &["169.254.1.1", "10.1.1.9", "fd00::9"]);
        let dialled = rules.choose(&vmi, Some(&pod)).unwrap();
        assert_eq!(dialled, "10.1.1.9:10911".parse().unwrap());
        assert_eq!(
            rules.explain(&vmi.interfaces[0], Some(&pod)),
            "no: 10.0.0.1 is not an address of the virt-launcher pod"
        );
        // An address that the guest agent reports is allowed if the pod has it too.
        vmi.interfaces[0].addresses = vec!["10.1.1.9".parse().unwrap()];
        assert_eq!(rules.explain(&vmi.interfaces[0], Some(&pod)), "yes: 10.1.1.9");
        pod.addresses.clear();
        let failure = rules.choose(&vmi, Some(&pod)).unwrap_err();
        assert_eq!(failure.class, FailureClass::NoAddress);
        assert!(
            failure.message().contains("status.podIPs"),
            "{}",
            failure.message()
        );
        // In a live cluster nothing else is dialled, whatever infoSource is.
        vmi.interfaces[0].addresses_claimed = false;
        let failure = rules.clone().pods_only().choose(&vmi, None).unwrap_err();
        assert_eq!(failure.class, FailureClass::NoAddress);
        assert!(
            failure.message().contains("virt-launcher pod"),
            "{}",
            failure.message()
        );
        assert!(rules.choose(&vmi, None).is_ok(), "allowed in a folder");
    }
}
