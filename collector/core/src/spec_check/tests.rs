use virtfleet_wire::report::{GuestReport, Section, SectionStatus};

use serde_json::{Value, json};

use super::*;
use crate::{
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    store::tests,
    vmi_spec::{CpuFeatureSpec, CpuSpec, CpuTopology, DiskBus, DiskSpec, DnsSpec, InterfaceSpec, MemorySpec},
};

const GIB: u64 = 1 << 30;

/// 4 vCPUs, 4 GiB, two disks, one interface.
fn spec() -> VmiSpec {
    let disk = |name: &str, serial: Option<&str>| DiskSpec {
        name: name.into(),
        serial: serial.map(Into::into),
        bus: Some(DiskBus::Virtio),
        is_cdrom: false,
        cache: None,
        io: None,
        has_io_thread: false,
        bytes: None,
        is_pending: false,
    };
    VmiSpec {
        cpu: CpuSpec {
            topology: Some((
                CpuTopology {
                    sockets: 1,
                    cores: 4,
                    threads: 1,
                },
                "spec.domain.cpu",
            )),
            ..CpuSpec::default()
        },
        memory: Some(MemorySpec {
            bytes: 4 * GIB,
            field: "spec.domain.memory.guest",
            current_bytes: None,
        }),
        disks: [disk("root", None), disk("data", Some("data"))].into(),
        interfaces: [InterfaceSpec {
            name: "default".into(),
            model: None,
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            is_tap: true,
        }]
        .into(),
        block_multi_queue: true,
        network_multi_queue: true,
        rng: true,
        ..VmiSpec::default()
    }
}

/// What the guest of [`spec`] reports.
fn sections() -> Value {
    json!({
        "system": [{ "cpusOnline": 4, "memoryTotalBytes": 4 * GIB - (200 << 20) }],
        "hardware": [{
            "cpusOnline": 4, "cpusPresent": 4, "sockets": 1, "coresPerSocket": 4, "threadsPerCore": 1,
            "cpuModel": "Intel Xeon Processor (Skylake)", "cpuFlags": "fpu avx2", "tpm": false, "crashKernelBytes": 0,
        }],
        "disks": [{ "name": "vda", "sizeBytes": 10 * GIB }, { "name": "vdb", "serial": "data", "sizeBytes": GIB }],
        "nics": [{ "name": "eth0", "mac": "02:00:00:00:00:01", "driver": "virtio_net", "channelsPossible": 4 }],
        "virtio": [
            { "kind": "device", "type": "net" }, { "kind": "device", "type": "rng" },
            { "kind": "device", "type": "balloon" },
            { "kind": "disk", "name": "vda", "behind": "virtio-blk", "queues": 4, "writeCache": "back" },
            { "kind": "disk", "name": "vdb", "behind": "virtio-blk", "queues": 4, "writeCache": "through" },
        ],
        "dns": [{ "manage": "report-only", "effective": { "nameservers": ["10.0.0.1"], "searches": ["a.b"] } }],
    })
}

fn guest(sections: &Value) -> GuestHardware {
    let sections = sections.as_object().unwrap().iter().map(|(name, items)| {
        let section = Section {
            status: SectionStatus::Ok,
            items: items.as_array().unwrap().clone(),
            ..Section::default()
        };
        (name.clone(), section)
    });
    GuestHardware::of(&GuestReport {
        sections: sections.collect(),
        ..GuestReport::default()
    })
}

fn views_of(spec: VmiSpec, sections: &Value) -> Vec<SpecCheckView> {
    let vmi = Vmi {
        spec: Some(spec.into()),
        ..tests::vmi("ns", "vm")
    };
    views(&vmi, Some(&guest(sections)))
}

