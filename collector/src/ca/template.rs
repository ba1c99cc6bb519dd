//! Content of the certificates that the authority signs.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};
use virtfleet_runtime::tls::Validity;

use super::{CaError, RootKind, Serial, UnixSeconds};

/// Lifetime of a root, in seconds: ten years.
const ROOT_LIFETIME: u64 = 10 * 365 * 86_400;
/// Certificates are valid from so many seconds before their issue, because clocks of guests differ.
pub(super) const CLOCK_TOLERANCE: u64 = 3600;
/// 9999-12-31 (RFC 5280, 4.1.2.5), in seconds since 1970.
const LAST_SECOND: u64 = 253_402_300_799;
/// Maximum number of cross-signed certificates between a root of clients and the one that signs.
pub(super) const MAX_CROSS_SIGNED: u8 = 3;

/// A new root. Roots of clients allow for the cross-signed certificates of later roots below them.
pub(super) fn root(
    kind: RootKind,
    trust_domain: &str,
    serial: &Serial,
    now: UnixSeconds,
) -> Result<CertificateParams, CaError> {
    let path_length = match kind {
        RootKind::Agents => 0,
        RootKind::Clients => MAX_CROSS_SIGNED,
    };
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "virtfleet");
    // Differs between roots, because a certificate finds its issuer by name.
    let short: String = serial.to_string().chars().take(8).collect();
    name.push(DnType::CommonName, format!("virtfleet {kind} {short}"));
    let validity = Validity {
        not_before: now.saturating_sub(CLOCK_TOLERANCE),
        not_after: now.saturating_add(ROOT_LIFETIME),
    };
    let mut params = with_validity(serial, validity);
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(path_length));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.subject_alt_names = vec![uri(&format!("spiffe://{trust_domain}"))?];
    Ok(params)
}

/// Changes the parameters of a root to those of its certificate under the previous root.
pub(super) fn cross_sign(root: &mut CertificateParams, serial: &Serial, validity: Validity) {
    let time = with_validity(serial, validity);
    root.serial_number = time.serial_number;
    root.not_before = time.not_before;
    root.not_after = time.not_after;
    root.use_authority_key_identifier_extension = true;
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(MAX_CROSS_SIGNED - 1));
}

/// A certificate for a program. It has no subject: all names are alternative names.
pub(super) fn leaf(
    serial: &Serial,
    validity: Validity,
    uri_name: &str,
    dns: &[String],
    usages: &[ExtendedKeyUsagePurpose],
) -> Result<CertificateParams, CaError> {
    let mut params = with_validity(serial, validity);
    params.distinguished_name = DistinguishedName::new();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages.to_vec();
    params.subject_alt_names.push(uri(uri_name)?);
    for name in dns {
        let name = name
            .as_str()
            .try_into()
            .map_err(|_| CaError::Name(name.clone()))?;
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn with_validity(serial: &Serial, validity: Validity) -> CertificateParams {
    let time = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.min(LAST_SECOND));
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    params.not_before = time(validity.not_before);
    params.not_after = time(validity.not_after);
    params
}

fn uri(text: &str) -> Result<SanType, CaError> {
    let name = text.try_into().map_err(|_| CaError::Name(text.to_owned()))?;
    Ok(SanType::URI(name))
}
