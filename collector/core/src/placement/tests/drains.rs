//! Drains and hosts.

use super::*;

/// A drain without evidence of the API servers.
fn drain(fleet: &PlacementFleet, host: &NodeName) -> Option<DrainPlan> {
    crate::placement::drain(fleet, host, &DrainEvidence::default())
}

/// The outcome of draining `h1`: VM, outcome, target.
fn outcomes(plan: &DrainPlan) -> Vec<(String, &'static str, Option<String>)> {
    let shown = plan.vms.iter().map(|vm| {
        let target = vm.target.as_ref().map(ToString::to_string);
        (vm.name.to_string(), vm.outcome.as_str(), target)
    });
    shown.collect()
}

#[test]
fn the_eviction_strategy_decides_what_happens() {
    use EvictionStrategy as E;
    let (yes, no) = (ReportedStatus::True, ReportedStatus::False);
    let unknown = ReportedStatus::Unknown;
    for (strategy, status, outcome, reason) in [
        (E::LiveMigrate, yes, "migrates", "evictionStrategy LiveMigrate"),
        (E::LiveMigrate, no, "blocks", "not live-migratable: HostDisk"),
        (E::LiveMigrate, unknown, "blocks", "does not report"),
        (E::LiveMigrateIfPossible, yes, "migrates", "LiveMigrateIfPossible"),
        (E::LiveMigrateIfPossible, no, "stops", "not live-migratable"),
        (E::External, yes, "blocks", "only asks its controller"),
        (E::Nothing, yes, "stops", "evictionStrategy None"),
        (E::Default, yes, "stops", "default is None"),
        (E::Other, yes, "blocks", "does not know"),
    ] {
        let mut rules = rules();
        rules.eviction = strategy;
        let mut one = vm("x", "h1", &rules);
        one.conditions = migratable(status);
        let plan = drain(&fleet(&[host("h1", "a"), host("h2", "a")], &[one]), &name("h1")).unwrap();
        let vm = &plan.vms[0];
        assert_eq!(vm.outcome.as_str(), outcome, "{strategy:?} {status:?}");
        assert!(vm.reason.contains(reason), "{strategy:?}: {}", vm.reason);
        let leaves = outcome != "blocks" || strategy == E::External;
        assert_eq!(vm.target.is_some(), leaves, "{strategy:?} {status:?}");
        let default = plan.not_known.iter().any(|note| note.contains("KubeVirt object"));
        assert_eq!(default, strategy == E::Default);
        assert!(plan.has_room);
    }
}

#[test]
fn a_vm_that_its_controller_moves_needs_room_elsewhere() {
    let mut external = rules();
    external.eviction = EvictionStrategy::External;
    let (near, mut far) = (host("h1", "a"), host("h2", "b"));
    let mut one = vm("x", "h1", &external);
    let hosts = [near.clone(), far.clone()];
    let plan = drain(&fleet(&hosts, &[one.clone()]), &name("h1")).unwrap();
    assert_eq!(outcomes(&plan), [("x".into(), "blocks", Some("h2".into()))]);
    assert_eq!((plan.has_room, plan.hosts[0].takes), (true, 1));
    one.evacuation_node = Some(name("h1"));
    far.allocatable = Some(Allocatable {
        resources: amounts(1, 1),
        pods: None,
    });
    let plan = drain(&fleet(&[near, far], &[one]), &name("h1")).unwrap();
    assert_eq!(outcomes(&plan), [("x".into(), "blocks", None)]);
    assert_eq!((plan.has_room, plan.missing), (false, amounts(2, 8)));
    for part in [
        "was asked to move it",
        "it cannot start elsewhere: of the other infra nodes 1 without room",
    ] {
        assert!(plan.vms[0].reason.contains(part), "{}", plan.vms[0].reason);
    }
}

