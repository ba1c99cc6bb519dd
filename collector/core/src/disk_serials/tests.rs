//! Decisions, patches and labels.

use proptest::prelude::*;

use super::*;

/// A VM with disks and volumes: name of the disk, source of its volume, more fields of the disk.
fn vm(name: &str, disks: &[(&str, &str, Value)]) -> Value {
    let disk = |(name, _, more): &(&str, &str, Value)| {
        let mut disk = json!({ "name": name, "disk": { "bus": "virtio" } });
        for (key, value) in more.as_object().unwrap() {
            disk[key] = value.clone();
        }
        disk
    };
    let volume = |(name, source, _): &(&str, &str, Value)| json!({ "name": name, *source: {} });
    let volumes: Vec<Value> = disks
        .iter()
        .filter(|(_, source, _)| !source.is_empty())
        .map(volume)
        .collect();
    let disks: Vec<Value> = disks.iter().map(disk).collect();
    json!({
        "metadata": { "name": name },
        "spec": { "template": { "spec": {
            "domain": { "devices": { "disks": disks } }, "volumes": volumes,
        } } },
    })
}

fn decisions(vm: &Value) -> Vec<SerialDecision> {
    plan_serials(vm)
        .into_iter()
        .map(|decision| decision.serial)
        .collect()
}

fn set(serial: &str) -> SerialDecision {
    SerialDecision::Set(serial.to_owned())
}

fn skip(reason: NoSerialReason) -> SerialDecision {
    SerialDecision::Skip(reason)
}

#[test]
fn serials_are_the_names_without_that_of_the_vm() {
    let none = || json!({});
    let kkp = vm(
        "w-1",
        &[
            ("datavolumedisk", "dataVolume", none()),
            ("cloudinitdisk", "cloudInitNoCloud", none()),
            ("w-1-secondarydisk0", "dataVolume", none()),
            ("w-1-", "emptyDisk", none()),
            ("w-10", "hostDisk", none()),
            ("claim", "persistentVolumeClaim", none()),
            ("container", "containerDisk", none()),
            ("nothing", "", none()),
        ],
    );
    assert_eq!(
        decisions(&kkp),
        [
            set("datavolumedisk"),
            skip(NoSerialReason::NoData("cloudInitNoCloud".into())),
            set("secondarydisk0"),
            set("w-1-"),
            set("w-10"),
            set("claim"),
            skip(NoSerialReason::NoData("containerDisk".into())),
            skip(NoSerialReason::NoVolume),
        ]
    );
    assert_eq!(decisions(&json!({ "metadata": { "name": "w-1" } })), []);
}

#[test]
fn other_kinds_of_disks_get_none() {
    let odd = vm(
        "w-1",
        &[
            (
                "drive",
                "dataVolume",
                json!({ "disk": null, "cdrom": { "bus": "sata" } }),
            ),
            ("lun", "persistentVolumeClaim", json!({ "disk": null, "lun": {} })),
            ("scsi", "emptyDisk", json!({ "disk": { "bus": "scsi" } })),
            ("sata", "emptyDisk", json!({ "disk": { "bus": "sata" } })),
            ("default", "emptyDisk", json!({ "disk": {} })),
            ("empty", "emptyDisk", json!({ "serial": "" })),
        ],
    );
    assert_eq!(
        decisions(&odd),
        [
            skip(NoSerialReason::CdRom),
            skip(NoSerialReason::Lun),
            skip(NoSerialReason::Scsi),
            set("sata"),
            set("default"),
            set("empty"),
        ]
    );
}

#[test]
fn serials_are_short_and_unique_and_present_ones_stay() {
    let none = || json!({});
    let twenty = "twenty-characters-00";
    let longer = format!("{twenty}x");
    let present = vm(
        "vm",
        &[
            ("a", "emptyDisk", json!({ "serial": "data" })),
            ("data", "emptyDisk", none()),
            ("c", "emptyDisk", json!({ "serial": longer })),
            (twenty, "emptyDisk", none()),
            (&longer, "emptyDisk", none()),
            ("vm-logs", "emptyDisk", none()),
            ("logs", "cloudInitNoCloud", none()),
            ("zwanzigzeichenüberall", "emptyDisk", none()),
            ("zwanzigzeichenüberal", "emptyDisk", none()),
        ],
    );
    assert_eq!(
        decisions(&present),
        [
            SerialDecision::Has("data".into()),
            skip(NoSerialReason::NotUnique("data".into(), "a".into())),
            SerialDecision::Has(longer.clone()),
            skip(NoSerialReason::NotUnique(twenty.into(), "c".into())),
            skip(NoSerialReason::TooLong(longer.clone())),
            // Also the name of a disk that gets none counts.
            skip(NoSerialReason::NotUnique("logs".into(), "logs".into())),
            skip(NoSerialReason::NoData("cloudInitNoCloud".into())),
            skip(NoSerialReason::TooLong("zwanzigzeichenüberall".into())),
            set("zwanzigzeichenüberal"),
        ]
    );
    assert_eq!(
        NoSerialReason::TooLong(longer).to_string(),
        "twenty-characters-00x has 21 characters, and a virtio disk shows 20: set a shorter serial in the VM's spec"
    );
}

