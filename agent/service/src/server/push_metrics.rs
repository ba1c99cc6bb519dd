//! Metrics of the connection that the agent opens to the collector: `virtfleet_agent_push_*`.
//! Absent if the settings name no collector.

use virtfleet_agent_core::push::record::PushState;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::push::PushCounters;

pub(super) fn append(page: &mut Page, state: &PushState, counters: &PushCounters) {
    let is_connected = matches!(state, PushState::Connected { .. });
    page.family(
        "virtfleet_agent_push_connected",
        "1 if the agent has a connection that it opened to the collector, else 0.",
        MetricType::Gauge,
    )
    .sample(&[], f64::from(u8::from(is_connected)));
    for (name, help, value) in [
        (
            "virtfleet_agent_push_attempts_total",
            "Connections that the agent tried to open to the collector.",
            counters.attempts,
        ),
        (
            "virtfleet_agent_push_connections_total",
            "Connections to the collector that were accepted, by it or by a relay.",
            counters.connections,
        ),
    ] {
        page.family(name, help, MetricType::Counter)
            .sample(&[], value as f64);
    }
    let mut family = page.family(
        "virtfleet_agent_push_failures_total",
        "Connections to the collector that led to no pull, by reason.",
        MetricType::Counter,
    );
    for (reason, count) in &counters.failures {
        family.sample(&[("reason", reason.word())], *count as f64);
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_agent_core::push::record::PushFailureReason;

    use super::*;

    #[test]
    fn every_reason_has_a_sample() {
        let mut counters = PushCounters {
            attempts: 3,
            ..PushCounters::default()
        };
        counters.failures.insert(PushFailureReason::Refused, 2);
        let mut page = Page::new();
        append(&mut page, &PushState::Connecting, &counters);
        let text = page.to_text();
        for line in [
            "virtfleet_agent_push_connected 0\n",
            "virtfleet_agent_push_attempts_total 3\n",
            "virtfleet_agent_push_connections_total 0\n",
            "virtfleet_agent_push_failures_total{reason=\"refused\"} 2\n",
            "virtfleet_agent_push_failures_total{reason=\"unused\"} 0\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
