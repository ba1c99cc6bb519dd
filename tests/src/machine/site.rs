//! The network of a machine: nameservers and a DHCP server.

use std::time::Duration;

use anyhow::Result;

use crate::dns::{NetNs, Resolver, Unbound, dhcp_with, veth};

/// The router, which does not answer queries.
pub const ROUTER: &str = "10.78.0.1";
/// The first address of the infra cluster's DNS.
pub const INFRA: &str = "10.78.0.53";
/// The second address of the infra cluster's DNS.
pub const OTHER: &str = "10.78.0.54";
/// The infra cluster's NodeLocal DNSCache.
pub const NODE_LOCAL: &str = "169.254.20.10";

/// The network. Every nameserver resolves the cluster's names, and all names below `example.` and
/// `corp.test.`.
#[derive(Debug)]
pub struct Site {
    // In drop order.
    servers: Vec<(String, Resolver)>,
    dhcp: Option<Resolver>,
    inside: NetNs,
    outside: NetNs,
}

impl Site {
    /// Starts the network; DHCP offers these nameservers, separated by commas.
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

    /// Starts the nameserver at an address.
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

    /// Stops the nameserver at an address.
    pub fn silence(&mut self, address: &str) {
        self.servers.retain(|(one, _)| one != address);
    }

    /// Changes the nameservers that DHCP offers. Clients with a lease get them at their next
    /// renewal.
    pub fn give(&mut self, nameservers: &str) -> Result<()> {
        self.give_after(nameservers, Duration::ZERO)
    }

    /// As [`Site::give`], but DHCP offers an address only after `delay`, in whole seconds.
    pub fn give_after(&mut self, nameservers: &str, delay: Duration) -> Result<()> {
        self.dhcp = None;
        let range = ("10.78.0.100", "10.78.0.120");
        let searches = "ns.svc.cluster.local,cluster.local";
        let delay = format!("--dhcp-reply-delay={}", delay.as_secs());
        let server = dhcp_with(
            &self.outside,
            "vm0",
            range,
            ROUTER,
            nameservers,
            searches,
            &[&delay],
        )?;
        self.dhcp = Some(server);
        Ok(())
    }

    /// The namespace for the machine, with `eth0` in it.
    pub fn inside(&self) -> &NetNs {
        &self.inside
    }

    /// The namespace of the servers, whose end of the veth pair is `vm0`.
    pub fn outside(&self) -> &NetNs {
        &self.outside
    }
}
