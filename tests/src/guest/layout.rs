//! Converts a [`Vm`] to QEMU's arguments. Pure: [`Places`] contains all paths.
//!
//! The machine without its secondary disks is fixed. Each secondary disk is a
//! [part](super::part::Part) on a spare PCIe port, attached at the start or while the guest runs.
//! So all VMs of a shape share a snapshot, and a restored guest gets its disks by hot-plug.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    accel::Accel,
    part::{disk_id, nic, node_id, spare},
    places::Places,
    tpm,
    vm::{MIB, Vm},
};

/// Arguments of the machine without its secondary disks.
pub(super) fn machine(vm: &Vm, places: &Places, accel: Accel) -> Vec<String> {
    let mut line = Line(Vec::new(), 0);
    line.add("-name", &vm.name);
    // The chipset's SATA ports are unused, and the guest's kernel takes seconds to probe them.
    line.add("-machine", "q35,sata=off");
    line.add("-accel", accel.option());
    line.add("-cpu", format!("{}{}", accel.cpu(), accel.cpu_features()));
    line.add(
        "-smp",
        format!(
            "cpus={},sockets={most},cores=1,threads=1,maxcpus={most}",
            vm.cpus,
            most = vm.max_cpus
        ),
    );
    let room = if vm.max_memory > vm.memory {
        format!(",slots=4,maxmem={}M", vm.max_memory / MIB)
    } else {
        String::new()
    };
    line.add("-m", format!("size={}M{room}", vm.memory / MIB));
    for switch in ["-nodefaults", "-no-user-config"] {
        line.0.push(switch.to_owned());
    }
    line.add("-display", "none");
    line.add("-rtc", "base=utc");
    line.add("-pidfile", places.file("qemu.pid").to_string_lossy());
    line.smbios(vm);
    for (index, (name, _)) in vm.firmware.iter().enumerate() {
        let file = places.file(&format!("fw{index}"));
        line.add(
            "-fw_cfg",
            format!("name={},file={}", comma(name), comma(&file.to_string_lossy())),
        );
    }
    line.kernel(vm, places, accel);
    line.serials(places);
    line.disks(vm, places);
    for (index, wanted) in vm.nics.iter().enumerate() {
        let port = line.root_port(None);
        let device = nic(vm, index, wanted, places.taps.get(index), &port);
        line.0.extend(device.arguments());
    }
    line.rest(vm, places);
    for port in 0..vm.spare_ports {
        line.root_port(Some(spare(port)));
    }
    line.0
}

/// Doubles commas, because a single comma ends a value in QEMU's options.
fn comma(text: &str) -> String {
    text.replace(',', ",,")
}

/// The arguments so far, and the number of PCIe ports in them.
struct Line(Vec<String>, u32);

