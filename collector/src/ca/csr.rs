//! Reads certificate signing requests (PKCS #10, RFC 2986).

use rcgen::SubjectPublicKeyInfo;
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
use virtfleet_runtime::digest::Sha256;
use x509_parser::{
    certification_request::X509CertificationRequest,
    cri_attributes::ParsedCriAttribute,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
};

/// Maximum size of the PEM text, in bytes. A request of an agent is below 1 KiB.
const MAX_CSR_BYTES: usize = 8 * 1024;
/// Maximum number of requested names.
const MAX_CSR_NAMES: usize = 16;

/// Why a certificate signing request cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    #[error("the CSR has {0} bytes, more than 8192")]
    TooLarge(usize),
    #[error("the text is not a CSR in PEM (RFC 2986): {0}")]
    Malformed(String),
    /// Only ECDSA with P-256: verifying and storing others costs more, and agents have no others.
    #[error("the key of the CSR is not for ECDSA P-256")]
    Algorithm,
    #[error("the signature of the CSR does not match its key")]
    Signature,
    #[error("the CSR requests more than 16 names")]
    TooManyNames,
    /// An attribute that must be single is repeated.
    #[error("the CSR has the attribute {0} more than once")]
    Repeated(&'static str),
}

/// Public key of a request whose signature was verified: its sender has the private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsrKey {
    pub(super) public: SubjectPublicKeyInfo,
    sha256: String,
}

impl CsrKey {
    /// The public key of a pair of this program.
    pub(super) fn of(pair: &rcgen::KeyPair) -> Result<Self, rcgen::Error> {
        let key = rcgen::PublicKeyData::subject_public_key_info(pair);
        Ok(Self {
            public: SubjectPublicKeyInfo::from_der(&key)?,
            sha256: sha256_of(&key),
        })
    }

    /// SHA-256 of the SubjectPublicKeyInfo, in hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// A certificate signing request whose signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    key: CsrKey,
    challenge: Option<String>,
    names: Vec<String>,
}

impl Csr {
    pub fn key(&self) -> &CsrKey {
        &self.key
    }
    /// SHA-256 of the SubjectPublicKeyInfo, in hexadecimal digits.
    pub fn key_sha256(&self) -> &str {
        self.key.sha256()
    }
    /// The attribute `challengePassword` (RFC 2985, 5.4.1).
    pub fn challenge(&self) -> Option<&str> {
        self.challenge.as_deref()
    }
    /// All requested names, without duplicates: common names, URIs and DNS names as they are;
    /// names of other kinds with a prefix that no URI or DNS name of an agent has.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// Reads a request and verifies its signature.
///
/// # Errors
/// Why it cannot be used.
pub fn read_csr(pem: &str) -> Result<Csr, CsrError> {
    if pem.len() > MAX_CSR_BYTES {
        return Err(CsrError::TooLarge(pem.len()));
    }
    let malformed = |error: &dyn ToString| CsrError::Malformed(error.to_string());
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|e| malformed(&e))?;
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|e| malformed(&e))?;
    if !rest.is_empty() {
        return Err(malformed(&"data follows the request"));
    }
    let info = &request.certification_request_info;
    let key = info.subject_pki.raw;
    let public = SubjectPublicKeyInfo::from_der(key).map_err(|_| CsrError::Algorithm)?;
    if rcgen::PublicKeyData::algorithm(&public) != &rcgen::PKCS_ECDSA_P256_SHA256 {
        return Err(CsrError::Algorithm);
    }
    request.verify_signature().map_err(|_| CsrError::Signature)?;

    let mut names = Vec::new();
    for name in info.subject.iter_common_name() {
        add(&mut names, name.as_str().unwrap_or("unreadable:CN").to_owned())?;
    }
    let (mut challenge, mut has_extensions) = (None, false);
    for attribute in info.iter_attributes() {
        match attribute.parsed_attribute() {
            ParsedCriAttribute::ChallengePassword(_) if challenge.is_some() => {
                return Err(CsrError::Repeated("challengePassword"));
            }
            ParsedCriAttribute::ChallengePassword(password) => challenge = Some(password.0.clone()),
            ParsedCriAttribute::ExtensionRequest(_) if has_extensions => {
                return Err(CsrError::Repeated("extensionRequest"));
            }
            ParsedCriAttribute::ExtensionRequest(request) => {
                has_extensions = true;
                for extension in &request.extensions {
                    if let ParsedExtension::SubjectAlternativeName(alternative) = extension.parsed_extension()
                    {
                        for name in &alternative.general_names {
                            add(&mut names, text_of(name))?;
                        }
                    }
                }
            }
            ParsedCriAttribute::UnsupportedAttribute => {}
        }
    }
    Ok(Csr {
        key: CsrKey {
            public,
            sha256: sha256_of(key),
        },
        challenge,
        names,
    })
}

fn sha256_of(bytes: &[u8]) -> String {
    let mut digest = Sha256::default();
    digest.update(bytes);
    digest.hex()
}

fn add(names: &mut Vec<String>, name: String) -> Result<(), CsrError> {
    if names.contains(&name) {
        return Ok(());
    }
    if names.len() == MAX_CSR_NAMES {
        return Err(CsrError::TooManyNames);
    }
    names.push(name);
    Ok(())
}

fn text_of(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => (*name).to_owned(),
        GeneralName::RFC822Name(name) => format!("email:{name}"),
        GeneralName::IPAddress(octets) => format!("IP:{octets:?}"),
        other => format!("other:{other}"),
    }
}
