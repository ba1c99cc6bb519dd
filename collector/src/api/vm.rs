//! `GET /api/v1/vms/{namespace}/{name}`.

use virtfleet_wire::ids::{InvalidId, VmKey};

use super::{error::ApiError, query::nearest, reply::Reply, router::Ask};

pub(super) fn detail(ask: &Ask) -> Result<Reply, ApiError> {
    let key = key(ask)?;
    match ask.api.fleet.detail(&key) {
        Some(detail) => Reply::json(&detail),
        None => Err(missing(ask, &key)),
    }
}

/// The VM that the path names.
pub(super) fn key(ask: &Ask) -> Result<VmKey, ApiError> {
    let invalid = |error: InvalidId| {
        ApiError::invalid(
            error.to_string(),
            "the path names a VM: <namespace>/<name of the VM>",
        )
    };
    Ok(VmKey {
        namespace: ask.path("namespace").parse().map_err(invalid)?,
        name: ask.path("name").parse().map_err(invalid)?,
    })
}

/// The remedy names where a VM of this name does stand, else the VM of the namespace whose name is most like it.
pub(super) fn missing(ask: &Ask, key: &VmKey) -> ApiError {
    let vms = &ask.snapshot.vms;
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
        None => "/api/v1/vms lists them all".to_owned(),
    };
    if ask.snapshot.partial {
        remedy.push_str(" The inventory is incomplete, so it may exist all the same: see /api/v1/findings");
    }
    ApiError::not_found(format!("there is no VM {key}"), remedy)
}
