//! `guest_certificates`: until when kubelet's certificates are valid, from the state that root's passes leave in
//! `/run/virtfleet/state/guest-health.json`.

use virtfleet_agent_core::guest::health::GuestHealth;
use virtfleet_wire::exposition::{MetricType, Page};

use crate::host::{Reread, Stamped};
use crate::metrics::{CollectError, Collector, Context, RegistryError};
use crate::provision::{HEALTH_FILE, ReadHealthError, parse_health};

struct Certificates {
    file: Stamped<Result<Option<GuestHealth>, String>>,
    boot_id: Reread,
}

pub(super) fn new(context: &Context) -> Result<Box<dyn Collector>, RegistryError> {
    Ok(Box::new(Certificates {
        file: Stamped::new(context.roots.root(HEALTH_FILE)),
        boot_id: Reread::new(context.roots.proc("sys/kernel/random/boot_id")).made_at_once(),
    }))
}

impl Collector for Certificates {
    fn collect(&mut self, page: &mut Page) -> Result<(), CollectError> {
        let boot_id = self.boot_id.text().map(|text| text.trim().to_owned());
        let health = match self.file.get(|bytes| {
            let boot_id = boot_id.as_ref().map_err(ToString::to_string)?;
            match parse_health(bytes, boot_id) {
                Ok(health) => Ok(Some(health)),
                Err(ReadHealthError::OtherBoot) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        }) {
            Ok(health) => health
                .as_ref()
                .map_err(|error| CollectError::failed(format!("{HEALTH_FILE}: {error}")))?,
            // Root's passes do not run here: a page without these families, and no fault.
            Err(error) if error.is_missing() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let Some(health) = health.as_ref().filter(|health| !health.certificates.is_empty()) else {
            return Ok(());
        };
        let mut family = page.family(
            "virtfleet_guest_certificate_expiry_timestamp_seconds",
            "Until when a certificate of kubelet is valid, in seconds since 1970.",
            MetricType::Gauge,
        );
        for certificate in &health.certificates {
            family.sample(&[("path", &certificate.path)], certificate.not_after as f64);
        }
        let mut family = page.family(
            "virtfleet_guest_certificate_start_timestamp_seconds",
            "From when on a certificate of kubelet is valid, in seconds since 1970.",
            MetricType::Gauge,
        );
        for certificate in &health.certificates {
            family.sample(&[("path", &certificate.path)], certificate.not_before as f64);
        }
        page.gauge(
            "virtfleet_guest_certificates_read_timestamp_seconds",
            "When root's pass read the certificates last, in seconds since 1970.",
            health.at_ns as f64 / 1e9,
        );
        Ok(())
    }
}
