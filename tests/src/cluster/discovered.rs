//! Discovery data of a kind.

/// Discovery data of a kind.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    /// E.g. `/apis/kubevirt.io/v1`.
    pub(super) root: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Whether the kind has a status subresource.
    pub(super) status: bool,
}
