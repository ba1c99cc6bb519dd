//! How a VM and a Node belong together.

use virtfleet_wire::ids::NodeName;

/// Result of rules 1 and 2, which use only data of the Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum NodeMatch {
    /// No Node names it.
    #[default]
    None,
    /// This one does.
    Node(NodeName),
    /// Several name it in their `providerID`; the first few, sorted.
    Ambiguous(Vec<NodeName>),
    /// This one has its name, a `providerID` of something else, and not its firmware UUID.
    Contradicts(NodeName),
}