/// Results of the checks that are not `Agrees`, as `path: asked / seen`.
fn differing(spec: VmiSpec, sections: &Value) -> Vec<String> {
    let views = views_of(spec, sections);
    let differing = views.iter().filter(|one| one.result == SpecResult::Differs);
    let seen = |one: &SpecCheckView| one.seen.clone().unwrap_or_default();
    differing
        .map(|one| {
            let mark = if one.matters { "!" } else { "" };
            format!("{}: {} / {}{mark}", one.path, one.asked, seen(one))
        })
        .collect()
}

fn first(spec: &VmiSpec, sections: &Value) -> String {
    let (vmi, guest) = (tests::vmi("ns", "vm"), guest(sections));
    match summary(checks(&vmi, spec, &guest)) {
        SpecSummary::Differs(first) => format!("{} {:?}", first.reason, first.cause),
        SpecSummary::Agrees { .. } => "agrees".to_owned(),
        SpecSummary::Incomplete => "incomplete".to_owned(),
    }
}

/// Changes one item of the report.
fn with(path: &str, value: Value) -> Value {
    let mut sections = sections();
    *sections.pointer_mut(path).unwrap() = value;
    sections
}

#[test]
fn a_guest_that_has_what_was_asked_agrees() {
    assert_eq!(differing(spec(), &sections()), Vec::<String>::new());
    assert_eq!(first(&spec(), &sections()), "agrees");
}

#[test]
fn each_difference_names_field_and_values() {
    let cases = [
        (
            with("/hardware/0/cpusOnline", json!(2)),
            "spec.domain.cpu: 4 / 2!",
        ),
        (with("/hardware/0/cpusOnline", json!(8)), "spec.domain.cpu: 4 / 8"),
        (
            with(
                "/hardware/0",
                json!({ "cpusOnline": 4, "sockets": 4, "coresPerSocket": 1, "threadsPerCore": 1 }),
            ),
            "spec.domain.cpu.{sockets,cores,threads}: sockets 1, cores 4, threads 1 / sockets 4, cores 1, threads 1",
        ),
        (
            with("/system/0/memoryTotalBytes", json!(3 * GIB)),
            "spec.domain.memory.guest: 4096 MiB / 3072 MiB!",
        ),
        (
            with("/system/0/memoryTotalBytes", json!(4 * GIB - (600 << 20))),
            "spec.domain.memory.guest: 4096 MiB / 3496 MiB!",
        ),
        (
            with("/system/0/memoryTotalBytes", json!(5 * GIB)),
            "spec.domain.memory.guest: 4096 MiB / 5120 MiB",
        ),
        (
            with("/nics/0/channelsPossible", json!(1)),
            "spec.domain.devices.interfaces[default].networkInterfaceMultiqueue: 4 / 1",
        ),
        (
            with("/nics/0/driver", json!("e1000")),
            "spec.domain.devices.interfaces[default].model: virtio / e1000",
        ),
        (
            with("/virtio/3/queues", json!(1)),
            "spec.domain.devices.blockMultiQueue: 4 / 1",
        ),
        (
            with("/virtio/1/type", json!("console")),
            "spec.domain.devices.rng: true / false",
        ),
        (
            with("/virtio/0/type", json!("console")),
            "spec.domain.devices.interfaces: 1 / 0!",
        ),
    ];
    for (sections, expected) in cases {
        assert!(
            differing(spec(), &sections).contains(&expected.to_owned()),
            "{expected}: {:?}",
            differing(spec(), &sections)
        );
    }
}

