//! VMs as KKP, Cluster API and Gardener make them, and the serials of their disks.

use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "cluster-abcdefghij";
/// By which the policy knows a node of a user cluster (KKP, Cluster API).
pub(super) const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// The field that the policy sets, in the spec of a VM.
pub(super) const DISKS: &str = "/spec/template/spec/domain/devices/disks";

/// A disk on virtio, and a volume of this kind with its name.
pub(super) fn disk(name: &str, volume: &str) -> (Value, Value) {
    let source = match volume {
        "cloudInitNoCloud" => json!({ "secretRef": { "name": "user-data" } }),
        "emptyDisk" => json!({ "capacity": "1Gi" }),
        "persistentVolumeClaim" => json!({ "claimName": name }),
        _ => json!({ "name": name }),
    };
    (
        json!({ "name": name, "disk": { "bus": "virtio" } }),
        json!({ "name": name, volume: source }),
    )
}

fn with_serial((mut disk, volume): (Value, Value), serial: &str) -> (Value, Value) {
    disk["serial"] = serial.into();
    (disk, volume)
}

fn on_scsi((mut disk, volume): (Value, Value)) -> (Value, Value) {
    disk["disk"]["bus"] = "scsi".into();
    (disk, volume)
}

/// A VM with these disks and the label `label`.
pub(super) fn vm(name: &str, label: &str, disks: &[(Value, Value)]) -> Value {
    let (disks, volumes): (Vec<_>, Vec<_>) = disks.iter().cloned().unzip();
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": { label: "abcdefghij" } },
        "spec": {
            "runStrategy": "Always",
            "template": { "spec": { "domain": { "devices": { "disks": disks } }, "volumes": volumes } },
        },
    })
}

/// The serial of each disk of a VM; an empty text for none.
pub(super) fn serials(vm: &Value) -> Vec<String> {
    let disks = vm.pointer(DISKS).and_then(Value::as_array).unwrap();
    let serial = |disk: &Value| disk["serial"].as_str().unwrap_or_default().to_owned();
    disks.iter().map(serial).collect()
}

/// The disks as KKP's machine-controller names them: the root disk, cloud-init, two secondary ones.
pub(super) fn of_kkp(name: &str) -> Vec<(Value, Value)> {
    vec![
        disk("datavolumedisk", "dataVolume"),
        disk("cloudinitdisk", "cloudInitNoCloud"),
        disk(&format!("{name}-secondarydisk0"), "dataVolume"),
        disk(&format!("{name}-secondarydisk1"), "dataVolume"),
    ]
}

/// Kinds of a VM, and the serials that its disks get.
pub(super) fn cases() -> Vec<(Value, Vec<&'static str>)> {
    let long = "md-of-a-pool-with-a-long-name-7c9f8b6d5-x2x4z";
    vec![
        (
            vm(long, CLUSTER_NAME, &of_kkp(long)),
            vec!["datavolumedisk", "", "secondarydisk0", "secondarydisk1"],
        ),
        (
            vm(
                "shoot-1",
                "mcm.gardener.cloud/cluster",
                &[disk("data", "emptyDisk")],
            ),
            vec!["data"],
        ),
        // Not a node of a user cluster.
        (vm("pet", "app", &of_kkp("pet")), vec![""; 4]),
        // Serials that are set stay, and no disk gets the serial of another one: also not the
        // same first 20 characters, which are all that a guest sees.
        (
            vm(
                "taken",
                CLUSTER_NAME,
                &[
                    with_serial(disk("a", "persistentVolumeClaim"), "data"),
                    disk("data", "persistentVolumeClaim"),
                    with_serial(disk("c", "dataVolume"), "twenty-characters-00-and-more"),
                    disk("twenty-characters-00", "dataVolume"),
                    disk("taken-logs", "dataVolume"),
                    disk("logs", "dataVolume"),
                    disk("only-this", "dataVolume"),
                ],
            ),
            vec![
                "data",
                "",
                "twenty-characters-00-and-more",
                "",
                "",
                "",
                "only-this",
            ],
        ),
        // On SCSI a disk shows its name, and with a serial it would not.
        (
            vm("scsi", CLUSTER_NAME, &[on_scsi(disk("data", "emptyDisk"))]),
            vec![""],
        ),
        // Longer than what a virtio disk shows.
        (
            vm(
                "long",
                CLUSTER_NAME,
                &[disk("twenty-one-characters", "dataVolume")],
            ),
            vec![""],
        ),
    ]
}

/// A VM from names, volumes and fields that meet each other often.
pub(super) fn any_vm(random: &mut fastrand::Rng, name: &str) -> Value {
    const NAMES: [&str; 8] = [
        "a",
        "b",
        "VM-a",
        "VM-b",
        "VM-VM-a",
        "twenty-characters-00",
        "VM-twenty-characters-00",
        "twenty-one-characters",
    ];
    const VOLUMES: [&str; 4] = [
        "dataVolume",
        "emptyDisk",
        "persistentVolumeClaim",
        "cloudInitNoCloud",
    ];
    let mut names: Vec<String> = NAMES.iter().map(|text| text.replace("VM", name)).collect();
    random.shuffle(&mut names);
    names.truncate(random.usize(0..6));
    let disks: Vec<(Value, Value)> = names
        .iter()
        .map(|disk_name| {
            let (mut disk, volume) = disk(disk_name, VOLUMES[random.usize(..VOLUMES.len())]);
            match random.usize(..8) {
                0 => disk["serial"] = "a".into(),
                1 => disk["serial"] = "twenty-characters-00-and-more".into(),
                2 => disk["serial"] = "".into(),
                3 => disk["disk"]["bus"] = "scsi".into(),
                4 => disk = json!({ "name": disk_name, "cdrom": { "bus": "sata" } }),
                5 => disk = json!({ "name": disk_name, "lun": { "bus": "scsi" } }),
                6 => disk["disk"] = json!({}),
                _ => {}
            }
            (disk, volume)
        })
        .collect();
    vm(name, CLUSTER_NAME, &disks)
}