#[test]
fn the_patch_tests_all_disks_and_sets_what_was_decided() {
    let none = || json!({});
    let one = vm(
        "vm",
        &[
            ("a", "cloudInitNoCloud", none()),
            ("b", "emptyDisk", none()),
            ("c", "emptyDisk", json!({ "serial": "x" })),
        ],
    );
    let patch = serials_patch(&one, &plan_serials(&one)).unwrap();
    let disks = one.pointer(DISKS).unwrap();
    assert_eq!(
        patch,
        json!([
            { "op": "test", "path": DISKS, "value": disks },
            { "op": "add", "path": format!("{DISKS}/1/serial"), "value": "b" },
        ])
    );
    let mut done = one.clone();
    done.pointer_mut(DISKS).unwrap()[1]["serial"] = "b".into();
    assert_eq!(serials_patch(&done, &plan_serials(&done)), None);
    assert!(same_disks(&one, &one) && !same_disks(&one, &done));
}

#[test]
fn labels_of_the_vm_or_of_its_template_count() {
    let labelled = |label: &str| json!({ "metadata": { "labels": { label: "blue" } } });
    let template = |label: &str| json!({ "spec": { "template": labelled(label) } });
    for label in NODE_LABELS {
        for vm in [labelled(label), template(label)] {
            assert!(is_cluster_node(&vm) && names_cluster(&vm, "blue") && !names_cluster(&vm, "green"));
        }
    }
    let [id, ..] = CLUSTER_LABELS;
    assert!(!is_cluster_node(&labelled(id)) && names_cluster(&labelled(id), "blue"));
    assert!(!is_cluster_node(&labelled("app")) && !is_cluster_node(&json!({})));
}

fn any_disk() -> impl Strategy<Value = (String, &'static str, Value)> {
    let names = prop::sample::select(vec![
        "a",
        "vm-a",
        "vm-",
        "b",
        "vm-b",
        "twenty-characters-00",
        "twenty-characters-00x",
    ]);
    let source = prop::sample::select(vec!["dataVolume", "emptyDisk", "cloudInitNoCloud", ""]);
    let more = prop::sample::select(vec![
        json!({}),
        json!({ "serial": "a" }),
        json!({ "serial": "twenty-characters-00y" }),
        json!({ "disk": { "bus": "scsi" } }),
        json!({ "cdrom": {} }),
    ]);
    (names.prop_map(str::to_owned), source, more)
}

proptest! {
    /// What a guest identifies disks by is unique, and a second run has nothing to do.
    #[test]
    fn applied_decisions_are_unique_and_stay(disks in prop::collection::vec(any_disk(), 0..7)) {
        let disks: Vec<(&str, &str, Value)> =
            disks.iter().map(|(name, source, more)| (name.as_str(), *source, more.clone())).collect();
        let mut vm = vm("vm", &disks);
        let before: Vec<String> = super::disks(&vm).iter().map(|disk| text(&disk["serial"]).to_owned()).collect();
        for decision in plan_serials(&vm) {
            if let SerialDecision::Set(serial) = decision.serial {
                vm.pointer_mut(DISKS).unwrap()[decision.index]["serial"] = serial.into();
            }
        }
        let again = plan_serials(&vm);
        prop_assert!(serials_patch(&vm, &again).is_none());
        let after: Vec<&str> = super::disks(&vm).iter().map(|disk| text(&disk["serial"])).collect();
        for (index, serial) in after.iter().enumerate().filter(|(index, _)| before[*index].is_empty()) {
            let same = after.iter().filter(|other| other.chars().take(MAX_SERIAL_CHARS).eq(serial.chars()));
            prop_assert!(serial.is_empty() || same.count() == 1, "{index}: {after:?}");
            prop_assert!(serial.chars().count() <= MAX_SERIAL_CHARS);
        }
    }
}
