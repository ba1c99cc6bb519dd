//! Certificates for the tests of the server, and a client that presents one.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use virtfleet_runtime::tls::{
    AGENT_DNS_NAME, ClientRule, ClientTls, ClientTlsPaths, ServerTlsPaths, TlsAcceptor, peer_names,
};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) certificate: Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
        Self {
            issuer: issuer.unwrap(),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// A certificate for an agent's DNS name and this URI, of a server and client.
    pub(crate) fn issue(&self, uri: &str) -> Issued {
        let mut params = CertificateParams::new(vec![AGENT_DNS_NAME.to_owned()]).unwrap();
        params
            .subject_alt_names
            .push(SanType::URI(uri.try_into().unwrap()));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate, key }
    }

    /// Issues a certificate into `NAME.crt` and `NAME.key` beside the authority's `ca.crt`.
    pub(crate) fn write(&self, dir: &Path, name: &str, uri: &str) {
        let issued = self.issue(uri);
        for (file, pem) in [
            ("ca.crt".to_owned(), self.pem()),
            (format!("{name}.crt"), issued.certificate.pem()),
            (format!("{name}.key"), issued.key.serialize_pem()),
        ] {
            std::fs::write(dir.join(file), pem).unwrap();
        }
    }
}

/// The files of the client `name` in `dir`.
pub(crate) fn client_paths(dir: &Path, name: &str) -> ClientTlsPaths {
    ClientTlsPaths {
        ca: dir.join("ca.crt"),
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    }
}

/// A folder with an authority, an agent's certificate and a collector's.
pub(crate) fn pki() -> (tempfile::TempDir, Authority) {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("test");
    ca.write(dir.path(), "agent", "spiffe://test/vmi/ns/vm/uid");
    ca.write(dir.path(), "collector", "spiffe://test/collector");
    (dir, ca)
}

pub(crate) fn acceptor(dir: &Path) -> TlsAcceptor {
    TlsAcceptor::new(ServerTlsPaths {
        certificate: dir.join("agent.crt"),
        key: dir.join("agent.key"),
        client_ca: Some(dir.join("ca.crt")),
        clients: ClientRule::AllExceptAgents,
    })
    .unwrap()
}

pub(crate) async fn tls_over(
    dir: &Path,
    name: &str,
    stream: TcpStream,
) -> Result<(StatusCode, Vec<String>), Box<dyn std::error::Error>> {
    let stream = tls_stream(dir, name, stream).await?;
    let names = peer_names(&stream.get_ref().1.peer_certificates().unwrap_or_default()[0]);
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = Request::get("/").header("host", "test").body(Empty::new())?;
    let status = sender.send_request(request).await?.status();
    driver.abort();
    Ok((status, names))
}

/// The stream after the handshake of a client that presents the certificate `name`.
pub(crate) async fn tls_stream(
    dir: &Path,
    name: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Box<dyn std::error::Error>> {
    let tls = ClientTls::new(client_paths(dir, name))?;
    let config = tls.config(std::time::Instant::now()).ok_or("no certificate")?;
    let connector = tokio_rustls::TlsConnector::from(config);
    Ok(connector.connect(AGENT_DNS_NAME.try_into()?, stream).await?)
}

/// Fails instead of waiting forever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}
