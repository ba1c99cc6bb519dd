//! The words of enums that leave the collector: label values, JSON, conditions, logs.

use serde::Serialize;
use strum::VariantArray;

use crate::{
    cluster_source::SkipReason,
    enrolment::EnrolmentReason,
    health::{HealthCause, HealthCondition},
    labels::plan::Reason,
    mla::{relabel::RelabelAction, status::StreamState},
    pull_result::FailureClass,
    story::TimelineKind,
    view::{AgentStatus, VmState},
};

/// All words, in order.
fn words<T: Copy + VariantArray + Into<&'static str>>() -> String {
    let word = |value: &T| -> &'static str { (*value).into() };
    T::VARIANTS.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// All words, in order; each is also the one in JSON.
fn json_words<T: Copy + Serialize + VariantArray + Into<&'static str>>() -> String {
    for &value in T::VARIANTS {
        let word: &'static str = value.into();
        assert_eq!(serde_json::to_value(value).unwrap(), word);
    }
    words::<T>()
}

#[test]
fn words_are_as_published() {
    assert_eq!(
        words::<HealthCondition>(),
        "Placed Running HostReady AgentReporting NodeReady DisksReady DNSReady VirtioTuned \
         TimeSynced ComputeReady Migratable SpecInEffect MetricsDelivered LabelsInSync"
    );
    assert_eq!(
        words::<SkipReason>(),
        "InvalidName NoNamespace NameTaken OverLimit Paused SourceSuspended Deleting \
         UserClusterDeleting RemovalHeld AccountFailed"
    );
    assert_eq!(
        json_words::<AgentStatus>(),
        "up silent waiting off disabled unmanaged"
    );
    assert_eq!(
        json_words::<EnrolmentReason>(),
        "not_dialled no_uid address_shared uuid_differs mac_differs hostname_differs not_proved \
         nonce_differs key_not_of_connection names_differ second_key key_of_another_vm revoked \
         certificate_denied token_invalid token_expired token_address no_such_vm node_proof \
         connect timeout tls not_offered http too_large malformed not_accepted not_recorded \
         not_signed"
    );
    assert_eq!(
        json_words::<FailureClass>(),
        "no_address not_allowed connect timeout tls wrong_vm enrolment http too_large malformed"
    );
    assert_eq!(
        json_words::<HealthCause>(),
        "host storage vm migration network guest neighbour agent labels receiver"
    );
    assert_eq!(
        json_words::<Reason>(),
        "InLine Missing Moved TakenOver Repaired Withdrawn SourceGone Initial Drift Unsafe \
         SafetyUnknown Foreign KubeletImposes Conflict Protected InvalidValue PlacementUnknown \
         AnnotationBroken Suspended Contested NotWritten"
    );
    assert_eq!(
        json_words::<RelabelAction>(),
        "replace keep drop keepequal dropequal hashmod labelmap labeldrop labelkeep lowercase \
         uppercase"
    );
    assert_eq!(
        json_words::<StreamState>(),
        "live catching-up retrying refused stopped not-configured"
    );
    assert_eq!(
        json_words::<TimelineKind>(),
        "verdict state migration placement pause clock restart address finding"
    );
    assert_eq!(
        json_words::<VmState>(),
        "stopped starting running migrating paused stopping succeeded failed unknown"
    );
}
