//! Rules that the fleet does not obey.

use super::*;

/// The rules that are not obeyed: level, VM, rule.
fn problems(report: &PlacementReport) -> Vec<String> {
    let shown = report
        .problems
        .iter()
        .map(|one| format!("{} {} {}", one.level.as_str(), one.name, one.rule));
    shown.collect()
}

/// Why, rules, VMs with their infra nodes, and what is found.
type Row<'a> = (&'a str, Scheduling, &'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn rules_that_are_not_obeyed_are_found() {
    let hosts = [host("h1", "a"), host("h2", "a"), host("h3", "b")];
    let with = |change: &dyn Fn(&mut Scheduling)| {
        let mut rules = rules();
        change(&mut rules);
        rules
    };
    let one = |term: PodTerm| -> Box<[PodTerm]> { Box::new([term]) };
    let own: &[(&str, &str)] = &[("md", "a")];
    let rows: Vec<Row<'_>> = vec![
        ("no rules", rules(), &[("x", "h1")], &[]),
        (
            "node selector",
            with(&|rules| rules.node_selector = Box::new([("rack".into(), "r1".into())])),
            &[("x", "h1")],
            &["violated x node affinity"],
        ),
        (
            "required zone",
            with(&|rules| rules.required_nodes = Some(Box::new([in_zone("b")]))),
            &[("x", "h1"), ("y", "h3")],
            &["violated x node affinity"],
        ),
        (
            "one of two terms is enough",
            with(&|rules| rules.required_nodes = Some(Box::new([in_zone("a"), in_zone("b")]))),
            &[("x", "h1"), ("y", "h3")],
            &[],
        ),
        (
            "preferred zone",
            with(&|rules| {
                rules.preferred_nodes = Box::new([WeightedNodeTerm {
                    weight: 1,
                    term: in_zone("b"),
                }]);
            }),
            &[("x", "h1"), ("y", "h3")],
            &["preference x node affinity"],
        ),
        (
            "a preference that no node could meet",
            with(&|rules| {
                rules.preferred_nodes = Box::new([WeightedNodeTerm {
                    weight: 1,
                    term: in_zone("c"),
                }]);
            }),
            &[("x", "h1")],
            &[],
        ),
        (
            "anti-affinity by host",
            with(&|rules| rules.required_apart = one(term(HOSTNAME, own))),
            &[("x", "h1"), ("y", "h1"), ("z", "h2")],
            &["violated x pod anti-affinity", "violated y pod anti-affinity"],
        ),
        (
            "anti-affinity by zone",
            with(&|rules| rules.required_apart = one(term(ZONE, own))),
            &[("x", "h1"), ("z", "h3")],
            &[],
        ),
        (
            "anti-affinity to a VM of another kind",
            with(&|rules| rules.required_apart = one(term(ZONE, &[("name", "y")]))),
            &[("x", "h1"), ("y", "h2")],
            &["violated x pod anti-affinity"],
        ),
        (
            "preferred anti-affinity",
            with(&|rules| {
                rules.preferred_apart = Box::new([WeightedPodTerm {
                    weight: 1,
                    term: term(HOSTNAME, own),
                }]);
            }),
            &[("x", "h1"), ("y", "h1")],
            &["preference x pod anti-affinity", "preference y pod anti-affinity"],
        ),
        (
            "affinity",
            with(&|rules| rules.required_near = one(term(ZONE, &[("name", "y")]))),
            &[("x", "h1"), ("y", "h3")],
            &["violated x pod affinity"],
        ),
        (
            "the first VM of a set that attracts itself",
            with(&|rules| rules.required_near = one(term(ZONE, own))),
            &[("x", "h1")],
            &[],
        ),
        (
            "a selector that is absent matches nothing",
            with(&|rules| {
                rules.required_apart = one(PodTerm {
                    selector: None,
                    ..term(ZONE, own)
                });
            }),
            &[("x", "h1"), ("y", "h1")],
            &[],
        ),
        (
            "a selector without labels matches all",
            with(&|rules| rules.required_apart = one(term(HOSTNAME, &[]))),
            &[("x", "h1"), ("y", "h1")],
            &["violated x pod anti-affinity", "violated y pod anti-affinity"],
        ),
        (
            "spread",
            with(&|rules| rules.spread = Box::new([spread(ZONE, 1, true)])),
            &[("x", "h1"), ("y", "h2")],
            &["violated x spread"],
        ),
        (
            "spread within the skew",
            with(&|rules| rules.spread = Box::new([spread(ZONE, 2, true)])),
            &[("x", "h1"), ("y", "h2")],
            &[],
        ),
        (
            "preferred spread",
            with(&|rules| rules.spread = Box::new([spread(ZONE, 1, false)])),
            &[("x", "h1"), ("y", "h2")],
            &["preference x spread"],
        ),
        (
            "zones that the node affinity excludes do not count",
            with(&|rules| {
                rules.spread = Box::new([spread(ZONE, 1, true)]);
                rules.required_nodes = Some(Box::new([in_zone("a")]));
            }),
            &[("x", "h1"), ("y", "h2")],
            &[],
        ),
    ];
    for (why, rules, vms, expected) in rows {
        let vms: Vec<Vmi> = vms.iter().map(|(name, on)| vm(name, on, &rules)).collect();
        let report = check(&fleet(&hosts, &vms));
        assert_eq!(problems(&report), expected, "{why}: {:?}", report.problems);
        assert!(report.not_checked.is_empty(), "{why}: {:?}", report.not_checked);
        assert_eq!((report.vms, report.problems_total), (vms.len(), expected.len()));
    }
}

