//! A client that enrols an agent. It accepts every certificate of the agent, as a collector must
//! that has not issued one yet, and keeps it.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{ring, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};
use virtfleet_wire::enrolment::{CERTIFICATE_PATH, EnrolmentRequest, IssuedCertificate, Nonce, REQUEST_PATH};
use x509_parser::{
    certification_request::X509CertificationRequest,
    cri_attributes::ParsedCriAttribute,
    prelude::{FromDer as _, X509Certificate},
};

use crate::{
    pki::Identity,
    scrape::{Answer, Client},
};

/// A connection to an agent.
pub struct EnrolmentClient {
    client: Client,
    certificate: CertificateDer<'static>,
}

impl EnrolmentClient {
    /// Connects with a client certificate.
    pub fn connect(address: SocketAddr, identity: &Identity, deadline: Duration) -> Result<Self> {
        Self::with(identity, |config| Client::tls(address, config, deadline))
    }

    /// As [`EnrolmentClient::connect`], over a connection that the agent opened.
    pub fn over(stream: TcpStream, identity: &Identity, deadline: Duration) -> Result<Self> {
        Self::with(identity, |config| Client::over(stream, config, deadline))
    }

    fn with(identity: &Identity, connect: impl FnOnce(Arc<ClientConfig>) -> Result<Client>) -> Result<Self> {
        let presented = Arc::new(Presented::default());
        let (chain, key) = identity.der();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(presented.clone())
            .with_client_auth_cert(chain, key)?;
        let client = connect(Arc::new(config))?;
        let certificate = presented.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Self {
            client,
            certificate: certificate.context("no certificate")?,
        })
    }

    /// The public key in the agent's certificate (SubjectPublicKeyInfo).
    pub fn public_key(&self) -> Result<Vec<u8>> {
        let (_, certificate) = X509Certificate::from_der(&self.certificate)?;
        Ok(certificate.public_key().raw.to_vec())
    }

    /// The URI in the agent's certificate.
    pub fn identity(&self) -> Option<String> {
        let names = virtfleet_runtime::tls::peer_names(&self.certificate);
        names.into_iter().find(|name| name.starts_with("spiffe://"))
    }

    /// Sends a GET request.
    pub fn get(&mut self, path: &str) -> Result<Answer> {
        self.client.get(path)
    }

    /// Sends a POST request.
    pub fn post(&mut self, path: &str, body: &impl serde::Serialize) -> Result<Answer> {
        self.client.post(path, body)
    }

    /// Asks for a CSR.
    pub fn request(&mut self, identity: &str, nonce: &Nonce, replace_key: bool) -> Result<Answer> {
        let request = EnrolmentRequest {
            identity: identity.to_owned(),
            nonce: nonce.clone(),
            replace_key,
        };
        self.client.post(REQUEST_PATH, &request)
    }

    /// Sends a certificate, in PEM.
    pub fn deliver(&mut self, certificate: &str, client_authorities: &str) -> Result<Answer> {
        let issued = IssuedCertificate {
            certificate: certificate.to_owned(),
            client_authorities: client_authorities.to_owned(),
        };
        self.client.post(CERTIFICATE_PATH, &issued)
    }
}

/// What a CSR contains.
#[derive(Debug)]
pub struct CsrContent {
    /// The public key (SubjectPublicKeyInfo).
    pub public_key: Vec<u8>,
    /// The attribute `challengePassword`.
    pub challenge: Option<String>,
    /// Number of names and extensions.
    pub names: usize,
}

/// Parses a CSR in PEM, and verifies its signature.
pub fn parse_csr(pem: &str) -> Result<CsrContent> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes())?;
    let (_, csr) = X509CertificationRequest::from_der(&block.contents)?;
    csr.verify_signature().context("signature of the CSR")?;
    let info = &csr.certification_request_info;
    let challenge = info
        .attributes()
        .iter()
        .find_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ChallengePassword(challenge) => Some(challenge.0.clone()),
            _ => None,
        });
    Ok(CsrContent {
        public_key: info.subject_pki.raw.to_vec(),
        challenge,
        names: info.subject.iter().count() + csr.requested_extensions().map_or(0, Iterator::count),
    })
}

/// Accepts every certificate, but only with its key, and keeps it.
#[derive(Debug, Default)]
struct Presented(Mutex<Option<CertificateDer<'static>>>);

impl ServerCertVerifier for Presented {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(certificate.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
