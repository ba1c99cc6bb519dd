//! What depends on a Node's labels: the facts that decide whether a topology label may follow (`FollowIfSafe`).

use crate::facts::Labels;

/// What was found on a Node when somebody looked, on demand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evidence {
    /// PersistentVolumes that are bound and used by a pod on the Node, and which have a required node affinity.
    pub volumes: Vec<Dependent>,
    /// CSI drivers registered on the Node (`CSINode.spec.drivers`) and their topology keys.
    pub csi: Vec<(String, Vec<String>)>,
    /// Pods on the Node that have not ended and have a node selector or a required node affinity.
    pub pods: Vec<Dependent>,
}

/// Something that needs certain labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// How a person names it, e.g. `pod shop/db-0` or `PersistentVolume pvc-1 (shop/data)`.
    pub what: String,
    /// `nodeSelector`: all must hold.
    pub selector: Labels,
    /// Required node affinity: at least one term must hold; empty: no requirement.
    pub terms: Vec<Term>,
}

/// A `NodeSelectorTerm`: all its requirements must hold. Terms with `matchFields` only constrain the Node's name and are left
/// out by whoever reads them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Term {
    /// `matchExpressions`.
    pub expressions: Vec<NodeRequirement>,
}

/// One of `matchExpressions` of a node selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequirement {
    /// The label's key.
    pub key: String,
    /// How it is compared.
    pub operator: NodeOperator,
    /// With what.
    pub values: Vec<String>,
}

/// The operator of a [`NodeRequirement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' own words")]
pub enum NodeOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}
