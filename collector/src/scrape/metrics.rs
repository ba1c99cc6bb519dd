//! Metrics of the scraper and the proxy.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use virtfleet_collector_core::pull_result::FailureClass;

/// Result of a pull: `ok`, or a [`FailureClass`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of the scraper; clones share them.
#[derive(Debug, Clone)]
pub struct PullMetrics {
    pulls: Family<ResultLabel, Counter>,
    duration: Histogram,
    late: Histogram,
    pub(super) targets: Gauge,
}

impl PullMetrics {
    /// Registers all metrics as `pull…`. Every result exists from the start, so that a rate has a
    /// first sample.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            pulls: Family::default(),
            duration: Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
            late: Histogram::new([0.01, 0.1, 1.0, 5.0, 15.0, 30.0, 60.0]),
            targets: Gauge::default(),
        };
        for result in FailureClass::ALL.iter().map(<&str>::from).chain(["ok"]) {
            drop(metrics.pulls.get_or_create(&ResultLabel { result }));
        }
        registry.register("pulls", "Finished pulls by result", metrics.pulls.clone());
        registry.register(
            "pull_duration_seconds",
            "Duration of successful pulls, from the dial to the last byte",
            metrics.duration.clone(),
        );
        registry.register(
            "pull_late_seconds",
            "Delay of the start of a pull after it was due",
            metrics.late.clone(),
        );
        registry.register(
            "pull_targets",
            "VMs whose agents are pulled",
            metrics.targets.clone(),
        );
        metrics
    }

    pub(super) fn ended(&self, result: Result<f64, FailureClass>) {
        let label = match result {
            Ok(seconds) => {
                self.duration.observe(seconds);
                "ok"
            }
            Err(class) => class.as_str(),
        };
        self.pulls.get_or_create(&ResultLabel { result: label }).inc();
    }

    pub(super) fn started(&self, late_seconds: f64) {
        self.late.observe(late_seconds);
    }
}

/// Counter of pages passed on to Prometheus; clones share it.
#[derive(Debug, Clone)]
pub struct ProxyMetrics {
    pages: Family<ResultLabel, Counter>,
}

impl ProxyMetrics {
    /// Registers the counter as `proxied_pages`. Every result exists from the start.
    pub fn register(registry: &mut Registry) -> Self {
        let pages = Family::<ResultLabel, Counter>::default();
        for result in FailureClass::ALL.iter().map(<&str>::from).chain(["ok"]) {
            drop(pages.get_or_create(&ResultLabel { result }));
        }
        registry.register(
            "proxied_pages",
            "Metrics pages of agents passed on, by result",
            pages.clone(),
        );
        Self { pages }
    }

    pub(super) fn ended(&self, result: Result<(), FailureClass>) {
        let result = result.map_or_else(FailureClass::as_str, |()| "ok");
        self.pages.get_or_create(&ResultLabel { result }).inc();
    }
}
