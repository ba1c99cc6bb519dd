//! Metrics about sources.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::report::SourceReport;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CountLabels {
    source: String,
    state: &'static str,
}

/// Metrics about sources; clones share them.
#[derive(Debug, Clone, Default)]
pub struct SourceMetrics {
    ready: Family<SourceLabels, Gauge>,
    clusters: Family<CountLabels, Gauge>,
    failures: Family<SourceLabels, Counter>,
}

impl SourceMetrics {
    /// Registers all metrics as `cluster_source_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "cluster_source_ready",
            "Whether the last cycle of a ClusterSource succeeded",
            metrics.ready.clone(),
        );
        registry.register(
            "cluster_source_clusters",
            "Clusters of a ClusterSource: found, selected, managed (with a UserCluster), skipped",
            metrics.clusters.clone(),
        );
        registry.register(
            "cluster_source_failures",
            "Cycles of a ClusterSource that failed",
            metrics.failures.clone(),
        );
        metrics
    }

    /// Sets the result of a cycle of all sources.
    pub(super) fn set(&self, reports: &[SourceReport]) {
        self.ready.clear();
        self.clusters.clear();
        for report in reports {
            let source = SourceLabels {
                source: report.name.clone(),
            };
            self.ready
                .get_or_create(&source)
                .set(i64::from(report.is_ready()));
            let failures = self.failures.get_or_create(&source);
            if report.has_failed() {
                failures.inc();
            }
            let Some((found, selected)) = report.counts() else {
                continue;
            };
            for (state, number) in [
                ("found", found),
                ("selected", selected),
                ("managed", report.managed),
                ("skipped", report.skipped.len()),
            ] {
                let labels = CountLabels {
                    source: report.name.clone(),
                    state,
                };
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                self.clusters.get_or_create(&labels).set(number);
            }
        }
    }

    /// This process does not lead any more.
    pub(super) fn clear(&self) {
        self.ready.clear();
        self.clusters.clear();
    }
}
