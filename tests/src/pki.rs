//! A certificate authority for tests, demo and simulator. Keys are generated at run time; none is
//! stored in the repository.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};

/// The trust domain of every test certificate.
pub const TRUST_DOMAIN: &str = "virtfleet.test";
/// The DNS name in every agent's certificate.
pub const AGENT_DNS: &str = "agent.virtfleet.internal";

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
#[derive(Debug)]
pub struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    /// Creates an authority with a new key; `name` is its common name.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, new_key()?).context("self-signed certificate")?;
        Ok(Self { issuer })
    }

    /// A kubelet's file: the client certificate of `user` (`system:node:<name>`) in `group`
    /// (`system:nodes`), and its private key, in PEM.
    pub fn kubelet(&self, user: &str, group: &str) -> Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(certificate.pem() + &key.serialize_pem())
    }

    /// Its certificate as PEM, for the peer's trust store.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its private key as PEM, for a program that signs with it.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// An agent's certificate: `spiffe://virtfleet.test/vmi/<namespace>/<name>/<uid>` and
    /// [`AGENT_DNS`].
    pub fn agent(&self, namespace: &str, name: &str, uid: &str) -> Result<Identity> {
        let uri = format!("spiffe://{TRUST_DOMAIN}/vmi/{namespace}/{name}/{uid}");
        self.issue(name, &uri, &[AGENT_DNS], ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// The collector's client certificate: `spiffe://virtfleet.test/collector`.
    pub fn collector(&self) -> Result<Identity> {
        let uri = format!("spiffe://{TRUST_DOMAIN}/collector");
        self.issue("collector", &uri, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// The certificate of a server that clients dial by IP address.
    pub fn server(&self, common: &str, address: IpAddr) -> Result<Identity> {
        let name = SanType::IpAddress(address);
        self.sign(common, &[], name, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate with these subject alternative names.
    pub fn issue(
        &self,
        common: &str,
        uri: &str,
        dns: &[&str],
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        let uri = SanType::URI(uri.try_into().with_context(|| format!("URI {uri:?}"))?);
        self.sign(common, dns, uri, purpose)
    }

    /// Issues an agent's certificate for a CSR in PEM, as a collector does. The CSR's signature is
    /// verified.
    pub fn certify(
        &self,
        csr: &str,
        uri: &str,
        adjust: impl FnOnce(&mut CertificateParams),
    ) -> Result<String> {
        let mut request = CertificateSigningRequestParams::from_pem(csr).context("CSR")?;
        let mut params = CertificateParams::new([AGENT_DNS.to_owned()])?;
        let uri = uri.try_into().with_context(|| format!("URI {uri:?}"))?;
        params.subject_alt_names.push(SanType::URI(uri));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        adjust(&mut params);
        request.params = params;
        Ok(request.signed_by(&self.issuer)?.pem())
    }

    fn sign(
        &self,
        common: &str,
        dns: &[&str],
        name: SanType,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        let names: Vec<String> = dns.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name(common);
        params.subject_alt_names.push(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = new_key()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("certificate of {common}"))?;
        Ok(Identity { certificate, key })
    }

    /// TLS configuration of a server that presents `identity` and requires client certificates of
    /// this authority. TLS 1.3 only.
    pub fn server_config(&self, identity: &Identity) -> Result<Arc<ServerConfig>> {
        let (chain, key) = identity.der();
        let verifier = self.client_verifier()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        // Scrapers keep their connections open, and a session store for each guest would use more
        // memory than the rest of the guest.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    /// TLS configuration of a client that trusts this authority and presents `identity`. TLS 1.3
    /// only.
    pub fn client_config(&self, identity: &Identity) -> Result<Arc<ClientConfig>> {
        let (chain, key) = identity.der();
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)?;
        Ok(Arc::new(config))
    }

    /// As [`Authority::client_config`], without a certificate of the client.
    pub fn anonymous_client_config(&self) -> Result<Arc<ClientConfig>> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    fn client_verifier(&self) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
        WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider())
            .build()
            .context("verifier of client certificates")
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        Ok(roots)
    }
}

impl Identity {
    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key as PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Certificate and key, as rustls takes them.
    pub fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        (vec![self.certificate.der().clone()], PrivateKeyDer::Pkcs8(key))
    }
}

/// The PEM files of one side, as named in the settings.
#[derive(Debug, Clone)]
pub struct Files {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// This side's certificate.
    pub certificate: PathBuf,
    /// Its key, readable only by its owner.
    pub key: PathBuf,
}

/// Writes `ca.pem`, `<name>.pem` and `<name>.key` into `folder`.
pub fn write(folder: &Path, name: &str, authority: &Authority, identity: &Identity) -> Result<Files> {
    let files = Files {
        ca: folder.join("ca.pem"),
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    };
    let put = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("write {}", path.display()))
    };
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    put(&files.ca, authority.pem())?;
    put(&files.certificate, identity.certificate_pem())?;
    put(&files.key, identity.key_pem())?;
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600))?;
    Ok(files)
}

/// The ring provider, named explicitly: the process-wide default is ambiguous when two providers
/// are compiled in.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn new_key() -> Result<KeyPair> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("key")
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_as_the_settings_want_them() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test").unwrap();
        let agent = authority.agent("cluster-a", "worker-0", "uid-0").unwrap();
        let files = write(folder.path(), "agent", &authority, &agent).unwrap();
        assert!(
            fs::read_to_string(&files.ca)
                .unwrap()
                .starts_with("-----BEGIN CERTIFICATE-----")
        );
        assert!(
            fs::read_to_string(&files.certificate)
                .unwrap()
                .starts_with("-----BEGIN CERTIFICATE-----")
        );
        assert!(
            fs::read_to_string(&files.key)
                .unwrap()
                .starts_with("-----BEGIN PRIVATE KEY-----")
        );
        assert_eq!(
            fs::metadata(&files.key).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
