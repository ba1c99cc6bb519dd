use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};
use virtfleet_agent_core::enrolment::{
    record::DiscardReason,
    status::{CertificateState, EnrolmentStatus, UnstoredKey},
};
use virtfleet_agent_host::Roots;
use virtfleet_agent_state::enrolment::{EnrolmentFiles, StoredEnrolment};
use virtfleet_runtime::tls::AGENT_DNS_NAME;
use virtfleet_wire::enrolment::{EnrolmentRequest, IssuedCertificate, Nonce};

use super::*;

/// 2027-01-15.
const NOW: u64 = 1_800_000_000;
const CA_FILE: &str = "/etc/virtfleet/tls/ca.crt";
const IDENTITY: &str = "spiffe://test/vmi/cluster-a/worker-0/uid-1";
const OTHER: &str = "spiffe://test/vmi/cluster-a/worker-0/uid-2";
const OTHER_VM: &str = "spiffe://test/vmi/cluster-b/worker-0/uid-3";

fn synchronised() -> EnrolmentTime {
    EnrolmentTime {
        now: NOW,
        synchronised: true,
    }
}

fn unsynchronised() -> EnrolmentTime {
    EnrolmentTime {
        synchronised: false,
        ..synchronised()
    }
}

struct Guest {
    _dir: tempfile::TempDir,
    roots: Roots,
}

impl Guest {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            rootfs: dir.path().join("root"),
            procfs: dir.path().join("proc"),
            sysfs: dir.path().join("sys"),
            ..Roots::default()
        };
        let guest = Self { _dir: dir, roots };
        guest.set_uuid("8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34");
        guest
    }

    fn set_uuid(&self, uuid: &str) {
        let path = self.roots.sys("class/dmi/id/product_uuid");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, uuid).unwrap();
    }

    fn start(&self) -> Enrolment {
        Enrolment::open_at(&self.roots, CA_FILE, synchronised).unwrap()
    }

    fn stored(&self) -> StoredEnrolment {
        EnrolmentFiles::new(&self.roots).read().unwrap().unwrap()
    }

    /// A certificate for the stored key.
    fn certificate(&self, uris: &[&str], adjust: impl FnOnce(&mut CertificateParams)) -> String {
        issue(&self.stored().key, uris, adjust)
    }
}

/// A certificate authority, in PEM.
fn authority() -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "agents");
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

