use std::{sync::Arc, time::Instant};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use virtfleet_runtime::tls::{TlsAcceptor, is_collector, peer_names};

use super::{super::api_certificate::*, *};

const NAME: &str = "virtfleet-collector.virtfleet.svc";

#[test]
fn clients_of_the_api_verify_it_with_a_root_of_clients_and_agents_accept_it_for_nothing() {
    let old = authorities();
    let new = old.rotate(RootKind::Clients, NOW).unwrap();
    let (chain, _) = issue(&new, "example.org", &[NAME.to_owned()], DAY, NOW).unwrap();
    let newest = new.roots(RootKind::Clients)[0].pem.clone();
    for roots in [old.client_roots_pem(), newest] {
        check(&chain, &roots, Usage::Server).unwrap();
        check(&chain, &roots, Usage::Client).unwrap_err();
    }
    check(&chain, &new.agent_roots_pem(), Usage::Server).unwrap_err();
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let names = peer_names(&leaf);
    assert_eq!(names, ["spiffe://example.org/api", NAME]);
    assert!(!is_collector(&names));
}

#[test]
fn a_renewed_certificate_is_presented_to_new_connections() {
    let authorities = authorities();
    let names = vec![NAME.to_owned()];
    let api = ApiCertificate::new(names, &authorities, "example.org", DAY, NOW).unwrap();
    let acceptor = TlsAcceptor::issued(api.identity()).unwrap();
    let config = || acceptor.config(Instant::now());
    let first = config();
    assert!(Arc::ptr_eq(&first, &config()));
    let life = api.renew(&authorities, "example.org", DAY, NOW + 60).unwrap();
    assert!(!Arc::ptr_eq(&first, &config()));
    let lives = [api.first(), life].map(|life| (life.issued, life.not_after));
    assert_eq!(lives, [(NOW, NOW + DAY), (NOW + 60, NOW + 60 + DAY)]);
    // Clients are authenticated by their tokens.
    acceptor.authorise(None).unwrap();

    let end = authorities.roots(RootKind::Clients)[0].validity.not_after;
    api.renew(&authorities, "example.org", DAY, end + 3600)
        .unwrap_err();
}
