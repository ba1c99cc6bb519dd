//! Limits on a guest's metrics page, and what a guest must not export. A page over a limit is
//! rejected as a whole, as Prometheus does.

use virtfleet_wire::exposition::Sample;

/// Maximum number of labels of a sample. Samples of node_exporter have at most ten; Cortex accepts
/// 40 including the target's labels.
const MAX_LABELS: usize = 30;
/// Maximum length of a label's value, in bytes. The longest values of node_exporter are mount
/// points.
const MAX_LABEL_VALUE_BYTES: usize = 1024;
/// Maximum length of a metric's or label's name, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// Prefix of all families of this project.
const OWN_PREFIX: &str = "virtfleet_";
/// What follows it in families of the collector, the relay and the webhook: a guest's families
/// would look like the platform's.
const PLATFORM_PREFIXES: [&str; 8] = [
    "vm_",
    "host_",
    "cluster_",
    "label_",
    "inventory_",
    "collector_",
    "relay_",
    "gardener_",
];
/// Families that whoever scrapes a target writes about it.
pub(super) const SYNTHETIC: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleLimits {
    /// Maximum number of samples of a page.
    pub samples: u64,
    /// Maximum number of labels of a sample.
    pub labels: usize,
    /// Maximum length of a label's value, in bytes.
    pub label_value_bytes: usize,
}

impl SampleLimits {
    /// The default limits on samples, with this number of samples.
    pub fn new(samples: u64) -> Self {
        Self {
            samples,
            labels: MAX_LABELS,
            label_value_bytes: MAX_LABEL_VALUE_BYTES,
        }
    }

    pub(super) fn none() -> Self {
        Self {
            samples: u64::MAX,
            labels: usize::MAX,
            label_value_bytes: usize::MAX,
        }
    }

    /// Checks one sample.
    ///
    /// # Errors
    /// Which limit it exceeds, or which label is malformed.
    pub fn check(&self, sample: &Sample<'_>) -> Result<(), String> {
        if sample.name.len() > MAX_NAME_BYTES {
            return Err(format!("a metric's name of more than {MAX_NAME_BYTES} bytes"));
        }
        let mut count = 0;
        for label in sample.labels.clone() {
            let (name, value) = label.map_err(|error| error.to_string())?;
            count += 1;
            if count > self.labels {
                return Err(format!("more than {} labels", self.labels));
            }
            if name.len() > MAX_NAME_BYTES || value.len() > self.label_value_bytes {
                return Err(format!(
                    "a label of more than {MAX_NAME_BYTES} bytes in its name or {} in its value",
                    self.label_value_bytes
                ));
            }
        }
        Ok(())
    }
}

/// Whether a guest must not export a family of this name: the platform does, or whoever scrapes
/// (`up`, `scrape_…`), or Prometheus' rules: `ALERTS…`, and each name with a colon.
pub fn is_reserved(name: &str) -> bool {
    name == "up"
        || name.starts_with("scrape_")
        || name.starts_with("ALERTS")
        || name.contains(':')
        || name
            .strip_prefix(OWN_PREFIX)
            .is_some_and(|rest| PLATFORM_PREFIXES.iter().any(|prefix| rest.starts_with(prefix)))
}

/// Whether a guest's sample is not passed on: its family is reserved, or a label begins with `__`.
/// Prometheus and receivers reserve these: `__name__` is the metric's name, and `__replica__`
/// starts Cortex' deduplication.
pub fn is_withheld(sample: &Sample<'_>) -> bool {
    let reserved = |label: Result<(&str, _), _>| label.is_ok_and(|(name, _)| name.starts_with("__"));
    // Labels are searched only where one may be found: this is done for each sample.
    is_reserved(sample.name)
        || sample.series[sample.name.len()..].contains("__") && sample.labels.clone().any(reserved)
}

#[cfg(test)]
mod tests {
    use virtfleet_wire::exposition::{Line, parse_line};

    use super::*;

    fn withheld(series: &str) -> bool {
        let line = format!("{series} 1");
        let Ok(Line::Sample(sample)) = parse_line(&line) else {
            panic!("{line}");
        };
        is_withheld(&sample)
    }

    #[test]
    fn what_the_platform_or_a_prometheus_writes_is_withheld() {
        for series in [
            "virtfleet_vm_up",
            "virtfleet_host_ready",
            "virtfleet_cluster_vms",
            "virtfleet_label_drift",
            "virtfleet_inventory_synced",
            "virtfleet_collector_leader",
            "virtfleet_collector_pulls_total{result=\"ok\"}",
            "virtfleet_relay_connections_open",
            "virtfleet_gardener_webhook_build_info",
            "ALERTS{alertname=\"X\",alertstate=\"firing\"}",
            "ALERTS_FOR_STATE",
            "up",
            "scrape_duration_seconds",
            "scrape_anything",
            "vm:node_cpus:count",
            "infra_node:node_memory_used:ratio",
            "virtfleet_collector:errors:rate5m",
            ":leading",
            "node_load1{__name__=\"virtfleet_vm_up\"}",
            "node_load1{a=\"__\", __name__ = \"up\"}",
            "c{__replica__=\"x\"}",
        ] {
            assert!(withheld(series), "{series}");
        }
        for series in [
            "node_load1",
            "node_scrape_collector_success",
            "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"}",
            "node_filesystem_size_bytes{mountpoint=\"/a__b\"}",
            "a__b{c__=\"d\"}",
            "virtfleet_agent_collector_failed",
            "virtfleet_guest_uptime",
            "virtfleet_disk_health",
            "virtfleet_dns_up",
            "virtfleet_virtio_queues",
            "upper",
            "scrape",
            "alerts",
        ] {
            assert!(!withheld(series), "{series}");
        }
    }
}
