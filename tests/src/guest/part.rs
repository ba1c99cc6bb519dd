//! Devices of a VM, each with its backend.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    accel::Accel,
    disk::{Bus, Content, Disk, Known},
    vm::{Network, Nic, Vm},
};

/// A device with its backend, as QMP objects, which `-blockdev`, `-netdev` and `-device` accept
/// too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The device's id.
    pub(super) id: String,
    /// Block nodes, lowest first.
    pub(super) nodes: Vec<Value>,
    /// The network backend.
    pub(super) network: Option<Value>,
    /// The device.
    pub(super) device: Value,
    /// The spare PCIe port that it occupies.
    pub(super) port: Option<u32>,
}

impl Part {
    /// Command-line arguments, for a machine that starts with it.
    pub(super) fn arguments(&self) -> Vec<String> {
        let nodes = self
            .nodes
            .iter()
            .flat_map(|node| ["-blockdev".to_owned(), node.to_string()]);
        let network = self
            .network
            .iter()
            .flat_map(|network| ["-netdev".to_owned(), network.to_string()]);
        let device = ["-device".to_owned(), self.device.to_string()];
        nodes.chain(network).chain(device).collect()
    }
}

/// The id of a disk's device: libvirt's user alias.
pub(super) fn disk_id(name: &str) -> String {
    format!("ua-{name}")
}

/// The block node of a disk's device without injected faults.
pub(super) fn node_id(name: &str) -> String {
    format!("disk-{name}")
}

/// The id of a spare port.
pub(super) fn spare(port: u32) -> String {
    format!("spare{port}")
}

/// A disk with its content in `file` (raw).
pub(super) fn disk(vm: &Vm, disk: &Disk, file: &Path, port: u32) -> Part {
    let (id, node) = (disk_id(&disk.name), node_id(&disk.name));
    let shared = matches!(disk.content, Content::Shared(_));
    let nodes = vec![
        json!({"driver": "file", "node-name": format!("{node}-file"), "filename": file, "read-only": disk.read_only,
               "cache": {"direct": shared, "no-flush": !shared}, "discard": "unmap"}),
        json!({"driver": "raw", "node-name": node, "file": format!("{node}-file"), "read-only": disk.read_only,
               "discard": "unmap"}),
    ];
    let mut device = json!({"id": id, "drive": node});
    if shared {
        device["share-rw"] = json!(true);
    }
    match disk.bus {
        Bus::Virtio => {
            device["driver"] = json!("virtio-blk-pci");
            device["bus"] = json!(spare(port));
            device["num-queues"] = json!(vm.cpus);
        }
        Bus::Scsi => {
            device["driver"] = json!("scsi-hd");
            device["bus"] = json!("scsi0.0");
        }
    }
    match (&disk.known, disk.bus) {
        (Known::Serial(serial), Bus::Virtio) => device["serial"] = json!(serial),
        (Known::Serial(serial), Bus::Scsi) => {
            device["serial"] = json!(serial);
            device["device_id"] = json!(serial);
        }
        // As libvirt writes for a SCSI disk without a serial.
        (Known::Alias, Bus::Scsi) => device["device_id"] = json!(format!("drive-{id}")),
        (Known::Alias, Bus::Virtio) | (Known::Nothing, _) => {}
    }
    Part {
        id,
        nodes,
        network: None,
        device,
        port: (disk.bus == Bus::Virtio).then_some(port),
    }
}

/// The guest's `index`-th NIC, at the PCIe port `bus`.
pub(super) fn nic(vm: &Vm, index: usize, nic: &Nic, tap: Option<&String>, bus: &str) -> Part {
    let backend = format!("net{index}");
    let mut device = json!({"driver": "virtio-net-pci", "id": format!("nic{index}"), "netdev": backend, "mac": nic.mac,
                            "bus": bus});
    if nic.queues > 1 {
        device["mq"] = json!(true);
        // One vector for each queue of a pair, one for the configuration, one for the control
        // queue.
        device["vectors"] = json!(2 * nic.queues + 2);
    }
    let network = match (vm.network, tap) {
        (Network::Tap, Some(tap)) => {
            json!({"type": "tap", "id": backend, "ifname": tap, "script": "no", "downscript": "no", "vhost": false,
                   "queues": nic.queues})
        }
        _ => user(vm, index, &backend),
    };
    Part {
        id: format!("nic{index}"),
        nodes: Vec::new(),
        network: Some(network),
        device,
        port: None,
    }
}

/// A NIC at a spare port.
pub(super) fn spare_nic(vm: &Vm, index: usize, wanted: &Nic, tap: Option<&String>, port: u32) -> Part {
    Part {
        port: Some(port),
        ..nic(vm, index, wanted, tap, &spare(port))
    }
}

fn user(vm: &Vm, index: usize, backend: &str) -> Value {
    let texts =
        |texts: Vec<String>| -> Value { texts.into_iter().map(|text| json!({"str": text})).collect() };
    let mut network = json!({"type": "user", "id": backend, "restrict": vm.network == Network::Restricted,
                             "net": format!("10.0.{}.0/24", index + 2)});
    if index == 0 {
        let forwards = vm.forwards.iter();
        network["hostfwd"] = texts(
            forwards
                .map(|(from, to)| format!("tcp:{}:{}-:{to}", from.ip(), from.port()))
                .collect(),
        );
        let mirrors = vm.mirrors.iter();
        network["guestfwd"] = texts(
            mirrors
                .map(|(port, to)| format!("tcp:10.0.2.100:{port}-cmd:socat STDIO TCP:{to}"))
                .collect(),
        );
    }
    network
}

/// An additional vCPU in the `socket`-th socket.
pub(super) fn cpu(accel: Accel, socket: u32) -> Part {
    let id = format!("cpu{socket}");
    let driver = format!("{}-x86_64-cpu", accel.cpu());
    Part {
        device: json!({"driver": driver, "id": id, "socket-id": socket, "core-id": 0, "thread-id": 0}),
        id,
        nodes: Vec::new(),
        network: None,
        port: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::MIB;

    #[test]
    fn disks_are_known_as_libvirt_makes_them_known() {
        let vm = Vm::new("one");
        let device = |wanted: Disk| disk(&vm, &wanted, Path::new("/d"), 3).device;
        let blk = device(Disk::blank("data", MIB).serial("abc"));
        assert_eq!(
            (&blk["serial"], &blk["bus"], &blk["id"]),
            (&json!("abc"), &json!("spare3"), &json!("ua-data"))
        );
        let alias = device(Disk::blank("data", MIB).scsi());
        assert_eq!(alias["device_id"], json!("drive-ua-data"));
        let nothing = device(Disk::blank("data", MIB).scsi().unknown());
        assert_eq!(
            (&nothing["device_id"], &nothing["serial"]),
            (&Value::Null, &Value::Null)
        );
    }
}
