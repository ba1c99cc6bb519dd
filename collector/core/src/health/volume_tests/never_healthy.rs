//! Whatever is read, a VM that waits for a volume is never healthy.

use proptest::prelude::*;

use super::*;

fn answers<T: Clone + std::fmt::Debug + 'static>(
    found: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = ReadAnswer<T>> {
    prop_oneof![
        6 => found.prop_map(ReadAnswer::Found),
        1 => Just(ReadAnswer::NotFound),
        1 => Just(ReadAnswer::NotServed),
        1 => Just(ReadAnswer::Denied),
        1 => Just(ReadAnswer::failed("why")),
    ]
}

fn read_volumes() -> impl Strategy<Value = ReadVolumes> {
    let claims = (
        prop::sample::select(vec!["", "Pending", "Bound", "Lost", "Other"]),
        any::<bool>(),
    )
        .prop_map(|(phase, is_deleting)| ClaimState::new(Some(phase), None, is_deleting));
    let kinds = prop::sample::select(vec!["Running", "Bound", "Ready"]);
    let reasons = prop::sample::select(vec!["Error", "ImagePullFailed", "ErrExceededQuota", "Pending"]);
    let statuses = prop::sample::select(vec![
        ReportedStatus::True,
        ReportedStatus::False,
        ReportedStatus::Unknown,
    ]);
    let filled = (prop::sample::select(PHASES.to_vec()), kinds, statuses, reasons).prop_map(
        |(phase, kind, status, reason)| {
            DataVolumeState::new(Some(phase), None, condition(kind, status, reason, "m"))
        },
    );
    let one = (answers(claims), prop::option::of(answers(filled)), 0..2 * HOUR_MS).prop_map(
        |(claim, data_volume, age_ms)| {
            let mut made = volume("root", claim, data_volume);
            made.since_ms = NOW_MS - age_ms;
            made
        },
    );
    (prop::collection::vec(one, 0..4), 0..400_000_u64).prop_map(|(volumes, age_ms)| ReadVolumes {
        at_ms: NOW_MS - age_ms,
        ..read(volumes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_vm_that_waits_for_a_volume_is_never_healthy(
        printable in prop::sample::select(vec![
            "Provisioning", "WaitingForVolumeBinding", "DataVolumeError", "ErrorPvcNotFound", "ErrorDataVolumeNotFound",
        ]),
        read in prop::option::of(read_volumes()),
        for_ms in 0..2 * HOUR_MS,
        node in prop::option::of(prop::sample::select(vec![ReportedStatus::True, ReportedStatus::Unknown])),
    ) {
        let found = health_beside(&stopped(printable), None, read.as_ref(), for_ms, node);
        prop_assert!(found.verdict >= HealthVerdict::Unknown);
        prop_assert_eq!(found.cause, Some(HealthCause::Storage));
        prop_assert!(!found.message.is_empty() && found.next.starts_with("kubectl -n ns describe "));
        // KubeVirt's word that the VM cannot start is not weakened by what was read.
        let is_final = !matches!(printable, "Provisioning" | "WaitingForVolumeBinding");
        let is_weaker = found.verdict < HealthVerdict::Critical;
        prop_assert!(!(is_final && is_weaker), "{found:?}");
    }
}
