//! Identity of a guest as the guest reports it, with the source of each field, and its topology as
//! configured in the guest.
//!
//! The collector makes no decision from these values. It identifies a VM by the address that it
//! dialled and by the certificate, and uses these values to confirm the identity or to detect that
//! two of them disagree.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::MacAddr;

/// A value with its provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Its source: a path under the guest's root (`/sys/class/dmi/id/product_uuid`),
    /// `state:<file>`, or the name of a system call.
    pub source: String,
}

impl<T> Sourced<T> {
    /// A value with its source.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self {
            value,
            source: source.into(),
        }
    }
}

/// A field of [`Identity`] that could not be read, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Name of the field in the report, e.g. `smbiosUuid`.
    pub field: String,
    /// Source and error, e.g. `/sys/class/dmi/id/product_uuid: permission denied`.
    pub reason: String,
}

/// A network interface of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Kernel name, e.g. `eth0`.
    pub name: String,
    /// Hardware address. Absent if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Addresses with prefix length, e.g. `10.0.2.15/24`, including link-local addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// True for a device of the VM (PCI or another bus); false for a bridge, tunnel or veth.
    #[serde(default)]
    pub physical: bool,
}

/// Identity of the guest as the guest reports it. `missing` lists absent fields with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// SMBIOS system UUID: the VMI's `spec.domain.firmware.uuid` (canonical form).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios_uuid: Option<Sourced<String>>,
    /// SMBIOS system serial: a random UUID that KubeVirt's mutator sets, not the VMI's UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios_serial: Option<Sourced<String>>,
    /// SMBIOS system vendor, e.g. `KubeVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Sourced<String>>,
    /// SMBIOS product name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<Sourced<String>>,
    /// Chassis asset tag; the VMI's author may set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset_tag: Option<Sourced<String>>,
    /// Instance id of cloud-init's data source (NoCloud: the firmware UUID; ConfigDrive:
    /// `name.namespace`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<Sourced<String>>,
    /// Host name in the metadata of the data source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_hostname: Option<Sourced<String>>,
    /// Instance type in the metadata of the data source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Sourced<String>>,
    /// cloud-init's data source, e.g. `nocloud`, `configdrive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_platform: Option<Sourced<String>>,
    /// `/etc/machine-id`, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<Sourced<String>>,
    /// Host name in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Sourced<String>>,
    /// Interfaces, sorted by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Sourced<Vec<Interface>>>,
    /// Fields that could not be read, and the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// Topology as configured in the guest. The collector compares it with the placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// Labels that kubelet sets on its Node (`--node-labels`), by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kubelet_labels: BTreeMap<String, Sourced<String>>,
    /// Name under which kubelet registers (`--hostname-override`), if it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_node_name: Option<Sourced<String>>,
    /// kubelet's `--provider-id`, if it is set, e.g. `kubevirt://worker-0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<Sourced<String>>,
    /// Name of the infra node, from KubeVirt's downwardMetrics (`HostName`). It changes with a live
    /// migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_node: Option<Sourced<String>>,
    /// `namespace/name` of the VM, if the chassis asset tag has that form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<Sourced<String>>,
}
