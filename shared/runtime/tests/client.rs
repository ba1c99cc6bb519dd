//! TLS of the client with certificates in memory and from files.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failing test panics")]

use std::{path::Path, sync::Arc, time::Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::{
    ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, ClientTls, ClientTlsPaths, IssuedTls, peer_names};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Certificate and key in PEM.
    fn issue(&self, uri: &str) -> (String, String) {
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
        (certificate.pem(), key.serialize_pem())
    }

    /// A server of this authority, which accepts its clients.
    fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap())
            .unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let (certificate, key) = self.issue("spiffe://test/vmi/ns/vm/uid");
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        Arc::new(config)
    }

    fn issued(&self, uri: &str) -> IssuedTls {
        let (certificate, key) = self.issue(uri);
        IssuedTls {
            authorities: self.pem.clone(),
            certificate,
            key: key.into(),
        }
    }

    fn write(&self, folder: &Path, uri: &str) -> ClientTlsPaths {
        let (certificate, key) = self.issue(uri);
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        ClientTlsPaths {
            ca: write("ca.crt", &self.pem),
            certificate: write("c.crt", &certificate),
            key: write("c.key", &key),
        }
    }
}

/// The names of the client that a server verified, or the first error.
fn handshake(client: &ClientTls, server: Arc<ServerConfig>) -> Result<Vec<String>, rustls::Error> {
    let config = client.config(Instant::now()).expect("a certificate");
    let mut client = ClientConnection::new(config, AGENT_DNS_NAME.try_into().unwrap())?;
    let mut server = ServerConnection::new(server)?;
    for _ in 0..4 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    assert!(!server.is_handshaking());
    Ok(peer_names(&server.peer_certificates().unwrap()[0]))
}

#[test]
fn a_certificate_in_memory_is_used_and_replaced() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let client = ClientTls::in_memory();
    assert!(client.config(Instant::now()).is_none(), "no certificate yet");
    client.replace(&old.issued("spiffe://test/one")).unwrap();
    assert_eq!(handshake(&client, old.server()).unwrap()[0], "spiffe://test/one");
    handshake(&client, new.server()).unwrap_err();
    let known = client.config(Instant::now()).unwrap();
    assert!(Arc::ptr_eq(&known, &client.config(Instant::now()).unwrap()));

    client.replace(&new.issued("spiffe://test/two")).unwrap();
    assert_eq!(handshake(&client, new.server()).unwrap()[0], "spiffe://test/two");
    handshake(&client, old.server()).unwrap_err();
}

#[test]
fn unusable_certificates_are_refused_and_the_previous_ones_stay() {
    let authority = Authority::new("one");
    let client = ClientTls::in_memory();
    let good = authority.issued("spiffe://test/one");
    client.replace(&good).unwrap();
    let other_key = authority.issued("spiffe://test/two").key;
    for (issued, reason) in [
        (
            IssuedTls {
                certificate: String::new(),
                ..good.clone()
            },
            "no certificate",
        ),
        (
            IssuedTls {
                authorities: String::new(),
                ..good.clone()
            },
            "no authorities",
        ),
        (
            IssuedTls {
                key: "x".to_owned().into(),
                ..good.clone()
            },
            "private key",
        ),
        (
            IssuedTls {
                key: other_key,
                ..good.clone()
            },
            "cannot be used",
        ),
    ] {
        let error = client.replace(&issued).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    handshake(&client, authority.server()).unwrap();
    assert!(!format!("{good:?}").contains("PRIVATE"));
}

#[test]
fn each_server_gets_the_certificate_of_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (files, memory, other) = (
        Authority::new("files"),
        Authority::new("memory"),
        Authority::new("other"),
    );
    let client = ClientTls::new(files.write(folder.path(), "spiffe://test/files")).unwrap();
    client.replace(&memory.issued("spiffe://test/memory")).unwrap();
    for (authority, uri) in [(&files, "spiffe://test/files"), (&memory, "spiffe://test/memory")] {
        assert_eq!(handshake(&client, authority.server()).unwrap()[0], uri);
    }
    handshake(&client, other.server()).unwrap_err();
}
