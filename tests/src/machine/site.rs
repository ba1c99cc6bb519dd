//! What is at the other end of a machine's cable: nameservers and a DHCP server.

use anyhow::Result;

use crate::dns::{NetNs, Resolver, Unbound, dhcp, veth};

/// The router, which answers no questions.
pub const ROUTER: &str = "10.78.0.1";
/// The DNS of the infra cluster, by two addresses.
pub const INFRA: &str = "10.78.0.53";
/// The other one.
pub const OTHER: &str = "10.78.0.54";
/// The infra cluster's NodeLocal DNS.
pub const NODE_LOCAL: &str = "169.254.20.10";

/// The network. Every nameserver knows the cluster's names, and anything below `example.` and `corp.test.`.
#[derive(Debug)]
pub struct Site {
    // In the order of their drop.
    servers: Vec<(String, Resolver)>,
    dhcp: Option<Resolver>,
    inside: NetNs,
    outside: NetNs,
}

impl Site {
    /// DHCP gives these nameservers, with commas between them.
    pub fn new(given: &str) -> Result<Self> {
        let (outside, inside) = (NetNs::new()?, NetNs::new()?);
        let address = |address: &str| format!("{address}/24");
        let addresses = [ROUTER, INFRA, OTHER].map(address);
        veth(
            (&outside, "vm0", &addresses.each_ref().map(String::as_str)),
            (&inside, "eth0", &[]),
        )?;
        outside.ip(&format!("address add {NODE_LOCAL}/32 dev lo"))?;
        let mut own = Self {
            servers: Vec::new(),
            dhcp: None,
            inside,
            outside,
        };
        for address in [INFRA, OTHER, NODE_LOCAL] {
            own.answer(address)?;
        }
        own.give(given)?;
        Ok(own)
    }

    /// The nameserver at an address answers (again).
    pub fn answer(&mut self, address: &str) -> Result<()> {
        self.silence(address);
        let mut dns = Unbound::cluster(1);
        for zone in ["example.", "corp.test."] {
            dns = dns
                .server(&format!("local-zone: \"{zone}\" redirect"))
                .server(&format!("local-data: \"{zone} 30 IN A 192.0.2.80\""));
        }
        let server = dns.start(&self.outside, address)?;
        self.servers.push((address.to_owned(), server));
        Ok(())
    }

    /// The nameserver at an address ends.
    pub fn silence(&mut self, address: &str) {
        self.servers.retain(|(one, _)| one != address);
    }

    /// DHCP gives these from now on. Who has a lease learns of it at its renewal.
    pub fn give(&mut self, nameservers: &str) -> Result<()> {
        self.dhcp = None;
        let range = ("10.78.0.100", "10.78.0.120");
        let searches = "ns.svc.cluster.local,cluster.local";
        self.dhcp = Some(dhcp(&self.outside, "vm0", range, ROUTER, nameservers, searches)?);
        Ok(())
    }

    /// The namespace for the machine, with `eth0` in it.
    pub fn inside(&self) -> &NetNs {
        &self.inside
    }

    /// The namespace of the servers, whose end of the cable is `vm0`.
    pub fn outside(&self) -> &NetNs {
        &self.outside
    }
}
