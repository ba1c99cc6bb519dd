//! Roots that cert-manager manages.

use std::collections::BTreeMap;

use rcgen::{BasicConstraints, IsCa};

use super::*;

/// A Secret of the type `kubernetes.io/tls` with a self-signed root.
fn external(kind: RootKind) -> ExternalRoot {
    let pair = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&pair).unwrap().pem();
    ExternalRoot {
        kind,
        owner: format!("the Secret virtfleet/{kind}-ca"),
        files: BTreeMap::from([
            ("tls.crt".to_owned(), certificate.into_bytes()),
            ("tls.key".to_owned(), pair.serialize_pem().into_bytes()),
        ]),
    }
}

fn assemble(
    files: &BTreeMap<String, Vec<u8>>,
    external: &[ExternalRoot],
) -> Result<(Authorities, bool), CaError> {
    Authorities::assemble(files, external, "example.org", NOW)
}

#[test]
fn external_roots_sign_and_are_not_written() {
    let external = RootKind::ALL.map(external);
    let (authorities, created) = assemble(&BTreeMap::new(), &external).unwrap();
    assert!(!created);
    check(
        &agent(&authorities, ONE_DAY),
        &authorities.agent_roots_pem(),
        Usage::Server,
    )
    .unwrap();
    check(
        &collector(&authorities, ONE_DAY),
        &authorities.client_roots_pem(),
        Usage::Client,
    )
    .unwrap();
    let files = authorities.files();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["deny"]);
}

#[test]
fn external_roots_cannot_be_rotated_here() {
    let (authorities, _) = assemble(&BTreeMap::new(), &RootKind::ALL.map(external)).unwrap();
    for kind in RootKind::ALL {
        let error = authorities.rotate(kind, NOW).unwrap_err().to_string();
        let expected =
            format!("the root of {kind} is managed by the Secret virtfleet/{kind}-ca; rotate it there");
        assert_eq!(error, expected);
    }
}

#[test]
fn one_kind_may_be_external() {
    let (authorities, created) = assemble(&BTreeMap::new(), &[external(RootKind::Clients)]).unwrap();
    assert!(created, "a new root of agents");
    let files = authorities.files();
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["agents.crt", "agents.key", "deny"]
    );
    authorities.rotate(RootKind::Agents, NOW).unwrap();
    authorities.rotate(RootKind::Clients, NOW).unwrap_err();
    let (again, created) = assemble(&files, &[external(RootKind::Clients)]).unwrap();
    assert!(!created);
    assert_eq!(again.agent_roots_pem(), authorities.agent_roots_pem());
}

/// What follows in `tls.crt` is the chain above the authority: its other certificates are not ours.
#[test]
fn certificates_above_an_external_authority_are_not_trusted() {
    let (mut agents, above) = (external(RootKind::Agents), external(RootKind::Agents));
    let chain = agents.files.get_mut("tls.crt").unwrap();
    chain.extend(above.files["tls.crt"].iter());
    let (authorities, _) = assemble(&BTreeMap::new(), &[agents, external(RootKind::Clients)]).unwrap();
    assert_eq!(authorities.roots(RootKind::Agents).len(), 1);
}

/// cert-manager writes SEC 1 and PKCS #1 unless `privateKey.encoding` is `PKCS8`.
#[test]
fn keys_in_sec1_are_read() {
    let mut agents = external(RootKind::Agents);
    let pkcs8 = String::from_utf8(agents.files["tls.key"].clone()).unwrap();
    let sec1 = sec1(&pkcs8);
    assert!(sec1.starts_with("-----BEGIN EC PRIVATE KEY-----"));
    agents.files.insert("tls.key".to_owned(), sec1.into_bytes());
    let (authorities, _) = assemble(&BTreeMap::new(), &[agents, external(RootKind::Clients)]).unwrap();
    check(
        &agent(&authorities, ONE_DAY),
        &authorities.agent_roots_pem(),
        Usage::Server,
    )
    .unwrap();
}

/// The SEC 1 key inside of a PKCS #8 key for P-256 as ring writes it: an OCTET STRING at its end.
fn sec1(pkcs8: &str) -> String {
    use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
    let der = PrivatePkcs8KeyDer::from_pem_slice(pkcs8.as_bytes()).unwrap();
    let der = der.secret_pkcs8_der();
    // ECPrivateKey: SEQUENCE, INTEGER 1, OCTET STRING of 32 bytes (RFC 5915, 3).
    let start = der
        .windows(7)
        .position(|bytes| bytes[0] == 0x30 && bytes[2..] == [0x02, 0x01, 0x01, 0x04, 0x20])
        .unwrap();
    // The curve, which PKCS #8 has outside: [0] OID 1.2.840.10045.3.1.7.
    let curve = [
        0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    let mut key = der[start + 2..start + 2 + 37].to_vec();
    key.extend(curve);
    key.extend(&der[start + 2 + 37..start + 2 + usize::from(der[start + 1])]);
    let mut sequence = vec![0x30, u8::try_from(key.len()).unwrap()];
    sequence.extend(key);
    pem_text("EC PRIVATE KEY", &sequence)
}

pub(super) fn pem_text(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let bits = chunk
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0usize, |bits, byte| bits << 8 | usize::from(*byte));
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= chunk.len() {
                char::from(DIGITS[index])
            } else {
                '='
            });
        }
    }
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn problems_name_the_secret() {
    let mut agents = external(RootKind::Agents);
    agents.files.remove("tls.key");
    let error = assemble(&BTreeMap::new(), &[agents]).unwrap_err().to_string();
    assert!(
        error.starts_with("the Secret virtfleet/agents-ca: tls.key is missing"),
        "{error}"
    );
    let mut agents = external(RootKind::Agents);
    let other = external(RootKind::Agents);
    agents
        .files
        .insert("tls.key".to_owned(), other.files["tls.key"].clone());
    let error = assemble(&BTreeMap::new(), &[agents]).unwrap_err().to_string();
    assert!(
        error.starts_with("the Secret virtfleet/agents-ca: tls.key:1: this key does not belong"),
        "{error}"
    );
}
