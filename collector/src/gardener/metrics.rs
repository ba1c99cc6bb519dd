//! Metrics of the webhook.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, info::Info},
    registry::Registry,
};
use virtfleet_delivery::osc::OscAction;
use virtfleet_runtime::http::ServerMetrics;

/// Result of a request that is no AdmissionReview.
const MALFORMED: &str = "malformed";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of the webhook; clones share them.
#[derive(Debug, Clone)]
pub(super) struct WebhookMetrics {
    admissions: Family<ResultLabel, Counter>,
    pub(super) server: ServerMetrics,
}

impl WebhookMetrics {
    /// Registers all metrics. Every result exists from the start, so that a rate has a first
    /// sample.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Build information of the webhook", build);
        let admissions = Family::<ResultLabel, Counter>::default();
        registry.register(
            "admissions",
            "Requests for an OperatingSystemConfig, by result",
            admissions.clone(),
        );
        for result in ACTIONS.map(name).into_iter().chain([MALFORMED]) {
            drop(admissions.get_or_create(&ResultLabel { result }));
        }
        Self {
            admissions,
            server: ServerMetrics::register(registry),
        }
    }

    /// Counts a request.
    pub(super) fn answered(&self, action: OscAction) {
        self.count(name(action));
    }

    /// Counts a request that is no AdmissionReview.
    pub(super) fn malformed(&self) {
        self.count(MALFORMED);
    }

    fn count(&self, result: &'static str) {
        self.admissions.get_or_create(&ResultLabel { result }).inc();
    }
}

const ACTIONS: [OscAction; 5] = [
    OscAction::Skipped,
    OscAction::Ignored,
    OscAction::Unchanged,
    OscAction::Patched,
    OscAction::Conflict,
];

fn name(action: OscAction) -> &'static str {
    match action {
        OscAction::Skipped => "skipped",
        OscAction::Ignored => "ignored",
        OscAction::Unchanged => "unchanged",
        OscAction::Patched => "patched",
        OscAction::Conflict => "conflict",
    }
}
