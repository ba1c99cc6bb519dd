use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use virtfleet_runtime::tls::peer_names;

use super::*;

fn first(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn an_agent_serves_and_pushes_with_its_certificate() {
    let authorities = authorities();
    let signed = authorities.sign_agent(csr().key(), &worker(), ONE_DAY).unwrap();
    for usage in [Usage::Server, Usage::Client] {
        check(&signed.chain_pem, &authorities.agent_roots_pem(), usage).unwrap();
    }
    let names = peer_names(&first(&signed.chain_pem));
    assert_eq!(names, [worker().to_uri().as_str(), "agent.virtfleet.internal"]);
    assert_eq!(Serial::of(&first(&signed.chain_pem)), Some(signed.serial));
    assert_eq!(Validity::of_first(signed.chain_pem.as_bytes()), Ok(ONE_DAY));
    assert_eq!(signed.validity, ONE_DAY);
}

#[test]
fn a_client_has_its_names_and_cannot_serve() {
    let authorities = authorities();
    let uri = "spiffe://example.org/reader/grafana";
    let dns = ["grafana.monitoring.svc".to_owned()];
    let signed = authorities.sign_client(csr().key(), uri, &dns, ONE_DAY).unwrap();
    let roots = authorities.client_roots_pem();
    check(&signed.chain_pem, &roots, Usage::Client).unwrap();
    assert_eq!(peer_names(&first(&signed.chain_pem)), [uri, dns[0].as_str()]);
    let error = check(&signed.chain_pem, &roots, Usage::Server).unwrap_err();
    assert!(error.contains("not valid for a server"), "{error}");
}

/// An agent must not act as a collector, nor a collector as an agent.
#[test]
fn each_root_vouches_for_its_kind_only() {
    let authorities = authorities();
    let (agent, collector) = (agent(&authorities, ONE_DAY), collector(&authorities, ONE_DAY));
    for (chain, roots) in [
        (&agent, authorities.client_roots_pem()),
        (&collector, authorities.agent_roots_pem()),
        (&agent, self::authorities().agent_roots_pem()),
    ] {
        let error = check(chain, &roots, Usage::Client).unwrap_err();
        assert!(error.contains("not signed by any"), "{error}");
    }
}

/// A certificate of an agent must not sign others.
#[test]
fn a_leaf_is_no_authority() {
    let authorities = authorities();
    let pair = KeyPair::generate().unwrap();
    let csr = read_csr(&request_of(&pair, &[], &[])).unwrap();
    let signed = authorities.sign_agent(csr.key(), &worker(), ONE_DAY).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(&first(&signed.chain_pem), &pair).unwrap();
    let mut params = CertificateParams::new(vec!["agent.virtfleet.internal".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    let forged = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    let chain = forged.pem() + &signed.chain_pem;
    check(&chain, &authorities.agent_roots_pem(), Usage::Server).unwrap_err();
}

#[test]
fn identities_of_other_trust_domains_are_refused() {
    let authorities = authorities();
    for uri in [
        "spiffe://example.org.evil/vmi/a/b/c",
        "spiffe://example.com/vmi/a/b/c",
    ] {
        let error = authorities.sign_agent(csr().key(), &identity(uri), ONE_DAY);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("is not of the trust domain example.org"),
            "{error}"
        );
    }
    for uri in [
        "spiffe://example.com/collector",
        "https://example.org/collector",
        "spiffe://example.org",
    ] {
        authorities
            .sign_client(csr().key(), uri, &[], ONE_DAY)
            .unwrap_err();
    }
}

/// A UID may contain `/`, which would change the identity.
#[test]
fn a_uid_cannot_change_the_identity() {
    let identity = VmIdentity {
        uid: "1b2c/extra".parse().unwrap(),
        ..worker()
    };
    let error = authorities().sign_agent(csr().key(), &identity, ONE_DAY);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("cannot be written into a certificate")
    );
}

#[test]
fn certificates_end_with_their_root() {
    let authorities = authorities();
    let root = authorities.roots(RootKind::Agents)[0].validity;
    let late = Validity {
        not_before: root.not_after - 60,
        not_after: root.not_after + DAY,
    };
    let signed = authorities.sign_agent(csr().key(), &worker(), late).unwrap();
    assert_eq!(signed.validity.not_after, root.not_after);
    for outside in [
        Validity {
            not_before: root.not_after,
            not_after: root.not_after + DAY,
        },
        Validity {
            not_before: 0,
            not_after: root.not_before,
        },
        Validity {
            not_before: NOW,
            not_after: NOW,
        },
    ] {
        let error = authorities.sign_agent(csr().key(), &worker(), outside);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("virtfleetctl ca rotate agents"), "{error}");
    }
}

#[test]
fn a_name_that_is_not_ascii_is_refused() {
    let dns = ["bücher.example".to_owned()];
    let uri = "spiffe://example.org/reader";
    let signed = authorities().sign_client(csr().key(), uri, &dns, ONE_DAY);
    assert!(matches!(signed, Err(CaError::Name(name)) if name == dns[0]));
}

#[test]
fn a_denied_serial_is_found() {
    let mut authorities = authorities();
    let signed = authorities.sign_agent(csr().key(), &worker(), ONE_DAY).unwrap();
    assert!(!authorities.denies(&signed.serial));
    authorities.deny(signed.serial.clone());
    authorities.deny(signed.serial.clone());
    assert!(authorities.denies(&signed.serial));
    assert_eq!(authorities.denied(), 1);
}

#[test]
fn a_trust_domain_is_checked() {
    for wrong in ["", "Example.org", "a/b", "spiffe://a", "a b", &"a".repeat(256)] {
        assert!(
            matches!(Authorities::create(wrong, NOW), Err(CaError::TrustDomain(_))),
            "{wrong}"
        );
    }
}

#[test]
fn keys_are_not_in_debug_output() {
    let text = format!("{:?}", authorities());
    assert!(!text.contains("PRIVATE KEY"), "{text}");
}
