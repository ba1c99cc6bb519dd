//! Enrolment in memory for tests of the API and of the CLI.

use std::{sync::Arc, time::Duration};

use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use virtfleet_collector_core::{
    dial::DialRules,
    enrolment::{EnrolmentRecord, EnrolmentState, KeyFingerprint},
};
use virtfleet_runtime::tls::ClientTls;
use virtfleet_wire::ids::VmKey;

use super::{
    Enroller, EnrollerParts, EnrolmentAdmin, EnrolmentLimits, EnrolmentMetrics, RecordBook, SigningAuthority,
};
use crate::{ca::CaService, fleet::Fleet, leader::WriteAccess};

/// Enrolment without a keeper: the records of these VMs never change.
pub(crate) fn admin(vms: &[VmKey], write_access: WriteAccess) -> EnrolmentAdmin {
    let metrics = EnrolmentMetrics::register(&mut Registry::default());
    let records = RecordBook::fixed(vms.iter().map(|vm| (vm.clone(), record())));
    let enroller = Enroller::new(EnrollerParts {
        fleet: Arc::new(Fleet::new(DialRules::default(), || jiff::Timestamp::UNIX_EPOCH)),
        tls: Arc::new(ClientTls::in_memory()),
        trust_domain: "example.org".to_owned(),
        authority: SigningAuthority::new(CaService::in_memory()),
        records,
        write_access,
        metrics,
        limits: EnrolmentLimits {
            concurrency: 1,
            timeout: Duration::from_secs(1),
            lifetime: Duration::from_hours(24),
        },
    });
    EnrolmentAdmin::new(Arc::new(enroller), mpsc::channel(1).0)
}

fn record() -> EnrolmentRecord {
    EnrolmentRecord {
        uid: "uid-1".parse().unwrap(),
        key_sha256: Some(KeyFingerprint::from_bytes([0xa5; 32])),
        serial: Some("4a1b".to_owned()),
        not_after: 1_714_600_000,
        enrolled_at: 1_714_500_000,
        state: EnrolmentState::Enrolled,
    }
}
