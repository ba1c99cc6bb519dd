use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn error(files: &BTreeMap<String, Vec<u8>>) -> String {
    Authorities::parse(files).unwrap_err().to_string()
}

fn with(name: &str, text: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = authorities().files();
    files.insert(name.to_owned(), text.to_vec());
    files
}

#[test]
fn problems_have_file_and_line() {
    let files = authorities().files();
    let clients = String::from_utf8(files["clients.crt"].clone()).unwrap();
    let lines = clients.lines().count();
    let broken = format!("{clients}\n-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n");
    let twice = format!("{clients}{clients}");
    let leaf = agent(&authorities(), ONE_DAY);
    for (files, expected) in [
        (
            with("agents.crt", b""),
            "agents.crt:1: contains no certificate".to_owned(),
        ),
        (
            with("agents.key", b""),
            "agents.key:1: contains no private key".to_owned(),
        ),
        (
            with("agents.key", &files["clients.key"]),
            "agents.key:1: this key does not belong to the first certificate of agents.crt".to_owned(),
        ),
        (
            with(
                "agents.key",
                b"\n-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n",
            ),
            "agents.key:2: the private key cannot be used".to_owned(),
        ),
        (
            with("clients.crt", broken.as_bytes()),
            format!("clients.crt:{}: this certificate cannot be parsed", lines + 2),
        ),
        (
            with("clients.crt", twice.as_bytes()),
            format!("clients.crt:{}: this certificate is listed twice", lines + 1),
        ),
        (
            with("agents.crt", leaf.as_bytes()),
            "agents.crt:1: this certificate must not sign others".to_owned(),
        ),
        (
            with("clients-chain.crt", &files["agents.crt"]),
            "clients-chain.crt:1: the first certificate is not for the key that signs clients".to_owned(),
        ),
        (
            with("deny", b"\nworker"),
            "deny:2: \"worker\" is not a serial number".to_owned(),
        ),
    ] {
        let error = error(&files);
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
}

#[test]
fn a_missing_file_is_named() {
    for name in ["agents.crt", "agents.key", "clients.crt", "clients.key"] {
        let mut files = authorities().files();
        files.remove(name);
        assert!(error(&files).starts_with(&format!("{name} is missing; restore it")));
    }
    let mut files = authorities().files();
    files.remove("clients-chain.crt");
    files.remove("deny");
    Authorities::parse(&files).unwrap();
}

#[test]
fn a_chain_with_a_gap_is_refused() {
    let first = authorities();
    let third = first
        .rotate(RootKind::Clients, NOW)
        .and_then(|second| second.rotate(RootKind::Clients, NOW))
        .unwrap();
    let mut files = third.files();
    let other = authorities()
        .rotate(RootKind::Clients, NOW)
        .unwrap()
        .client_chain()[0]
        .pem
        .clone();
    let gap = third.client_chain()[0].pem.clone() + &other;
    files.insert("clients-chain.crt".to_owned(), gap.into_bytes());
    assert!(error(&files).contains("each certificate must be signed by the next one"));
}

#[test]
fn only_absent_roots_are_created() {
    let assemble = |files: &BTreeMap<String, Vec<u8>>, trust_domain: &str| {
        Authorities::assemble(files, &[], trust_domain, NOW)
    };
    let (new, created) = assemble(&BTreeMap::new(), "example.org").unwrap();
    assert!(created);
    let (same, created) = assemble(&new.files(), "example.org").unwrap();
    assert!(!created);
    assert_eq!(same.files(), new.files());
    // One of two files is a damage, not a first start.
    let mut files = new.files();
    files.remove("agents.key");
    assert!(matches!(
        assemble(&files, "example.org"),
        Err(CaError::Missing { .. })
    ));
    let error = assemble(&new.files(), "example.com").unwrap_err().to_string();
    assert!(error.contains("enrolment.trustDomain is example.com"), "{error}");
    assemble(&new.files(), "Example").unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What is written can be read, whatever was rotated and denied, and reads as the same.
    #[test]
    fn files_are_read_as_they_were_written(
        steps in prop::collection::vec((any::<bool>(), 0..400_u64), 0..4),
        serials in prop::collection::vec("[1-9a-f][0-9a-f]{0,38}", 0..5),
        comment in "(#[ -~]{0,20}\n)?",
    ) {
        let mut authorities = authorities();
        let mut now = NOW;
        for (agents, days) in steps {
            now += days * DAY;
            let kind = if agents { RootKind::Agents } else { RootKind::Clients };
            authorities = authorities.rotate(kind, now).unwrap();
        }
        for serial in &serials {
            authorities.deny(serial.parse().unwrap());
        }
        let mut files = authorities.files();
        files.entry("deny".to_owned()).or_default().extend(comment.bytes());
        let again = Authorities::parse(&files).unwrap();
        prop_assert_eq!(again.files(), files);
        for kind in RootKind::ALL {
            prop_assert_eq!(again.roots(kind), authorities.roots(kind));
        }
        prop_assert_eq!(again.client_chain(), authorities.client_chain());
        for serial in &serials {
            prop_assert!(again.denies(&serial.parse().unwrap()));
        }
        // Keys still sign, and the roots verify.
        let chain = collector(&again, Validity { not_before: now, not_after: now + DAY });
        check_chain(chain.as_bytes(), again.client_roots_pem().as_bytes(), Usage::Client, now).unwrap();
    }

    /// No text makes the parser panic.
    #[test]
    fn any_text_is_an_error_or_an_authority(name in "(agents|clients)\\.(crt|key)|clients-chain.crt|deny", text in ".{0,300}") {
        let files = with(&name, text.as_bytes());
        drop(Authorities::parse(&files));
    }
}