#[test]
fn a_changed_label_of_a_host_is_found_at_once() {
    let mut rules = rules();
    rules.required_nodes = Some(Box::new([in_zone("a")]));
    let mut index = index(&[host("h1", "a")], &[vm("x", "h1", &rules)]);
    let ids = |index: &FleetIndex| -> Vec<String> {
        let found = index.findings(&key("ns", "x"));
        found.into_iter().map(|one| one.id).collect()
    };
    assert!(!ids(&index).contains(&"placement-node-affinity".to_owned()));
    index.apply(InventoryEvent::Apply(Fact::InfraNode(host("h1", "b"))));
    assert!(ids(&index).contains(&"placement-node-affinity".to_owned()));
}

#[test]
fn findings_are_about_required_rules_between_vms_and_name_no_other_vm() {
    let mut rules = rules();
    rules.required_apart = Box::new([term(HOSTNAME, &[("md", "a")])]);
    rules.required_nodes = Some(Box::new([in_zone("b")]));
    let report = check(&fleet(
        &[host("h1", "a")],
        &[vm("x", "h1", &rules), vm("y", "h1", &rules)],
    ));
    let found = placement_findings(&report);
    let subjects: Vec<_> = found.iter().map(|one| one.subject.name.as_str()).collect();
    assert_eq!(subjects, ["ns/x", "ns/y"]);
    assert!(found[0].message.contains("excludes: 1") && !found[0].message.contains("ns/y"));
    assert_eq!(found[0].evidence["namespace"], "ns", "its tenant may see it");
}

#[test]
fn what_cannot_be_checked_is_said() {
    let mut partial = rules();
    partial.required_apart = Box::new([PodTerm {
        is_partial: true,
        ..term(ZONE, &[("md", "a")])
    }]);
    let mut cut = rules();
    cut.is_cut = true;
    cut.node_selector = Box::new([("rack".into(), "r1".into())]);
    let report = check(&fleet(
        &[host("h1", "a")],
        &[
            vm("x", "h1", &partial),
            vm("y", "h1", &cut),
            vm("z", "gone", &rules()),
        ],
    ));
    assert_eq!(problems(&report), Vec::<String>::new());
    let notes = report.not_checked.join("\n");
    for part in [
        "VMs on infra nodes that the inventory lacks: 1",
        "collector keeps: 1",
        "not evaluated: 1",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn pools_show_zones_without_a_vm() {
    let hosts = [host("h1", "a"), host("h2", "a"), host("h3", "b")];
    let rules = rules();
    let mut other = vm("o", "h3", &rules);
    other.labels = Labels::new();
    let vms = [
        vm("x", "h1", &rules),
        vm("y", "h1", &rules),
        vm("z", "h2", &rules),
        other,
    ];
    let report = check(&fleet(&hosts, &vms));
    let pool = &report.pools[0];
    assert_eq!((report.pools.len(), pool.pool.as_str(), pool.vms), (1, "a", 3));
    assert_eq!((pool.zones["a"], pool.zones["b"], pool.zone_skew), (3, 0, 3));
    let fullest = pool.fullest_host.as_ref().unwrap().as_str();
    assert_eq!((pool.hosts, pool.most_on_one_host, fullest), (2, 2, "h1"));
}

/// A tenant may state as many rules as it likes.
#[test]
fn hostile_selectors_cost_a_bounded_time() {
    let vms: Vec<Vmi> = (0..3000)
        .map(|number| {
            let mut rules = rules();
            rules.vcpus = Some(number);
            rules.required_apart = Box::new([term(HOSTNAME, &[])]);
            vm(&format!("vm-{number}"), "h1", &rules)
        })
        .collect();
    let report = check(&fleet(&[host("h1", "a")], &vms));
    assert!(report.problems.len() <= 1000 && report.problems_total > 1000);
    assert!(
        report
            .not_checked
            .iter()
            .any(|note| note.contains("too many VMs"))
    );
}
