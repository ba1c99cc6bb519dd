//! Since when the volumes of a VM have not moved: after a start of the collector, and after reads
//! that failed.

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

#[test]
fn a_failed_read_does_not_restart_the_time_without_progress() {
    let importing = |progress: &str| filled("ImportInProgress", progress, ReportedConditions::default());
    let unread = || ReadAnswer::failed("no answer");
    let at = |seconds: u64, claim, data_volume, before: Option<&ReadVolumes>| {
        let now = ReadVolumes {
            at_ms: NOW_MS + seconds * 1000,
            ..read(vec![volume("root", claim, Some(data_volume))])
        };
        now.after(before)
    };
    let since = |read: &ReadVolumes| (read.volumes[0].since_ms - NOW_MS) / 1000;
    let first = at(0, claim("Bound"), importing("40.00%"), None);
    for unanswered in [
        claim("Bound"),
        ReadAnswer::Denied,
        ReadAnswer::failed("no answer"),
    ] {
        let failed = at(30, unanswered.clone(), unread(), Some(&first));
        let again = at(60, unanswered, unread(), Some(&failed));
        assert_eq!((since(&failed), since(&again)), (0, 0));
        let still = at(90, claim("Bound"), importing("40.00%"), Some(&again));
        assert_eq!(since(&still), 0, "nothing has moved");
        let moved = at(90, claim("Bound"), importing("50.00%"), Some(&again));
        assert_eq!(since(&moved), 90, "it has moved meanwhile");
    }
    // What could not be read before is not known to have stood still.
    let without = at(0, claim("Bound"), unread(), None);
    let found = at(30, claim("Bound"), importing("40.00%"), Some(&without));
    assert_eq!((since(&without), since(&found)), (0, 30));
}
