//! Metrics of the access to the API.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeniedLabels {
    reason: &'static str,
}

/// Metrics of the access to the API; clones share them.
#[derive(Debug, Clone, Default)]
pub struct AccessMetrics {
    reviews: Family<ReviewLabels, Counter>,
    denied: Family<DeniedLabels, Counter>,
}

impl AccessMetrics {
    /// Registers all metrics as `access_…` under the registry's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let access = registry.sub_registry_with_prefix("access");
        access.register(
            "reviews",
            "Requests to the API server for a TokenReview or a SubjectAccessReview, by result",
            metrics.reviews.clone(),
        );
        access.register(
            "denied",
            "Denied requests to the API, by reason",
            metrics.denied.clone(),
        );
        metrics
    }

    pub(super) fn reviewed(&self, kind: &'static str, result: &'static str) {
        self.reviews.get_or_create(&ReviewLabels { kind, result }).inc();
    }

    pub(super) fn was_denied(&self, reason: &'static str) {
        self.denied.get_or_create(&DeniedLabels { reason }).inc();
    }
}
