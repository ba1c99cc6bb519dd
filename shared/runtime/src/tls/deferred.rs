//! A client's handshake that ends before the server's certificate is judged: for servers that may
//! have no certificate of a known authority yet.

use std::sync::{Arc, OnceLock};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// The configuration of one connection. The handshake proves that the server has the key of its
/// certificate, whoever signed that. Check [`DeferredTls::verdict`] before data of the server is
/// used.
#[derive(Debug)]
pub struct DeferredTls {
    config: Arc<ClientConfig>,
    verifier: Arc<DeferredVerifier>,
}

impl DeferredTls {
    /// `config` with its `verifier` deferred.
    pub(super) fn new(config: &ClientConfig, verifier: Arc<dyn ServerCertVerifier>) -> Self {
        let verifier = Arc::new(DeferredVerifier {
            verifier,
            verdict: OnceLock::new(),
        });
        let mut config = config.clone();
        let own: Arc<DeferredVerifier> = Arc::clone(&verifier);
        config.dangerous().set_certificate_verifier(own);
        Self {
            config: Arc::new(config),
            verifier,
        }
    }

    /// The configuration of the connection.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Whether the server's certificate was valid: signed by a known authority, for an agent, now.
    ///
    /// # Errors
    /// Why it was not, or that there was no handshake.
    pub fn verdict(&self) -> Result<(), Error> {
        let verdict = self.verifier.verdict.get().cloned();
        verdict.unwrap_or_else(|| Err(Error::General("no certificate was verified".to_owned())))
    }
}

#[derive(Debug)]
struct DeferredVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    verdict: OnceLock<Result<(), Error>>,
}

impl ServerCertVerifier for DeferredVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.verifier
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        self.verdict.get_or_init(|| verified.map(drop));
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
