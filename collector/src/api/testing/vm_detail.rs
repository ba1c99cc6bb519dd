//! All details of a VM of the fleet.

use virtfleet_collector_core::{
    facts::Labels,
    health::HealthConditionView,
    story::StoryView,
    view::{IdentityCheck, IdentityVerdict, InterfaceView, VmDetail, VmView},
};
use virtfleet_wire::{
    finding::{Finding, Severity},
    report::{GuestReport, Section, SectionStatus},
};

use super::spec_checks;

/// The details of a VM with a story and one condition, at a time.
pub(super) fn detail(vm: &VmView, told: StoryView, condition: HealthConditionView, now: u64) -> VmDetail {
    let uuid = "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34";
    let check = |verdict, expected: &str, claimed: Option<&str>, source: Option<&str>| IdentityCheck {
        expected: Some(expected.to_owned()),
        claimed: claimed.map(str::to_owned),
        source: source.map(str::to_owned),
        verdict,
    };
    let section = |items| Section {
        status: SectionStatus::Ok,
        age_ms: 3_000,
        items,
        truncated: false,
    };
    let name = format!("{}/{}", vm.namespace, vm.name);
    let silent = Finding::new(
        "agent-silent",
        Severity::Warning,
        ("VM", &name),
        "AgentSilent",
        "the agent is silent",
    )
    .remedy("systemctl status virtfleet-agent");
    VmDetail {
        vm: vm.clone(),
        created_ms: Some(now - 86_400_000),
        labels: [("app", "worker")].into_iter().collect(),
        infra_node_labels: Labels::new(),
        user_node_labels: Labels::new(),
        node_conditions: [("virtfleet.io/DisksReady".to_owned(), "False".to_owned())].into(),
        migration: None,
        usage_history: None,
        history_ranges: Vec::new(),
        queues: Vec::new(),
        interfaces: vec![InterfaceView {
            name: "default".to_owned(),
            mac: Some("02:00:00:00:00:01".to_owned()),
            addresses: vec!["10.0.0.7".to_owned(), "fe80::1".to_owned()],
            dial: "dialled at 10.0.0.7".to_owned(),
        }],
        spec: spec_checks::all(),
        conditions: vec![condition],
        identity: [
            (
                "uuid".to_owned(),
                check(IdentityVerdict::Confirmed, uuid, Some(uuid), Some("/sys/class/dmi/id/product_uuid")),
            ),
            (
                "hostname".to_owned(),
                check(
                    IdentityVerdict::Disagrees,
                    vm.name.as_str(),
                    Some("\u{1b}[31mevil\u{202e}\n"),
                    Some("uname"),
                ),
            ),
            ("mac".to_owned(), check(IdentityVerdict::Unknown, "02:00:00:00:00:01", None, None)),
        ]
        .into(),
        findings_list: vec![silent; vm.findings],
        timeline: told.timeline,
        timeline_since_ms: Some(now - 7_200_000),
        migrations: told.migrations,
        enrolment: None,
        report: vm.guest.is_some().then(|| GuestReport {
            sections: [
                (
                    "system".to_owned(),
                    section(vec![serde_json::json!({
                        "osName": "Debian", "osId": "debian", "bootTimeUnix": 1_700_000_000, "memoryTotalBytes": 4_294_967_296_u64,
                        "cpusOnline": 2, "uptimeSeconds": 200_000, "dmi": { "a": 1 },
                    })]),
                ),
                (
                    "disks".to_owned(),
                    section(vec![
                        serde_json::json!({ "name": "vda", "sizeBytes": 10_737_418_240_u64, "mounted": true }),
                        serde_json::json!({ "name": "vdb\u{1b}[2J", "serial": "data" }),
                    ]),
                ),
            ]
            .into(),
            ..GuestReport::default()
        }),
    }
}
