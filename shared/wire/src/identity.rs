//! Who a guest says it is, each field with the place where it was read, and what it believes of its
//! topology.
//!
//! None of this decides anything: the collector knows a VM by the address it dialled and by the
//! certificate, and uses these words to confirm, or to find that two of them disagree.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::MacAddr;

/// A value with its provenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sourced<T> {
    /// What was read.
    pub value: T,
    /// Where: a path under the guest's root (`/sys/class/dmi/id/product_uuid`), `state:<file>`, a
    /// system call's name.
    pub source: String,
}

impl<T> Sourced<T> {
    /// A value read at `source`.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self {
            value,
            source: source.into(),
        }
    }
}

/// A field of [`Identity`] that could not be had, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The field's name as in the report, e.g. `smbiosUuid`.
    pub field: String,
    /// Where it was looked for and what came back, e.g. `/sys/class/dmi/id/product_uuid: permission
    /// denied`.
    pub reason: String,
}

/// One network interface as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Kernel name, e.g. `eth0`.
    pub name: String,
    /// Hardware address; none for interfaces that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Addresses with prefix length, e.g. `10.0.2.15/24`; link-local ones too.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Whether it stands for a device of the VM (PCI or another bus) and not for a bridge, tunnel
    /// or veth.
    #[serde(default)]
    pub physical: bool,
}

/// Who the guest says it is. Absent fields are listed in `missing` with the reason.
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
    /// Chassis asset tag, which the VMI's author may set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset_tag: Option<Sourced<String>>,
    /// Instance id of cloud-init's data source (NoCloud: the firmware UUID; ConfigDrive:
    /// `name.namespace`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<Sourced<String>>,
    /// Host name that the data source asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_hostname: Option<Sourced<String>>,
    /// Instance type that the data source names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Sourced<String>>,
    /// cloud-init's data source, e.g. `nocloud`, `configdrive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_platform: Option<Sourced<String>>,
    /// `/etc/machine-id`, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<Sourced<String>>,
    /// Host name as the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Sourced<String>>,
    /// Interfaces, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Sourced<Vec<Interface>>>,
    /// What could not be had, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// Topology as the guest believes it, for the collector to compare with the placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// Labels that kubelet was told to set on its Node (`--node-labels`), by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kubelet_labels: BTreeMap<String, Sourced<String>>,
    /// The name under which kubelet registers (`--hostname-override`), when it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_node_name: Option<Sourced<String>>,
    /// kubelet's `--provider-id`, when it is set, e.g. `kubevirt://worker-0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<Sourced<String>>,
    /// The infra node's name from KubeVirt's downwardMetrics (`HostName`); it follows a live
    /// migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra_node: Option<Sourced<String>>,
    /// `namespace/name`, when the chassis asset tag has that form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<Sourced<String>>,
}
