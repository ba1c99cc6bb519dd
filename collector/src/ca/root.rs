//! Root certificates.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use virtfleet_collector_core::authority::RootLife;
use virtfleet_runtime::{digest::Sha256, tls::Validity};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{Serial, pem::PemBlock};

/// A certificate of an authority, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    pub(super) der: CertificateDer<'static>,
    pub(super) pem: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// When it is valid.
    pub validity: Validity,
    pub serial: Serial,
    /// Trust domain in its name; none for roots that others created.
    pub trust_domain: Option<String>,
    /// SubjectPublicKeyInfo in DER.
    pub(super) public_key_info: Vec<u8>,
}

impl Root {
    /// Parses a PEM block.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub(super) fn parse(block: &PemBlock) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(block.text.as_bytes())
            .map_err(|_| "not a certificate in PEM".to_owned())?;
        let parsed = parsed(&der)?;
        let is_authority = parsed
            .basic_constraints()
            .ok()
            .flatten()
            .is_some_and(|found| found.value.ca);
        let may_sign = parsed
            .key_usage()
            .ok()
            .is_some_and(|found| found.is_none_or(|found| found.value.key_cert_sign()));
        if !is_authority || !may_sign {
            return Err("this certificate must not sign others (basic constraints, key usage)".to_owned());
        }
        let mut digest = Sha256::default();
        digest.update(&der);
        Ok(Self {
            fingerprint: digest.hex(),
            validity: Validity::of(&der).ok_or("the validity of this certificate cannot be read")?,
            serial: Serial::from_bytes(parsed.raw_serial()).ok_or("the serial number is not valid")?,
            trust_domain: trust_domain(&parsed),
            public_key_info: parsed.public_key().raw.to_vec(),
            pem: block.text.as_str().to_owned(),
            der: der.clone(),
        })
    }

    /// Its validity, to decide about its rotation.
    pub(crate) fn life(&self) -> RootLife {
        RootLife {
            not_before: self.validity.not_before,
            not_after: self.validity.not_after,
        }
    }

    /// Whether `issuer` signed this certificate.
    pub(super) fn is_signed_by(&self, issuer: &Self) -> bool {
        let (Ok(own), Ok(issuer)) = (parsed(&self.der), parsed(&issuer.der)) else {
            return false;
        };
        own.issuer() == issuer.subject() && own.verify_signature(Some(issuer.public_key())).is_ok()
    }
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match x509_parser::parse_x509_certificate(der) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err("data follows this certificate in its PEM block".to_owned()),
        Err(error) => Err(format!("this certificate cannot be parsed: {error}")),
    }
}

/// The trust domain of `spiffe://<trust-domain>` (SPIFFE X.509-SVID, 3.1).
fn trust_domain(certificate: &X509Certificate<'_>) -> Option<String> {
    let names = certificate.subject_alternative_name().ok().flatten()?;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix("spiffe://").map(str::to_owned),
        _ => None,
    })
}
