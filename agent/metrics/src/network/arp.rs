//! `arp`: IPv4 neighbors of each device, from netlink. As in `/proc/net/arp`, neighbors that need
//! no resolution are excluded.

use std::{collections::BTreeMap, sync::Arc};

use virtfleet_agent_host::NetworkCalls;
use virtfleet_wire::exposition::{MetricType, Page};

use super::query_error;
use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::{NameFilter, filters};

struct Arp {
    network: Arc<dyn NetworkCalls>,
    filter: NameFilter,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.arp;
    Ok(Box::new(Arp {
        network: Arc::clone(&context.network),
        filter: filters::arp(settings)?,
    }))
}

impl Collector for Arp {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let entries = self.network.arp_entries().map_err(query_error("the neighbors"))?;
        let mut by_name = BTreeMap::new();
        for (device, count) in entries {
            if let Some(name) = self.network.device_name(device)
                && self.filter.takes(&name)
            {
                *by_name.entry(name).or_insert(0) += count;
            }
        }
        let mut family = page.family(
            "node_arp_entries",
            "IPv4 neighbors (ARP entries) of the device.",
            MetricType::Gauge,
        );
        for (name, count) in &by_name {
            family.sample(&[("device", name)], *count as f64);
        }
        Ok(())
    }
}
