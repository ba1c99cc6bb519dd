//! Converts Kubernetes objects into facts.

use std::{collections::BTreeSet, sync::Arc};

use virtfleet_collector_core::{
    facts::{InfraNode, Operator, Requirement, Selector, UserCluster, UserNode, Vm, Vmi, VmiMove},
    labels::owned::ANNOTATION,
    namespace::InfraNamespace,
    node_conditions::NodeConditionKind,
};
use virtfleet_runtime::tls::ClientAuthorities;
use virtfleet_wire::ids::{ClusterName, VmKey};

use crate::bounded::bounded;

use super::{
    capacity,
    field::{Field, Problem},
    os,
    owner::{controller, text},
    scheduling, status,
    vmi_spec::vmi_spec,
    volumes::{self, claim_volumes},
};

fn vm_key(object: &Field<'_>) -> Result<VmKey, Problem> {
    Ok(VmKey {
        namespace: object.at("metadata.namespace")?.required()?,
        name: object.at("metadata.name")?.required()?,
    })
}

/// A `VirtualMachineInstance`.
pub(in crate::inventory) fn vmi(object: &Field<'_>) -> Result<Vmi, Problem> {
    let metadata = object.get("metadata")?;
    let state = object.get("status")?;
    let (phase, other_phase) = status::phase(&state)?;
    let owner = controller(&metadata, "VirtualMachine").and_then(|owner| text(&owner, "uid"));
    Ok(Vmi {
        key: vm_key(object)?,
        uid: metadata.get("uid")?.parsed()?,
        owner: owner.and_then(|uid| uid.parse().ok()),
        created_ms: status::time_ms(&metadata.get("creationTimestamp")?)?,
        labels: metadata.get("labels")?.labels()?,
        firmware_uuid: object.at("spec.domain.firmware.uuid")?.parsed()?,
        hostname: object.at("spec.hostname")?.text()?.map(str::to_owned),
        has_status: state.is_there(),
        phase,
        other_phase,
        node: state.get("nodeName")?.parsed()?,
        interfaces: status::interfaces(&state)?,
        guest_os: state.at("guestOSInfo.prettyName")?.text()?.map(str::to_owned),
        exclusion: os::exclusion_of_vmi(&metadata, &state)?,
        paused: status::condition(&state, "Paused")? == Some(true),
        migration: status::migration(&state)?,
        deleting: metadata.get("deletionTimestamp")?.is_there(),
        deleted_ms: status::time_ms(&metadata.get("deletionTimestamp")?)?,
        conditions: status::conditions(&state, |_, _| true)?,
        evacuation_node: state.get("evacuationNodeName")?.parsed()?,
        running_since_ms: status::running_since_ms(&state)?,
        spec: vmi_spec(object).map(Arc::new),
        scheduling: Arc::new(scheduling::scheduling(&object.get("spec")?)),
        volumes: claim_volumes(object, "spec.volumes"),
        plugging: volumes::plugging(object),
    })
}

/// A `VirtualMachine`. The labels of its template override its own.
pub(in crate::inventory) fn vm(object: &Field<'_>) -> Result<Vm, Problem> {
    let mut labels = object.at("metadata.labels")?.labels()?;
    labels.extend(object.at("spec.template.metadata.labels")?.labels()?);
    Ok(Vm {
        key: vm_key(object)?,
        uid: object.at("metadata.uid")?.parsed()?,
        created_ms: status::time_ms(&object.at("metadata.creationTimestamp")?)?,
        labels,
        firmware_uuid: object
            .at("spec.template.spec.domain.firmware.uuid")?
            .text()?
            .and_then(|text| text.parse().ok()),
        exclusion: os::exclusion_of_vm(object)?,
        printable_status: object.at("status.printableStatus")?.text()?.map(str::to_owned),
        not_ready_since_ms: status::not_ready_since_ms(&object.get("status")?)?,
        conditions: status::conditions(&object.get("status")?, |_, _| true)?,
        run_strategy: volumes::run_strategy(object),
        volumes: claim_volumes(object, "spec.template.spec.volumes"),
    })
}

pub(in crate::inventory) fn namespace(object: &Field<'_>) -> Result<InfraNamespace, Problem> {
    Ok(InfraNamespace {
        name: object.at("metadata.name")?.required()?,
        is_ignored: os::is_ignored(&object.get("metadata")?)?,
    })
}

