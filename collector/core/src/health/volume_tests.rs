//! Table and properties of a VM that waits for a volume.

mod never_healthy;
mod restart;

use super::{
    AgentFacts, HealthCause, HealthFacts, HealthTrack, HealthVerdict, HealthView, LauncherState, SeenSince,
};
use crate::{
    facts::{RunStrategy, Vm, Vmi},
    reported::{ReportedCondition, ReportedConditions, ReportedStatus},
    state::vm_state,
    store::tests::{key, user_node, vm},
    tenant::Tenant,
    view::AgentStatus,
    volumes::{ClaimState, ClaimVolume, DataVolumeState, ReadAnswer, ReadVolume, ReadVolumes},
};

const NOW_MS: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;
/// Phases of a DataVolume: `pkg/apis/core/v1beta1/types.go` of CDI.
const PHASES: [&str; 16] = [
    "",
    "Pending",
    "PVCBound",
    "ImportScheduled",
    "ImportInProgress",
    "CloneScheduled",
    "CloneInProgress",
    "UploadScheduled",
    "UploadReady",
    "WaitForFirstConsumer",
    "PendingPopulation",
    "Succeeded",
    "Failed",
    "Unknown",
    "Paused",
    "ALaterPhase",
];

fn condition(kind: &str, status: ReportedStatus, reason: &str, message: &str) -> ReportedConditions {
    let one = ReportedCondition::new(kind, status, Some(reason), Some(message));
    ReportedConditions::new([one])
}

fn stopped(printable: &str) -> Vm {
    let mut made = vm("ns", "a");
    made.printable_status = Some(printable.to_owned());
    made
}

fn claim(phase: &str) -> ReadAnswer<ClaimState> {
    ReadAnswer::Found(ClaimState::new(Some(phase), Some("fast"), false))
}

fn filled(phase: &str, progress: &str, conditions: ReportedConditions) -> ReadAnswer<DataVolumeState> {
    ReadAnswer::Found(DataVolumeState::new(Some(phase), Some(progress), conditions))
}

fn volume(
    name: &str,
    claim: ReadAnswer<ClaimState>,
    data_volume: Option<ReadAnswer<DataVolumeState>>,
) -> ReadVolume {
    let volume = ClaimVolume {
        claim: name.parse().unwrap(),
        is_data_volume: data_volume.is_some(),
    };
    let mut made = ReadVolume::new(volume, claim, data_volume);
    made.since_ms = NOW_MS;
    made
}

fn read(volumes: Vec<ReadVolume>) -> ReadVolumes {
    ReadVolumes {
        at_ms: NOW_MS - 1000,
        volumes: volumes.into(),
        manifest: "infra/rbac.yaml",
    }
}

/// The health of a VM that has had its state for so long.
fn health(vm: &Vm, vmi: Option<&Vmi>, read: Option<&ReadVolumes>, for_ms: u64) -> HealthView {
    health_beside(vm, vmi, read, for_ms, None)
}

fn health_beside(
    vm: &Vm,
    vmi: Option<&Vmi>,
    read: Option<&ReadVolumes>,
    for_ms: u64,
    node: Option<ReportedStatus>,
) -> HealthView {
    let (key, tenant) = (key("ns", "a"), Tenant::One("c".parse().unwrap()));
    let mut user_node = user_node("c", "a", None);
    if let Some(ready) = node {
        user_node.conditions = condition("Ready", ready, "R", "m");
    }
    let facts = HealthFacts {
        key: &key,
        now_ms: NOW_MS,
        vmi,
        vm: Some(vm),
        state: vm_state(vmi, Some(vm)),
        seen: SeenSince::first(vm_state(vmi, Some(vm)), vmi.is_some(), NOW_MS - for_ms),
        started_ms: None,
        launcher: LauncherState::NotWatched,
        host: None,
        infra_node: None,
        tenant: &tenant,
        is_tenant_pending: false,
        cluster_state: Some(crate::view::ClusterState::Ready),
        node_match: &crate::keys::NodeMatch::None,
        other_node_created_ms: None,
        user_node: node.map(|_| &user_node),
        host_heartbeat: None,
        node_heartbeat: None,
        agent: AgentFacts {
            status: AgentStatus::Off,
            excluded_by: None,
            is_expected: true,
            failure: None,
            last_try_ms: None,
            answer: None,
        },
        delivery: None,
        usage: None,
        is_usage_pending: false,
        contention: None,
        failed_migrations: &crate::story::FailedMigrations::default(),
        dead_migration: &crate::abandoned::DeadMigration::default(),
        findings: &[],
        is_inventory_stale: false,
        volumes: read,
        plugging: &[],
    };
    HealthTrack::new(&facts).view()
}

