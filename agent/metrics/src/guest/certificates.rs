//! `guest_certificates`: validity of kubelet's certificates, from the state that root's reconcile
//! runs write to `/run/virtfleet/state/guest-health.json`.

use virtfleet_agent_core::guest::health::GuestHealth;
use virtfleet_agent_state::{CachedState, GUEST_HEALTH};
use virtfleet_wire::exposition::{MetricType, Page};

use crate::{CollectError, Collector, Context, RegistryError};

struct Certificates {
    file: CachedState<GuestHealth>,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Certificates {
        file: CachedState::new(&context.roots, &GUEST_HEALTH),
    }))
}

impl Collector for Certificates {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let health = self.file.get()?;
        let Some(health) = health.filter(|health| !health.certificates.is_empty()) else {
            return Ok(());
        };
        let mut family = page.family(
            "virtfleet_guest_certificate_expiry_timestamp_seconds",
            "End of the validity of a certificate of kubelet, in seconds since 1970.",
            MetricType::Gauge,
        );
        for certificate in &health.certificates {
            family.sample(&[("path", &certificate.path)], certificate.not_after as f64);
        }
        let mut family = page.family(
            "virtfleet_guest_certificate_start_timestamp_seconds",
            "Start of the validity of a certificate of kubelet, in seconds since 1970.",
            MetricType::Gauge,
        );
        for certificate in &health.certificates {
            family.sample(&[("path", &certificate.path)], certificate.not_before as f64);
        }
        page.gauge(
            "virtfleet_guest_certificates_read_timestamp_seconds",
            "Time at which root's reconcile run last read the certificates, in seconds since 1970.",
            health.at_ns as f64 / 1e9,
        );
        Ok(())
    }
}
