//! `GET /api/v1/labels/inputs`: the inputs of all label plans, in pages. Data that many Nodes share
//! is once in each page and referenced by name: infra nodes with their labels, user clusters,
//! policies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_collector_core::{
    facts::{InfraNode, Labels},
    labels::{plan::LabelInput, policy::LabelPolicy},
    view::List,
};
use virtfleet_wire::ids::{ClusterName, NodeName};

use super::{error::ApiError, labels::selects, paging, reply::Reply, router::ApiRequest};

/// Default number of Nodes in a page.
const DEFAULT_PAGE_SIZE: usize = 500;

/// A page of inputs, and the data that they share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelInputs {
    /// One item per Node, sorted by its VM.
    pub items: Vec<NodeInput>,
    /// Revision of the fleet; it increases with every change.
    pub revision: u64,
    /// Pass it as `continue` to get the next page; absent on the last page.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// The inventory has not been read completely: objects may be missing.
    pub partial: bool,
    /// The infra nodes on which the VMs run.
    pub hosts: BTreeMap<NodeName, InfraNode>,
    /// Labels of infra nodes on which VMs ran before; `stoodOn` of an item has indexes from 0.
    pub stood_on: Vec<Labels>,
    /// The user clusters.
    pub clusters: BTreeMap<ClusterName, ClusterInput>,
    /// The policies.
    pub policies: BTreeMap<String, LabelPolicy>,
}

/// The part of the inputs that all Nodes of a user cluster share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInput {
    /// The labels of its `UserCluster`.
    pub labels: Labels,
    /// Whether it is suspended.
    pub suspended: bool,
    /// The names of the policies that select it.
    pub policies: Vec<String>,
}

/// The input of one Node, without the shared data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInput {
    /// The infra node on which its VM runs.
    pub host: Option<NodeName>,
    /// The infra nodes on which it ran before, as indexes into the page's `stoodOn`.
    pub stood_on: Vec<usize>,
    /// The other fields of the input. Its `host`, `stoodOn`, `clusterLabels`, `suspended` and
    /// `policies` are empty.
    pub node: LabelInput,
}

impl LabelInputs {
    fn of(page: List<LabelInput>) -> Self {
        let mut all = Self {
            items: Vec::new(),
            revision: page.revision,
            continue_token: page.continue_token,
            partial: page.partial,
            hosts: BTreeMap::new(),
            stood_on: Vec::new(),
            clusters: BTreeMap::new(),
            policies: BTreeMap::new(),
        };
        for input in page.items {
            all.add(input);
        }
        all
    }

    fn add(&mut self, mut input: LabelInput) {
        let policies = std::mem::take(&mut input.policies);
        let labels = std::mem::take(&mut input.cluster_labels);
        let suspended = std::mem::take(&mut input.suspended);
        self.clusters
            .entry(input.cluster.clone())
            .or_insert_with(|| ClusterInput {
                labels,
                suspended,
                policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            });
        for policy in policies {
            self.policies.entry(policy.name.clone()).or_insert(policy);
        }
        let host = input.host.take().map(|host| {
            let name = host.name.clone();
            self.hosts.entry(name.clone()).or_insert(host);
            name
        });
        let stood_on = std::mem::take(&mut input.stood_on);
        let stood_on = stood_on.into_iter().map(|labels| self.place(labels)).collect();
        self.items.push(NodeInput {
            host,
            stood_on,
            node: input,
        });
    }

    fn place(&mut self, labels: Labels) -> usize {
        let known = self.stood_on.iter().position(|known| *known == labels);
        known.unwrap_or_else(|| {
            self.stood_on.push(labels);
            self.stood_on.len() - 1
        })
    }

    /// Restores the inputs. References to data that is not in the page become empty.
    pub fn into_inputs(self) -> impl Iterator<Item = LabelInput> {
        let Self {
            items,
            hosts,
            stood_on,
            clusters,
            policies,
            ..
        } = self;
        items.into_iter().map(move |item| {
            let mut input = item.node;
            input.host = item.host.and_then(|host| hosts.get(&host).cloned());
            let places = item.stood_on.into_iter();
            input.stood_on = places.filter_map(|place| stood_on.get(place).cloned()).collect();
            if let Some(cluster) = clusters.get(&input.cluster) {
                input.cluster_labels = cluster.labels.clone();
                input.suspended = cluster.suspended;
                let names = cluster.policies.iter();
                input.policies = names.filter_map(|name| policies.get(name).cloned()).collect();
            }
            input
        })
    }
}

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let mut inputs = request.api.fleet.label_inputs();
    inputs.retain(|input| selects(&request.query, input));
    inputs.sort_by(|a, b| a.vm.cmp(&b.vm));
    let page = paging::page_of(
        inputs,
        |input| [input.vm.namespace.as_str(), input.vm.name.as_str()],
        &request.query,
        &request.snapshot,
        DEFAULT_PAGE_SIZE,
    )?;
    Reply::json(&LabelInputs::of(page))
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{label_inputs, labels},
        *,
    };

    #[test]
    fn shared_data_is_sent_once_and_restored() {
        let rack = "a-rack-with-a-long-name";
        let mut inputs = Vec::new();
        for n in 0..100 {
            let mut input = label_inputs().remove(0);
            input.vm.name = format!("w-{n:03}").parse().unwrap();
            input.cluster_labels = labels(&[("tier", "gold")]);
            input.stood_on = vec![labels(&[("rack", rack)]), labels(&[("rack", "r3")])];
            if let Some(host) = &mut input.host {
                host.labels = labels(&[("rack", rack)]);
            }
            inputs.push(input);
        }
        let page = LabelInputs::of(List {
            items: inputs.clone(),
            revision: 1,
            continue_token: None,
            partial: false,
        });
        let text = serde_json::to_string(&page).unwrap();
        assert_eq!(
            text.matches(rack).count(),
            2,
            "as labels of a host and of a previous host"
        );
        assert_eq!(
            (page.hosts.len(), page.stood_on.len(), page.policies.len()),
            (1, 2, 1)
        );
        let read: LabelInputs = serde_json::from_str(&text).unwrap();
        assert_eq!(read.into_inputs().collect::<Vec<_>>(), inputs);
    }
}
