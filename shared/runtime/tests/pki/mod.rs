//! Certificates for the tests of the server, and a client that presents one.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use virtfleet_runtime::tls::{
    AGENT_DNS_NAME, ClientRule, ClientTls, ClientTlsPaths, ServerTlsPaths, TlsAcceptor, peer_names,
};

pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes `NAME.crt`, `NAME.key` into `dir`.
    pub(crate) fn issue(&self, dir: &Path, name: &str, uri: &str) {
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
        std::fs::write(dir.join(format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// A folder with a CA, an agent's certificate and a collector's.
pub(crate) fn pki() -> (tempfile::TempDir, Ca) {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new();
    std::fs::write(dir.path().join("ca.crt"), &ca.pem).unwrap();
    ca.issue(dir.path(), "agent", "spiffe://test/vmi/ns/vm/uid");
    ca.issue(dir.path(), "collector", "spiffe://test/collector");
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
    let tls = ClientTls::new(ClientTlsPaths {
        ca: dir.join("ca.crt"),
        certificate: dir.join(format!("{name}.crt")),
        key: dir.join(format!("{name}.key")),
    })?;
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
