//! From a [`Vm`] to QEMU's arguments. Pure: what is where is told by [`Places`].
//!
//! The machine without its secondary disks is one thing, each disk a [`Part`] that is attached to a spare PCIe port, at the
//! start or while it runs. So all VMs of a shape share a snapshot, and a restored guest gets its disks by hot-plug.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    accel::Accel,
    disk::{Bus, Disk, Known},
    vm::{MIB, Network, Nic, Vm},
};

/// Where the files of a guest are.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Kernel and initrd.
    pub(super) image: PathBuf,
    /// Sockets, logs and texts.
    pub(super) folder: PathBuf,
    /// The root disk (qcow2).
    pub(super) root: PathBuf,
    /// The seed (raw).
    pub(super) seed: PathBuf,
    /// A tap device for each NIC, when the VM has those.
    pub(super) taps: Vec<String>,
}

impl Places {
    /// A socket or log of the guest.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A device with what is behind it, in the words of QMP, which `-blockdev`, `-netdev` and `-device` understand too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The device's id.
    pub(super) id: String,
    /// Block nodes, those below first.
    pub(super) nodes: Vec<Value>,
    /// The network backend.
    pub(super) network: Option<Value>,
    /// The device.
    pub(super) device: Value,
    /// The spare port that it takes.
    pub(super) port: Option<u32>,
}

impl Part {
    /// As arguments, for a machine that starts with it.
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

/// The block node that a disk's device has when nothing is injected.
pub(super) fn node_id(name: &str) -> String {
    format!("disk-{name}")
}

/// The id of a spare port.
fn spare(port: u32) -> String {
    format!("spare{port}")
}

/// A disk whose content lies in `file` (raw).
pub(super) fn disk(vm: &Vm, disk: &Disk, file: &Path, port: u32) -> Part {
    let (id, node) = (disk_id(&disk.name), node_id(&disk.name));
    let nodes = vec![
        json!({"driver": "file", "node-name": format!("{node}-file"), "filename": file, "read-only": disk.read_only,
               "cache": {"direct": false, "no-flush": true}, "discard": "unmap"}),
        json!({"driver": "raw", "node-name": node, "file": format!("{node}-file"), "read-only": disk.read_only,
               "discard": "unmap"}),
    ];
    let mut device = json!({"id": id, "drive": node});
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
        // What libvirt writes for a SCSI disk without a serial.
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

/// A NIC at the PCIe port `bus`; the guest's `index`-th.
pub(super) fn nic(vm: &Vm, index: usize, nic: &Nic, tap: Option<&String>, bus: &str) -> Part {
    let backend = format!("net{index}");
    let mut device = json!({"driver": "virtio-net-pci", "id": format!("nic{index}"), "netdev": backend, "mac": nic.mac,
                            "bus": bus});
    if nic.queues > 1 {
        device["mq"] = json!(true);
        // One for each queue of a pair, one for the configuration, one for the control queue.
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

/// One more vCPU in the `socket`-th socket.
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

/// The machine without its secondary disks.
pub(super) fn machine(vm: &Vm, places: &Places, accel: Accel) -> Vec<String> {
    let mut line = Line(Vec::new(), 0);
    line.add("-name", &vm.name);
    line.add("-machine", "q35");
    line.add("-accel", accel.option());
    line.add("-cpu", accel.cpu());
    line.add(
        "-smp",
        format!(
            "cpus={},sockets={most},cores=1,threads=1,maxcpus={most}",
            vm.cpus,
            most = vm.max_cpus
        ),
    );
    let mut memory = format!("size={}M", vm.memory / MIB);
    if vm.max_memory > vm.memory {
        memory += &format!(",slots=4,maxmem={}M", vm.max_memory / MIB);
    }
    line.add("-m", memory);
    for switch in ["-nodefaults", "-no-user-config"] {
        line.0.push(switch.to_owned());
    }
    line.add("-display", "none");
    line.add("-rtc", "base=utc");
    line.add("-pidfile", places.file("qemu.pid").to_string_lossy());
    line.smbios(vm);
    for (name, text) in vm
        .firmware
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (name, index))
    {
        let file = places.file(&format!("fw{text}"));
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
        let part = nic(vm, index, wanted, places.taps.get(index), &port);
        line.0.extend(part.arguments());
    }
    line.rest(vm, places);
    for port in 0..vm.spare_ports {
        line.root_port(Some(spare(port)));
    }
    line.0
}

/// A comma ends a value of QEMU's unless it is doubled.
fn comma(text: &str) -> String {
    text.replace(',', ",,")
}

/// The arguments so far, and how many PCIe ports are in them.
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

    /// What KubeVirt's converter writes: its own name, no product, the VMI's firmware and chassis.
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

    /// ttyS0 is the console, ttyS1 the line of the hold point.
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
    }
}

/// What two VMs must have in common to share a snapshot: everything that the guest's memory and devices depend on. Names,
/// paths, secondary disks, forwards and mirrors are not in it; the kind of snapshot and the seed's text are the caller's.
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
            Vm::new("one").network(Network::Enclosed),
            Vm::new("one").firmware("opt/x", "y"),
        ] {
            assert_ne!(base, shape(&other, Accel::Tcg));
        }
        assert_ne!(base, shape(&Vm::new("one"), Accel::Kvm));
    }
}