#[test]
fn hosts_that_may_not_run_the_vm_are_counted_by_reason() {
    let with = |name: &str, change: &dyn Fn(&mut InfraNode)| {
        let mut one = host(name, "a");
        change(&mut one);
        one
    };
    let taint = Taint {
        key: "gpu".into(),
        value: "yes".into(),
        effect: TaintEffect::NoSchedule,
    };
    let hosts = [
        host("h1", "a"),
        with("cordoned", &|host| host.unschedulable = true),
        with("down", &|host| host.ready = Some(false)),
        with("handler", &|host| {
            host.labels
                .insert("kubevirt.io/schedulable".into(), "false".into());
        }),
        with("tainted", &|host| host.taints = vec![taint.clone()]),
        with("small", &|host| {
            host.allocatable = Some(Allocatable {
                resources: amounts(1, 1),
                pods: None,
            });
        }),
        with("full", &|host| {
            host.allocatable = Some(Allocatable {
                resources: amounts(8, 32),
                pods: Some(0),
            });
        }),
        with("unknown", &|host| host.allocatable = None),
        host("far", "b"),
    ];
    let mut rules = rules();
    rules.required_nodes = Some(Box::new([in_zone("a")]));
    let plan = drain(&fleet(&hosts, &[vm("x", "h1", &rules)]), &name("h1")).unwrap();
    assert_eq!(plan.vms[0].outcome, DrainOutcome::Blocks);
    for part in [
        "1 cordoned",
        "1 not ready",
        "1 without virt-handler",
        "1 with a taint",
        "2 without room",
        "1 of unknown capacity",
        "1 outside of its node affinity",
    ] {
        assert!(plan.vms[0].reason.contains(part), "{}", plan.vms[0].reason);
    }
    assert_eq!((plan.has_room, plan.missing), (false, amounts(2, 8)));
    assert_eq!(plan.room(), "no, missing 2 CPU, 8 Gi memory");
    rules.tolerations = Box::new([Toleration {
        key: "gpu".into(),
        operator: OperatorOfToleration::Exists,
        value: "".into(),
        effect: None,
    }]);
    let plan = drain(&fleet(&hosts, &[vm("x", "h1", &rules)]), &name("h1")).unwrap();
    assert_eq!(
        outcomes(&plan),
        [("x".into(), "migrates", Some("tainted".into()))]
    );
}

#[test]
fn vms_are_packed_by_their_requests() {
    // Each host has room for 4 such VMs; h2 has 3, and h3 has 2.
    let rules = rules();
    let hosts = [host("h1", "a"), host("h2", "a"), host("h3", "a")];
    let mut vms: Vec<Vmi> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| vm(name, "h1", &rules))
        .collect();
    vms.extend(["e", "f", "g"].iter().map(|name| vm(name, "h2", &rules)));
    vms.extend(["h", "i"].iter().map(|name| vm(name, "h3", &rules)));
    let plan = drain(&fleet(&hosts, &vms), &name("h1")).unwrap();
    assert_eq!((plan.migrates, plan.blocks, plan.has_room), (3, 1, false));
    assert_eq!(plan.missing, amounts(2, 8));
    let takes: Vec<_> = plan
        .hosts
        .iter()
        .map(|host| (host.name.as_str(), host.takes, host.free, host.free_after))
        .collect();
    assert_eq!(
        takes,
        [
            ("h2", 1, amounts(2, 8), amounts(0, 0)),
            ("h3", 2, amounts(4, 16), amounts(0, 0))
        ]
    );
    vms.pop();
    let plan = drain(&fleet(&hosts, &vms), &name("h1")).unwrap();
    assert_eq!(
        (plan.migrates, plan.has_room, plan.room()),
        (4, true, "yes".into())
    );
}