fn issue(pkcs8: &[u8], uris: &[&str], adjust: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = CertificateParams::new([AGENT_DNS_NAME.to_owned()]).unwrap();
    for uri in uris {
        params
            .subject_alt_names
            .push(SanType::URI((*uri).try_into().unwrap()));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = date_time_ymd(2027, 1, 15);
    params.not_after = date_time_ymd(2027, 1, 16);
    adjust(&mut params);
    let key = KeyPair::try_from(pkcs8).unwrap();
    params.signed_by(&key, &authority().0).unwrap().pem()
}

fn request(identity: &str) -> EnrolmentRequest {
    EnrolmentRequest {
        identity: identity.to_owned(),
        nonce: Nonce::from_bytes([7; 32]),
        replace_key: false,
    }
}

fn issued(certificate: String) -> IssuedCertificate {
    IssuedCertificate {
        certificate,
        client_authorities: String::new(),
    }
}

fn identity(status: &EnrolmentStatus) -> Option<&str> {
    match &status.state {
        CertificateState::Waiting { .. } => None,
        CertificateState::Enrolled { identity, .. } => Some(identity),
    }
}

/// A guest that is enrolled as [`IDENTITY`].
fn enrolled() -> (Guest, Enrolment) {
    let guest = Guest::new();
    let enrolment = guest.start();
    enrolment.request(&request(IDENTITY)).unwrap();
    enrolment
        .accept(&issued(guest.certificate(&[IDENTITY], |_| {})))
        .unwrap();
    (guest, enrolment)
}

#[test]
fn a_key_is_made_once_and_waits() {
    let guest = Guest::new();
    assert_eq!(stored_status(&guest.roots, CA_FILE, NOW), Ok(None));
    let status = guest.start().status();
    assert_eq!(status.state, CertificateState::Waiting { since: NOW });
    assert_eq!((status.client_ca.as_str(), &status.not_stored), (CA_FILE, &None));
    let key = guest.stored().key;
    guest.start();
    assert_eq!(guest.stored().key, key);
    assert_eq!(stored_status(&guest.roots, CA_FILE, NOW), Ok(Some(status)));
}

#[test]
fn a_csr_has_the_nonce_and_no_name() {
    let guest = Guest::new();
    let enrolment = guest.start();
    let answer = enrolment.request(&request(IDENTITY)).unwrap();
    let lines: Vec<&str> = answer.csr.lines().collect();
    assert_eq!(lines[0], "-----BEGIN CERTIFICATE REQUEST-----");
    let der = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let contains = |bytes: &[u8]| der.windows(bytes.len()).any(|window| window == bytes);
    assert!(contains("07".repeat(32).as_bytes()), "the nonce");
    // OID of challengePassword.
    assert!(contains(&[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7]));
    let key = key::AgentKey::from_pkcs8(guest.stored().key).unwrap();
    assert!(contains(key.public_key()));
    assert!(!contains(b"virtfleet") && !contains(b"worker-0") && !contains(b"rcgen"));
    let uuid = answer.evidence.smbios_uuid.unwrap().to_string();
    assert_eq!(uuid, "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34");
    assert!(!enrolment.is_enrolled(), "a CSR is no certificate");
}

#[test]
fn an_accepted_certificate_is_served_also_after_a_restart() {
    let (guest, enrolment) = enrolled();
    for enrolment in [enrolment, guest.start()] {
        let status = enrolment.status();
        assert_eq!(identity(&status), Some(IDENTITY));
        assert!(enrolment.is_enrolled());
        assert_eq!(stored_status(&guest.roots, CA_FILE, NOW), Ok(Some(status)));
        // A renewal keeps the key.
        let key = guest.stored().key;
        enrolment.request(&request(IDENTITY)).unwrap();
        assert_eq!(guest.stored().key, key);
        enrolment
            .accept(&issued(guest.certificate(&[IDENTITY], |_| {})))
            .unwrap();
    }
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_and_counted() {
    type Adjust = fn(&mut CertificateParams);
    let nothing: Adjust = |_| {};
    let guest = Guest::new();
    let enrolment = guest.start();
    let refuse = |certificate: String| enrolment.accept(&issued(certificate)).unwrap_err().to_string();
    let reason = refuse(guest.certificate(&[IDENTITY], nothing));
    assert!(reason.contains("no certificate was requested"), "{reason}");
    enrolment.request(&request(IDENTITY)).unwrap();
    let cases: [(&[&str], Adjust, &str); 6] = [
        (&[OTHER], nothing, "has the identity"),
        (&[IDENTITY, OTHER], nothing, "has the identity"),
        (&[], nothing, "has the identity []"),
        (
            &[IDENTITY],
            |params| drop(params.subject_alt_names.remove(0)),
            "no DNS name",
        ),
        (
            &[IDENTITY],
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "not valid for a server",
        ),
        (
            &[IDENTITY],
            |params| params.extended_key_usages.clear(),
            "not valid for a server",
        ),
    ];
    for (uris, adjust, expected) in cases {
        let reason = refuse(guest.certificate(uris, adjust));
        assert!(reason.contains(expected), "{uris:?}: {reason}");
    }
    let other = KeyPair::generate().unwrap();
    let reason = refuse(issue(other.serialized_der(), &[IDENTITY], nothing));
    assert!(reason.contains("another key"), "{reason}");
    for unusable in [
        "",
        "x",
        "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
    ] {
        refuse(unusable.to_owned());
    }
    refuse(authority().1);
    let mut with_authority = issued(guest.certificate(&[IDENTITY], nothing));
    with_authority.client_authorities =
        "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n".to_owned();
    let reason = enrolment.accept(&with_authority).unwrap_err().to_string();
    assert!(reason.starts_with("an authority of clients"), "{reason}");

    assert!(!enrolment.is_enrolled());
    assert!(guest.stored().certificate.is_none());
    let counts = enrolment.refusals();
    for (word, count) in [
        ("not_requested", 1),
        ("other_identity", 3),
        ("no_dns_name", 1),
        ("not_for_servers", 2),
        ("other_key", 2),
        ("unusable", 4),
    ] {
        assert_eq!(counts[word], count, "{word}: {counts:?}");
    }
    assert_eq!(enrolment.status().refusal.unwrap().reason, reason);

    enrolment
        .accept(&issued(guest.certificate(&[IDENTITY], nothing)))
        .unwrap();
    assert_eq!(enrolment.status().refusal, None, "it is over");
}

#[test]
fn an_expired_certificate_is_refused_only_by_a_synchronized_clock() {
    let expired = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2027, 1, 10);
        params.not_after = date_time_ymd(2027, 1, 11);
    };
    let guest = Guest::new();
    let enrolment = guest.start();
    enrolment.request(&request(IDENTITY)).unwrap();
    let certificate = issued(guest.certificate(&[IDENTITY], expired));
    let reason = enrolment.accept(&certificate).unwrap_err().to_string();
    assert!(reason.starts_with("the certificate expired 4 d ago"), "{reason}");

    let enrolment = Enrolment::open_at(&guest.roots, CA_FILE, unsynchronised).unwrap();
    enrolment.request(&request(IDENTITY)).unwrap();
    enrolment.accept(&certificate).unwrap();
    assert!(enrolment.is_enrolled());
    // After a restart it waits again, which a collector ends at once.
    let waiting = guest.start().status();
    let since = 1_799_625_600;
    assert_eq!(waiting.state, CertificateState::Waiting { since });
}

