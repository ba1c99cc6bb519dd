//! Serials for the disks of a VirtualMachine, by the rule of the admission policy
//! `packaging/collector/kubernetes/disk-serials/policy.yaml`. A scenario compares both on an API
//! server.
//!
//! ```text
//! VirtualMachine ─ plan_serials ─▶ a decision for each disk ─ serials_patch ─▶ JSON patch
//! ```

use std::fmt;

use serde_json::{Value, json};

use crate::pending::CLUSTER_LABELS;

/// Maximum characters of a serial: what a virtio disk shows (`VIRTIO_BLK_ID_BYTES` of the virtio
/// specification).
pub const MAX_SERIAL_CHARS: usize = 20;
/// Labels of VMs that are nodes of a user cluster, of which the VM or its template has one.
pub const NODE_LABELS: [&str; 2] = ["cluster.x-k8s.io/cluster-name", "mcm.gardener.cloud/cluster"];
/// Sources of volumes that keep data.
const DATA_VOLUMES: [&str; 4] = ["dataVolume", "persistentVolumeClaim", "emptyDisk", "hostDisk"];
/// The disks of a VirtualMachine, as a JSON pointer.
const DISKS: &str = "/spec/template/spec/domain/devices/disks";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskDecision {
    /// Position in the list of disks, from 0.
    pub index: usize,
    pub disk: String,
    pub serial: SerialDecision,
}

/// What happens to the serial of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SerialDecision {
    Set(String),
    /// It has this serial, which stays.
    Has(String),
    /// It gets none.
    Skip(NoSerialReason),
}

/// Why a disk gets no serial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSerialReason {
    /// Its volume keeps no data; the kind of its source, e.g. `cloudInitNoCloud`.
    NoData(String),
    /// The VM has no volume with its name.
    NoVolume,
    CdRom,
    Lun,
    Scsi,
    /// The serial would be longer than [`MAX_SERIAL_CHARS`].
    TooLong(String),
    /// Another disk, named second, shows the same serial or would show it.
    NotUnique(String, String),
}

impl fmt::Display for NoSerialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData(kind) => write!(f, "its volume keeps no data ({kind})"),
            Self::NoVolume => f.write_str("the VM has no volume with this name"),
            Self::CdRom => f.write_str("it is a CD-ROM drive"),
            Self::Lun => f.write_str("it is a LUN, which shows the serial of its device"),
            Self::Scsi => f.write_str("a SCSI disk without serial shows its volume's name: use match.volume"),
            Self::TooLong(serial) => write!(
                f,
                "{serial} has {} characters, and a virtio disk shows {MAX_SERIAL_CHARS}: set a shorter serial in the \
                 VM's spec",
                serial.chars().count()
            ),
            Self::NotUnique(serial, other) => write!(
                f,
                "the disk {other} would show the same serial {serial}: set different serials in the VM's spec"
            ),
        }
    }
}

/// Whether the labels of a VirtualMachine or of its template mark it as a node of a user cluster.
pub fn is_cluster_node(vm: &Value) -> bool {
    let mut maps = label_maps(vm);
    maps.any(|labels| NODE_LABELS.iter().any(|label| !labels[*label].is_null()))
}

/// Whether a label of a VirtualMachine or of its template names this user cluster.
pub fn names_cluster(vm: &Value, cluster: &str) -> bool {
    let mut maps = label_maps(vm);
    maps.any(|labels| CLUSTER_LABELS.iter().any(|label| labels[*label] == cluster))
}

/// The labels of a VirtualMachine, and those of its template.
fn label_maps(vm: &Value) -> impl Iterator<Item = &Value> {
    let pointers = ["/metadata/labels", "/spec/template/metadata/labels"];
    pointers.into_iter().filter_map(|pointer| vm.pointer(pointer))
}

/// Decides for each disk of a VirtualMachine, in their order.
pub fn plan_serials(vm: &Value) -> Vec<DiskDecision> {
    let disks = disks(vm);
    let prefix = format!("{}-", text(&vm["metadata"]["name"]));
    let shown: Vec<String> = disks.iter().map(|disk| shown_serial(disk, &prefix)).collect();
    let decide = |(index, disk)| DiskDecision {
        index,
        disk: text(&disks[index]["name"]).to_owned(),
        serial: decide(vm, disk, index, &shown),
    };
    disks.iter().enumerate().map(decide).collect()
}