impl Line {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }

    fn device(&mut self, device: Value) {
        self.add("-device", device.to_string());
    }

    fn root_port(&mut self, id: Option<String>) -> String {
        self.1 += 1;
        let id = id.unwrap_or_else(|| format!("port{}", self.1));
        self.device(
            json!({"driver": "pcie-root-port", "id": id, "bus": "pcie.0", "chassis": self.1, "slot": self.1}),
        );
        id
    }

    fn socket(&mut self, id: &str, path: &Path, log: Option<&Path>) {
        let log = log.map_or_else(String::new, |log| {
            format!(",logfile={},logappend=on", comma(&log.to_string_lossy()))
        });
        let path = comma(&path.to_string_lossy());
        self.add(
            "-chardev",
            format!("socket,id={id},path={path},server=on,wait=off{log}"),
        );
    }

    /// SMBIOS values as KubeVirt's converter writes them: its own name, no product, the VMI's
    /// firmware and chassis.
    fn smbios(&mut self, vm: &Vm) {
        self.add("-uuid", &vm.uuid);
        let optional = |key: &str, value: &Option<String>| {
            value
                .as_ref()
                .map_or_else(String::new, |value| format!(",{key}={}", comma(value)))
        };
        self.add(
            "-smbios",
            format!(
                "type=1,manufacturer=KubeVirt,product=None,family=KubeVirt,uuid={}{}",
                vm.uuid,
                optional("serial", &vm.serial)
            ),
        );
        if vm.chassis_asset.is_some() || vm.chassis_sku.is_some() {
            self.add(
                "-smbios",
                format!(
                    "type=3,manufacturer=KubeVirt{}{}",
                    optional("asset", &vm.chassis_asset),
                    optional("sku", &vm.chassis_sku)
                ),
            );
        }
    }

    fn kernel(&mut self, vm: &Vm, places: &Places, accel: Accel) {
        self.add("-kernel", places.image.join("vmlinuz").to_string_lossy());
        self.add("-initrd", places.image.join("initrd.cpio").to_string_lossy());
        let mut words = vec![
            "console=ttyS0",
            "root=/dev/vda",
            "rw",
            "quiet",
            "nokaslr",
            "mitigations=off",
            "audit=0",
        ];
        words.extend(accel.kernel());
        words.extend(vm.kernel.iter().map(String::as_str));
        self.add("-append", words.join(" "));
    }

    /// ttyS0 is the console; ttyS1 is used to hold the guest before cloud-init.
    fn serials(&mut self, places: &Places) {
        self.socket(
            "console",
            &places.file("console.sock"),
            Some(&places.file("console.log")),
        );
        self.add("-serial", "chardev:console");
        self.socket("hold", &places.file("hold.sock"), None);
        self.add("-serial", "chardev:hold");
        let qmp = comma(&places.file("qmp.sock").to_string_lossy());
        self.add("-qmp", format!("unix:{qmp},server=on,wait=off"));
    }

    fn disks(&mut self, vm: &Vm, places: &Places) {
        let cache = json!({"direct": false, "no-flush": true});
        let node = json!({"driver": "qcow2", "node-name": node_id("root"), "discard": "unmap", "cache": cache,
                          "file": {"driver": "file", "filename": places.root, "cache": cache}});
        self.add("-blockdev", node.to_string());
        let port = self.root_port(None);
        self.device(
            json!({"driver": "virtio-blk-pci", "id": disk_id("root"), "drive": node_id("root"), "bus": port,
                           "num-queues": vm.cpus}),
        );
        if vm.seed.is_some() {
            let node = json!({"driver": "raw", "node-name": node_id("seed"), "read-only": true,
                              "file": {"driver": "file", "filename": places.seed, "read-only": true}});
            self.add("-blockdev", node.to_string());
            let port = self.root_port(None);
            self.device(
                json!({"driver": "virtio-blk-pci", "id": disk_id("seed"), "drive": node_id("seed"),
                               "bus": port, "num-queues": vm.cpus}),
            );
        }
        let port = self.root_port(None);
        self.device(json!({"driver": "virtio-scsi-pci", "id": "scsi0", "bus": port}));
    }

    fn rest(&mut self, vm: &Vm, places: &Places) {
        if vm.balloon {
            let port = self.root_port(None);
            self.device(
                json!({"driver": "virtio-balloon-pci", "id": "balloon0", "bus": port,
                               "free-page-reporting": true}),
            );
        }
        let port = self.root_port(None);
        self.device(json!({"driver": "virtio-serial-pci", "id": "serial0", "bus": port}));
        self.socket("agent", &places.file("agent.sock"), None);
        self.device(
            json!({"driver": "virtserialport", "bus": "serial0.0", "nr": 1, "chardev": "agent",
                           "id": "channel0", "name": "org.qemu.guest_agent.0"}),
        );
        for (index, port) in vm.ports.iter().enumerate() {
            let id = format!("channel{}", index + 1);
            self.socket(
                &format!("to-{id}"),
                &places.file(&format!("port{index}.sock")),
                None,
            );
            self.device(
                json!({"driver": "virtserialport", "bus": "serial0.0", "nr": index + 2,
                               "chardev": format!("to-{id}"), "id": id, "name": port.name}),
            );
        }
        let port = self.root_port(None);
        self.device(json!({"driver": "virtio-rng-pci", "id": "rng0", "bus": port}));
        if let Some(cid) = vm.vsock {
            let port = self.root_port(None);
            self.device(json!({"driver": "vhost-vsock-pci", "id": "vsock0", "bus": port, "guest-cid": cid}));
        }
        if vm.tpm {
            let path = comma(&places.file(tpm::SOCKET).to_string_lossy());
            self.add("-chardev", format!("socket,id=tpm,path={path}"));
            self.add("-tpmdev", "emulator,id=tpm0,chardev=tpm");
            // The model that KubeVirt uses for a persistent TPM.
            self.device(json!({"driver": "tpm-crb", "id": "tpm-crb0", "tpmdev": "tpm0"}));
        }
    }
}

