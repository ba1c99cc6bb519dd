//! Metrics of enrolment.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use virtfleet_collector_core::enrolment::EnrolmentReason;

/// Result of an enrolment: `issued`, `renewed`, or an [`EnrolmentReason`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EnrolmentLabel {
    result: &'static str,
}

/// Metrics of enrolment; clones share them.
#[derive(Debug, Clone)]
pub struct EnrolmentMetrics {
    results: Family<EnrolmentLabel, Counter>,
    duration: Histogram,
    enrolled: Gauge,
}

impl EnrolmentMetrics {
    /// Registers all metrics. Every result exists from the start, so that a rate has a first
    /// sample.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            results: Family::default(),
            duration: Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
            enrolled: Gauge::default(),
        };
        for result in EnrolmentReason::ALL
            .iter()
            .map(<&str>::from)
            .chain(["issued", "renewed"])
        {
            drop(metrics.results.get_or_create(&EnrolmentLabel { result }));
        }
        registry.register(
            "enrolments",
            "Attempts to issue the certificate of an agent, by result",
            metrics.results.clone(),
        );
        registry.register(
            "enrolment_duration_seconds",
            "Duration of successful enrolments, from the dial to the agent's acceptance",
            metrics.duration.clone(),
        );
        registry.register(
            "enrolled",
            "VMs with a recorded key whose certificates are used",
            metrics.enrolled.clone(),
        );
        metrics
    }

    pub(super) fn issued(&self, is_renewal: bool, seconds: f64) {
        let result = if is_renewal { "renewed" } else { "issued" };
        self.results.get_or_create(&EnrolmentLabel { result }).inc();
        self.duration.observe(seconds);
    }

    pub(super) fn failed(&self, reason: EnrolmentReason) {
        let result = reason.as_str();
        self.results.get_or_create(&EnrolmentLabel { result }).inc();
    }

    pub(super) fn set_enrolled(&self, count: usize) {
        self.enrolled.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
