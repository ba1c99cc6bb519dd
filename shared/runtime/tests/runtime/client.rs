//! TLS of the client with certificates in memory and from files.

use std::{sync::Arc, time::Instant};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    pki_types::PrivatePkcs8KeyDer, server::WebPkiClientVerifier,
};
use virtfleet_runtime::tls::{AGENT_DNS_NAME, ClientTls, IssuedTls, PUSH_PROTOCOL, peer_names};

use crate::pki::{Authority, acceptor, client_paths, pki};

impl Authority {
    /// A server of this authority, which accepts its clients.
    fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let issued = self.issue("spiffe://test/vmi/ns/vm/uid");
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![issued.certificate.der().clone()],
                PrivatePkcs8KeyDer::from(issued.key.serialize_der()).into(),
            )
            .unwrap();
        Arc::new(config)
    }

    fn issued_tls(&self, uri: &str) -> IssuedTls {
        let issued = self.issue(uri);
        IssuedTls {
            authorities: self.pem(),
            certificate: issued.certificate.pem(),
            key: issued.key.serialize_pem().into(),
        }
    }
}

/// The names of the client that a server verified, or the first error.
fn handshake(client: &ClientTls, server: Arc<ServerConfig>) -> Result<Vec<String>, rustls::Error> {
    let config = client.config(Instant::now()).expect("a certificate");
    let server = connected(config, server)?;
    Ok(peer_names(&server.peer_certificates().unwrap()[0]))
}

/// The server's side of a handshake, or the first error.
fn connected(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<ServerConnection, rustls::Error> {
    let mut client = ClientConnection::new(client, AGENT_DNS_NAME.try_into().unwrap())?;
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
    Ok(server)
}

#[test]
fn a_certificate_in_memory_is_used_and_replaced() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let client = ClientTls::in_memory();
    assert!(client.config(Instant::now()).is_none(), "no certificate yet");
    client.replace(&old.issued_tls("spiffe://test/one")).unwrap();
    assert_eq!(handshake(&client, old.server()).unwrap()[0], "spiffe://test/one");
    handshake(&client, new.server()).unwrap_err();
    let known = client.config(Instant::now()).unwrap();
    assert!(Arc::ptr_eq(&known, &client.config(Instant::now()).unwrap()));

    client.replace(&new.issued_tls("spiffe://test/two")).unwrap();
    assert_eq!(handshake(&client, new.server()).unwrap()[0], "spiffe://test/two");
    handshake(&client, old.server()).unwrap_err();
}

#[test]
fn unusable_certificates_are_refused_and_the_previous_ones_stay() {
    let authority = Authority::new("one");
    let client = ClientTls::in_memory();
    let good = authority.issued_tls("spiffe://test/one");
    client.replace(&good).unwrap();
    let other_key = authority.issued_tls("spiffe://test/two").key;
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
    files.write(folder.path(), "client", "spiffe://test/files");
    let client = ClientTls::new(client_paths(folder.path(), "client")).unwrap();
    client
        .replace(&memory.issued_tls("spiffe://test/memory"))
        .unwrap();
    for (authority, uri) in [(&files, "spiffe://test/files"), (&memory, "spiffe://test/memory")] {
        assert_eq!(handshake(&client, authority.server()).unwrap()[0], uri);
    }
    handshake(&client, other.server()).unwrap_err();
}

#[test]
fn each_direction_of_a_connection_has_its_protocol() {
    let (dir, _ca) = pki();
    let client = ClientTls::new(client_paths(dir.path(), "collector")).unwrap();
    let now = Instant::now();
    let dialled = || client.config(now).unwrap();
    let collects = || client.deferred(now).unwrap().for_push().config();
    let listens = || acceptor(dir.path()).config(now);
    let pushes = || acceptor(dir.path()).for_push().config(now);
    connected(dialled(), listens()).unwrap();
    let server = connected(collects(), pushes()).unwrap();
    assert_eq!(server.alpn_protocol(), Some(PUSH_PROTOCOL));
    for (client, server) in [(collects(), listens()), (dialled(), pushes())] {
        let error = connected(client, server).unwrap_err();
        assert_eq!(error, rustls::Error::NoApplicationProtocol);
    }
}

#[test]
fn the_authorities_change_when_one_of_them_is_gone() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let client = ClientTls::in_memory();
    let now = Instant::now();
    assert_eq!(client.authorities(now), None);
    let issued = |authorities: String| IssuedTls {
        authorities,
        ..old.issued_tls("spiffe://test/one")
    };
    let mut known = Vec::new();
    for authorities in [
        old.pem(),
        old.pem(),
        format!("{}{}", old.pem(), new.pem()),
        new.pem(),
    ] {
        client.replace(&issued(authorities)).unwrap();
        known.push(client.authorities(now).unwrap());
    }
    assert!(known[0] == known[1] && known[1] == known[2], "none is gone");
    assert_ne!(known[2], known[3]);
}
