//! `GET /api/v1/migrations`: live migrations of the VMs, newest first, with what the guests felt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    story::MigrationView,
    view::{List, VmView},
};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmKey, VmName};

use super::{error::ApiError, paging, query::Query, reply::Reply, route::ApiRequest, vm_filter};

/// A migration and its VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetMigration {
    /// The VM's namespace.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// The user cluster that the VM serves.
    pub cluster: Option<ClusterName>,
    /// The migration.
    #[serde(flatten)]
    pub migration: MigrationView,
}

struct KeyedMigration {
    key: [String; 4],
    item: FleetMigration,
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = &request.query;
    let vms = vm_filter::selected(request)?;
    let keys: Vec<VmKey> = vms.iter().map(|(key, _)| key.clone()).collect();
    let mut found = Vec::new();
    for ((_, vm), story) in vms.iter().zip(request.api.fleet.stories(&keys)) {
        let all = story.migrations.into_iter().enumerate();
        let selected = all.filter(|(_, one)| admits(query, one));
        found.extend(selected.map(|(number, one)| keyed(vm, number, one)));
    }
    found.sort_by(|a, b| a.key.cmp(&b.key));
    let page = paging::page(
        found,
        |one| one.key.each_ref().map(String::as_str),
        query,
        &request.snapshot,
    )?;
    Reply::json(&List {
        items: page.items.into_iter().map(|one| one.item).collect::<Vec<_>>(),
        revision: page.revision,
        continue_token: page.continue_token,
        partial: page.partial,
    })
}

fn admits(query: &Query, migration: &MigrationView) -> bool {
    let hosts = [&migration.source, &migration.target];
    let is_on = |name: &Option<NodeName>| query.admits("host", name.as_ref().map(NodeName::as_str));
    query.admits("phase", Some(migration.phase.as_str()))
        && hosts.into_iter().any(is_on)
        && migration.at_ms() >= query.number("sinceMs").unwrap_or_default()
}

fn keyed(vm: &VmView, number: usize, migration: MigrationView) -> KeyedMigration {
    KeyedMigration {
        key: [
            format!("{:020}", u64::MAX - migration.at_ms()),
            vm.namespace.to_string(),
            vm.name.to_string(),
            number.to_string(),
        ],
        item: FleetMigration {
            namespace: vm.namespace.clone(),
            name: vm.name.clone(),
            cluster: vm.cluster.clone(),
            migration,
        },
    }
}
