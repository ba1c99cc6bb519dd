//! Why something could not be read, as a gap of the evidence.

use kube::Error;

use super::limits::CLUSTER_TIMEOUT;
use crate::{bounded::bounded, page::not_kubernetes, paged_list::ListError};

/// Maximum characters kept of an error.
const MAX_ERROR_CHARS: usize = 300;

/// A gap: `what` could not be read. `right` is verb and resource; `manifest`, below
/// `packaging/collector/kubernetes`, grants it, in `cluster`.
pub(super) fn gap(what: &str, error: &ListError, right: &str, (cluster, manifest): (&str, &str)) -> String {
    let message = match error {
        ListError::Request(Error::Api(status)) if matches!(status.code, 401 | 403) => {
            return format!(
                "{what}: the collector may not {right}; in {cluster}: kubectl apply -f \
                 packaging/collector/kubernetes/{manifest}"
            );
        }
        // Their texts would repeat the server's answer.
        ListError::Request(Error::Api(status)) => format!("{} {}", status.code, status.message),
        ListError::Request(Error::SerdeError(error)) => not_kubernetes(error),
        other => other.to_string(),
    };
    format!("{what}: {}", bounded(&message, MAX_ERROR_CHARS))
}

/// A gap: `what` was not read in time.
pub(super) fn too_slow(what: &str) -> String {
    format!(
        "{what}: the API server did not answer in {} s",
        CLUSTER_TIMEOUT.as_secs()
    )
}
