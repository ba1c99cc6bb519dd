//! What an agent has on its disk: its key, and its certificate once it has one.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    Attribute, CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
    SanType,
};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::{NoServerSessionStorage, danger::ClientCertVerifier},
    version::TLS13,
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, VmIdentity, peer_names};
use virtfleet_wire::enrolment::Nonce;

/// Attribute `challengePassword` (RFC 2985, 5.4.1).
const CHALLENGE_PASSWORD: &[u64] = &[1, 2, 840, 113_549, 1, 9, 7];

/// The disk. A copy is a clone of the VM's disk.
#[derive(Debug, Clone)]
pub struct AgentDisk {
    pkcs8: Vec<u8>,
    chain: Option<Vec<CertificateDer<'static>>>,
}

impl AgentDisk {
    /// A disk with a new key and no certificate.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("key of an agent")?;
        Ok(Self {
            pkcs8: key.serialize_der(),
            chain: None,
        })
    }

    /// A disk with the key and certificate of an authority of the test.
    pub fn with_certificate(key_pem: &str, certificate_pem: &str) -> Result<Self> {
        let key = KeyPair::from_pem(key_pem).context("key of an agent")?;
        Ok(Self {
            pkcs8: key.serialize_der(),
            chain: Some(chain(certificate_pem)?),
        })
    }

    /// A disk with a copy of another agent's files: its key (PKCS #8 in DER) and certificate (PEM).
    pub fn copied(pkcs8: &[u8], certificate_pem: &str) -> Result<Self> {
        Ok(Self {
            pkcs8: pkcs8.to_owned(),
            chain: Some(chain(certificate_pem)?),
        })
    }

    fn key(&self) -> Result<KeyPair> {
        KeyPair::try_from(self.pkcs8.as_slice()).context("key of an agent")
    }

    /// The identity in the certificate, if there is one.
    pub fn identity(&self) -> Option<String> {
        let names = peer_names(self.chain.as_ref()?.first()?);
        names
            .into_iter()
            .find(|name| VmIdentity::from_uri(name).is_some())
    }

    /// Whether there is a certificate.
    pub fn is_enrolled(&self) -> bool {
        self.chain.is_some()
    }

    /// The certificate in DER, if there is one.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.as_ref()?.first()
    }

    /// Removes the certificate.
    pub fn forget(&mut self) {
        self.chain = None;
    }

    /// Accepts a chain for this key.
    pub fn accept(&mut self, pem: &str) -> Result<()> {
        self.chain = Some(chain(pem)?);
        Ok(())
    }

    /// A CSR in PEM with this nonce and these URIs.
    pub fn csr(&self, nonce: &Nonce, uris: &[String]) -> Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for uri in uris {
            let uri = uri.as_str().try_into().with_context(|| format!("name {uri:?}"))?;
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let length = u8::try_from(nonce.as_str().len())?;
        // SET { PrintableString }.
        let mut values = vec![0x31, length + 2, 0x13, length];
        values.extend_from_slice(nonce.as_str().as_bytes());
        let attribute = Attribute {
            oid: CHALLENGE_PASSWORD,
            values,
        };
        let csr = params.serialize_request_with_attributes(&self.key()?, vec![attribute])?;
        Ok(csr.pem()?)
    }

    /// The public key: SubjectPublicKeyInfo in DER.
    pub fn public_key(&self) -> Result<Vec<u8>> {
        Ok(self.key()?.subject_public_key_info())
    }

    /// TLS of a server with this key: with the certificate, else with a self-signed one.
    pub(super) fn server_config(
        &self,
        clients: Arc<dyn ClientCertVerifier>,
        protocol: &[u8],
    ) -> Result<Arc<ServerConfig>> {
        let chain = if let Some(chain) = &self.chain {
            chain.clone()
        } else {
            let mut params = CertificateParams::new([AGENT_DNS_NAME.to_owned()])?;
            params.distinguished_name = DistinguishedName::new();
            vec![params.self_signed(&self.key()?)?.der().clone()]
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pkcs8.clone()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| anyhow::anyhow!("certificate of an agent: {error}"))?;
    anyhow::ensure!(!found.is_empty(), "no certificate");
    Ok(found)
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
