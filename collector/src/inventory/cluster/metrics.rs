//! Metrics of the watches.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Labels: one kind in one cluster; empty for the infra cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: &'static str,
    cluster: String,
}

/// Metrics of the watches; clones share them.
#[derive(Debug, Clone, Default)]
pub struct WatchMetrics {
    synced: Family<WatchLabels, Gauge>,
    objects: Family<WatchLabels, Gauge>,
    failures: Family<WatchLabels, Counter>,
    relists: Family<WatchLabels, Counter>,
}

impl WatchMetrics {
    /// Registers all metrics as `watch_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "watch_synced",
            "Whether every watch of the kind has listed completely and works",
            metrics.synced.clone(),
        );
        registry.register(
            "watch_objects",
            "Objects of the kind in the inventory",
            metrics.objects.clone(),
        );
        registry.register(
            "watch_failures",
            "Failed lists and watches",
            metrics.failures.clone(),
        );
        registry.register(
            "watch_restarts",
            "Lists started; each after the first is due to a watch that could not be resumed",
            metrics.relists.clone(),
        );
        metrics
    }

    /// `synced` is none if the watch does not work and need not.
    pub(super) fn set(&self, kind: &'static str, cluster: &str, synced: Option<bool>, objects: usize) {
        let labels = labels(kind, cluster);
        match synced {
            Some(synced) => {
                self.synced.get_or_create(&labels).set(i64::from(synced));
            }
            None => {
                self.synced.remove(&labels);
            }
        }
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.objects.get_or_create(&labels).set(objects);
    }

    pub(super) fn failed(&self, kind: &'static str, cluster: &str) {
        self.failures.get_or_create(&labels(kind, cluster)).inc();
    }

    pub(super) fn list_started(&self, kind: &'static str, cluster: &str) {
        self.relists.get_or_create(&labels(kind, cluster)).inc();
    }

    pub(super) fn remove(&self, kind: &'static str, cluster: &str) {
        let labels = labels(kind, cluster);
        self.synced.remove(&labels);
        self.objects.remove(&labels);
        self.failures.remove(&labels);
        self.relists.remove(&labels);
    }
}

fn labels(kind: &'static str, cluster: &str) -> WatchLabels {
    WatchLabels {
        kind,
        cluster: cluster.to_owned(),
    }
}
