//! The CLI over https, with certificates on both sides.

use std::{fs, path::Path, sync::Arc};

use clap::Parser as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{cli::Cli, tests::run_cli};
use crate::{
    api::{
        self,
        testing::{self, TestFleet},
    },
    tls_testing::TlsListener,
};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key, both PEM.
fn leaf(ca: &Ca, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn acceptor(ca: &Ca) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let (certificate, key) = leaf(ca, "127.0.0.1");
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let (ours, theirs) = (ca(), ca());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let router = api::router(testing::state(TestFleet::new(testing::fleet())));
    let tls = TlsListener(listener, acceptor(&ours));
    runtime.spawn(async move { axum::serve(tls, router).await });

    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = leaf(&ours, "admin");
    let cacert = write("ca.crt", &ours.pem());
    let other = write("other.crt", &theirs.pem());
    let (certificate, key) = (write("client.crt", &certificate), write("client.key", &key));
    let ask = |cacert: &Path, client: bool| {
        let mut args = vec!["virtfleetctl".as_ref(), "clusters".as_ref(), "--server".as_ref()];
        args.extend([server.as_ref(), "--cacert".as_ref(), cacert.as_os_str()]);
        if client {
            args.extend([
                "--cert".as_ref(),
                certificate.as_os_str(),
                "--key".as_ref(),
                key.as_os_str(),
            ]);
        }
        run_cli(&Cli::try_parse_from(args).unwrap(), false)
    };
    let (code, out, err) = ask(&cacert, true);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("prod"), "{out}");
    let (code, _, err) = ask(&other, true);
    assert_eq!(code, 1);
    assert!(err.contains("TLS: ") && err.contains("--cacert"), "{err}");
    let (code, _, err) = ask(&cacert, false);
    assert_eq!(code, 1);
    assert!(err.contains("TLS: ") && err.contains("--cert"), "{err}");
}
