//! Each file that cannot be used is named with its key and the next command.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

use super::*;
use crate::{
    config::CollectorConfig,
    doctor::{CheckResult, CheckStatus},
};

type Ca = CertifiedIssuer<'static, KeyPair>;

/// 2030-01-01.
const NOW: u64 = 1_893_456_000;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key as PEM, valid to the end of a year.
fn leaf(ca: &Ca, year: i32, purpose: ExtendedKeyUsagePurpose) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["collector".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(year, 12, 31));
    params.extended_key_usages = vec![purpose];
    (params.signed_by(&key, ca).unwrap().pem(), key.serialize_pem())
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Settings with valid files only.
fn valid(folder: &Path) -> CollectorConfig {
    let authority = ca();
    let ca = write(folder, "ca.pem", &authority.pem());
    let mut config = CollectorConfig::default();
    let (certificate, key) = leaf(&authority, 2035, ExtendedKeyUsagePurpose::ClientAuth);
    let scrape = &mut config.scrape.tls;
    scrape.ca = Some(ca.clone());
    scrape.certificate = Some(write(folder, "client.pem", &certificate));
    scrape.key = Some(write(folder, "client.key", &key));
    scrape.trust_domain = Some("example.org".to_owned());
    let (certificate, key) = leaf(&authority, 2035, ExtendedKeyUsagePurpose::ServerAuth);
    let server = &mut config.server.tls;
    server.certificate = Some(write(folder, "server.pem", &certificate));
    server.key = Some(write(folder, "server.key", &key));
    server.client_ca = Some(ca);
    config
}

/// The results that are not ok.
fn problems(config: &CollectorConfig) -> Vec<CheckResult> {
    let mut lines = check(config, NOW);
    lines.retain(|line| line.status != CheckStatus::Ok);
    lines
}

fn only(config: &CollectorConfig) -> CheckResult {
    let [line] = problems(config).try_into().unwrap();
    assert!(!line.next.is_empty(), "{line:?}");
    line
}

#[test]
fn valid_files_are_ok_and_can_be_loaded() {
    let folder = TempDir::new().unwrap();
    let config = valid(folder.path());
    assert_eq!(problems(&config), []);
    assert_eq!(check(&config, NOW).len(), 6);
    assert!(agents(&config.scrape.tls).unwrap().is_some());
    assert!(server(&config.server).unwrap().is_some());
    let without = CollectorConfig::default();
    assert_eq!(check(&without, NOW), []);
    assert!(agents(&without.scrape.tls).unwrap().is_none());
}

#[test]
fn unusable_files_are_named_with_their_key() {
    let folder = TempDir::new().unwrap();
    let config = valid(folder.path());
    let mut missing = config.clone();
    missing.scrape.tls.ca = Some("/nowhere/ca.pem".to_owned());
    let line = only(&missing);
    assert_eq!(
        (line.status, line.what.as_str()),
        (CheckStatus::Fail, "scrape.tls.ca")
    );
    assert!(line.detail.contains("/nowhere/ca.pem cannot be read"), "{line:?}");
    assert_eq!(agents(&missing.scrape.tls).unwrap_err().key, "scrape.tls.ca");
    let mut swapped = config.clone();
    swapped.server.tls.key.clone_from(&config.server.tls.client_ca);
    let line = only(&swapped);
    assert_eq!(line.what, "server.tls.key");
    assert!(line.detail.contains("contains no private key"), "{line:?}");
    let mut other = config.clone();
    other.server.tls.key.clone_from(&config.scrape.tls.key);
    let line = only(&other);
    assert_eq!(line.what, "server.tls.certificate");
    assert!(
        line.detail.starts_with("does not match the other files"),
        "{line:?}"
    );
}

#[test]
fn certificates_must_be_valid_and_must_not_expire_soon() {
    let folder = TempDir::new().unwrap();
    let mut config = valid(folder.path());
    let authority = ca();
    let mut set = |year, now: u64| {
        let (certificate, key) = leaf(&authority, year, ExtendedKeyUsagePurpose::ServerAuth);
        config.server.tls.certificate = Some(write(folder.path(), "server.pem", &certificate));
        config.server.tls.key = Some(write(folder.path(), "server.key", &key));
        let mut lines = check(&config, now);
        lines.retain(|line| line.what == "server.tls.certificate");
        (lines[0].status, lines[0].detail.clone())
    };
    let (status, detail) = set(2029, NOW);
    assert_eq!(status, CheckStatus::Fail);
    assert!(detail.contains("expired 1 d ago"), "{detail}");
    // Ten days before it expires.
    let (status, detail) = set(2030, NOW + 354 * 86_400);
    assert_eq!(status, CheckStatus::Warn);
    assert!(detail.contains(" d left"), "{detail}");
    assert_eq!(set(2030, 0).0, CheckStatus::Fail, "not valid yet");
}

#[test]
fn a_client_certificate_of_another_authority_is_a_warning() {
    let folder = TempDir::new().unwrap();
    let mut config = valid(folder.path());
    let stranger = ca();
    let (certificate, key) = leaf(&stranger, 2035, ExtendedKeyUsagePurpose::ClientAuth);
    config.scrape.tls.certificate = Some(write(folder.path(), "client.pem", &certificate));
    config.scrape.tls.key = Some(write(folder.path(), "client.key", &key));
    let line = only(&config);
    assert_eq!(
        (line.status, line.what.as_str()),
        (CheckStatus::Warn, "scrape.tls.certificate")
    );
    assert!(line.detail.contains("is not signed by any of these"), "{line:?}");
}