/// JSON patch (RFC 6902) that sets the serials of the decisions; none if there are none to set. It
/// is refused if the disks of the VirtualMachine are no longer those of `vm`.
pub fn serials_patch(vm: &Value, decisions: &[DiskDecision]) -> Option<Value> {
    let adds: Vec<Value> = decisions
        .iter()
        .filter_map(|decision| match &decision.serial {
            SerialDecision::Set(serial) => {
                let path = format!("{DISKS}/{}/serial", decision.index);
                Some(json!({ "op": "add", "path": path, "value": serial }))
            }
            SerialDecision::Has(_) | SerialDecision::Skip(_) => None,
        })
        .collect();
    if adds.is_empty() {
        return None;
    }
    // All disks, not only those of the decisions: a serial must be unique among them.
    let test = json!({ "op": "test", "path": DISKS, "value": vm.pointer(DISKS) });
    Some([test].into_iter().chain(adds).collect())
}

/// Whether two versions of a VirtualMachine have the same disks.
pub fn same_disks(one: &Value, other: &Value) -> bool {
    disks(one) == disks(other)
}

fn disks(vm: &Value) -> &[Value] {
    let disks = vm.pointer(DISKS).and_then(Value::as_array);
    disks.map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What the guest sees as the serial of a disk, or would see.
fn shown_serial(disk: &Value, prefix: &str) -> String {
    match (text(&disk["serial"]), text(&disk["name"])) {
        ("", name) => match name.strip_prefix(prefix) {
            Some(rest) if !rest.is_empty() => rest.to_owned(),
            _ => name.to_owned(),
        },
        (serial, _) => serial.chars().take(MAX_SERIAL_CHARS).collect(),
    }
}

fn decide(vm: &Value, disk: &Value, index: usize, shown: &[String]) -> SerialDecision {
    match text(&disk["serial"]) {
        "" => match skip_reason(vm, disk, index, shown) {
            Some(reason) => SerialDecision::Skip(reason),
            None => SerialDecision::Set(shown[index].clone()),
        },
        serial => SerialDecision::Has(serial.to_owned()),
    }
}

fn skip_reason(vm: &Value, disk: &Value, index: usize, shown: &[String]) -> Option<NoSerialReason> {
    let has = |key: &str| !disk[key].is_null();
    if let Some(reason) = volume_reason(vm, text(&disk["name"])) {
        return Some(reason);
    }
    if has("cdrom") {
        return Some(NoSerialReason::CdRom);
    }
    if has("lun") {
        return Some(NoSerialReason::Lun);
    }
    if disk["disk"]["bus"] == "scsi" {
        return Some(NoSerialReason::Scsi);
    }
    let serial = &shown[index];
    if serial.chars().count() > MAX_SERIAL_CHARS {
        return Some(NoSerialReason::TooLong(serial.clone()));
    }
    let other = (0..shown.len()).find(|other| *other != index && shown[*other] == *serial)?;
    let other = text(&disks(vm)[other]["name"]).to_owned();
    Some(NoSerialReason::NotUnique(serial.clone(), other))
}

/// Why the disk of that name has no volume that keeps data; `None` if it has one.
fn volume_reason(vm: &Value, name: &str) -> Option<NoSerialReason> {
    let volumes = vm
        .pointer("/spec/template/spec/volumes")
        .and_then(Value::as_array);
    let named: Vec<&Value> = volumes
        .into_iter()
        .flatten()
        .filter(|volume| volume["name"] == name)
        .collect();
    let keeps_data = |volume: &&Value| DATA_VOLUMES.iter().any(|kind| !volume[*kind].is_null());
    if named.iter().any(keeps_data) {
        return None;
    }
    let Some(volume) = named.first() else {
        return Some(NoSerialReason::NoVolume);
    };
    let mut kinds = volume.as_object().into_iter().flatten().map(|(key, _)| key);
    let kind = kinds.find(|key| *key != "name").cloned();
    Some(NoSerialReason::NoData(
        kind.unwrap_or_else(|| "no source".to_owned()),
    ))
}

#[cfg(test)]
mod tests;
