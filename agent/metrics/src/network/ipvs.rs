//! `ipvs`: statistics of the IP virtual server (kube-proxy's mode `ipvs`), from
//! `/proc/net/ip_vs_stats` and `ip_vs`.

use std::collections::BTreeMap;

use virtfleet_agent_core::procfs::ipvs::{Backend, backends, totals};
use virtfleet_agent_host::Reread;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError, Skipped};
use virtfleet_agent_core::settings::filters;

/// The sums in the order of the file.
const TOTALS: [(&str, &str); 5] = [
    ("node_ipvs_connections_total", "Connections through IPVS."),
    (
        "node_ipvs_incoming_packets_total",
        "Incoming packets through IPVS.",
    ),
    (
        "node_ipvs_outgoing_packets_total",
        "Outgoing packets through IPVS.",
    ),
    ("node_ipvs_incoming_bytes_total", "Incoming bytes through IPVS."),
    ("node_ipvs_outgoing_bytes_total", "Outgoing bytes through IPVS."),
];

type Value = fn(&Sum) -> u64;

static SERVERS: [(&str, &str, Value); 3] = [
    (
        "node_ipvs_backend_connections_active",
        "Active connections to the server.",
        |sum| sum.active,
    ),
    (
        "node_ipvs_backend_connections_inactive",
        "Inactive connections to the server.",
        |sum| sum.inactive,
    ),
    ("node_ipvs_backend_weight", "Weight of the server.", |sum| {
        sum.weight
    }),
];

#[derive(Default)]
struct Sum {
    active: u64,
    inactive: u64,
    weight: u64,
}

type Label = (&'static str, fn(&Backend<'_>) -> String);

static LABELS: [Label; 6] = [
    ("local_address", |server| {
        let address = server.service.address.map(|address| address.to_string());
        address.unwrap_or_default()
    }),
    ("local_port", |server| server.service.port.to_string()),
    ("remote_address", |server| server.address.to_string()),
    ("remote_port", |server| server.port.to_string()),
    ("proto", |server| server.service.protocol.to_owned()),
    ("local_mark", |server| server.service.mark.to_owned()),
];

struct Ipvs {
    labels: Vec<Label>,
    totals: Reread,
    services: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    let named = filters::ipvs(&context.settings.ipvs)?;
    Ok(Box::new(Ipvs {
        labels: LABELS
            .into_iter()
            .filter(|(name, _)| named.contains(name))
            .collect(),
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
        let mut skipped = Skipped::default();
        let totals = skipped.take(totals(&text).map_err(CollectError::parse(&path)));
        for ((name, help), total) in TOTALS.iter().zip(totals.into_iter().flatten()) {
            page.family(name, help, MetricType::Counter)
                .sample(&[], total as f64);
        }
        let path = self.services.path().to_owned();
        let text = self.services.text()?;
        let mut sums: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
        let mut damaged = false;
        let servers = backends(&text).inspect(|server| damaged |= server.is_err());
        for backend in skipped.valid(&path, servers) {
            let texts = self.labels.iter().map(|(_, text)| text(&backend)).collect();
            let sum = sums.entry(texts).or_default();
            sum.weight = sum.weight.saturating_add(backend.weight);
            sum.active = sum.active.saturating_add(backend.active);
            sum.inactive = sum.inactive.saturating_add(backend.inactive);
        }
        // With fewer labels, a series may be the sum of several servers, and lack one.
        let partial = damaged && self.labels.len() < LABELS.len();
        for (name, help, value) in SERVERS.iter().filter(|_| !partial) {
            let mut family = page.family(name, help, MetricType::Gauge);
            for (texts, sum) in &sums {
                let texts = texts.iter().map(String::as_str);
                let labels: Vec<_> = self.labels.iter().map(|(name, _)| *name).zip(texts).collect();
                family.sample(&labels, value(sum) as f64);
            }
        }
        skipped.end()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use virtfleet_agent_host::Roots;
    use virtfleet_wire::settings::MetricsSettings;

    use super::*;

    #[test]
    fn sums_without_a_server_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("net")).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join("net").join(name), text).unwrap();
        write("ip_vs_stats", "a\nb\n1 2 3 4 5\n");
        let page = |labels: Option<&str>| {
            let roots = Roots {
                procfs: dir.path().into(),
                ..Roots::default()
            };
            let mut settings = MetricsSettings::default();
            settings.ipvs.backend_labels = labels.map(str::to_owned);
            let mut collector = new(&Context::new(roots, settings)).unwrap();
            let mut page = Page::new();
            let whole = collector.collect(&mut page).is_ok();
            (whole, page.to_text().matches("node_ipvs_backend_weight{").count())
        };
        let servers = "TCP  C0A80016:0CEA wlc\n  -> C0A85216:0CEA Tunnel 100 248 2\n";
        for (last, whole, by_service) in [("100 248 2", true, 1), ("100", false, 0)] {
            write("ip_vs", &format!("{servers}  -> C0A85217:0CEA Tunnel {last}\n"));
            let one_each = if whole { 2 } else { 1 };
            assert_eq!(page(None), (whole, one_each), "{last}");
            assert_eq!(page(Some("local_port")), (whole, by_service), "{last}");
        }
    }

    #[test]
    fn the_settings_list_these_labels() {
        let names = LABELS.map(|(name, _)| name);
        assert_eq!(names, filters::IPVS_LABELS);
    }
}
