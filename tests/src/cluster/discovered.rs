//! What the API server says of a kind.

/// What discovery says of a kind.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    /// E.g. `/apis/kubevirt.io/v1`.
    pub(super) root: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Whether status is written apart.
    pub(super) status: bool,
}
