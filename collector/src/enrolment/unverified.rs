//! A connection to a program that answers at an agent's address and has no certificate yet. Nothing
//! that it sends is data of a guest: this type has the two requests of enrolment and no other.

use std::{sync::Arc, time::Duration};

use rustls::ClientConfig;
use virtfleet_collector_core::{dial::DialTarget, enrolment::KeyFingerprint};

use super::{channel::EnrolmentChannel, failure::EnrolmentFailure};
use crate::scrape::{connection::parse_peer, transport::AgentTransport};

/// A connection to a program whose key is known and whose identity is not.
#[derive(Debug)]
pub(super) struct UnverifiedAgent {
    transport: AgentTransport,
    key: KeyFingerprint,
}

impl UnverifiedAgent {
    /// Connects to `target`. `tls` accepts every certificate of the server; the handshake proves
    /// that the server has the certificate's key.
    pub(super) async fn open(
        target: &DialTarget,
        timeout: Duration,
        tls: Arc<ClientConfig>,
    ) -> Result<Self, EnrolmentFailure> {
        let (transport, chain) = AgentTransport::open(target, timeout, tls, &mut false)
            .await
            .map_err(|error| target.way.explain(error.failure))?;
        let key = parse_peer(&chain, target.address)?.key;
        Ok(Self { transport, key })
    }

    /// The two requests of enrolment.
    pub(super) fn channel(&mut self) -> EnrolmentChannel<'_> {
        EnrolmentChannel::new(&mut self.transport, self.key)
    }
}
