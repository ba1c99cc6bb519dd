//! The verdict that follows from the first report of a guest.

use super::*;

#[tokio::test(start_paused = true)]
async fn it_is_written_although_another_condition_settles() {
    let fake = Fake::default();
    let (fleet, _stop, _events) = stage_in_time(&fake);
    fleet.apply(InventoryEvent::Delete(FactKey::UserCluster("c".parse().unwrap())));
    make_ready(&fleet);
    seconds(6).await;
    let reason = || fake.stored.lock().unwrap()[&key()].status().reason.unwrap();
    assert_eq!(reason(), "Waiting");
    let failed = Finding::new("virtio-x", Severity::Critical, ("Device", "x"), "R", "m");
    answers(&fleet, failed);
    seconds(6).await;
    assert_eq!(fake.condition(&key(), "AgentReporting").1, "Up");
    assert_eq!(reason(), "DNSNotReported");
    // What settles is shown once it has lasted for five minutes.
    seconds(280).await;
    assert_eq!(reason(), "DNSNotReported");
}
