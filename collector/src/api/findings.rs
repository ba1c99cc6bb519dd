//! `GET /api/v1/findings`: findings about the inventory and about all VMs, in one list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::{
    finding::Finding,
    ids::{ClusterName, Namespace, VmName},
};

use super::{error::ApiError, paging, reply::Reply, router::ApiRequest, vm_filter};
use crate::fleet_series::severity_name;

/// A finding and its VM; without VM, it is about the inventory itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingView {
    /// The VM's namespace.
    pub namespace: Option<Namespace>,
    /// The VM's name.
    pub name: Option<VmName>,
    /// The user cluster that the VM serves.
    pub cluster: Option<ClusterName>,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
}

impl FindingView {
    /// Sort key; findings about the inventory come first. Equal keys mean the same finding.
    fn key(&self) -> [&str; 5] {
        [
            self.namespace.as_ref().map_or("", |id| id.as_str()),
            self.name.as_ref().map_or("", |id| id.as_str()),
            &self.finding.id,
            &self.finding.subject.kind,
            &self.finding.subject.name,
        ]
    }
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = &request.query;
    let mut found = Vec::new();
    if query.admits("scope", Some("inventory")) && !vm_filter::has_vm_filter(query) {
        found.extend(request.snapshot.findings.iter().map(|finding| FindingView {
            namespace: None,
            name: None,
            cluster: None,
            finding: finding.clone(),
        }));
    }
    if query.admits("scope", Some("vm")) {
        let vms = vm_filter::selected(request)?;
        for (key, vm) in vms.iter().filter(|(_, vm)| vm.findings > 0) {
            let findings = request.api.fleet.findings(key);
            found.extend(findings.into_iter().map(|finding| FindingView {
                namespace: Some(vm.namespace.clone()),
                name: Some(vm.name.clone()),
                cluster: vm.cluster.clone(),
                finding,
            }));
        }
    }
    found.retain(|view| query.admits("severity", Some(severity_name(view.finding.severity))));
    found.sort_by(|a, b| a.key().cmp(&b.key()));
    found.dedup_by(|a, b| a.key() == b.key());
    Reply::json(&paging::page(found, FindingView::key, query, &request.snapshot)?)
}
