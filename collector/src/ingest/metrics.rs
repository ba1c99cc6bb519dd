//! Metrics of the port on which agents connect.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use virtfleet_collector_core::pull_result::FailureClass;

/// What became of a connection. Failures have the names of [`FailureClass`] where one fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IngestResult {
    /// The certificate was verified; pulls use the connection.
    Verified,
    /// The agent got a certificate, and connects again.
    Enrolled,
    /// Too many connections, in all or of the address.
    Full,
    /// The address connects too often.
    TooFast,
    /// This collector does not lead.
    NotLeader,
    /// The inventory has not been read yet.
    NotReady,
    /// The address is that of several VMs.
    AddressShared,
    /// The handshake, the certificate or the enrolment failed.
    Failed(FailureClass),
}

impl IngestResult {
    const OTHERS: [Self; 7] = [
        Self::Verified,
        Self::Enrolled,
        Self::Full,
        Self::TooFast,
        Self::NotLeader,
        Self::NotReady,
        Self::AddressShared,
    ];
    /// The classes that occur.
    const CLASSES: [FailureClass; 6] = [
        FailureClass::NoAddress,
        FailureClass::Timeout,
        FailureClass::Tls,
        FailureClass::WrongVm,
        FailureClass::Enrolment,
        FailureClass::Connect,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Enrolled => "enrolled",
            Self::Full => "full",
            Self::TooFast => "too_fast",
            Self::NotLeader => "not_leader",
            Self::NotReady => "not_ready",
            Self::AddressShared => "address_shared",
            // The certificate names a VM that does not run.
            Self::Failed(FailureClass::NoAddress) => "no_vm",
            Self::Failed(class) => class.as_str(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IngestLabel {
    result: &'static str,
}

/// Metrics of the port on which agents connect; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct IngestMetrics {
    pub(super) open: Gauge,
    connections: Family<IngestLabel, Counter>,
}

impl IngestMetrics {
    /// Registers all metrics. Every result exists from the start, so that a rate has a first
    /// sample.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            open: Gauge::default(),
            connections: Family::default(),
        };
        let classes = IngestResult::CLASSES.map(IngestResult::Failed);
        for result in IngestResult::OTHERS.into_iter().chain(classes) {
            let result = result.as_str();
            drop(metrics.connections.get_or_create(&IngestLabel { result }));
        }
        registry.register(
            "ingest_connections_open",
            "Open connections that agents opened, with those without certificate",
            metrics.open.clone(),
        );
        registry.register(
            "ingest_connections",
            "Connections that agents opened, by result of the handshake",
            metrics.connections.clone(),
        );
        metrics
    }

    pub(super) fn ended(&self, result: IngestResult) {
        let result = result.as_str();
        self.connections.get_or_create(&IngestLabel { result }).inc();
    }
}
