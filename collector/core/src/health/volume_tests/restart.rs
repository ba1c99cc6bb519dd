//! Volumes of a VM that waited before the collector started.

use super::*;

#[test]
fn a_collector_that_has_just_started_waits_for_the_first_read() {
    let mut vm = stopped("Provisioning");
    vm.created_ms = Some(NOW_MS - HOUR_MS);
    let found = |read: Option<&ReadVolumes>, for_ms| {
        let found = health(&vm, None, read, for_ms);
        (found.verdict, found.is_undecided)
    };
    assert_eq!(found(None, 1000), (HealthVerdict::Unknown, true));
    assert_eq!(
        found(None, 300_000),
        (HealthVerdict::Degraded, false),
        "nothing can be read"
    );
    let filled = |phase: &str, progress: &str, changed_ms| {
        let ReadAnswer::Found(mut state) = filled(phase, progress, ReportedConditions::default()) else {
            panic!("it is found")
        };
        state.changed_ms = Some(changed_ms);
        let all = read(vec![volume(
            "root",
            claim("Bound"),
            Some(ReadAnswer::Found(state)),
        )]);
        all.after(None)
    };
    let long_ago = NOW_MS - HOUR_MS;
    let still = filled("ImportScheduled", "N/A", long_ago);
    assert_eq!(found(Some(&still), 1000), (HealthVerdict::Degraded, false));
    let new = filled("ImportScheduled", "N/A", NOW_MS - 60_000);
    assert_eq!(found(Some(&new), 1000), (HealthVerdict::Unknown, false));
    for (phase, progress) in [("ImportInProgress", "40.00%"), ("CloneInProgress", "N/A")] {
        let moving = filled(phase, progress, long_ago);
        assert_eq!(
            found(Some(&moving), 1000),
            (HealthVerdict::Unknown, false),
            "{phase}"
        );
        assert_eq!(moving.volumes[0].since_ms, moving.at_ms);
    }
}
