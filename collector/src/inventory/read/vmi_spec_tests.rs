use serde_json::{Value, json};
use virtfleet_wire::layered::parse_yaml;

use super::*;

fn read(object: &Value) -> Option<VmiSpec> {
    let nodes = parse_yaml(&object.to_string()).unwrap();
    vmi_spec(&Field::top(&nodes[0]))
}

fn of_domain(domain: &Value) -> VmiSpec {
    read(&json!({ "spec": { "domain": domain } })).unwrap()
}

fn vcpus(domain: &Value) -> Option<(u32, &'static str)> {
    let (topology, field) = of_domain(domain).cpu.topology?;
    Some((topology.vcpus(), field))
}

#[test]
fn vcpus_follow_kubevirts_rule() {
    let limits = json!({ "limits": { "cpu": "2500m" }, "requests": { "cpu": 1 } });
    for (domain, expected) in [
        (
            json!({ "cpu": { "cores": 2, "sockets": 3, "maxSockets": 12 } }),
            Some((6, "spec.domain.cpu")),
        ),
        (
            json!({ "cpu": { "threads": 2 }, "resources": limits }),
            Some((2, "spec.domain.cpu")),
        ),
        (
            json!({ "cpu": { "model": "host-model" }, "resources": limits }),
            Some((3, "spec.domain.resources.limits.cpu")),
        ),
        (
            json!({ "resources": { "requests": { "cpu": "1" } } }),
            Some((1, "spec.domain.resources.requests.cpu")),
        ),
        (json!({}), None),
    ] {
        assert_eq!(vcpus(&domain), expected, "{domain}");
    }
}

#[test]
fn memory_follows_kubevirts_rule() {
    let resources = json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "3G" } });
    let limit = json!({ "limits": { "memory": "3G" } });
    for (domain, bytes) in [
        (
            json!({ "memory": { "guest": "1536Mi" }, "resources": resources }),
            Some(1536 << 20),
        ),
        (
            json!({ "memory": { "hugepages": { "pageSize": "2Mi" } }, "resources": resources }),
            Some(2 << 30),
        ),
        (json!({ "resources": limit }), Some(3_000_000_000)),
        (json!({ "memory": { "guest": "much" } }), None),
    ] {
        assert_eq!(
            of_domain(&domain).memory.map(|memory| memory.bytes),
            bytes,
            "{domain}"
        );
    }
    let status = json!({ "memory": { "guestCurrent": "1Gi" }, "currentCPUTopology": { "sockets": 2 } });
    let domain = json!({ "memory": { "guest": "2Gi" }, "cpu": { "sockets": 4 } });
    let found = read(&json!({ "spec": { "domain": domain }, "status": status })).unwrap();
    assert_eq!(found.memory.unwrap().current_bytes, Some(1 << 30));
    assert_eq!(found.cpu.current_vcpus, Some(2));
}

#[test]
fn devices_are_read() {
    let devices = json!({
        "disks": [
            { "name": "root", "disk": { "bus": "virtio" }, "cache": "none", "io": "native", "dedicatedIOThread": true },
            { "name": "hot", "serial": "hot", "disk": { "bus": "scsi" } },
            { "name": "cd", "cdrom": { "bus": "sata" } },
        ],
        "interfaces": [
            { "name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01" },
            { "name": "old", "model": "e1000", "masquerade": {} },
            { "name": "fast", "sriov": {} },
            { "name": "gone", "state": "absent", "bridge": {} },
        ],
        "rng": {}, "tpm": { "enabled": false }, "autoattachMemBalloon": false,
        "blockMultiQueue": true, "networkInterfaceMultiqueue": true,
    });
    let volumes = json!([
        { "name": "root", "size": 1000, "phase": "Bound" },
        { "name": "hot", "phase": "AttachedToNode", "hotplugVolume": {} },
    ]);
    let object = json!({
        "spec": {
            "domain": { "devices": devices },
            "dnsPolicy": "None",
            "dnsConfig": { "nameservers": ["10.0.0.1"], "searches": ["a."], "options": [{ "name": "ndots", "value": "2" }] },
        },
        "status": { "volumeStatus": volumes },
    });
    let spec = read(&object).unwrap();
    let disks: Vec<_> = spec
        .disks
        .iter()
        .map(|one| (&*one.name, one.bytes, one.is_pending, one.is_cdrom))
        .collect();
    assert_eq!(
        disks,
        [
            ("root", Some(1000), false, false),
            ("hot", None, true, false),
            ("cd", None, false, true)
        ]
    );
    assert_eq!(
        (spec.disks[0].cache.as_deref(), spec.disks[0].has_io_thread),
        (Some("none"), true)
    );
    let interfaces: Vec<_> = spec
        .interfaces
        .iter()
        .map(|one| (&*one.name, one.is_virtio(), one.is_tap))
        .collect();
    assert_eq!(
        interfaces,
        [
            ("default", true, true),
            ("old", false, true),
            ("fast", true, false)
        ]
    );
    assert!(spec.interfaces[0].mac.is_some() && spec.rng && !spec.tpm);
    assert_eq!(spec.balloon, Some(false));
    assert!(spec.block_multi_queue && spec.network_multi_queue);
    let dns = spec.dns.unwrap();
    assert_eq!(
        (dns.nameservers.len(), &*dns.searches[0], &*dns.options[0]),
        (1, "a.", "ndots:2")
    );
}

/// One invalid value must not hide the VM, and many values must not fill the memory.
#[test]
fn invalid_and_many_values_are_bounded() {
    assert_eq!(read(&json!({ "spec": {} })), None);
    let disk = json!({ "name": "d".repeat(10_000), "disk": 5 });
    let spec = of_domain(&json!({
        "cpu": { "cores": -1, "sockets": "two", "features": vec![json!({ "name": "x" }); 1000] },
        "memory": [],
        "devices": { "disks": vec![disk; 1000], "interfaces": "none" },
    }));
    assert_eq!(
        (spec.cpu.topology, spec.memory, spec.interfaces.len()),
        (None, None, 0)
    );
    assert_eq!((spec.disks.len(), spec.has_more_disks), (MAX_SPEC_DISKS, true));
    assert_eq!(spec.cpu.features.len(), MAX_SPEC_FEATURES);
    assert!(spec.disks[0].name.len() < 200);
}
