//! The agent's own metrics: kept in prometheus-client, copied to the page by the exposition parser
//! (decision 14).

use prometheus_client::{metrics::gauge::ConstGauge, metrics::info::Info, registry::Registry};
use virtfleet_agent_core::VERSION;
use virtfleet_agent_host::Roots;
use virtfleet_runtime::{http::ServerMetrics, process::append_process_metrics};
use virtfleet_wire::exposition::{MetricType, Page, append_openmetrics};

use super::{certificate_metrics, pass_metrics::PassMetrics, push_metrics};
use crate::{enrolment::Enrolment, push::WayTracker};

/// The agent's own metrics, prefix `virtfleet_agent_`, and those of its process under their usual
/// names.
#[derive(Debug)]
pub struct OwnMetrics {
    registry: Registry,
    roots: Roots,
    passes: PassMetrics,
    enrolment: Option<Enrolment>,
    tracker: Option<WayTracker>,
}

impl OwnMetrics {
    /// Registers all metrics. The HTTP server counts in the returned [`ServerMetrics`].
    pub fn new(roots: &Roots, settings_problems: usize) -> (Self, ServerMetrics) {
        let mut registry = Registry::with_prefix("virtfleet_agent");
        registry.register("build", "The agent's build", Info::new([("version", VERSION)]));
        registry.register(
            "settings_problems",
            "Settings that are not applied because they are invalid or unknown",
            ConstGauge::new(i64::try_from(settings_problems).unwrap_or(i64::MAX)),
        );
        let server = ServerMetrics::register(&mut registry);
        let own = Self {
            registry,
            roots: roots.clone(),
            passes: PassMetrics::new(roots),
            enrolment: None,
            tracker: None,
        };
        (own, server)
    }

    /// Adds the state of the agent's certificate.
    #[must_use]
    pub fn with_enrolment(mut self, enrolment: Option<Enrolment>) -> Self {
        self.enrolment = enrolment;
        self
    }

    /// Adds the connection to the collector.
    #[must_use]
    pub fn with_tracker(mut self, tracker: WayTracker) -> Self {
        self.tracker = Some(tracker);
        self
    }

    /// Appends them to `page`; `text` is a reusable buffer.
    pub(super) fn append(&mut self, page: &mut Page, text: &mut String) {
        text.clear();
        if prometheus_client::encoding::text::encode(text, &self.registry).is_err() {
            tracing::error!("the agent's own metrics cannot be encoded");
        } else if let Err((line, error)) = append_openmetrics(page, text) {
            tracing::error!(line, %error, "the agent's own metrics cannot be parsed");
        }
        // node-mixin's dashboards take the selectable clusters from this family.
        let labels = [
            ("branch", ""),
            ("goarch", go_architecture()),
            ("goos", std::env::consts::OS),
            ("goversion", ""),
            ("revision", ""),
            ("tags", "virtfleet-agent"),
            ("version", VERSION),
        ];
        page.family(
            "node_exporter_build_info",
            "Version of the agent, which replaces node_exporter.",
            MetricType::Gauge,
        )
        .sample(&labels, 1.0);
        if let Some(enrolment) = &self.enrolment {
            certificate_metrics::append(page, &enrolment.status(), &enrolment.refusals());
        }
        if let Some(tracker) = &self.tracker
            && let Some(counters) = tracker.counters()
        {
            push_metrics::append(page, &tracker.record().push, &counters);
        }
        self.passes.append(page);
        append_process_metrics(page, &self.roots.procfs);
    }
}

/// The architecture as Go names it (`GOARCH`).
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
