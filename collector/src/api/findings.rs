//! `GET /api/v1/findings`: findings about the inventory and about all VMs, in one list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::view::VmView;
use virtfleet_wire::{
    finding::{Finding, Severity},
    ids::{ClusterName, Namespace, VmName},
};

use super::{error::ApiError, paging, query::Query, reply::Reply, router::ApiRequest};

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
    if query.admits("scope", Some("inventory"))
        && query.admits("namespace", None)
        && query.admits("cluster", None)
    {
        found.extend(request.snapshot.findings.iter().map(|finding| FindingView {
            namespace: None,
            name: None,
            cluster: None,
            finding: finding.clone(),
        }));
    }
    if query.admits("scope", Some("vm")) {
        let vms = request.snapshot.vms.iter();
        for (key, vm) in vms.filter(|(_, vm)| vm.findings > 0 && selects(query, vm)) {
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

fn selects(query: &Query, vm: &VmView) -> bool {
    query.admits("namespace", Some(vm.namespace.as_str()))
        && query.admits("cluster", vm.cluster.as_ref().map(ClusterName::as_str))
}

/// The name in JSON.
pub(crate) fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}
