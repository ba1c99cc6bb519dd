use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use virtfleet_collector_core::{
    facts::{Fact, FactKey, InventoryEvent, Phase},
    findings,
};
use virtfleet_wire::ids::VmKey;

use super::reader::FolderState;

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/fleet")
}

pub(super) fn key(name: &str) -> VmKey {
    VmKey {
        namespace: "tenants".parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

pub(super) fn vmi(name: &str, node: &str) -> String {
    format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{namespace: tenants, name: {name}}}\nstatus: {{phase: Running, nodeName: {node}}}\n"
    )
}

/// Updates a file and summarizes the events.
fn update(state: &mut FolderState, path: &str, text: Option<&str>) -> Vec<String> {
    let events = state.update(Path::new(path), text);
    let reported = events.iter().map(|event| match event {
        InventoryEvent::Apply(Fact::Vmi(vmi)) => format!("+{} {}", vmi.key.name, vmi.node.as_ref().unwrap()),
        InventoryEvent::Apply(fact) => format!("+{:?}", fact.key()),
        InventoryEvent::Delete(FactKey::Vmi(key)) => format!("-{}", key.name),
        other => format!("{other:?}"),
    });
    reported.collect()
}

fn messages(state: &FolderState) -> Vec<String> {
    state
        .findings()
        .into_iter()
        .map(|finding| finding.message)
        .collect()
}

