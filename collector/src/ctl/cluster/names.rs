//! Names of the packaged objects.

/// Name of the collector's Service, and label of its pods.
pub(super) const COLLECTOR: &str = "virtfleet-collector";
/// Name of the API's port in the Service and in the pods.
pub(super) const API_PORT: &str = "api";