#[test]
fn rules_between_vms_hold_for_the_vms_that_were_placed_before() {
    let mut apart = rules();
    apart.required_apart = Box::new([term(HOSTNAME, &[("md", "a")])]);
    let hosts = [host("h1", "a"), host("h2", "a"), host("h3", "b")];
    // They violate the rule now; after the drain each has a host of its own.
    let vms = [vm("x", "h1", &apart), vm("y", "h1", &apart)];
    let plan = drain(&fleet(&hosts, &vms), &name("h1")).unwrap();
    let targets: Vec<_> = outcomes(&plan)
        .into_iter()
        .map(|(_, _, target)| target.unwrap())
        .collect();
    assert_eq!(targets, ["h2", "h3"]);
    let three = [
        vm("x", "h1", &apart),
        vm("y", "h1", &apart),
        vm("z", "h1", &apart),
    ];
    let plan = drain(&fleet(&hosts, &three), &name("h1")).unwrap();
    assert_eq!((plan.migrates, plan.blocks), (2, 1));
    assert!(
        plan.vms[0]
            .reason
            .contains("2 with VMs that anti-affinity excludes")
    );
    assert!(plan.has_room, "it lacks a host, not room");
    // The anti-affinity of a VM that stays excludes one without rules.
    let guarded = [vm("x", "h1", &rules()), vm("y", "h2", &apart)];
    let plan = drain(&fleet(&hosts, &guarded), &name("h1")).unwrap();
    assert_eq!(outcomes(&plan), [("x".into(), "migrates", Some("h3".into()))]);
    // Affinity and spread.
    let mut near = rules();
    near.required_near = Box::new([term(ZONE, &[("name", "y")])]);
    let plan = drain(
        &fleet(&hosts, &[vm("x", "h1", &near), vm("y", "h3", &rules())]),
        &name("h1"),
    )
    .unwrap();
    assert_eq!(outcomes(&plan), [("x".into(), "migrates", Some("h3".into()))]);
    let mut even = rules();
    even.spread = Box::new([spread(ZONE, 1, true)]);
    let plan = drain(
        &fleet(&hosts, &[vm("x", "h1", &even), vm("y", "h3", &even)]),
        &name("h1"),
    )
    .unwrap();
    assert_eq!(outcomes(&plan), [("x".into(), "migrates", Some("h2".into()))]);
}

#[test]
fn a_running_migration_counts_on_both_hosts() {
    let hosts = [host("h1", "a"), host("h2", "a")];
    let moving = |name: &str, from: &str, to: &str| {
        let mut moving = vm(name, from, &rules());
        moving.migration = Some(Migration {
            source: Some(from.parse().unwrap()),
            target: Some(to.parse().unwrap()),
            ..Migration::default()
        });
        moving
    };
    let vms = [
        moving("leaves", "h1", "h2"),
        moving("comes", "h2", "h1"),
        vm("x", "h1", &rules()),
    ];
    let plan = drain(&fleet(&hosts, &vms), &name("h1")).unwrap();
    assert_eq!(
        outcomes(&plan),
        [
            ("leaves".into(), "migrates", Some("h2".into())),
            ("x".into(), "migrates", Some("h2".into()))
        ]
    );
    assert_eq!(plan.arriving, ["ns/comes"]);
    assert_eq!(plan.hosts[0].free, amounts(4, 16), "both are counted on h2");
}

#[test]
fn a_migration_that_kubevirt_has_forgotten_reserves_nothing() {
    let mut stale = vm("x", "h1", &rules());
    stale.migration = Some(Migration {
        source: Some(name("h1")),
        target: Some(name("h2")),
        uid: Some("gone".parse().unwrap()),
        ..Migration::default()
    });
    let mut index = FleetIndex::default();
    index.set_cluster_statuses(std::collections::BTreeMap::new());
    index.apply(InventoryEvent::Init);
    for host in [host("h1", "a"), host("h2", "a")] {
        index.apply(InventoryEvent::Apply(Fact::InfraNode(host)));
    }
    index.apply(InventoryEvent::Apply(Fact::Vmi(Box::new(stale))));
    index.apply(InventoryEvent::Synced);
    let target = |index: &FleetIndex| index.placement_fleet().vms[0].migrating_to().cloned();
    assert_eq!(target(&index), Some(name("h2")));
    index.set_time(String::new(), 300_000);
    index.settle();
    assert_eq!(target(&index), None);
    let plan = drain(&index.placement_fleet(), &name("h2")).unwrap();
    assert_eq!(plan.arriving, [""; 0]);
    let shown = index.snapshot().vms[&key("ns", "x")].state;
    assert_eq!(shown, crate::view::VmState::Running);
}

#[test]
fn requests_of_the_pod_replace_those_of_the_vmi() {
    let mut index = index(&[host("h1", "a")], &[vm("x", "h1", &rules())]);
    let requests = |index: &FleetIndex| {
        let fleet = index.placement_fleet();
        (fleet.vms[0].requests, fleet.vms[0].is_estimated)
    };
    assert_eq!(requests(&index), (amounts(2, 8), true));
    let mut pod = launcher("ns", "x", &["10.0.0.9"]);
    pod.node = Some(name("h1"));
    pod.requests = Some(amounts(3, 9));
    index.apply(InventoryEvent::Apply(Fact::LauncherPod(pod)));
    assert_eq!(requests(&index), (amounts(3, 9), false));
    let detail = host_detail(&index.placement_fleet(), &name("h1")).unwrap();
    assert_eq!(
        (detail.requested, detail.vms.len(), detail.total.vcpus),
        (amounts(3, 9), 1, 4)
    );
    assert_eq!(host_detail(&index.placement_fleet(), &name("h9")), None);
    assert_eq!(drain(&index.placement_fleet(), &name("h9")), None);
}

