//! The stream that takes the metrics of a script's VM.

use std::collections::BTreeMap;

use serde::Deserialize;
use virtfleet_collector_core::{
    index::FleetIndex,
    mla::{
        delivery::{MetricsDelivery, PageDelivery, StreamDelivery},
        status::StreamName,
    },
};
use virtfleet_wire::ids::VmKey;

/// What becomes of the metrics.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScriptedMetrics {
    /// The stream of the user cluster; without it, the receiver accepts the samples.
    stream: Option<StreamDelivery>,
    /// The VM's page; without it, it is read.
    page: Option<PageDelivery>,
    /// The stream is removed.
    #[serde(default)]
    removed: bool,
}

/// Passes on what a step says, if it says anything.
pub(super) fn set(metrics: Option<&ScriptedMetrics>, index: &mut FleetIndex) {
    if let Some(metrics) = metrics {
        index.set_metrics_delivery(metrics.delivery());
    }
}

impl ScriptedMetrics {
    fn delivery(&self) -> MetricsDelivery {
        if self.removed {
            return MetricsDelivery::default();
        }
        let stream = self.stream.unwrap_or(StreamDelivery::Delivered);
        let page = self.page.clone().unwrap_or(PageDelivery::Read);
        let vm = VmKey {
            namespace: "prod".parse().unwrap(),
            name: "worker-0".parse().unwrap(),
        };
        let blue = StreamName::Tenant("blue".parse().unwrap());
        MetricsDelivery::new([(blue, stream)], BTreeMap::from([(vm, page)]))
    }
}
