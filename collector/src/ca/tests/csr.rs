use super::*;

#[test]
fn key_challenge_and_names_are_read() {
    let nonce = "a5".repeat(32);
    let pair = KeyPair::generate().unwrap();
    let names = [
        "spiffe://example.org/vmi/a/b/c",
        "agent.virtfleet.internal",
        "agent.virtfleet.internal",
    ];
    let csr = read_csr(&request_of(&pair, &[&nonce], &names)).unwrap();
    assert_eq!(csr.challenge(), Some(nonce.as_str()));
    assert_eq!(csr.names(), &names[..2], "without duplicates");
    assert_eq!(csr.key_sha256().len(), 64);
    let again = read_csr(&request_of(&pair, &[], &[])).unwrap();
    assert_eq!((again.key_sha256(), again.challenge()), (csr.key_sha256(), None));
    assert_eq!(again.key(), csr.key());
    assert_ne!(super::csr().key_sha256(), csr.key_sha256());
}

/// The signature proves that the sender has the key, and covers key, challenge and names. Outside
/// of what it covers, some bits mean nothing.
#[test]
fn a_changed_request_is_refused() {
    let text = request(&[&"a5".repeat(32)], &["agent.virtfleet.internal"]);
    let der = der(&text);
    let unchanged = read_csr(&pem(&der)).unwrap();
    let mut accepted = 0;
    for index in 0..der.len() {
        let mut changed = der.clone();
        changed[index] ^= 1;
        if let Ok(csr) = read_csr(&pem(&changed)) {
            assert_eq!(csr, unchanged, "byte {index}");
            accepted += 1;
        }
    }
    assert!(accepted < 4, "{accepted} of {} bytes may change", der.len());
}

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes());
    der.unwrap().to_vec()
}

fn pem(der: &[u8]) -> String {
    cert_manager::pem_text("CERTIFICATE REQUEST", der)
}

#[test]
fn unusable_requests_are_refused() {
    let text = request(&[], &[]);
    for (text, expected) in [
        ("", "not a CSR in PEM"),
        (
            "-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n",
            "not a CSR",
        ),
        (&" ".repeat(8193), "8193 bytes"),
        (&request(&["one", "two"], &[]), "challengePassword more than once"),
        (&text.replace("CERTIFICATE REQUEST", "CERTIFICATE"), "not a CSR"),
    ] {
        let error = read_csr(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_number_of_names_is_bounded() {
    let names: Vec<_> = (0..17).map(|index| format!("n{index}.example")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    read_csr(&request(&[], &names[..16])).unwrap();
    assert_eq!(read_csr(&request(&[], &names)), Err(CsrError::TooManyNames));
}

#[test]
fn other_keys_are_refused() {
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        assert_eq!(read_csr(&request_of(&pair, &[], &[])), Err(CsrError::Algorithm));
    }
}

/// A request for the name of another kind is visible to the caller, which refuses it.
#[test]
fn names_of_all_kinds_are_listed() {
    let pair = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["10.0.0.1".to_owned()]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:worker-0");
    params
        .subject_alt_names
        .push(SanType::Rfc822Name("a@b".try_into().unwrap()));
    let text = params.serialize_request(&pair).unwrap().pem().unwrap();
    let csr = read_csr(&text).unwrap();
    assert_eq!(
        csr.names(),
        ["system:node:worker-0", "IP:[10, 0, 0, 1]", "email:a@b"]
    );
}