/// The values that VMs must have in common to share a snapshot: everything on which the guest's
/// memory and devices depend. Names, paths, secondary disks, forwards and mirrors are not included;
/// the caller adds the kind of snapshot and the seed's text.
pub(super) fn shape(vm: &Vm, accel: Accel) -> String {
    let mut plain = vm.clone();
    "vm".clone_into(&mut plain.name);
    plain.disks.clear();
    plain.forwards.clear();
    plain.mirrors.clear();
    let places = Places {
        image: "/image".into(),
        folder: "/run".into(),
        root: "/root".into(),
        seed: "/seed".into(),
        taps: plain.nics.iter().map(|_| "tap".to_owned()).collect(),
    };
    let firmware = plain
        .firmware
        .iter()
        .map(|(name, text)| format!("{name}: {text}"));
    let network = format!("{:?}", plain.network);
    machine(&plain, &places, accel)
        .into_iter()
        .chain(firmware)
        .chain([network])
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{Disk, Network};

    fn places() -> Places {
        Places {
            image: "/i".into(),
            folder: "/f,g".into(),
            root: "/r".into(),
            seed: "/s".into(),
            taps: vec!["tap0".to_owned()],
        }
    }
    fn line(vm: &Vm) -> String {
        machine(vm, &places(), Accel::Tcg).join(" ")
    }

    #[test]
    fn a_vm_is_laid_out_as_kubevirts() {
        let vm = Vm::new("one")
            .serial("s,1")
            .chassis("rack 4", "u1")
            .firmware("opt/x", "y");
        let line = line(&vm);
        for part in [
            "-smbios type=1,manufacturer=KubeVirt,product=None,family=KubeVirt,uuid=6f1d5c5e-3f0e-5c6a-9a56-5716e7f1ee70,\
             serial=s,,1",
            "-smbios type=3,manufacturer=KubeVirt,asset=rack 4,sku=u1",
            "-smp cpus=2,sockets=4,cores=1,threads=1,maxcpus=4",
            "-m size=1024M,slots=4,maxmem=4096M",
            "-fw_cfg name=opt/x,file=/f,,g/fw0",
            "\"name\":\"org.qemu.guest_agent.0\"",
            "\"restrict\":true",
        ] {
            assert!(line.contains(part), "{part}\nis not in\n{line}");
        }
        assert_eq!(line.matches("\"id\":\"spare").count(), 8);
    }

    #[test]
    fn networks_let_nothing_out() {
        let from = "127.9.0.1:9100".parse().unwrap();
        let vm = Vm::new("one")
            .forward(from, 9100)
            .mirror(80, "127.0.0.1:8080".parse().unwrap());
        let restricted = line(&vm);
        assert!(restricted.contains("tcp:127.9.0.1:9100-:9100"), "{restricted}");
        assert!(restricted.contains("tcp:10.0.2.100:80-cmd:socat STDIO TCP:127.0.0.1:8080"));
        let tap = line(&Vm::new("one").network(Network::Tap).nic_queues(2));
        assert!(
            tap.contains("\"ifname\":\"tap0\"") && tap.contains("\"vectors\":6"),
            "{tap}"
        );
    }

    #[test]
    fn only_what_the_guest_can_tell_is_in_the_shape() {
        let base = shape(&Vm::new("one"), Accel::Tcg);
        let from = "127.9.0.1:9100".parse().unwrap();
        let same = Vm::new("two").disk(Disk::blank("d", MIB)).forward(from, 1);
        assert_eq!(base, shape(&same, Accel::Tcg));
        for other in [
            Vm::new("one").uuid("0"),
            Vm::new("one").cpus(1, 4),
            Vm::new("one").nic(1),
            Vm::new("one").kernel("debug"),
            Vm::new("one").tpm(),
            Vm::new("one").network(Network::Enclosed),
            Vm::new("one").firmware("opt/x", "y"),
        ] {
            assert_ne!(base, shape(&other, Accel::Tcg));
        }
        assert_ne!(base, shape(&Vm::new("one"), Accel::Kvm));
    }
}
