//! `GET /api/v1/vms`.

use super::{error::ApiError, paging, reply::Reply, route::ApiRequest, vm_filter};

pub(super) fn list(request: &ApiRequest) -> Result<Reply, ApiError> {
    let vms = vm_filter::selected(request)?;
    let list = paging::page(
        vms.iter().map(|(_, vm)| &**vm),
        |vm| [vm.namespace.as_str(), vm.name.as_str()],
        &request.query,
        &request.snapshot,
    )?;
    Reply::json(&list)
}
