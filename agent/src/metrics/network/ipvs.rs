//! `ipvs`: what the IP virtual server (kube-proxy in its mode `ipvs`) did, from `/proc/net/ip_vs_stats` and `ip_vs`.

use std::{collections::BTreeMap, net::IpAddr};

use virtfleet_agent_core::procfs::ipvs::{Backend, Service, backends, totals};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::Reread;
use crate::metrics::{CollectError, Collector, Context, RegistryError};

/// The sums, in the file's order.
const TOTALS: [(&str, &str); 5] = [
    ("node_ipvs_connections_total", "Connections through IPVS."),
    (
        "node_ipvs_incoming_packets_total",
        "Packets that came in through IPVS.",
    ),
    (
        "node_ipvs_outgoing_packets_total",
        "Packets that went out through IPVS.",
    ),
    (
        "node_ipvs_incoming_bytes_total",
        "Bytes that came in through IPVS.",
    ),
    (
        "node_ipvs_outgoing_bytes_total",
        "Bytes that went out through IPVS.",
    ),
];

type Value = fn(&Sum) -> u64;

static SERVERS: [(&str, &str, Value); 3] = [
    (
        "node_ipvs_backend_connections_active",
        "Connections to the server that are open.",
        |sum| sum.active,
    ),
    (
        "node_ipvs_backend_connections_inactive",
        "Connections to the server that are not open.",
        |sum| sum.inactive,
    ),
    ("node_ipvs_backend_weight", "The server's share.", |sum| {
        sum.weight
    }),
];

#[derive(Default)]
struct Sum {
    active: u64,
    inactive: u64,
    weight: u64,
}

struct Ipvs {
    totals: Reread,
    services: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Ipvs {
        totals: Reread::new(context.roots.proc("net/ip_vs_stats")),
        services: Reread::new(context.roots.proc("net/ip_vs")),
    }))
}

impl Collector for Ipvs {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let path = self.totals.path().to_owned();
        let text = match self.totals.text() {
            Err(error) if error.is_missing() => {
                return Err(CollectError::no_data("the kernel's IPVS is not loaded"));
            }
            text => text?,
        };
        let totals = totals(&text).map_err(CollectError::parse(&path))?;
        for ((name, help), total) in TOTALS.iter().zip(totals) {
            page.family(name, help, MetricType::Counter)
                .sample(&[], total as f64);
        }
        let path = self.services.path().to_owned();
        let text = self.services.text()?;
        let mut sums: BTreeMap<(Service<'_>, IpAddr, u16), Sum> = BTreeMap::new();
        for backend in backends(&text) {
            let Backend {
                service,
                address,
                port,
                weight,
                active,
                inactive,
            } = backend.map_err(CollectError::parse(&path))?;
            let sum = sums.entry((service, address, port)).or_default();
            sum.weight = sum.weight.saturating_add(weight);
            sum.active = sum.active.saturating_add(active);
            sum.inactive = sum.inactive.saturating_add(inactive);
        }
        let rows: Vec<_> = sums
            .iter()
            .map(|((service, address, port), sum)| {
                let local = service.address.map(|address| address.to_string());
                let texts = [
                    local.unwrap_or_default(),
                    service.port.to_string(),
                    address.to_string(),
                    port.to_string(),
                ];
                (texts, service, sum)
            })
            .collect();
        for (name, help, value) in &SERVERS {
            let mut family = page.family(name, help, MetricType::Gauge);
            for ([local, local_port, remote, remote_port], service, sum) in &rows {
                let labels = [
                    ("local_address", local.as_str()),
                    ("local_port", local_port),
                    ("remote_address", remote),
                    ("remote_port", remote_port),
                    ("proto", service.protocol),
                    ("local_mark", service.mark),
                ];
                family.sample(&labels, value(sum) as f64);
            }
        }
        Ok(())
    }
}
