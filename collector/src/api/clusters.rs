//! `GET /api/v1/clusters`.

use super::{error::ApiError, paging, reply::Reply, router::Ask};

pub(super) fn list(ask: &Ask) -> Result<Reply, ApiError> {
    let list = paging::page(
        &ask.snapshot.clusters,
        |cluster| [cluster.name.as_str()],
        &ask.query,
        &ask.snapshot,
    )?;
    Reply::json(&list)
}