pub(in crate::inventory) fn infra_node(object: &Field<'_>) -> Result<InfraNode, Problem> {
    let state = object.get("status")?;
    Ok(InfraNode {
        name: object.at("metadata.name")?.required()?,
        uid: object.at("metadata.uid")?.parsed()?,
        labels: object.at("metadata.labels")?.labels()?,
        ready: status::condition(&state, "Ready")?,
        conditions: status::node_conditions(&state)?,
        // A manifest has no heartbeats; the reader of a live cluster sets it.
        reported_ms: None,
        unschedulable: object.at("spec.unschedulable")?.flag()?,
        taints: capacity::taints(object)?,
        allocatable: capacity::allocatable(&state)?,
    })
}

pub(in crate::inventory) fn user_node(
    object: &Field<'_>,
    cluster: &ClusterName,
) -> Result<UserNode, Problem> {
    Ok(UserNode {
        cluster: cluster.clone(),
        name: object.at("metadata.name")?.required()?,
        uid: object.at("metadata.uid")?.parsed()?,
        created_ms: status::time_ms(&object.at("metadata.creationTimestamp")?)?,
        labels: object.at("metadata.labels")?.labels()?,
        provider_id: object.at("spec.providerID")?.text()?.map(str::to_owned),
        // Machines without DMI have an arbitrary or no text there.
        system_uuid: object
            .at("status.nodeInfo.systemUUID")?
            .text()?
            .and_then(|text| text.parse().ok()),
        ready: status::condition(&object.get("status")?, "Ready")?,
        conditions: status::node_conditions(&object.get("status")?)?,
        unschedulable: object.at("spec.unschedulable")?.flag()?,
        taints: capacity::taints(object)?.into(),
        // As the version.
        reported_ms: None,
        owned: owned(object)?,
        kubelet_labels: kubelet_labels(object)?,
        // A manifest's value is outdated; the reader of a live cluster sets the present one.
        resource_version: None,
    })
}

/// The ownership annotation. Other annotations are not read, so that no message contains one: some
/// hold secrets (`kubevirt.io/ignitiondata`).
fn owned(object: &Field<'_>) -> Result<Option<String>, Problem> {
    let field = object.at("metadata.annotations")?.get(ANNOTATION)?;
    let text = field.text()?.unwrap_or_default();
    Ok(field.is_there().then(|| text.to_owned()))
}

/// Keys of labels that the Node's kubelet wrote last: `f:metadata.f:labels.f:<key>` of its entries
/// in `managedFields`. A write of another value by another manager removes the key from them.
fn kubelet_labels(object: &Field<'_>) -> Result<BTreeSet<String>, Problem> {
    let mut found = BTreeSet::new();
    for entry in object.at("metadata.managedFields")?.items()? {
        if entry.get("manager")?.text()? == Some("kubelet") {
            let labels = entry.get("fieldsV1")?.get("f:metadata")?.get("f:labels")?;
            let keys = labels.keys()?.into_iter();
            found.extend(keys.filter_map(|key| key.strip_prefix("f:").map(str::to_owned)));
        }
    }
    Ok(found)
}

/// Maximum characters kept of the phase of a migration.
const MAX_PHASE_CHARS: usize = 64;

/// A `VirtualMachineInstanceMigration`.
pub(in crate::inventory) fn vmi_move(object: &Field<'_>) -> Result<VmiMove, Problem> {
    let state = object.get("status")?;
    let phase = state.get("phase")?.text()?;
    Ok(VmiMove {
        name: object.at("metadata.name")?.required_text()?.to_owned(),
        uid: object.at("metadata.uid")?.parsed()?,
        vm: VmKey {
            namespace: object.at("metadata.namespace")?.required()?,
            name: object.at("spec.vmiName")?.required()?,
        },
        source: object.at("status.migrationState.sourceNode")?.parsed()?,
        phase: phase.map(|phase| bounded(phase, MAX_PHASE_CHARS).into()),
        created_ms: status::time_ms(&object.at("metadata.creationTimestamp")?)?,
        state: status::migration(&state)?.map(Box::new),
    })
}

