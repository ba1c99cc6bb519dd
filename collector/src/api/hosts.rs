//! `GET /api/v1/hosts`.

use virtfleet_collector_core::view::HostView;

use super::{error::ApiError, paging, query::Query, reply::Reply, router::ApiRequest};

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let hosts = request
        .snapshot
        .hosts
        .iter()
        .filter(|host| selects(&request.query, host));
    let list = paging::page(
        hosts,
        |host| [host.name.as_str()],
        &request.query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}

fn selects(query: &Query, host: &HostView) -> bool {
    let ready = match host.ready {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    };
    query.admits("zone", host.zone.as_deref())
        && query.admits("region", host.region.as_deref())
        && query.admits("ready", Some(ready))
}