/// Shown beside KubeVirt's status: verdict and reason, a part of the message, and kind and name
/// in the next command.
type Shown = (HealthVerdict, &'static str, &'static str, &'static str);

fn shows(printable: &str, volumes: Vec<ReadVolume>, (verdict, reason, part, object): Shown) {
    let found = health(&stopped(printable), None, Some(&read(volumes)), 1000);
    let is = (found.verdict, found.cause, found.reason.as_str());
    let expected = (verdict, Some(HealthCause::Storage), reason);
    assert_eq!(is, expected, "{printable}: {}", found.message);
    assert!(found.message.contains(part), "{}", found.message);
    assert_eq!(found.next, format!("kubectl -n ns describe {object}"));
}

const BINDING: &str = "WaitingForVolumeBinding";
const PROVISIONING: &str = "Provisioning";

#[test]
fn the_claim_and_its_phase_are_named() {
    use HealthVerdict::{Critical, Unknown};
    let bound = || volume("other", claim("Bound"), None);
    let deleting = ReadAnswer::Found(ClaimState::new(Some("Bound"), None, true));
    let gone = || ReadAnswer::NotFound;
    let pending = "PersistentVolumeClaim root, which is Pending (storage class fast)";
    let pending = (Unknown, "PvcPending", pending, "pvc root");
    let lost = (
        Critical,
        "PvcLost",
        "PersistentVolumeClaim root of the VM is Lost",
        "pvc root",
    );
    let terminating = (Critical, "PvcTerminating", "being deleted", "pvc root");
    let missing = "PersistentVolumeClaim root of the VM does not exist";
    let missing = (Critical, "PvcNotFound", missing, "pvc root");
    shows(
        BINDING,
        vec![bound(), volume("root", claim("Pending"), None)],
        pending,
    );
    shows(BINDING, vec![volume("root", claim("Lost"), None)], lost);
    shows(BINDING, vec![volume("root", deleting, None)], terminating);
    shows(
        "ErrorPvcNotFound",
        vec![bound(), volume("root", gone(), None)],
        missing,
    );
    // A DataVolume that has succeeded does not replace a claim that is gone.
    let done = filled("Succeeded", "100.0%", ReportedConditions::default());
    shows(BINDING, vec![volume("root", gone(), Some(done))], missing);
    // CDI may delete DataVolumes that have succeeded; the claim remains.
    let collected = volume("root", claim("Pending"), Some(ReadAnswer::NotFound));
    shows(BINDING, vec![collected], pending);
}

#[test]
fn the_data_volume_its_phase_and_progress_are_named() {
    use HealthVerdict::{Degraded, Unknown};
    let none = ReportedConditions::default;
    let waits = condition("Running", ReportedStatus::False, "Pending", "no node has room");
    let of = |claim, filled| vec![volume("root", claim, Some(filled))];
    let object = "datavolume root";
    let filling = |part| (Unknown, "VolumesProvisioning", part, object);
    let importing = filled("ImportInProgress", "40.00%", none());
    let part = "DataVolume root, which is ImportInProgress at 40.00%";
    shows(PROVISIONING, of(claim("Pending"), importing), filling(part));
    let new = filled("Pending", "N/A", none());
    shows(
        PROVISIONING,
        of(ReadAnswer::NotFound, new),
        filling("DataVolume root, which is Pending"),
    );
    let scheduled = filled("ImportScheduled", "N/A", waits);
    let part = "which is ImportScheduled (no node has room)";
    shows(PROVISIONING, of(claim("Bound"), scheduled), filling(part));
    let paused = filled("Paused", "40.00%", none());
    let part = "is Paused at 40.00%, so nothing fills its volume";
    let shown = (Degraded, "DataVolumePaused", part, object);
    shows(PROVISIONING, of(claim("Bound"), paused), shown);
    let waiting = filled("WaitForFirstConsumer", "N/A", none());
    let part = "DataVolume root, which is WaitForFirstConsumer";
    shows(
        BINDING,
        of(claim("Pending"), waiting),
        (Unknown, "PvcPending", part, object),
    );
}

#[test]
fn a_data_volume_that_failed_is_named_with_its_message() {
    use HealthVerdict::Critical;
    let none = ReportedConditions::default;
    let failed = condition(
        "Running",
        ReportedStatus::False,
        "Error",
        "Unable to connect: 404",
    );
    let quota = condition(
        "Bound",
        ReportedStatus::Unknown,
        "ErrExceededQuota",
        "used 5Gi of 5Gi",
    );
    let of = |claim, filled| vec![volume("root", claim, Some(filled))];
    let object = "datavolume root";
    let error = |part| (Critical, "DataVolumeError", part, object);
    let retrying = filled("ImportInProgress", "N/A", failed);
    let part = "has failed (ImportInProgress): Unable to connect: 404";
    shows(PROVISIONING, of(claim("Bound"), retrying), error(part));
    let ended = filled("Failed", "N/A", none());
    shows(
        "DataVolumeError",
        of(claim("Bound"), ended),
        error("has failed (Failed)"),
    );
    let refused = filled("Pending", "N/A", quota);
    let shown = (
        Critical,
        "StorageQuotaExceeded",
        "exceeds a quota: used 5Gi of 5Gi",
        object,
    );
    shows(PROVISIONING, of(ReadAnswer::NotFound, refused), shown);
    let part = "DataVolume root of the VM does not exist";
    let shown = (Critical, "DataVolumeNotFound", part, object);
    shows(
        "ErrorDataVolumeNotFound",
        of(ReadAnswer::NotFound, ReadAnswer::NotFound),
        shown,
    );
    // KubeVirt's word is newer than what was read.
    let before = filled("ImportInProgress", "3%", none());
    let part = "a DataVolume of the VM has failed; the VM waits for its DataVolume root";
    shows("DataVolumeError", of(claim("Bound"), before), error(part));
    // The worst one is named, whatever the order is.
    let importing = filled("ImportInProgress", "9%", none());
    let both = vec![
        volume("a", claim("Pending"), Some(importing)),
        volume("b", claim("Lost"), None),
    ];
    shows(
        PROVISIONING,
        both,
        (Critical, "PvcLost", "PersistentVolumeClaim b", "pvc b"),
    );
}

#[test]
fn what_takes_long_is_a_problem_only_without_progress() {
    let importing = |since_ms| {
        let mut one = volume(
            "root",
            claim("Bound"),
            Some(filled(
                "ImportInProgress",
                "40.00%",
                ReportedConditions::default(),
            )),
        );
        one.since_ms = since_ms;
        read(vec![one])
    };
    let of = |read: &ReadVolumes| health(&stopped("Provisioning"), None, Some(read), HOUR_MS);
    let (moving, still) = (of(&importing(NOW_MS - 60_000)), of(&importing(NOW_MS - 600_000)));
    assert_eq!(
        (moving.verdict, moving.reason.as_str()),
        (HealthVerdict::Unknown, "VolumesProvisioning")
    );
    let expected = (HealthVerdict::Degraded, "VolumesProvisioningTooLong");
    assert_eq!((still.verdict, still.reason.as_str()), expected);
    let pending = |since_ms| {
        let mut one = volume("root", claim("Pending"), None);
        one.since_ms = since_ms;
        read(vec![one])
    };
    let vm = stopped("WaitingForVolumeBinding");
    let shown = |read: Option<&ReadVolumes>, for_ms| {
        let found = health(&vm, None, read, for_ms);
        (found.verdict, found.reason)
    };
    let (waits, too_long) = (
        (HealthVerdict::Unknown, "PvcPending".to_owned()),
        (HealthVerdict::Degraded, "PvcPendingTooLong".to_owned()),
    );
    let (old, new) = (pending(NOW_MS - HOUR_MS), pending(NOW_MS - 60_000));
    assert_eq!(shown(Some(&old), HOUR_MS), too_long);
    // The claim was created a minute ago, or the VM was started a minute ago.
    assert_eq!(shown(Some(&new), HOUR_MS), waits);
    assert_eq!(shown(Some(&old), 60_000), waits);
    assert_eq!(shown(None, HOUR_MS), too_long, "KubeVirt's word alone");
}

#[test]
fn the_scheduler_blames_the_claim_and_not_the_host() {
    let mut vmi = crate::store::tests::vmi("ns", "a");
    vmi.phase = crate::facts::Phase::Scheduling;
    let said = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    vmi.conditions = condition("PodScheduled", ReportedStatus::False, "Unschedulable", said);
    let pending = read(vec![volume("root", claim("Pending"), None)]);
    let found = health(&stopped("ErrorUnschedulable"), Some(&vmi), Some(&pending), 1000);
    let expected = (HealthVerdict::Critical, Some(HealthCause::Storage), "PvcPending");
    assert_eq!((found.verdict, found.cause, found.reason.as_str()), expected);
    assert!(
        found.message.contains("PersistentVolumeClaim root"),
        "{}",
        found.message
    );
    assert!(found.message.ends_with(said), "{}", found.message);
}

#[test]
fn a_right_that_is_missing_is_named_and_changes_nothing_else() {
    let denied = || read(vec![volume("root", ReadAnswer::Denied, Some(ReadAnswer::Denied))]);
    let cases = [
        (
            denied(),
            "; the collector may not get persistentvolumeclaims: kubectl apply -f \
             packaging/collector/kubernetes/infra/rbac.yaml",
        ),
        (
            read(vec![volume("root", claim("Bound"), Some(ReadAnswer::Denied))]),
            "; the collector may not get datavolumes.cdi.kubevirt.io: kubectl apply -f \
             packaging/collector/kubernetes/infra/rbac.yaml",
        ),
        (
            read(vec![volume("root", claim("Bound"), Some(ReadAnswer::NotServed))]),
            "; DataVolumes cannot be read: the infra cluster does not serve datavolumes.cdi.kubevirt.io, so CDI \
             is not installed",
        ),
        (
            read(vec![volume(
                "root",
                ReadAnswer::failed("the server is busy"),
                None,
            )]),
            "; PersistentVolumeClaims cannot be read: the server is busy",
        ),
    ];
    for printable in [
        "Provisioning",
        "WaitingForVolumeBinding",
        "DataVolumeError",
        "ErrorPvcNotFound",
    ] {
        for (read, gap) in &cases {
            let vm = stopped(printable);
            let (without, with) = (health(&vm, None, None, 1000), health(&vm, None, Some(read), 1000));
            assert_eq!(with.message, format!("{}{gap}", without.message));
            assert_eq!(with.tenant_text(), without.message, "tenants cannot grant it");
            let plain = |one: &HealthView| (one.verdict, one.cause, one.reason.clone(), one.next.clone());
            assert_eq!(plain(&with), plain(&without));
        }
    }
}

#[test]
fn what_is_read_of_a_stopped_vm_is_no_evidence() {
    let pending = read(vec![volume("root", claim("Pending"), None)]);
    let found = health(&stopped("Stopped"), None, Some(&pending), HOUR_MS);
    assert_eq!(
        (found.cause, found.reason.as_str()),
        (Some(HealthCause::Vm), "Stopped")
    );
    let mut halted = stopped("Provisioning");
    halted.run_strategy = Some(RunStrategy::Halted);
    let found = health(&halted, None, Some(&pending), HOUR_MS);
    assert_eq!(
        (found.cause, found.reason.as_str()),
        (Some(HealthCause::Vm), "Stopped")
    );
}

#[test]
fn a_volume_explains_a_silent_kubelet() {
    let importing = volume(
        "root",
        claim("Bound"),
        Some(filled("ImportInProgress", "1%", ReportedConditions::default())),
    );
    let importing = read(vec![importing]);
    let of = |node| health_beside(&stopped("Provisioning"), None, Some(&importing), 1000, node);
    let expected = (HealthVerdict::Critical, Some(HealthCause::Storage));
    for ready in [ReportedStatus::Unknown, ReportedStatus::False] {
        let found = of(Some(ready));
        assert_eq!((found.verdict, found.cause), expected);
        assert_eq!(found.reason, "VolumesProvisioning");
    }
    assert_eq!(of(None).verdict, HealthVerdict::Unknown);
}

#[test]
fn texts_of_objects_are_bounded_and_shown_as_text() {
    let hostile = format!("\u{1b}[2J\u{202e}{}", "x".repeat(100_000));
    let conditions = condition("Running", ReportedStatus::False, "Error", &hostile);
    let state = ReadAnswer::Found(DataVolumeState::new(Some(&hostile), Some(&hostile), conditions));
    let claim = ReadAnswer::Found(ClaimState::new(Some(&hostile), Some(&hostile), false));
    for volumes in [
        vec![volume("root", claim.clone(), Some(state))],
        vec![volume("root", claim, None)],
        vec![volume("root", ReadAnswer::failed(&hostile), None)],
    ] {
        let found = health(&stopped("Provisioning"), None, Some(&read(volumes)), 1000);
        assert!(found.message.len() < 1500, "{}", found.message.len());
        assert!(
            !found.message.contains(['\u{1b}', '\u{202e}']),
            "{}",
            found.message
        );
    }
}

#[test]
fn the_message_of_guest_health_has_no_progress() {
    let at = |progress: &str| {
        let filled = filled("ImportInProgress", progress, ReportedConditions::default());
        let one = read(vec![volume("root", claim("Bound"), Some(filled))]);
        health(&stopped("Provisioning"), None, Some(&one), 1000)
    };
    let (early, late) = (at("1.00%"), at("99.00%"));
    assert_ne!(early.message, late.message);
    assert_eq!(early.tenant_text(), late.tenant_text());
    // GuestHealth is written again when the object becomes known, and not with each number.
    let unread = health(&stopped("Provisioning"), None, None, 1000);
    assert_eq!(early.conditions_key, late.conditions_key);
    assert_eq!(unread.reason, early.reason);
    assert_ne!(unread.conditions_key, early.conditions_key);
    assert!(
        late.tenant_text()
            .ends_with("DataVolume root, which is ImportInProgress")
    );
}
