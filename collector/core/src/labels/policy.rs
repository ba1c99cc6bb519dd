//! `LabelPropagation` as the domain represents it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use virtfleet_wire::ids::Uid;

use crate::facts::Selector;

/// A `LabelPropagation` object. Cluster-scoped, so its name is its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelPolicy {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; none in a manifest without it. A deleted and recreated object has another
    /// one.
    pub uid: Option<Uid>,
    /// `metadata.generation`; 0 when it has none (a manifest).
    pub generation: i64,
    /// `spec.clusterSelector`, over the labels of `UserCluster`s; empty selects all.
    pub clusters: Selector,
    /// `spec.dryRun`: labels are planned and shown, never written.
    pub dry_run: bool,
    /// `spec.labels`, in the order of the object.
    pub rules: Vec<Rule>,
}

/// One entry of a policy's `labels`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The labels of the infra node that the rule selects.
    pub source: Source,
    /// The key (of a key) or prefix (of a prefix) on the user cluster's Node; none: the same as the
    /// source.
    pub target: Option<String>,
    /// What happens when the value changes; none: [`Mode::FollowIfSafe`].
    pub mode: Option<Mode>,
    /// What happens to a value of another writer; none: [`Takeover::default`].
    pub takeover: Option<Takeover>,
}

/// Selects labels of the infra node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// One key.
    Key(String),
    /// Every key with this prefix, e.g. `rack.example.com/`.
    Prefix(String),
}

/// What happens when the infra node's value differs from the Node's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum Mode {
    /// The Node's label follows.
    Follow,
    /// Written once, if the Node does not have it.
    InitialOnly,
    /// Follows if no volume, CSI driver or running pod on the Node depends on the old value; until
    /// then drift is reported.
    // The default for every key: a pod may require any label, and changing a zone under bound
    // volumes, CSI topology keys or required node affinity breaks running pods (kubernetes #123859,
    // #108555).
    #[default]
    FollowIfSafe,
    /// Never written; drift is reported.
    ReportDrift,
}

/// Whether a value of another writer may be replaced.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
pub enum Takeover {
    /// Never.
    Never,
    /// If it is the value of an infra node on which the VM ran: then it was copied from there and
    /// is outdated.
    #[default]
    IfPlacementMatches,
    /// Always.
    Always,
}
