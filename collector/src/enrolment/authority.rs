//! The fleet's authority, as enrolment uses it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::ca::{Authorities, CaChangeError, CaService, Serial};

/// The authority that signs certificates of agents. Clones share it.
#[derive(Debug, Clone)]
pub struct SigningAuthority {
    service: CaService,
    authorities: watch::Receiver<Arc<Authorities>>,
}

impl SigningAuthority {
    pub fn new(service: CaService) -> Self {
        let authorities = service.authorities();
        Self { service, authorities }
    }

    pub fn current(&self) -> Arc<Authorities> {
        Arc::clone(&self.authorities.borrow())
    }

    /// Adds a serial number to the deny list.
    ///
    /// # Errors
    /// It could not be stored.
    pub async fn deny(&self, serial: Serial) -> Result<(), CaChangeError> {
        let denied = self.service.update(|known| {
            let mut changed = known.clone();
            changed.deny(serial.clone());
            Ok(changed)
        });
        denied.await.map(drop)
    }
}