#[test]
fn another_identity_replaces_the_key() {
    let (guest, enrolment) = enrolled();
    let key = guest.stored().key;
    let refusal = enrolment.request(&request(OTHER)).unwrap_err();
    assert!(matches!(refusal, EnrolmentRefusal::KeyReplaced));
    let stored = guest.stored();
    assert_ne!(stored.key, key);
    assert_eq!(stored.certificate, None);
    let status = enrolment.status();
    assert_eq!(identity(&status), None);
    let discarded = status.discarded.unwrap();
    assert_eq!(discarded.why, DiscardReason::OtherIdentity);
    assert_eq!(
        (discarded.before.as_str(), discarded.now.as_str()),
        (IDENTITY, OTHER)
    );
    // The certificate of the request before is not accepted for the new key.
    let late = issued(guest.certificate(&[IDENTITY], |_| {}));
    assert!(matches!(
        enrolment.accept(&late).unwrap_err(),
        EnrolmentRefusal::NotRequested
    ));

    enrolment.request(&request(OTHER)).unwrap();
    enrolment
        .accept(&issued(guest.certificate(&[OTHER], |_| {})))
        .unwrap();
    assert_eq!(identity(&guest.start().status()), Some(OTHER));
    assert!(
        enrolment.refusals().values().sum::<u64>() == 1,
        "a replaced key is no refusal"
    );
}

#[test]
fn a_request_for_another_vm_is_refused_and_changes_nothing() {
    let (guest, enrolment) = enrolled();
    let before = guest.stored();
    for replace_key in [false, true] {
        let asked = EnrolmentRequest {
            replace_key,
            ..request(OTHER_VM)
        };
        let refusal = enrolment.request(&asked).unwrap_err();
        assert!(matches!(refusal, EnrolmentRefusal::OtherVm { .. }));
        assert!(refusal.to_string().contains("cluster-b/worker-0"), "{refusal}");
        let stolen = issued(guest.certificate(&[OTHER_VM], |_| {}));
        enrolment.accept(&stolen).unwrap_err();
    }
    let stored = guest.stored();
    assert_eq!(
        (&stored.key, &stored.certificate),
        (&before.key, &before.certificate)
    );
    assert_eq!(identity(&enrolment.status()), Some(IDENTITY));
    assert_eq!(enrolment.status().discarded, None);
    assert_eq!(enrolment.refusals()["other_vm"], 2);
    enrolment.request(&request(IDENTITY)).unwrap();
}

#[test]
fn a_collector_can_have_the_key_of_an_earlier_incarnation_replaced() {
    let guest = Guest::new();
    let enrolment = guest.start();
    let key = guest.stored().key;
    let mut replace = request(IDENTITY);
    replace.replace_key = true;
    let refusal = enrolment.request(&replace).unwrap_err();
    assert!(matches!(refusal, EnrolmentRefusal::KeyReplaced));
    assert_ne!(guest.stored().key, key);
    assert_eq!(
        enrolment.status().discarded.unwrap().why,
        DiscardReason::EarlierIncarnation
    );
}

#[test]
fn a_key_of_another_machine_is_discarded() {
    let (guest, _) = enrolled();
    let key = guest.stored().key;
    // Without a UUID nothing is known.
    fs::remove_file(guest.roots.sys("class/dmi/id/product_uuid")).unwrap();
    assert!(guest.start().is_enrolled());

    guest.set_uuid("11111111-93ab-4e57-b0d6-5a1e7c9f2b34");
    let enrolment = guest.start();
    let status = enrolment.status();
    assert_eq!(status.state, CertificateState::Waiting { since: NOW });
    let discarded = status.discarded.unwrap();
    assert_eq!(discarded.why, DiscardReason::OtherMachine);
    assert_eq!(discarded.before, "8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34");
    let stored = guest.stored();
    assert_ne!(stored.key, key);
    assert_eq!(stored.certificate, None);
    // Only once.
    let new = guest.stored().key;
    guest.start();
    assert_eq!(guest.stored().key, new);
}

