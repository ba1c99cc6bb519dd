//! A connection to a program that answers at an agent's address and has no certificate yet. Nothing
//! that it sends is data of a guest: this type has the two requests of enrolment and no other.

use std::{sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use virtfleet_collector_core::{
    dial::DialTarget,
    enrolment::{EnrolmentReason, KeyFingerprint},
};

use super::{channel::EnrolmentChannel, failure::EnrolmentFailure};
use crate::scrape::{peer::PeerCertificate, transport::AgentTransport};

/// A connection to a program whose key is known and whose identity is not.
#[derive(Debug)]
pub(super) struct UnverifiedAgent {
    transport: AgentTransport,
    key: KeyFingerprint,
}

impl UnverifiedAgent {
    /// Connects to `target` with the certificate of `tls`, and accepts every certificate of the
    /// server. The handshake proves that the server has the certificate's key.
    pub(super) async fn open(
        target: &DialTarget,
        timeout: Duration,
        tls: &ClientConfig,
    ) -> Result<Self, EnrolmentFailure> {
        let mut config = tls.clone();
        let verifier = AnyCertificate(Arc::clone(config.crypto_provider()));
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        let (transport, certificate) = AgentTransport::open(target, timeout, Arc::new(config))
            .await
            .map_err(|error| EnrolmentFailure::from(target.way.explain(error.failure)))?;
        let peer = certificate.as_ref().and_then(PeerCertificate::of);
        let peer = peer.ok_or_else(|| {
            let message = format!("the certificate at {} cannot be parsed", target.address);
            EnrolmentFailure::new(EnrolmentReason::Tls, message)
        })?;
        Ok(Self {
            transport,
            key: peer.key,
        })
    }

    /// A connection that the agent opened, after the handshake.
    pub(super) fn over(transport: AgentTransport, key: KeyFingerprint) -> Self {
        Self { transport, key }
    }

    /// The two requests of enrolment.
    pub(super) fn channel(&mut self) -> EnrolmentChannel<'_> {
        EnrolmentChannel::new(&mut self.transport, self.key)
    }
}

/// Accepts every certificate, and verifies that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is used".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
