//! `GET /api/v1/vms/{namespace}/{name}`.

use virtfleet_collector_core::longer_history::HistoryRange;
use virtfleet_wire::ids::{InvalidId, VmKey};

use super::{error::ApiError, query::nearest, reply::Reply, router::ApiRequest};

pub(super) fn detail(request: &ApiRequest) -> Result<Reply, ApiError> {
    let key = key(request)?;
    match request.api.fleet.detail(&key) {
        Some(mut detail) => {
            let enrolment = request.api.enrolment.as_ref();
            detail.enrolment = enrolment.and_then(|admin| admin.view(&key));
            if request.api.histories.is_some() {
                detail.history_ranges = HistoryRange::ALL.to_vec();
            }
            Reply::json(&detail)
        }
        None => Err(missing(request, &key)),
    }
}

pub(super) fn key(request: &ApiRequest) -> Result<VmKey, ApiError> {
    let invalid = |error: InvalidId| {
        ApiError::invalid(error.to_string(), "the path must be <namespace>/<name of the VM>")
    };
    Ok(VmKey {
        namespace: request.path("namespace").parse().map_err(invalid)?,
        name: request.path("name").parse().map_err(invalid)?,
    })
}

/// The error for an unknown VM. The remedy has a VM of this name in another namespace, else the
/// most similar name in this namespace.
pub(super) fn missing(request: &ApiRequest, key: &VmKey) -> ApiError {
    let vms = &request.snapshot.vms;
    let near = vms
        .keys()
        .find(|other| other.name == key.name)
        .cloned()
        .or_else(|| {
            let there = vms.keys().filter(|other| other.namespace == key.namespace);
            let name = nearest(key.name.as_str(), there.map(|other| other.name.as_str()))?;
            Some(VmKey {
                namespace: key.namespace.clone(),
                name: name.parse().ok()?,
            })
        });
    let mut remedy = match near {
        Some(near) => format!("did you mean {near}?"),
        None => "/api/v1/vms lists all VMs".to_owned(),
    };
    if request.snapshot.partial {
        remedy.push_str(" The inventory is incomplete, so the VM may exist: see /api/v1/findings");
    }
    ApiError::not_found(format!("there is no VM {key}"), remedy)
}