#[test]
fn only_what_the_guest_lacks_is_a_finding() {
    let found = |spec: VmiSpec, sections: &Value| {
        let vmi = Vmi {
            spec: Some(spec.into()),
            ..tests::vmi("ns", "vm")
        };
        finding(&vmi, &guest(sections))
    };
    assert_eq!(found(spec(), &sections()), None);
    assert_eq!(
        found(spec(), &with("/virtio/3/queues", json!(1))),
        None,
        "a notice"
    );
    let mut sections = with("/hardware/0", json!({ "cpusOnline": 2, "cpusPresent": 2 }));
    sections["system"][0]["memoryTotalBytes"] = json!(3 * GIB);
    let found = found(spec(), &sections).unwrap();
    assert_eq!(found.id, "spec-not-in-effect");
    assert_eq!(
        found.message,
        "ns/vm: spec.domain.cpu asks for 4, the guest sees 2: the guest has less computing power than the VM was given (1 more)"
    );
    assert_eq!(
        found.evidence["fields"],
        "spec.domain.cpu, spec.domain.memory.guest"
    );
    assert!(
        found.remedy.starts_with("virtfleetctl vm ns/vm --spec "),
        "{}",
        found.remedy
    );
}

/// The cause says who must act.
#[test]
fn vcpus_that_are_offline_are_the_guests() {
    let sections = with("/hardware/0/cpusOnline", json!(2));
    assert_eq!(first(&spec(), &sections), "FewerVcpus Guest", "they are present");
    let sections = with("/hardware/0", json!({ "cpusOnline": 2, "cpusPresent": 2 }));
    assert_eq!(first(&spec(), &sections), "FewerVcpus Vm");
    let mut plugged = spec();
    plugged.cpu.current_vcpus = Some(4);
    assert_eq!(
        first(&plugged, &sections),
        "FewerVcpus Guest",
        "KubeVirt has plugged them in"
    );
}

#[test]
fn disks_are_matched_by_serial_or_counted() {
    let lost = with("/disks/1/serial", json!("other"));
    // The first disk has no serial, so it may be the one.
    assert_eq!(differing(spec(), &lost), Vec::<String>::new());
    let mut lost = with("/disks/1/serial", json!("other"));
    lost["disks"][0]["serial"] = json!("root");
    assert_eq!(
        differing(spec(), &lost),
        ["spec.domain.devices.disks[data].serial: data / no disk!"]
    );
    let mut gone = sections();
    gone["disks"].as_array_mut().unwrap().remove(0);
    assert_eq!(differing(spec(), &gone), ["spec.domain.devices.disks: 2 / 1!"]);
    assert_eq!(first(&spec(), &gone), "DiskMissing Vm");
    // A volume that is being plugged in may be there or not.
    let mut pending = spec();
    pending.disks[1].is_pending = true;
    for sections in [&gone, &sections()] {
        assert_eq!(differing(pending.clone(), sections), Vec::<String>::new());
    }
    let mut long = spec();
    long.disks[1].serial = Some("0123456789abcdefghijKLMNOP".into());
    let mut cut = with("/disks/1/serial", json!("0123456789abcdefghij"));
    cut["disks"][0]["serial"] = json!("root");
    assert_eq!(
        differing(long, &cut),
        Vec::<String>::new(),
        "virtio shows 20 bytes of a serial"
    );
}

#[test]
fn cache_bus_and_size_are_compared() {
    let mut asked = spec();
    asked.disks[1].cache = Some("none".into());
    asked.disks[1].bytes = Some(2 * GIB);
    asked.disks[1].bus = Some(DiskBus::Scsi);
    assert_eq!(
        differing(asked, &sections()),
        [
            "spec.domain.devices.disks[data].disk.bus: scsi / virtio-blk",
            "spec.domain.devices.disks[data].cache: none / write through",
            "status.volumeStatus[data].size: 2048 MiB / 1024 MiB",
        ]
    );
}

