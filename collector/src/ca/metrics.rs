//! Metrics of the authority.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{Authorities, RootKind, UnixSeconds};

/// Which certificate: `agents` and `clients` are roots, `collector` is this collector's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

/// Metrics of the authority; clones share them.
#[derive(Debug, Clone, Default)]
pub struct CaMetrics {
    expiry: Family<CertificateLabel, Gauge>,
    denied: Gauge,
}

impl CaMetrics {
    /// Registers all metrics as `ca…`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "ca_certificate_expiry_timestamp_seconds",
            "Expiry of the roots that sign, and of this collector's certificate, in seconds since 1970",
            metrics.expiry.clone(),
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
                self.expires(kind.as_str(), root.validity.not_after);
            }
        }
        self.denied
            .set(i64::try_from(authorities.denied()).unwrap_or(i64::MAX));
    }

    /// Sets the expiry of this collector's certificate.
    pub(super) fn own_certificate(&self, not_after: UnixSeconds) {
        self.expires("collector", not_after);
    }

    fn expires(&self, certificate: &'static str, at: UnixSeconds) {
        let gauge = self.expiry.get_or_create(&CertificateLabel { certificate });
        gauge.set(i64::try_from(at).unwrap_or(i64::MAX));
    }
}