#[test]
fn a_uuid_that_becomes_known_is_kept() {
    let guest = Guest::new();
    fs::remove_file(guest.roots.sys("class/dmi/id/product_uuid")).unwrap();
    guest.start();
    assert_eq!(guest.stored().record.smbios_uuid, None);
    let key = guest.stored().key;
    guest.set_uuid("8f4c2d10-93ab-4e57-b0d6-5a1e7c9f2b34");
    guest.start();
    assert!(guest.stored().record.smbios_uuid.is_some());
    assert_eq!(guest.stored().key, key);
}

#[test]
fn a_key_that_cannot_be_used_is_replaced_and_one_that_cannot_be_read_stays() {
    let (guest, _) = enrolled();
    let file = guest.roots.root("/var/lib/virtfleet-agent/key.der");
    fs::write(&file, "x").unwrap();
    let status = guest.start().status();
    assert_eq!(status.discarded.unwrap().why, DiscardReason::Unusable);
    let usable = fs::read(&file).unwrap();
    assert!(usable.len() > 100);

    let large = vec![0; 1 << 20];
    fs::write(&file, &large).unwrap();
    let enrolment = guest.start();
    let not_stored = enrolment.status().not_stored.unwrap();
    assert!(not_stored.reason().contains("key.der"), "{not_stored:?}");
    for _ in 0..2 {
        let refusal = enrolment.request(&request(IDENTITY)).unwrap_err();
        assert!(matches!(refusal, EnrolmentRefusal::NotStored(_)), "{refusal}");
        assert_eq!(fs::read(&file).unwrap(), large, "it is not overwritten");
    }
    fs::write(&file, &usable).unwrap();
    let refusal = enrolment.request(&request(IDENTITY)).unwrap_err();
    assert!(matches!(refusal, EnrolmentRefusal::KeyReplaced), "{refusal}");
    enrolment.request(&request(IDENTITY)).unwrap();
    assert_eq!(enrolment.status().not_stored, None);
    assert_eq!(fs::read(&file).unwrap(), usable);
}

#[test]
fn a_new_key_is_stored_before_a_csr_is_signed_with_it() {
    let (guest, enrolment) = enrolled();
    // A directory in the place of the record: nothing can be renamed over it.
    let record = guest.roots.root("/var/lib/virtfleet-agent/enrolment.json");
    fs::remove_file(&record).unwrap();
    fs::create_dir_all(record.join("x")).unwrap();
    let refusal = enrolment.request(&request(OTHER)).unwrap_err();
    assert!(matches!(refusal, EnrolmentRefusal::KeyReplaced), "{refusal}");
    for count in 1..3 {
        let refusal = enrolment.request(&request(OTHER)).unwrap_err();
        assert!(matches!(refusal, EnrolmentRefusal::NotStored(_)), "{refusal}");
        assert_eq!(enrolment.refusals()["not_stored"], count);
    }
    let status = enrolment.status();
    let not_stored = status.not_stored.unwrap();
    assert!(
        matches!(&not_stored, UnstoredKey::Refused(reason) if reason.contains("enrolment.json")),
        "{not_stored:?}"
    );
    fs::remove_dir_all(&record).unwrap();
    enrolment.request(&request(OTHER)).unwrap();
    assert_eq!(enrolment.status().not_stored, None);
    enrolment
        .accept(&issued(guest.certificate(&[OTHER], |_| {})))
        .unwrap();
    assert_eq!(identity(&guest.start().status()), Some(OTHER));
}

#[test]
fn without_a_directory_the_key_is_in_memory() {
    let guest = Guest::new();
    let folder = guest.roots.root("/var/lib");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("virtfleet-agent"), "").unwrap();
    let enrolment = guest.start();
    let not_stored = enrolment.status().not_stored.unwrap();
    assert!(
        matches!(&not_stored, UnstoredKey::InMemory(reason) if reason.starts_with("cannot create /var/lib/virtfleet-agent")),
        "{not_stored:?}"
    );
    enrolment.request(&request(IDENTITY)).unwrap();
}

#[test]
fn authorities_of_clients_are_replaced_with_each_certificate() {
    let (guest, enrolment) = enrolled();
    for authorities in [authority().1, authority().1 + &authority().1, String::new()] {
        let issued = IssuedCertificate {
            certificate: guest.certificate(&[IDENTITY], |_| {}),
            client_authorities: authorities.clone(),
        };
        enrolment.accept(&issued).unwrap();
        assert_eq!(guest.stored().record.client_authorities, authorities);
    }
}

#[test]
fn only_identities_of_vms_are_certified() {
    let enrolment = Guest::new().start();
    for wrong in ["", "spiffe://test/collector", "spiffe://test/vmi/a/b"] {
        let refusal = enrolment.request(&request(wrong)).unwrap_err();
        assert!(matches!(refusal, EnrolmentRefusal::Identity(_)), "{wrong}");
    }
    assert_eq!(enrolment.refusals()["identity"], 3);
}
