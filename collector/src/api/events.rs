//! `GET /api/v1/events`: what happened to the VMs, newest first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    story::TimelineEntry,
    view::{List, VmView},
};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmKey, VmName};

use super::{error::ApiError, paging, reply::Reply, route::ApiRequest, vm_filter};

/// Events of a page, if the request names no number.
const DEFAULT_EVENTS: usize = 1000;

/// Bound of the numbers in sort keys; a timeline has far fewer entries.
const MAX_NUMBER: usize = 999_999;

/// Something that happened to a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetEvent {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// The user cluster that the VM serves now.
    pub cluster: Option<ClusterName>,
    /// The infra node on which the VM runs now.
    pub infra_node: Option<NodeName>,
    /// What happened.
    #[serde(flatten)]
    pub entry: TimelineEntry,
}

struct KeyedEvent {
    key: [String; 4],
    event: FleetEvent,
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = &request.query;
    let since_ms = query.number("sinceMs").unwrap_or_default();
    let vms = vm_filter::selected(request)?;
    let keys: Vec<VmKey> = vms.iter().map(|(key, _)| key.clone()).collect();
    let mut events = Vec::new();
    for ((_, vm), story) in vms.iter().zip(request.api.fleet.stories(&keys)) {
        let entries = story.timeline.into_iter().enumerate();
        let selected = entries
            .filter(|(_, entry)| entry.at_ms >= since_ms && query.admits("kind", Some(entry.kind.as_str())));
        events.extend(selected.map(|(number, entry)| keyed(vm, number, entry)));
    }
    events.sort_by(|a, b| a.key.cmp(&b.key));
    let page = paging::page_of(
        events,
        |one| one.key.each_ref().map(String::as_str),
        query,
        &request.snapshot,
        DEFAULT_EVENTS,
    )?;
    Reply::json(&List {
        items: page.items.into_iter().map(|one| one.event).collect::<Vec<_>>(),
        revision: page.revision,
        continue_token: page.continue_token,
        partial: page.partial,
    })
}

fn keyed(vm: &VmView, number: usize, entry: TimelineEntry) -> KeyedEvent {
    KeyedEvent {
        // The newest first: of one VM, the last entry first.
        key: [
            format!("{:020}", u64::MAX - entry.at_ms),
            vm.namespace.to_string(),
            vm.name.to_string(),
            format!("{:06}", MAX_NUMBER.saturating_sub(number)),
        ],
        event: FleetEvent {
            namespace: vm.namespace.clone(),
            name: vm.name.clone(),
            cluster: vm.cluster.clone(),
            infra_node: vm.infra_node.clone(),
            entry,
        },
    }
}
