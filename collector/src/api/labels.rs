//! `GET /api/v1/labels`: what the Nodes' labels are, what they should be, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::labels::plan::{Action, Decision, LabelInput, Reason, plan};
use virtfleet_wire::ids::{ClusterName, Namespace, NodeName, VmName};

use super::{error::ApiError, paging, query::Query, reply::Reply, router::Ask};

/// One key of one Node: what it is, what it should be, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelView {
    /// The user cluster.
    pub cluster: ClusterName,
    /// Its Node.
    pub node: NodeName,
    /// The namespace of the VM behind it.
    pub namespace: Namespace,
    /// The VM's name.
    pub name: VmName,
    /// The infra node on which it stands.
    pub infra_node: Option<NodeName>,
    /// What is to be done about the key.
    #[serde(flatten)]
    pub decision: Decision,
    /// Why the last attempt to write to the Node failed; none when it did not.
    pub error: Option<String>,
    /// Others keep changing it, so it is left alone for a while.
    pub contested: bool,
}

impl LabelView {
    /// Every decision about one VM's Node.
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

    /// What it is sorted by.
    pub(crate) fn key(&self) -> [&str; 4] {
        [
            self.cluster.as_str(),
            self.node.as_str(),
            &self.decision.key,
            self.namespace.as_str(),
        ]
    }
}

/// As in JSON.
pub(crate) fn action_word(action: Action) -> &'static str {
    match action {
        Action::Keep => "keep",
        Action::Set => "set",
        Action::Remove => "remove",
        Action::Restore => "restore",
        Action::Report => "report",
    }
}

pub(super) fn list(ask: &Ask) -> Result<Reply, ApiError> {
    if let Some(lease) = ask.api.writing.standby() {
        return Err(ApiError::not_leading(&lease));
    }
    let query = &ask.query;
    let mut views = Vec::new();
    for input in ask.api.fleet.label_inputs() {
        if selects(query, &input) {
            views.extend(decided(ask, &input));
        }
    }
    views.retain(|view| {
        query.admits("key", Some(&view.decision.key))
            && query.admits("action", Some(action_word(view.decision.action)))
            && query.admits("reason", Some(view.decision.reason.as_str()))
    });
    views.sort_by(|a, b| a.key().cmp(&b.key()));
    Reply::json(&paging::page(views, LabelView::key, query, &ask.snapshot)?)
}

/// What the sender has decided, who may have looked at what depends on the Node; before it has, what follows from the facts.
fn decided(ask: &Ask, input: &LabelInput) -> Vec<LabelView> {
    let status = ask.api.labels.get(&input.vm);
    let Some(status) = status.filter(|status| status.node == input.node) else {
        return LabelView::of(input, plan(input, None).decisions).collect();
    };
    let mut views: Vec<_> = LabelView::of(input, status.plan.decisions.clone()).collect();
    for view in &mut views {
        view.contested = status.contested.contains(&view.decision.key);
        view.error.clone_from(&status.error);
        if !status.by_leader && view.decision.reason == Reason::SafetyUnknown {
            "what depends on the Node has not been inspected yet: nothing is inspected or written with a folder as inventory, \
             and a collector that has just begun to lead inspects each Node first"
                .clone_into(&mut view.decision.message);
        }
    }
    views
}

/// Whether the request asks for this Node.
pub(super) fn selects(query: &Query, input: &LabelInput) -> bool {
    query.admits("namespace", Some(input.vm.namespace.as_str()))
        && query.admits("cluster", Some(input.cluster.as_str()))
        && query.admits("node", Some(input.node.as_str()))
}