#[test]
fn cpu_models_and_features_are_compared_where_their_names_are_known() {
    for (model, flag, expected) in [
        ("Skylake-Server-noTSX-IBRS", "avx2", &[][..]),
        (
            "Icelake-Server-v5",
            "avx2",
            &["spec.domain.cpu.model: Icelake-Server-v5 / Intel Xeon Processor (Skylake)"],
        ),
        (
            "host-passthrough",
            "vmx",
            &["spec.domain.cpu.features[vmx].policy: true / false"],
        ),
        ("unheard-of", "unheard-of", &[]),
    ] {
        let mut asked = spec();
        asked.cpu.model = Some(model.into());
        asked.cpu.features = [CpuFeatureSpec {
            name: flag.into(),
            wanted: Some(true),
        }]
        .into();
        assert_eq!(differing(asked, &sections()), expected, "{model}");
    }
    let mut asked = spec();
    asked.cpu.model = Some("host-model".into());
    let generic = with("/hardware/0/cpuModel", json!("QEMU Virtual CPU version 2.5+"));
    assert_eq!(differing(asked, &generic).len(), 1, "no host has this CPU");
}

#[test]
fn dns_is_compared_unless_the_agent_manages_it() {
    let mut asked = spec();
    asked.dns = Some(Box::new(DnsSpec {
        policy: Some("None".into()),
        nameservers: ["10.0.0.2".parse().unwrap()].into(),
        searches: ["A.b.".into()].into(),
        options: ["ndots:2".into()].into(),
    }));
    assert_eq!(
        differing(asked.clone(), &sections()),
        [
            "spec.dnsConfig.nameservers: 10.0.0.2 / 10.0.0.1",
            "spec.dnsConfig.options: ndots:2 / none",
        ]
    );
    let managed = with("/dns/0/manage", json!("auto"));
    assert_eq!(differing(asked, &managed), Vec::<String>::new());
}

/// Missing evidence is never a difference.
#[test]
fn nothing_differs_without_evidence() {
    assert_eq!(differing(spec(), &json!({})), Vec::<String>::new());
    assert_eq!(first(&spec(), &json!({})), "incomplete");
    let old = json!({ "system": [{ "cpusOnline": 4, "memoryTotalBytes": 4 * GIB - (200 << 20) }] });
    assert_eq!(
        first(&spec(), &old),
        "agrees",
        "an older agent reports vCPUs and memory"
    );
    for section in ["system", "hardware", "disks", "nics", "virtio", "dns"] {
        let mut less = sections();
        less.as_object_mut().unwrap().remove(section);
        assert_eq!(
            differing(spec(), &less),
            Vec::<String>::new(),
            "without {section}"
        );
    }
    assert_eq!(
        first(&VmiSpec::default(), &sections()),
        "incomplete",
        "nothing is asked for"
    );
    let mut vmi = tests::vmi("ns", "vm");
    assert_eq!(views(&vmi, None), []);
    vmi.spec = Some(spec().into());
    assert!(
        views(&vmi, None)
            .iter()
            .all(|one| one.result == SpecResult::NotSeen)
    );
}

/// While KubeVirt plugs vCPUs or memory in, both numbers are on their way.
#[test]
fn a_change_in_progress_is_no_difference() {
    let guest = guest(&with("/hardware/0/cpusOnline", json!(2)));
    let condition = |kind| ReportedCondition::new(kind, ReportedStatus::True, None, None);
    let vmi = Vmi {
        conditions: ReportedConditions::new([condition("HotVCPUChange"), condition("HotMemoryChange")]),
        ..tests::vmi("ns", "vm")
    };
    let spec = spec();
    assert!(matches!(
        summary(checks(&vmi, &spec, &guest)),
        SpecSummary::Incomplete
    ));
}

#[test]
fn what_no_guest_can_see_is_listed() {
    let mut asked = spec();
    asked.cpu.is_dedicated = true;
    asked.cpu.isolates_emulator = true;
    asked.huge_page_size = Some("1Gi".into());
    asked.io_threads_policy = Some("auto".into());
    asked.disks[0].io = Some("native".into());
    asked.disks[0].has_io_thread = true;
    let views = views_of(asked, &sections());
    let unseen = views.iter().filter(|one| one.why.contains("no guest can see"));
    assert_eq!(unseen.clone().count(), 6);
    assert!(
        unseen
            .into_iter()
            .all(|one| one.result == SpecResult::NotSeen && one.seen.is_none())
    );
}
