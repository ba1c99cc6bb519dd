//! `qdisc`: statistics of the root queueing discipline of each device, from netlink.

use std::{collections::HashSet, sync::Arc};

use virtfleet_agent_core::netlink::qdisc::Qdisc as Row;
use virtfleet_agent_host::NetworkCalls;
use virtfleet_wire::exposition::{MetricType, Page};

use super::query_error;
use crate::{CollectError, Collector, Context, RegistryError};
use virtfleet_agent_core::settings::{NameFilter, filters};

type Family = (&'static str, &'static str, MetricType, fn(&Row) -> f64);

static FAMILIES: [Family; 7] = [
    (
        "node_qdisc_bytes_total",
        "Bytes sent by the queueing discipline.",
        MetricType::Counter,
        |row| row.bytes as f64,
    ),
    (
        "node_qdisc_packets_total",
        "Packets sent by the queueing discipline.",
        MetricType::Counter,
        |row| row.packets.into(),
    ),
    (
        "node_qdisc_drops_total",
        "Packets dropped by the queueing discipline.",
        MetricType::Counter,
        |row| row.drops.into(),
    ),
    (
        "node_qdisc_requeues_total",
        "Packets that the device did not accept and that were requeued.",
        MetricType::Counter,
        |row| row.requeues.into(),
    ),
    (
        "node_qdisc_overlimits_total",
        "Packets that exceeded a limit.",
        MetricType::Counter,
        |row| row.overlimits.into(),
    ),
    (
        "node_qdisc_current_queue_length",
        "Packets in the queue.",
        MetricType::Gauge,
        |row| row.queued.into(),
    ),
    (
        "node_qdisc_backlog",
        "Bytes in the queue.",
        MetricType::Gauge,
        |row| row.backlog.into(),
    ),
];

struct Qdisc {
    network: Arc<dyn NetworkCalls>,
    filter: NameFilter,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let settings = &context.settings.qdisc;
    Ok(Box::new(Qdisc {
        network: Arc::clone(&context.network),
        filter: filters::qdisc(settings)?,
    }))
}

impl Collector for Qdisc {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let mut all = self
            .network
            .qdiscs()
            .map_err(query_error("the queueing disciplines"))?;
        all.retain(|row| row.root);
        let mut rows: Vec<(String, &Row)> = Vec::new();
        let mut seen = HashSet::new();
        for row in &all {
            let Some(name) = self.network.device_name(row.device) else {
                continue;
            };
            if self.filter.takes(&name) && seen.insert((row.device, row.kind.as_str())) {
                rows.push((name, row));
            }
        }
        for (name, help, kind, value) in &FAMILIES {
            let mut family = page.family(name, help, *kind);
            for (device, row) in &rows {
                family.sample(&[("device", device), ("kind", &row.kind)], value(row));
            }
        }
        Ok(())
    }
}
