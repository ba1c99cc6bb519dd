//! The words of enums that leave the agent: label values, JSON, output.

use serde::Serialize;
use strum::VariantArray;

use crate::{
    disks::{RefusalKind, state::DiskStatus},
    dns::{answers::Health, collision::CollisionKind, state::DnsStatus},
    nic::state::QueueStatus,
    push::record::PushFailureReason,
};

/// All words, in order; each is also the one in JSON.
fn words<T: Copy + Serialize + VariantArray + Into<&'static str>>() -> String {
    let word = |value: &T| -> &'static str { (*value).into() };
    for value in T::VARIANTS {
        assert_eq!(serde_json::to_value(value).unwrap(), word(value));
    }
    T::VARIANTS.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn words_are_as_published() {
    assert_eq!(words::<DiskStatus>(), "ready pending refused failed missing");
    assert_eq!(
        words::<RefusalKind>(),
        "missing came-later ambiguous claimed-twice not-eligible in-use foreign-data not-a-clone \
         unknown-data unreadable blank-again unfinished partly-proven maybe-shared duplicate-uuid \
         several-devices mount-point-taken no-journal no-tool no-key settings"
    );
    assert_eq!(
        words::<Health>(),
        "healthy slow no-tcp tcp-only lying incomplete failing looping dead"
    );
    assert_eq!(
        words::<CollisionKind>(),
        "node-local local-address cluster-dns service-range stub"
    );
    assert_eq!(
        words::<DnsStatus>(),
        "verified differs colliding broken rolled-back unknown off"
    );
    assert_eq!(
        words::<QueueStatus>(),
        "spread differs single manual rolled-back excluded unknown"
    );
    assert_eq!(
        words::<PushFailureReason>(),
        "resolve refused timeout unreachable tls unauthorized unused"
    );
}
