//! `GET /api/v1/placement`, `/api/v1/hosts/{name}` and `/api/v1/hosts/{name}/drain`: for callers
//! that may see the whole fleet, because rooms and rules concern all tenants.

use futures_util::future::BoxFuture;
use virtfleet_collector_core::placement::{check, drain, host_detail};
use virtfleet_wire::ids::{InvalidId, NodeName};

use super::{error::ApiError, query::nearest, reply::Reply, router::ApiRequest};

pub(super) fn placement(request: &ApiRequest) -> Result<Reply, ApiError> {
    Reply::json(&check(&request.api.fleet.placement_fleet()))
}

pub(super) fn host(request: &ApiRequest) -> Result<Reply, ApiError> {
    let name = name(request)?;
    match host_detail(&request.api.fleet.placement_fleet(), &name) {
        Some(detail) => Reply::json(&detail),
        None => Err(missing(request, &name)),
    }
}

pub(super) fn drain_host(request: &ApiRequest) -> BoxFuture<'_, Result<Reply, ApiError>> {
    Box::pin(async {
        let name = name(request)?;
        let fleet = request.api.fleet.placement_fleet();
        let evidence = request.api.drains.read(&fleet, &name).await;
        match drain(&fleet, &name, &evidence) {
            Some(plan) => Reply::json(&plan),
            None => Err(missing(request, &name)),
        }
    })
}

/// The infra node in the path.
fn name(request: &ApiRequest) -> Result<NodeName, ApiError> {
    request
        .path("name")
        .parse()
        .map_err(|error: InvalidId| ApiError::invalid(error.to_string(), "the path must name an infra node"))
}

fn missing(request: &ApiRequest, name: &NodeName) -> ApiError {
    let names = request.snapshot.hosts.iter().map(|host| host.name.as_str());
    let mut remedy = match nearest(name.as_str(), names) {
        Some(near) => format!("did you mean {near}?"),
        None => "/api/v1/hosts lists all infra nodes".to_owned(),
    };
    if request.snapshot.partial {
        remedy.push_str(" The inventory is incomplete, so the infra node may exist: see /api/v1/findings");
    }
    ApiError::not_found(format!("there is no infra node {name}"), remedy)
}