/// A `UserCluster`. In a folder its name must equal the name of its folder.
pub(in crate::inventory) fn user_cluster(
    object: &Field<'_>,
    folder: Option<&ClusterName>,
) -> Result<UserCluster, Problem> {
    let named = object.at("metadata.name")?;
    let name: ClusterName = named.required()?;
    if let Some(folder) = folder.filter(|folder| **folder != name) {
        return Err(named.problem(format_args!(
            "{name:?} is in clusters/{folder}/; name and folder must be equal",
            name = name.as_str()
        )));
    }
    let relay = object.at("spec.relay")?;
    // A misspelled key would dial the VMs of a tenant directly.
    relay.only(&["address"])?;
    let address = relay.get("address")?;
    let authorities = object.at("spec.nodeAuthorities")?;
    let node_authorities = authorities.text()?;
    if let Some(pem) = node_authorities {
        check_node_authorities(pem).map_err(|reason| authorities.problem(reason))?;
    }
    Ok(UserCluster {
        name,
        namespace: object.at("spec.vmis.namespace")?.required()?,
        selector: selector(&object.at("spec.vmis.selector")?)?,
        labels: object.at("metadata.labels")?.labels()?,
        suspend: object.at("spec.suspend")?.flag()? || object.at("metadata.deletionTimestamp")?.is_there(),
        relay: if relay.is_there() {
            Some(address.required()?)
        } else {
            None
        },
        node_authorities: node_authorities.map(Into::into),
        node_conditions: node_conditions(&object.at("spec.nodeConditions")?)?,
    })
}

/// `spec.nodeConditions`; an unknown name is an error, because the admin relies on the condition.
fn node_conditions(field: &Field<'_>) -> Result<BTreeSet<NodeConditionKind>, Problem> {
    let mut found = BTreeSet::new();
    for item in field.items()? {
        let name = item.required_text()?;
        let kind = NodeConditionKind::of(name).ok_or_else(|| {
            let known = NodeConditionKind::ALL.map(NodeConditionKind::as_str);
            item.problem(format_args!("{name:?} is not one of {}", known.join(", ")))
        })?;
        found.insert(kind);
    }
    Ok(found)
}

/// Maximum size of `spec.nodeAuthorities`, in bytes.
const MAX_NODE_AUTHORITIES: usize = 64 * 1024;

fn check_node_authorities(pem: &str) -> Result<(), String> {
    if pem.len() > MAX_NODE_AUTHORITIES {
        return Err(format!(
            "the authorities have {} bytes, at most {MAX_NODE_AUTHORITIES}",
            pem.len()
        ));
    }
    let authorities = ClientAuthorities::from_pem(pem.as_bytes());
    authorities
        .map(drop)
        .map_err(|error| format!("the PEM text {error}"))
}

/// A label selector; unknown keys are errors.
pub(super) fn selector(field: &Field<'_>) -> Result<Selector, Problem> {
    // A misspelled key would select every VMI of the namespace, also those of other tenants.
    field.only(&["matchLabels", "matchExpressions"])?;
    let expressions = field.get("matchExpressions")?.items()?;
    Ok(Selector {
        match_labels: field.get("matchLabels")?.labels()?,
        match_expressions: expressions.iter().map(requirement).collect::<Result<_, _>>()?,
    })
}

fn requirement(field: &Field<'_>) -> Result<Requirement, Problem> {
    field.only(&["key", "operator", "values"])?;
    let named = field.get("operator")?;
    let operator = match named.required_text()? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(named.problem(format_args!(
                "{other:?} is not one of In, NotIn, Exists, DoesNotExist"
            )));
        }
    };
    let listed = field.get("values")?;
    let texts = listed.items()?;
    let values = texts
        .iter()
        .map(|value| Ok(value.text()?.unwrap_or_default().to_owned()));
    let values = values.collect::<Result<Vec<_>, Problem>>()?;
    match (operator, values.is_empty()) {
        (Operator::In | Operator::NotIn, true) => Err(listed.problem("In and NotIn need at least one value")),
        (Operator::Exists | Operator::DoesNotExist, false) => {
            Err(listed.problem("Exists and DoesNotExist must have no values"))
        }
        _ => Ok(Requirement {
            key: field.get("key")?.required_text()?.to_owned(),
            operator,
            values,
        }),
    }
}
