//! Metrics of the label writer. The number of series is bounded: by results, reasons, user
//! clusters, and the keys that policies name.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use strum::VariantNames as _;
use virtfleet_collector_core::labels::plan::Reason;
use virtfleet_wire::ids::ClusterName;

use super::{status_store::Drift, writer::SendError};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterMetricLabel {
    cluster: String,
}

/// Counters of the label writer; clones share them.
#[derive(Debug, Clone)]
pub struct LabelMetrics {
    patches: Family<ResultLabel, Counter>,
    evidence: Family<ResultLabel, Counter>,
    conditions: Family<ResultLabel, Counter>,
    queue: Family<ClusterMetricLabel, Gauge>,
}

impl LabelMetrics {
    /// Registers all of them as `label…`. Every result exists from the start, so that a rate has a
    /// first sample.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            patches: Family::default(),
            evidence: Family::default(),
            conditions: Family::default(),
            queue: Family::default(),
        };
        for result in SendError::VARIANTS.iter().copied().chain(["ok", "cut"]) {
            drop(metrics.patches.get_or_create(&ResultLabel { result }));
            drop(metrics.evidence.get_or_create(&ResultLabel { result }));
            drop(metrics.conditions.get_or_create(&ResultLabel { result }));
        }
        registry.register(
            "label_patches",
            "Patches of Nodes, by result",
            metrics.patches.clone(),
        );
        registry.register(
            "label_evidence_reads",
            "Reads of the objects that depend on a Node's labels, by result",
            metrics.evidence.clone(),
        );
        registry.register(
            "node_condition_patches",
            "Patches of conditions of Nodes, by result",
            metrics.conditions.clone(),
        );
        registry.register(
            "label_queue",
            "VMs in the work queue of the label writer, by user cluster",
            metrics.queue.clone(),
        );
        metrics
    }

    pub(super) fn patched(&self, result: &'static str) {
        self.patches.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn conditions_patched(&self, result: &'static str) {
        self.conditions.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn evidence_read(&self, result: &'static str) {
        self.evidence.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn queue(&self, cluster: &ClusterName, len: usize) {
        let label = ClusterMetricLabel {
            cluster: cluster.to_string(),
        };
        self.queue
            .get_or_create(&label)
            .set(i64::try_from(len).unwrap_or(i64::MAX));
    }

    pub(super) fn remove_cluster(&self, cluster: &ClusterName) {
        self.queue.remove(&ClusterMetricLabel {
            cluster: cluster.to_string(),
        });
    }
}

/// Maximum `virtfleet_label_drift` series on a page; the rest is added up in series with the key
/// `_other`.
const MAX_DRIFT_SERIES: usize = 1000;

/// Series of `virtfleet_label_drift` for the fleet's page: cluster, key, reason, count.
pub fn drift_series(drift: Drift) -> Vec<(String, String, &'static str, u64)> {
    let mut series = Vec::new();
    let mut others: std::collections::BTreeMap<(ClusterName, Reason), u64> =
        std::collections::BTreeMap::new();
    for ((cluster, key, reason), count) in drift {
        if series.len() < MAX_DRIFT_SERIES {
            series.push((cluster.to_string(), key, reason.as_str(), count));
        } else {
            *others.entry((cluster, reason)).or_default() += count;
        }
    }
    let others = others.into_iter();
    series.extend(others.map(|((cluster, reason), count)| {
        (cluster.to_string(), "_other".to_owned(), reason.as_str(), count)
    }));
    series
}

/// Limits log messages to the first one per cluster and class: a broken cluster must not fill the
/// disk.
#[derive(Debug, Default)]
pub(super) struct LogOnce(Mutex<BTreeSet<(ClusterName, &'static str)>>);

impl LogOnce {
    /// Whether this is the first message of `class` for `cluster`.
    pub(super) fn first(&self, cluster: &ClusterName, class: &'static str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert((cluster.clone(), class))
    }

    /// Forgets the cluster's messages; returns whether there were any.
    pub(super) fn clear(&self, cluster: &ClusterName) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.len();
        seen.retain(|(known, _)| known != cluster);
        seen.len() != before
    }
}
