//! The collector's own certificate, with which it connects to agents. It is issued in memory, so
//! that no key of a collector is stored.

use std::{sync::Arc, time::Duration};

use rcgen::KeyPair;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use virtfleet_runtime::tls::{ClientTls, IssuedTls};

use super::{
    Authorities, CaError, CaMetrics, UnixSeconds,
    api_certificate::ApiCertificate,
    issue::with_new_key,
    metrics::{OwnKind, OwnLife},
};

/// Interval between two checks of the certificate's age: the clock may be set, and timers do not
/// run while a machine is suspended.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Issues the certificate for `spiffe://<trust-domain>/collector`; returns it with its last second.
///
/// # Errors
/// The root cannot sign now.
pub(super) fn issue(
    authorities: &Authorities,
    trust_domain: &str,
    lifetime: u64,
    now: UnixSeconds,
) -> Result<(IssuedTls, UnixSeconds), CaError> {
    let uri = format!("spiffe://{trust_domain}/collector");
    let (signed, key) = with_new_key(lifetime, now, KeyPair::serialize_pem, |key, validity| {
        authorities.sign_client(key, &uri, &[], validity)
    })?;
    let issued = IssuedTls {
        authorities: authorities.agent_roots_pem(),
        certificate: signed.chain_pem,
        key,
    };
    Ok((issued, signed.validity.not_after))
}

/// Keeps `tls` supplied with a certificate: a new one after two thirds of its lifetime, and at each
/// change of the authority.
pub(super) struct OwnCertificate {
    pub(super) tls: Arc<ClientTls>,
    pub(super) authorities: watch::Receiver<Arc<Authorities>>,
    pub(super) trust_domain: String,
    /// In seconds.
    pub(super) lifetime: u64,
    pub(super) clock: fn() -> UnixSeconds,
    pub(super) metrics: CaMetrics,
    /// Renewed together with it; none if the API has another certificate.
    pub(super) api: Option<ApiCertificate>,
}

impl OwnCertificate {
    /// Issues the certificate with which the collector connects to agents; returns the time from
    /// which it is to be renewed. That of the API stays.
    ///
    /// # Errors
    /// The root cannot sign now. The previous certificate stays.
    pub(super) fn renew_own(&mut self) -> anyhow::Result<UnixSeconds> {
        let authorities = Arc::clone(&self.authorities.borrow_and_update());
        self.metrics.authorities(&authorities);
        let now = (self.clock)();
        let (issued, not_after) = issue(&authorities, &self.trust_domain, self.lifetime, now)?;
        self.tls.replace(&issued)?;
        let life = OwnLife {
            issued: now,
            not_after,
        };
        self.metrics.own_certificate(OwnKind::Collector, life);
        Ok(now.saturating_add(not_after.saturating_sub(now) / 3 * 2))
    }

    /// Issues both certificates; returns like [`OwnCertificate::renew_own`].
    fn renew(&mut self) -> anyhow::Result<UnixSeconds> {
        let renew_at = self.renew_own()?;
        if let Some(api) = &self.api {
            let authorities = Arc::clone(&self.authorities.borrow());
            let life = api.renew(&authorities, &self.trust_domain, self.lifetime, (self.clock)())?;
            self.metrics.own_certificate(OwnKind::Api, life);
        }
        Ok(renew_at)
    }

    /// Runs until `stop`. `renew_at` is the time of the next renewal.
    pub(super) async fn run(mut self, mut renew_at: UnixSeconds, stop: CancellationToken) {
        let mut failed = false;
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                changed = self.authorities.changed() => match changed {
                    Ok(()) => true,
                    Err(_) => return,
                },
                () = tokio::time::sleep(AGE_CHECK_INTERVAL) => false,
            };
            let now = (self.clock)();
            // A clock that was set back leaves a certificate that is not valid yet.
            let is_early = now.saturating_add(self.lifetime) < renew_at;
            if !changed && !failed && now < renew_at && !is_early {
                continue;
            }
            match self.renew() {
                Ok(at) => {
                    (renew_at, failed) = (at, false);
                    tracing::info!(changed, "renewed the certificate of this collector");
                }
                Err(error) => {
                    failed = true;
                    let error: &dyn std::error::Error = error.as_ref();
                    tracing::error!(error, "the certificate of this collector cannot be renewed");
                }
            }
        }
    }
}
