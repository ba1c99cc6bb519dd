//! `GET /api/v1/clusters`.

use super::{error::ApiError, paging, reply::Reply, router::ApiRequest};

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let list = paging::page(
        &request.snapshot.clusters,
        |cluster| [cluster.name.as_str()],
        &request.query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}
