//! A collector that has just started writes nothing while everything is as it was.

use virtfleet_collector_core::{
    facts::{LauncherPod, UserNode},
    view::{ClusterState, ClusterStatus},
};
use virtfleet_wire::ids::ClusterName;

use super::*;

/// The ids of the findings that are stored.
fn finding_ids(fake: &Fake) -> Vec<String> {
    let found = fake.stored.lock().unwrap()[&key()].status().findings;
    found.into_iter().map(|one| one.id).collect()
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_failing_agent_is_kept() {
    let fake = Fake::default();
    let (fleet, stop, _events) = stage_in_time(&fake);
    // Until it cannot be that the VM still boots, and the problem has lasted.
    for pull in 0..15 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    let before = finding_ids(&fake);
    assert!(before.contains(&"agent-timeout".to_owned()), "{before:?}");
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "NoAnswer");
    stop.cancel();
    let writes = fake.writes();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    for pull in 0..5 {
        silence(&fleet, pull);
        seconds(30).await;
        assert_eq!(
            (finding_ids(&fake), fake.writes()),
            (before.clone(), writes),
            "pull {pull}"
        );
    }
    fleet.apply(InventoryEvent::Delete(FactKey::Vmi(key())));
    seconds(6).await;
    assert!(
        !finding_ids(&fake).contains(&"agent-timeout".to_owned()),
        "a stopped VM has none"
    );
}

#[tokio::test(start_paused = true)]
async fn a_third_failed_pull_alone_is_no_change() {
    let fake = Fake::default();
    let (fleet, stop, _events) = stage_in_time(&fake);
    for pull in 0..2 {
        silence(&fleet, pull);
        seconds(10).await;
    }
    stop.cancel();
    let writes = fake.writes();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    for pull in 0..5 {
        silence(&fleet, pull);
        seconds(10).await;
        assert_eq!(fake.writes(), writes, "pull {pull}");
    }
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "NoAnswerYet");
    assert!(finding_ids(&fake).is_empty(), "{:?}", finding_ids(&fake));
    // It is reported when the condition says that the agent does not answer.
    for pull in 5..20 {
        silence(&fleet, pull);
        seconds(30).await;
    }
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "NoAnswer");
    assert_eq!(finding_ids(&fake), ["agent-timeout"]);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_an_agent_that_answers_is_kept() {
    let fake = Fake::default();
    let found = || Finding::new("nic-x", Severity::Warning, ("Nic", "x"), "R", "m");
    let (fleet, stop, _events) = stage_in_time(&fake);
    make_ready(&fleet);
    for _ in 0..3 {
        answers(&fleet, found());
        seconds(30).await;
    }
    assert_eq!(fake.condition(&key(), "ComputeReady").0, ConditionStatus::True);
    assert!(finding_ids(&fake).contains(&"guest/nic-x".to_owned()));
    stop.cancel();
    let writes = fake.writes();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    make_ready(&fleet);
    // A large fleet is not pulled within the first seconds.
    seconds(20).await;
    assert_eq!(fake.writes(), writes, "before the first pull");
    for pull in 0..4 {
        answers(&fleet, found());
        seconds(30).await;
        assert_eq!(fake.writes(), writes, "pull {pull}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_is_kept_until_the_nodes_are_read() {
    let fake = Fake::default();
    let writes = write_with_node(&fake).await;
    let (fleet, _stop, _events) = stage_in_state(&fake, ClusterState::Connecting);
    seconds(20).await;
    assert_eq!(
        fake.writes(),
        writes,
        "the API server of the user cluster is slow"
    );
    fleet.apply(node());
    set_state(&fleet, ClusterState::Ready);
    seconds(20).await;
    assert_eq!(fake.writes(), writes, "the Nodes are read");
    let gone = FactKey::UserNode(cluster(), "a".parse().unwrap());
    fleet.apply(InventoryEvent::Delete(gone));
    seconds(6).await;
    assert_eq!((node_name(&fake), finding_ids(&fake)), (None, Vec::new()));
    assert_eq!(fake.condition(&key(), "LabelsInSync").1, "NoNode");
}

/// The verdict of a VM must not rest on what was known of its Node long ago.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_read_is_not_kept_for_good() {
    let fake = Fake::default();
    write_with_node(&fake).await;
    let (_fleet, _stop, _events) = stage_in_state(&fake, ClusterState::Connecting);
    seconds(290).await;
    assert_eq!(node_name(&fake).as_deref(), Some("a"));
    seconds(20).await;
    assert_eq!((node_name(&fake), finding_ids(&fake)), (None, Vec::new()));
    assert_eq!(fake.condition(&key(), "NodeReady").1, "UserClusterConnecting");
}

/// A collector writes the status of a VM with a Node, and ends. Returns the number of writes.
async fn write_with_node(fake: &Fake) -> usize {
    let (fleet, stop, _events) = stage_in_state(fake, ClusterState::Ready);
    fleet.apply(node());
    seconds(20).await;
    assert_eq!(node_name(fake).as_deref(), Some("a"));
    assert_eq!(finding_ids(fake), ["node-unconfirmed"]);
    stop.cancel();
    fake.writes()
}

/// As [`stage_in_time`], with a user cluster in this state.
fn stage_in_state(
    fake: &Fake,
    state: ClusterState,
) -> (Arc<Fleet>, CancellationToken, mpsc::Receiver<NewEvent>) {
    let (fleet, stop, events) = stage_in_time(fake);
    fleet.apply(InventoryEvent::Apply(Fact::LauncherPod(launcher())));
    set_state(&fleet, state);
    (fleet, stop, events)
}

fn set_state(fleet: &Fleet, state: ClusterState) {
    let status = ClusterStatus { state, message: None };
    let statuses = BTreeMap::from([(cluster(), status)]);
    fleet.change(|index| index.set_cluster_statuses(statuses));
}

fn cluster() -> ClusterName {
    "c".parse().unwrap()
}

/// The Node of the VM.
fn node() -> InventoryEvent {
    InventoryEvent::Apply(Fact::UserNode(UserNode {
        provider_id: Some("kubevirt://a".to_owned()),
        ..UserNode::new(cluster(), "a".parse().unwrap())
    }))
}

/// The name of the Node that is stored.
fn node_name(fake: &Fake) -> Option<String> {
    let status = fake.stored.lock().unwrap()[&key()].status();
    status.placement.unwrap().user_node
}

/// The pod of the VMI that [`vmi_of`] makes.
fn launcher() -> LauncherPod {
    LauncherPod {
        namespace: key().namespace,
        name: "virt-launcher-a".to_owned(),
        vm: Some(key().name),
        vmi_uid: Some("vmi-1".parse().unwrap()),
        node: Some("h1".parse().unwrap()),
        running: true,
        created: String::new(),
        started_ms: None,
        addresses: Vec::new(),
        requests: None,
    }
}
