//! Metrics of the relay.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};
use strum::VariantNames as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum RelayResult {
    /// Both sides ended.
    Closed,
    /// A side failed while bytes were copied.
    Broken,
    /// No byte moved for too long.
    Idle,
    Stopped,
    /// Too many connections, in all or of the peer.
    Full,
    /// The peer connects too often.
    TooFast,
    /// No valid request.
    Malformed,
    NotAllowed,
    /// The destination refused the connection, or cannot be reached.
    Unreachable,
    /// The destination did not answer in time.
    Timeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    direction: &'static str,
    result: &'static str,
}

/// Metrics of one direction; clones share them.
#[derive(Debug, Clone)]
pub(super) struct DirectionMetrics {
    /// `pull` or `push`.
    pub(super) direction: &'static str,
    pub(super) open: Gauge<i64, AtomicI64>,
    /// Bytes of VMs.
    pub(super) from_vms: Counter,
    /// Bytes of collectors.
    pub(super) from_collectors: Counter,
    connections: Family<ConnectionLabels, Counter>,
}

impl DirectionMetrics {
    /// Counts a connection that ended.
    pub(super) fn ended(&self, result: RelayResult) {
        let labels = ConnectionLabels {
            direction: self.direction,
            result: result.into(),
        };
        self.connections.get_or_create(&labels).inc();
    }
}

#[derive(Debug)]
pub(super) struct RelayMetrics {
    pub(super) pull: DirectionMetrics,
    pub(super) push: DirectionMetrics,
}

impl RelayMetrics {
    /// Registers all metrics. Every result exists from the start, so that a rate has a first
    /// sample.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Build information of the relay", build);
        let open = Family::<DirectionLabel, Gauge<i64, AtomicI64>>::default();
        let connections = Family::<ConnectionLabels, Counter>::default();
        let from_vms = Family::<DirectionLabel, Counter>::default();
        let from_collectors = Family::<DirectionLabel, Counter>::default();
        registry.register("connections_open", "Open connections", open.clone());
        registry.register(
            "connections",
            "Connections that ended, by result",
            connections.clone(),
        );
        registry.register("from_vms_bytes", "Bytes that VMs sent", from_vms.clone());
        registry.register(
            "from_collectors_bytes",
            "Bytes that collectors sent, without requests to the relay",
            from_collectors.clone(),
        );
        let of = |direction: &'static str| {
            let label = DirectionLabel { direction };
            for &result in RelayResult::VARIANTS {
                drop(connections.get_or_create(&ConnectionLabels { direction, result }));
            }
            DirectionMetrics {
                direction,
                open: open.get_or_create_owned(&label),
                from_vms: from_vms.get_or_create_owned(&label),
                from_collectors: from_collectors.get_or_create_owned(&label),
                connections: connections.clone(),
            }
        };
        Self {
            pull: of("pull"),
            push: of("push"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_published_names() {
        assert_eq!(
            RelayResult::VARIANTS.join(" "),
            "closed broken idle stopped full too_fast malformed not_allowed unreachable timeout"
        );
    }
}