#[test]
fn fixtures_in_the_form_of_kubectl_are_read() {
    let mut state = FolderState::default();
    for path in [
        "infra/vmis.yaml",
        "infra/vms.yml",
        "infra/nodes.json",
        "clusters/blue/cluster.yaml",
    ] {
        state.update(
            Path::new(path),
            Some(&fs::read_to_string(fixtures().join(path)).unwrap()),
        );
    }
    let facts: BTreeMap<FactKey, &Fact> = state.facts().map(|fact| (fact.key(), fact)).collect();
    assert_eq!(facts.len(), 7);
    let Fact::Vmi(blue) = facts[&FactKey::Vmi(key("blue-worker-0"))] else {
        panic!()
    };
    assert_eq!(
        blue.firmware_uuid.unwrap().to_string(),
        "3f9a8f0e-6c0e-5d5d-9a5f-4f7e5b0a0001"
    );
    assert_eq!(
        (blue.phase, blue.paused, blue.has_status, blue.deleting),
        (Phase::Running, false, true, false)
    );
    assert_eq!(blue.node.as_ref().unwrap().as_str(), "infra-a1");
    assert_eq!(blue.guest_os.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
    let addresses: Vec<_> = blue
        .interfaces
        .iter()
        .map(|i| (i.name.as_str(), i.addresses.len(), i.addresses_claimed))
        .collect();
    assert_eq!(addresses, [("default", 2, true), ("", 1, true)]);
    let migration = blue.migration.as_ref().unwrap();
    assert!(migration.completed && !migration.in_progress());
    let Fact::Vmi(green) = facts[&FactKey::Vmi(key("green-worker-0"))] else {
        panic!()
    };
    assert!(green.paused && green.firmware_uuid.is_none() && green.migration.is_none());
    let Fact::Vm(stopped) = facts[&FactKey::Vm(key("blue-worker-1"))] else {
        panic!()
    };
    assert_eq!(
        (stopped.labels.len(), stopped.printable_status.as_deref()),
        (2, Some("Stopped"))
    );
    let Fact::InfraNode(b1) = facts[&FactKey::InfraNode("infra-b1".parse().unwrap())] else {
        panic!()
    };
    assert_eq!((b1.zone(), b1.ready), (Some("eu-west-b"), None));
    assert_eq!(
        messages(&state),
        ["infra/vms.yml:22: objects of unused kinds: v1 ConfigMap on line 22"]
    );
}

#[test]
fn an_invalid_file_keeps_its_last_valid_version_and_is_named() {
    let mut state = FolderState::default();
    let valid = format!("{}---\n{}", vmi("a", "n1"), vmi("b", "n1"));
    assert_eq!(
        update(&mut state, "infra/v.yaml", Some(&valid)),
        ["+a n1", "+b n1"]
    );
    assert_eq!(
        update(&mut state, "infra/v.yaml", Some(&valid)),
        Vec::<String>::new()
    );
    let half = format!("{}---\n{}", vmi("a", "n2"), vmi("b", "Not_A_Node"));
    for (broken, message) in [
        ("", "infra/v.yaml:1: empty: delete the file to remove its objects"),
        (
            "# only a comment\n---\n",
            "infra/v.yaml:1: empty: delete the file to remove its objects",
        ),
        (
            half.as_str(),
            "infra/v.yaml:9: status.nodeName: \"Not_A_Node\" is not a valid node name",
        ),
        ("a: [1\n", "infra/v.yaml:2: "),
        ("- 1\n", "infra/v.yaml:1: a list is not a mapping"),
        ("kind: Node\n", "infra/v.yaml:1: apiVersion: required"),
    ] {
        assert_eq!(
            update(&mut state, "infra/v.yaml", Some(broken)),
            Vec::<String>::new(),
            "{broken}"
        );
        let found = messages(&state);
        assert!(found.len() == 1 && found[0].starts_with(message), "{found:?}");
        assert_eq!(state.findings()[0].id, findings::MANIFEST_BROKEN);
        assert_eq!(state.facts().count(), 2);
    }
    assert_eq!(
        update(&mut state, "infra/w.yaml", Some(&vmi("c", "n1"))),
        ["+c n1"],
        "other files are not affected"
    );
    assert_eq!(
        update(&mut state, "infra/v.yaml", Some(&vmi("a", "n2"))),
        ["-b", "+a n2"]
    );
    assert_eq!(messages(&state), Vec::<String>::new());
    assert_eq!(update(&mut state, "infra/v.yaml", None), ["-a"]);
}

#[test]
fn invalid_fields_are_named_with_line_and_path() {
    let head = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata:\n  namespace: tenants\n  name: a\n";
    let user = "apiVersion: virtfleet.io/v1alpha1\nkind: UserCluster\nmetadata: {name: blue}\nspec:\n";
    for (path, text, expected) in [
        (
            "infra/v.yaml",
            format!("{head}spec:\n  domain:\n    firmware:\n      uuid: x\n"),
            "infra/v.yaml:9: spec.domain.firmware.uuid: \"x\" is not a valid UUID",
        ),
        (
            "infra/v.yaml",
            format!("{head}status:\n  interfaces:\n  - mac: zz\n"),
            "infra/v.yaml:8: status.interfaces[0].mac: ",
        ),
        (
            "infra/v.yaml",
            format!("{head}status:\n  interfaces:\n  - ipAddresses:\n    - 10.0.0.1\n    - ten\n"),
            "infra/v.yaml:10: status.interfaces[0].ipAddresses[1]: \"ten\" is not an IP address",
        ),
        (
            "infra/v.yaml",
            format!("{head}status:\n  migrationState: {{completed: maybe}}\n"),
            "infra/v.yaml:7: status.migrationState.completed: \"maybe\" is not true or false",
        ),
        (
            "infra/v.yaml",
            format!("{head}  labels: {{a: 1}}\n"),
            "infra/v.yaml:6: metadata.labels.a: 1 is not a string (quote it)",
        ),
        (
            "clusters/blue/c.yaml",
            format!("{user}  vmis: {{namespace: a}}\n  relay: {{address: relay}}\n"),
            "clusters/blue/c.yaml:6: spec.relay.address: \"relay\" is not a valid address: host:port",
        ),
        (
            "clusters/blue/c.yaml",
            format!("{user}  vmis: {{namespace: a}}\n  relay: {{adress: relay:1}}\n"),
            "clusters/blue/c.yaml:6: spec.relay.adress: unknown",
        ),
        (
            "infra/v.yaml",
            format!("{head}spec: []\n"),
            "infra/v.yaml:6: spec: a list is not a mapping",
        ),
        (
            "infra/v.yaml",
            "kind: VirtualMachineInstance\napiVersion: kubevirt.io/v1\nmetadata:\n  name: a\n".into(),
            "infra/v.yaml:3: metadata.namespace: required",
        ),
        (
            "infra/v.yaml",
            format!("{head}---\n{head}"),
            "infra/v.yaml:7: VirtualMachineInstance tenants/a occurs in this file twice, first on line 1",
        ),
        (
            "clusters/green/c.yaml",
            format!("{user}  vmis: {{namespace: tenants}}\n"),
            "clusters/green/c.yaml:3: metadata.name: \"blue\" is in clusters/green/",
        ),
        (
            "clusters/blue/c.yaml",
            format!("{user}  vmis: {{}}\n"),
            "clusters/blue/c.yaml:5: spec.vmis.namespace: required",
        ),
        (
            "clusters/blue/c.yaml",
            format!("{user}  vmis:\n    namespace: t\n    selector:\n      matchLabel: {{a: b}}\n"),
            "clusters/blue/c.yaml:8: spec.vmis.selector.matchLabel: unknown",
        ),
        (
            "clusters/blue/c.yaml",
            format!(
                "{user}  vmis:\n    namespace: t\n    selector:\n      matchExpressions:\n      - {{key: a, operator: Near}}\n"
            ),
            "clusters/blue/c.yaml:9: spec.vmis.selector.matchExpressions[0].operator: \"Near\"",
        ),
        (
            "clusters/blue/c.yaml",
            format!(
                "{user}  vmis:\n    namespace: t\n    selector:\n      matchExpressions:\n      - {{key: a, operator: In}}\n"
            ),
            "spec.vmis.selector.matchExpressions[0].values: In and NotIn need",
        ),
        ("elsewhere.yaml", vmi("a", "n"), "elsewhere.yaml: not read: "),
    ] {
        let mut state = FolderState::default();
        assert!(state.update(Path::new(path), Some(&text)).is_empty());
        let found = messages(&state);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "expected {expected}\nfound {found:?}"
        );
    }
    let mut state = FolderState::default();
    state.update(Path::new("infra/v.yaml"), Some(&" ".repeat(16 * 1024 * 1024 + 1)));
    assert!(
        messages(&state)[0].contains("16777217 bytes"),
        "{:?}",
        messages(&state)
    );
}

