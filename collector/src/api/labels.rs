//! `GET /api/v1/labels`: actual and desired labels of Nodes, and the reasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::labels::plan::{Action, Decision, LabelInput, Reason, plan};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmName};

use super::{error::ApiError, paging, query::Query, reply::Reply, router::ApiRequest};

/// One key of one Node: actual value, desired value, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelView {
    /// The user cluster.
    pub cluster: ClusterName,
    /// Its Node.
    pub node: NodeName,
    /// The namespace of its VM.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// The infra node on which the VM runs.
    pub infra_node: Option<NodeName>,
    /// The decision about the key.
    #[serde(flatten)]
    pub decision: Decision,
    /// Why the last write to the Node failed; none after a success.
    pub error: Option<String>,
    /// Another writer keeps changing it, so the collector does not write it for a while.
    pub contested: bool,
}

impl LabelView {
    /// All decisions about one VM's Node.
    pub(crate) fn of(input: &LabelInput, decisions: Vec<Decision>) -> impl Iterator<Item = Self> {
        decisions.into_iter().map(|decision| Self {
            cluster: input.cluster.clone(),
            node: input.node.clone(),
            namespace: input.vm.namespace.clone(),
            name: input.vm.name.clone(),
            infra_node: input.host.as_ref().map(|host| host.name.clone()),
            decision,
            error: None,
            contested: false,
        })
    }

    /// Sort key.
    pub(crate) fn key(&self) -> [&str; 4] {
        [
            self.cluster.as_str(),
            self.node.as_str(),
            &self.decision.key,
            self.namespace.as_str(),
        ]
    }
}

/// The name in JSON.
pub(crate) fn action_name(action: Action) -> &'static str {
    match action {
        Action::Keep => "keep",
        Action::Set => "set",
        Action::Remove => "remove",
        Action::Restore => "restore",
        Action::Report => "report",
    }
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    if let Some(lease) = request.api.write_access.standby() {
        return Err(match request.tenant {
            None => ApiError::not_leading(&lease),
            Some(_) => ApiError::standby(),
        });
    }
    let query = &request.query;
    let mut views = Vec::new();
    for input in request.api.fleet.label_inputs() {
        if selects(query, &input) {
            views.extend(decided(request, &input));
        }
    }
    views.retain(|view| {
        query.admits("key", Some(&view.decision.key))
            && query.admits("action", Some(action_name(view.decision.action)))
            && query.admits("reason", Some(view.decision.reason.as_str()))
    });
    views.sort_by(|a, b| a.key().cmp(&b.key()));
    Reply::json(&paging::page(views, LabelView::key, query, &request.snapshot)?)
}

/// The decisions of the label writer, which may use evidence; before its first plan, those that
/// follow from the facts.
fn decided(request: &ApiRequest, input: &LabelInput) -> Vec<LabelView> {
    let status = request.api.labels.get(&input.vm);
    let Some(status) = status.filter(|status| status.node == input.node) else {
        return LabelView::of(input, plan(input, None).decisions).collect();
    };
    let (decisions, error) = (status.plan.decisions.clone(), status.error.clone());
    let (decisions, error) = request.visible_decisions(decisions, error, input.owned.as_deref());
    let mut views: Vec<_> = LabelView::of(input, decisions).collect();
    for view in &mut views {
        view.contested = status.contested.contains(&view.decision.key);
        view.error.clone_from(&error);
        if !status.by_leader && view.decision.reason == Reason::SafetyUnknown {
            "the objects that depend on the Node have not been read yet: with a folder as inventory they are never read, \
             and a new leader reads them for each Node first"
                .clone_into(&mut view.decision.message);
        }
    }
    views
}

/// Whether the request selects this Node.
pub(super) fn selects(query: &Query, input: &LabelInput) -> bool {
    query.admits("namespace", Some(input.vm.namespace.as_str()))
        && query.admits("cluster", Some(input.cluster.as_str()))
        && query.admits("node", Some(input.node.as_str()))
}
