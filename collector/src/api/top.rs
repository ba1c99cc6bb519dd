//! `GET /api/v1/top/vms` and `/api/v1/top/hosts`: VMs and infra nodes by the use that guests
//! report.

use virtfleet_collector_core::{
    placement::{TopOrder, top_hosts, top_vms},
    view::List,
};

use super::{error::ApiError, reply::Reply, router::ApiRequest};

/// Items without `limit`.
const DEFAULT_ITEMS: u64 = 20;

pub(super) fn vms(request: &ApiRequest) -> Result<Reply, ApiError> {
    let (order, limit) = options(request);
    reply(request, top_vms(&request.snapshot, order, limit))
}

pub(super) fn hosts(request: &ApiRequest) -> Result<Reply, ApiError> {
    let (order, limit) = options(request);
    reply(request, top_hosts(&request.snapshot, order, limit))
}

fn options(request: &ApiRequest) -> (TopOrder, usize) {
    let order = request.query.text("by").and_then(TopOrder::of);
    let limit = request.query.number("limit").unwrap_or(DEFAULT_ITEMS);
    (
        order.unwrap_or(TopOrder::Cpu),
        usize::try_from(limit).unwrap_or(usize::MAX),
    )
}

fn reply<T: serde::Serialize>(request: &ApiRequest, items: Vec<T>) -> Result<Reply, ApiError> {
    Reply::json(&List {
        items,
        revision: request.snapshot.revision,
        continue_token: None,
        partial: request.snapshot.partial,
    })
}