#[test]
fn guest_agent_values_never_make_a_file_invalid() {
    let text = |source: &str| {
        vmi("a", "n1").replace(
            "phase: Running",
            &format!(
                "interfaces: [{{mac: x, ipAddress: fe80::1%eth0, ipAddresses: [10.0.0.9, '?'], infoSource: '{source}'}}], phase: Running"
            ),
        )
    };
    let mut state = FolderState::default();
    for source in ["guest-agent", "domain, guest-agent"] {
        update(&mut state, "infra/a.yaml", Some(&text(source)));
        assert_eq!(messages(&state), Vec::<String>::new(), "{source}");
        let Some(Fact::Vmi(vmi)) = state.facts().next() else {
            panic!("{source}")
        };
        let interface = &vmi.interfaces[0];
        assert_eq!(interface.mac, None);
        assert_eq!(
            interface.addresses,
            ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]
        );
    }
    update(&mut state, "infra/a.yaml", Some(&text("domain")));
    assert_eq!(
        messages(&state).len(),
        1,
        "values of the infra cluster are checked"
    );
}

#[test]
fn the_first_of_two_files_is_used_and_objects_move_without_a_gap() {
    let mut state = FolderState::default();
    assert_eq!(
        update(&mut state, "infra/b.yaml", Some(&vmi("a", "n1"))),
        ["+a n1"]
    );
    assert_eq!(
        update(&mut state, "infra/c.yaml", Some(&vmi("a", "n2"))),
        Vec::<String>::new()
    );
    let found = messages(&state);
    assert!(
        found.len() == 1 && found[0].contains("infra/c.yaml") && found[0].contains("used: infra/b.yaml"),
        "{found:?}"
    );
    assert_eq!(
        update(&mut state, "infra/a.yaml", Some(&vmi("a", "n3"))),
        ["+a n3"]
    );
    assert_eq!(
        update(&mut state, "infra/b.yaml", Some(&vmi("a", "n4"))),
        Vec::<String>::new()
    );
    assert_eq!(update(&mut state, "infra/a.yaml", None), ["+a n4"]);
    assert_eq!(update(&mut state, "infra/b.yaml", None), ["+a n2"]);
    assert_eq!(update(&mut state, "infra/c.yaml", None), ["-a"]);
    assert_eq!(messages(&state), Vec::<String>::new());
}

#[test]
fn items_of_a_typed_list_have_its_kind() {
    let mut state = FolderState::default();
    let text = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceList\nitems:\n- metadata: {namespace: tenants, name: a}\n  status: {nodeName: n}\n";
    assert_eq!(update(&mut state, "infra/l.yaml", Some(text)), ["+a n"]);
    let empty = "apiVersion: v1\nkind: List\nitems: []\n";
    assert_eq!(
        update(&mut state, "infra/l.yaml", Some(empty)),
        ["-a"],
        "an empty list is valid"
    );
}

/// Many sequences of 4 updates, each of one of three files: one of two VMs, both, an invalid text,
/// or deletion. The events must add up to the state.
#[test]
fn the_events_add_up_to_the_state() {
    let files = ["infra/a.yaml", "infra/b.yaml", "infra/c.yaml"];
    let texts = [
        None,
        Some("kind: [".to_owned()),
        Some(vmi("x", "n1")),
        Some(vmi("x", "n2")),
        Some(format!("{}---\n{}", vmi("y", "n1"), vmi("x", "n1"))),
    ];
    let kinds = files.len() * texts.len();
    for mut sequence in (0..kinds.pow(4)).step_by(7) {
        let mut state = FolderState::default();
        let mut built: BTreeMap<FactKey, Fact> = BTreeMap::new();
        for _ in 0..4 {
            let (file, text) = (files[sequence % 3], &texts[sequence / 3 % 5]);
            sequence /= kinds;
            for event in state.update(Path::new(file), text.as_deref()) {
                match event {
                    InventoryEvent::Apply(fact) => built.insert(fact.key(), fact),
                    InventoryEvent::Delete(key) => built.remove(&key),
                    other => panic!("{other:?}"),
                };
            }
            let held: BTreeMap<FactKey, Fact> =
                state.facts().map(|fact| (fact.key(), fact.clone())).collect();
            assert_eq!(built, held);
        }
    }
}
