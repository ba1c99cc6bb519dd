//! The summary of labels that are not as requested, while requests fail or another writer rewrites
//! them.

use virtfleet_collector_core::labels::plan::Reason;

use super::{
    super::*,
    harness::{Fault, Harness, ms, settings},
};
use crate::leader::WriteAccess;

/// Why Nodes are not as requested, and an error.
fn reasons(harness: &Harness) -> (Vec<Reason>, Option<String>) {
    let all = harness.statuses.all();
    let found = summary(all.values().map(|one| &**one), true).unwrap();
    let reasons = found.reasons.into_iter().map(|one| one.reason);
    (reasons.collect(), found.error)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_again_and_again_is_reported_all_the_time() {
    for fault in [Fault::Status(403), Fault::Status(500), Fault::Silent] {
        let harness = Harness::new(WriteAccess::fixed(true), settings());
        let clusters = || harness.fake.clusters();
        clusters().faults.insert("c".parse().unwrap(), fault);
        harness.ready(&["c"]).await;
        ms(11_000).await;
        for _ in 0..600 {
            ms(300).await;
            let (reasons, error) = reasons(&harness);
            assert_eq!(reasons, [Reason::NotWritten], "{fault:?}");
            assert!(error.is_some(), "{fault:?}");
        }
        clusters().faults.clear();
        // A request that hangs, and a pause of a minute that jitter doubles.
        ms(131_000).await;
        assert_eq!(reasons(&harness), (Vec::new(), None), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_collector_cannot_or_may_not_write_is_reported() {
    let without_client = Harness::new(WriteAccess::fixed(true), settings());
    let clusters = || without_client.fake.clusters();
    clusters().unreachable.insert("c".parse().unwrap());
    without_client.ready(&["c"]).await;
    ms(1000).await;
    assert_eq!(reasons(&without_client).0, [Reason::NotWritten]);
    clusters().unreachable.clear();
    ms(61_000).await;
    assert_eq!(reasons(&without_client).0, []);
    without_client.echo("c", "a").await;
    // The evidence of safety cannot be read without a client, either.
    clusters().unreachable.insert("c".parse().unwrap());
    without_client.host_in("h1", "r1", Some("z1")).await;
    ms(1000).await;
    let (found, error) = reasons(&without_client);
    assert_eq!(found, [Reason::SafetyUnknown]);
    assert!(error.unwrap().contains("kubeconfig"));

    let off = ReconcilerSettings {
        write: false,
        ..settings()
    };
    let off = Harness::new(WriteAccess::fixed(true), off);
    off.ready(&["c"]).await;
    ms(1000).await;
    let (found, error) = reasons(&off);
    assert_eq!(found, [Reason::NotWritten]);
    assert_eq!(error.as_deref(), Some("the setting labels.write is false"));
}

#[tokio::test(start_paused = true)]
async fn a_contested_key_is_reported_until_it_has_kept_its_value() {
    let harness = Harness::new(WriteAccess::fixed(true), settings());
    harness.ready(&["c"]).await;
    for _ in 0..30 {
        ms(10_000).await;
        harness.echo("c", "a").await;
        harness.write_as_other("c", "a", "mine", true).await;
    }
    ms(10_000).await;
    assert_eq!(reasons(&harness).0, [Reason::Contested]);
    // The other writer shows the value for a moment.
    for rack in ["r1", "mine", "r1"] {
        harness.write_as_other("c", "a", rack, true).await;
        ms(60_000).await;
        assert_eq!(reasons(&harness).0, [Reason::Contested], "{rack}");
    }
    assert_eq!(harness.status("c/a").contested, std::collections::BTreeSet::new());
    ms(600_000).await;
    assert_eq!(reasons(&harness).0, []);
}
