//! `network_route`: unicast routes of all tables, from netlink.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use virtfleet_agent_core::netlink::route::{Route, protocol_name};
use virtfleet_agent_host::NetworkCalls;
use virtfleet_wire::exposition::{MetricType, Page};

use super::query_error;
use crate::{CollectError, Collector, Context, RegistryError};

struct NetworkRoute {
    network: Arc<dyn NetworkCalls>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(NetworkRoute {
        network: Arc::clone(&context.network),
    }))
}

/// Device, source, destination, gateway, priority, protocol, weight.
type Labels = [String; 7];
const LABELS: [&str; 7] = ["device", "src", "dest", "gw", "priority", "proto", "weight"];

fn text(address: Option<IpAddr>) -> String {
    address.map(|address| address.to_string()).unwrap_or_default()
}

fn destination(route: &Route) -> String {
    match route.destination {
        Some(address) if route.length > 0 => format!("{address}/{}", route.length),
        _ => "default".to_owned(),
    }
}

impl Collector for NetworkRoute {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let routes = self.network.routes().map_err(query_error("the routes"))?;
        let mut names: HashMap<u32, String> = HashMap::new();
        let mut rows: BTreeSet<Labels> = BTreeSet::new();
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for route in routes.iter().filter(|route| route.unicast) {
            for hop in &route.hops {
                let name = names
                    .entry(hop.device)
                    .or_insert_with(|| self.network.device_name(hop.device).unwrap_or_default());
                *counts.entry(name.clone()).or_default() += 1;
                // Several tables may contain the same route; the table is not a label.
                rows.insert([
                    name.clone(),
                    text(route.source),
                    destination(route),
                    text(hop.gateway),
                    route.priority.to_string(),
                    protocol_name(route.protocol).to_owned(),
                    hop.weight.map(|weight| weight.to_string()).unwrap_or_default(),
                ]);
            }
        }
        let mut family = page.family(
            "node_network_route_info",
            "A route of the device, always 1.",
            MetricType::Gauge,
        );
        for row in &rows {
            let labels: [(&str, &str); 7] = std::array::from_fn(|index| (LABELS[index], row[index].as_str()));
            family.sample(&labels, 1.0);
        }
        let mut family = page.family("node_network_routes", "Routes of the device.", MetricType::Gauge);
        for (device, count) in &counts {
            family.sample(&[("device", device)], f64::from(*count));
        }
        Ok(())
    }
}
