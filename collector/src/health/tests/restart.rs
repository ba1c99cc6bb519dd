//! A collector that has just started writes nothing while everything is as it was.

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
