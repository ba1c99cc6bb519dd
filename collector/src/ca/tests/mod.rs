//! Tests of the authority. Certificates are verified by webpki, as agents and collectors do.

mod api_certificate;
mod cert_manager;
mod csr;
mod own_certificate;
mod rotation;
mod signing;
mod text;

use rcgen::{Attribute, CertificateParams, DistinguishedName, KeyPair, SanType};
use virtfleet_runtime::tls::{Usage, Validity, VmIdentity, check_chain};

use super::*;

/// 2026-01-01T00:00:00Z.
const NOW: UnixSeconds = 1_767_225_600;
const DAY: u64 = 86_400;

/// One day from `NOW`.
const ONE_DAY: Validity = Validity {
    not_before: NOW - 3600,
    not_after: NOW + DAY,
};

fn authorities() -> Authorities {
    Authorities::create("example.org", NOW).unwrap()
}

fn identity(uri: &str) -> VmIdentity {
    VmIdentity::from_uri(uri).unwrap()
}

fn worker() -> VmIdentity {
    identity("spiffe://example.org/vmi/tenant-a/worker-0/1b2c")
}

/// A request with these attributes and names.
fn request(challenge: &[&str], names: &[&str]) -> String {
    let pair = KeyPair::generate().unwrap();
    request_of(&pair, challenge, names)
}

fn request_of(pair: &KeyPair, challenge: &[&str], names: &[&str]) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for name in names {
        let text = (*name).try_into().unwrap();
        params.subject_alt_names.push(if name.contains("://") {
            SanType::URI(text)
        } else {
            SanType::DnsName(text)
        });
    }
    let attributes = challenge.iter().map(|text| Attribute {
        // challengePassword.
        oid: &[1, 2, 840, 113_549, 1, 9, 7],
        values: {
            let length = u8::try_from(text.len()).unwrap();
            // A SET with one PrintableString.
            let mut der = vec![0x31, length + 2, 0x13, length];
            der.extend(text.bytes());
            der
        },
    });
    let request = params
        .serialize_request_with_attributes(pair, attributes.collect())
        .unwrap();
    request.pem().unwrap()
}

fn csr() -> Csr {
    read_csr(&request(&[], &[])).unwrap()
}

fn agent(authorities: &Authorities, validity: Validity) -> String {
    let signed = authorities.sign_agent(csr().key(), &worker(), validity);
    signed.unwrap().chain_pem
}

fn collector(authorities: &Authorities, validity: Validity) -> String {
    let uri = "spiffe://example.org/collector";
    let signed = authorities.sign_client(csr().key(), uri, &[], validity);
    signed.unwrap().chain_pem
}

/// Verifies at `NOW`.
fn check(chain: &str, roots: &str, usage: Usage) -> Result<(), String> {
    check_chain(chain.as_bytes(), roots.as_bytes(), usage, NOW)
}