#[test]
fn a_host_that_only_vmis_name_can_be_drained() {
    let plan = drain(
        &fleet(&[host("h2", "a")], &[vm("x", "gone", &rules())]),
        &name("gone"),
    )
    .unwrap();
    assert_eq!((plan.known, plan.migrates), (false, 1));
}

fn volume(claim: &str, zones: &[&str]) -> VmVolume {
    let terms: Vec<NodeTerm> = zones.iter().map(|zone| in_zone(zone)).collect();
    VmVolume {
        claim: claim.to_owned(),
        phase: Some("Bound".to_owned()),
        terms: (!terms.is_empty()).then(|| terms.into()),
        ..VmVolume::default()
    }
}

#[test]
fn volumes_decide_where_a_vm_may_go() {
    let hosts = [host("h1", "a"), host("h2", "b"), host("h3", "c")];
    let fleet = fleet(&hosts, &[vm("x", "h1", &rules())]);
    for (volumes, target, refused) in [
        (vec![], Some("h2"), 0),
        (vec![volume("root", &[])], Some("h2"), 0),
        (vec![volume("root", &["a", "c"])], Some("h3"), 1),
        (vec![volume("root", &["a", "c"]), volume("data", &["b"])], None, 2),
        (vec![volume("root", &["a"])], None, 2),
    ] {
        let evidence = DrainEvidence {
            volumes: [(key("ns", "x"), volumes.clone())].into(),
            knows_volumes: true,
            ..DrainEvidence::default()
        };
        let plan = crate::placement::drain(&fleet, &name("h1"), &evidence).unwrap();
        let drained = &plan.vms[0];
        assert_eq!(
            drained.target.as_ref().map(NodeName::as_str),
            target,
            "{volumes:?}"
        );
        assert_eq!(drained.volumes, volumes);
        if target.is_none() {
            let reason = format!("{refused} out of reach of its volumes");
            assert_eq!(drained.outcome, DrainOutcome::Blocks);
            assert!(drained.reason.contains(&reason), "{}", drained.reason);
            assert!(!drained.lacks_room, "room is not what is missing");
        }
        assert!(!plan.not_known.iter().any(|note| note.contains("volumes")));
    }
    let plan = drain(&fleet, &name("h1")).unwrap();
    assert!(plan.not_known.contains(&"zones of volumes".to_owned()));
}

#[test]
fn pods_that_cannot_be_evicted_come_first_and_lists_are_limited() {
    let fleet = fleet(&[host("h1", "a"), host("h2", "a")], &[vm("x", "h1", &rules())]);
    let pod = |number: usize, claim: bool, refused: bool| NodePod {
        namespace: "shop".to_owned(),
        name: format!("p{number:03}"),
        claims: claim.then(|| "data".to_owned()).into_iter().collect(),
        refused: refused.then(|| "PodDisruptionBudget web allows none".to_owned()),
        ..NodePod::default()
    };
    let mut pods: Vec<NodePod> = (0..60).map(|number| pod(number, false, false)).collect();
    pods.extend([pod(60, true, false), pod(61, false, true)]);
    let evidence = DrainEvidence {
        pods: [(key("ns", "x"), pods)].into(),
        gaps: vec!["pods of green: not allowed".to_owned()],
        ..DrainEvidence::default()
    };
    let plan = crate::placement::drain(&fleet, &name("h1"), &evidence).unwrap();
    let drained = &plan.vms[0];
    assert_eq!((drained.pods_total, drained.pods_refused), (Some(62), 1));
    assert_eq!(drained.pods.len(), 50);
    let names: Vec<&str> = drained.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names[..3], ["p061", "p060", "p000"]);
    assert!(plan.not_known.contains(&"pods of green: not allowed".to_owned()));
    let unread = drain(&fleet, &name("h1")).unwrap();
    assert_eq!(unread.vms[0].pods_total, None, "not read is not none");
}
