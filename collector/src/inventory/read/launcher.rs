//! Converts a virt-launcher pod into a fact. Reads only metadata, `spec.nodeName`,
//! requests of containers, and `status`.
//!
//! Everyone who may create pods in a tenant's namespace may set the label. So only an invalid name
//! is an error; a pod without usable fields becomes a fact without effect.

use virtfleet_collector_core::facts::LauncherPod;

use super::{
    capacity,
    field::{Field, Problem},
    owner::{controller, text},
    status::time_ms,
};

/// The label of virt-launcher pods, and its value.
const LAUNCHER_LABEL: (&str, &str) = ("kubevirt.io", "virt-launcher");

/// Whether a pod has the label of virt-launcher pods.
pub(in crate::inventory) fn is_launcher(object: &Field<'_>) -> bool {
    let labels = object.at("metadata.labels").and_then(|labels| labels.labels());
    labels.is_ok_and(|labels| labels.get(LAUNCHER_LABEL.0) == Some(LAUNCHER_LABEL.1))
}

/// A `Pod` that has the label.
pub(in crate::inventory) fn launcher_pod(object: &Field<'_>) -> Result<LauncherPod, Problem> {
    let metadata = object.get("metadata")?;
    // virt-controller sets the owner and adopts no other pods.
    let owner = controller(&metadata, "VirtualMachineInstance");
    let of_owner = |field: &str| text(owner.as_ref()?, field);
    let status = object.get("status")?;
    let listed = status
        .get("podIPs")
        .and_then(|list| list.items())
        .unwrap_or_default();
    let listed = listed.iter().filter_map(|item| text(item, "ip"));
    let first = text(&status, "podIP");
    let mut addresses = Vec::new();
    for address in first
        .into_iter()
        .chain(listed)
        .filter_map(|text| text.parse().ok())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(LauncherPod {
        namespace: metadata.get("namespace")?.required()?,
        name: metadata.get("name")?.required_text()?.to_owned(),
        vm: of_owner("name").and_then(|name| name.parse().ok()),
        vmi_uid: of_owner("uid").and_then(|uid| uid.parse().ok()),
        node: object
            .get("spec")
            .ok()
            .and_then(|spec| text(&spec, "nodeName"))
            .and_then(|node| node.parse().ok()),
        running: text(&status, "phase").as_deref() == Some("Running"),
        created: text(&metadata, "creationTimestamp").unwrap_or_default(),
        started_ms: status
            .get("startTime")
            .and_then(|time| time_ms(&time))
            .ok()
            .flatten(),
        addresses,
        requests: capacity::pod_requests(object),
    })
}
