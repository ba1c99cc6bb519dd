//! A short version of `make mla-soak`: real receivers, the collector, networks and the disk of the
//! queues fail, and no sample that the collector accepted is missing afterwards.

use std::time::Duration;

use virtfleet_tests::{
    mla_soak::{SoakOptions, run},
    parts, skip,
};

const TIER: u8 = 3;

#[test]
fn tier3_every_accepted_sample_is_stored_once_although_everything_fails() {
    let test = "tier3_every_accepted_sample_is_stored_once_although_everything_fails";
    let needs = skip::root()
        .and_then(|()| parts::prometheus())
        .and_then(|_| parts::victoria_metrics());
    if skip::need(TIER, test, needs).unwrap().is_none() {
        return;
    }
    let report = run(SoakOptions {
        tenants: 3,
        vms: 3,
        length: Duration::from_secs(3),
        kills: 1,
        prometheus: 1,
        interval: Duration::from_secs(1),
        seed: 1,
        overflow: false,
        verbose: false,
    })
    .unwrap();
    assert_eq!(report.tenants.len(), 3);
    assert!(report.all_violations().is_empty(), "{report}");
}
