//! Metrics of the authority.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{Authorities, RootKind, UnixSeconds};

/// Which certificate: `agents` and `clients` are roots, `collector` and `api` are this collector's
/// own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

/// A certificate of the collector itself, as the label `certificate` names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnKind {
    /// With which it dials agents.
    Collector,
    /// Which the server of the API presents.
    Api,
}

/// When a certificate of the collector itself was issued, and its last second. The certificate
/// begins earlier, because clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnLife {
    pub(super) issued: UnixSeconds,
    pub(super) not_after: UnixSeconds,
}

/// Metrics of the authority; clones share them.
#[derive(Debug, Clone, Default)]
pub struct CaMetrics {
    expiry: Family<CertificateLabel, Gauge>,
    issued: Family<CertificateLabel, Gauge>,
    denied: Gauge,
}

impl CaMetrics {
    /// Registers all metrics as `ca…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ca_certificate_expiry_timestamp_seconds",
            "Expiry of the roots that sign, and of this collector's own certificates, in seconds since 1970",
            metrics.expiry.clone(),
        );
        registry.register(
            "ca_certificate_issued_timestamp_seconds",
            "Time at which this collector issued its own certificates, in seconds since 1970",
            metrics.issued.clone(),
        );
        registry.register(
            "ca_denied_serials",
            "Serial numbers of certificates that are denied",
            metrics.denied.clone(),
        );
        metrics
    }

    /// Sets the values of the authority.
    pub(super) fn authorities(&self, authorities: &Authorities) {
        for kind in RootKind::ALL {
            if let Some(root) = authorities.roots(kind).first() {
                set(&self.expiry, kind.as_str(), root.validity.not_after);
            }
        }
        self.denied
            .set(i64::try_from(authorities.denied()).unwrap_or(i64::MAX));
    }

    /// Sets the values of a certificate of this collector.
    pub(super) fn own_certificate(&self, kind: OwnKind, life: OwnLife) {
        let certificate = match kind {
            OwnKind::Collector => "collector",
            OwnKind::Api => "api",
        };
        set(&self.expiry, certificate, life.not_after);
        set(&self.issued, certificate, life.issued);
    }
}

fn set(family: &Family<CertificateLabel, Gauge>, certificate: &'static str, at: UnixSeconds) {
    let gauge = family.get_or_create(&CertificateLabel { certificate });
    gauge.set(i64::try_from(at).unwrap_or(i64::MAX));
}
