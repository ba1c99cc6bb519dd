//! Trusted roots of one kind, the first of which signs.

use rcgen::{CertificateParams, Issuer, KeyPair, PublicKeyData};
use virtfleet_runtime::tls::Validity;
use zeroize::{Zeroize as _, Zeroizing};

use super::{
    CaError, RootKind, Serial, UnixSeconds,
    pem::{PemBlock, blocks},
    root::Root,
    root_key::RootKey,
    template,
};

/// Maximum number of roots of one kind that are trusted at once.
pub(super) const MAX_ROOTS: usize = 8;

/// Trusted roots of one kind, the first of which signs.
#[derive(Debug, Clone)]
pub(super) struct RootSet {
    pub(super) kind: RootKind,
    /// Never empty.
    pub(super) roots: Vec<Root>,
    pub(super) key: RootKey,
    /// What manages the roots, if not this program.
    pub(super) owner: Option<String>,
}

impl RootSet {
    /// One new root.
    ///
    /// # Errors
    /// No random numbers.
    pub(super) fn create(kind: RootKind, trust_domain: &str, now: UnixSeconds) -> Result<Self, CaError> {
        let (root, key, _) = new_root(kind, trust_domain, now)?;
        Ok(Self {
            kind,
            roots: vec![root],
            key,
            owner: None,
        })
    }

    /// Parses a bundle and the key of its first certificate.
    ///
    /// # Errors
    /// The file, the line and the problem.
    pub(super) fn parse(
        kind: RootKind,
        bundle: (&str, &[u8]),
        key: (&str, &[u8]),
        owner: Option<String>,
    ) -> Result<Self, CaError> {
        let mut roots = parse_certificates(bundle.0, bundle.1)?;
        let first = roots.first().ok_or_else(|| CaError::Invalid {
            file: bundle.0.to_owned(),
            line: 1,
            reason: "contains no certificate".to_owned(),
        })?;
        let invalid = |line, reason: String| CaError::Invalid {
            file: key.0.to_owned(),
            line,
            reason,
        };
        let keys = blocks(key.0, key.1)?;
        // SEC 1 keys may follow a block with their parameters.
        let block = keys
            .iter()
            .find(|block| block.text.contains("PRIVATE KEY-----"))
            .ok_or_else(|| invalid(1, "contains no private key".to_owned()))?;
        let parsed = RootKey::parse(&block.text).map_err(|reason| invalid(block.line, reason))?;
        if parsed.public_key_info() != first.public_key_info {
            let reason = format!(
                "this key does not belong to the first certificate of {}",
                bundle.0
            );
            return Err(invalid(block.line, reason));
        }
        if owner.is_some() {
            // What follows in a `tls.crt` is the chain above the authority, whose other
            // certificates must not be accepted.
            roots.truncate(1);
        }
        Ok(Self {
            kind,
            roots,
            key: parsed,
            owner,
        })
    }

    /// The root that signs.
    pub(super) fn signer(&self) -> &Root {
        &self.roots[0]
    }

    /// All certificates.
    pub(super) fn bundle(&self) -> String {
        self.roots.iter().map(|root| root.pem.as_str()).collect()
    }

    /// `requested`, limited to the validity of the root that signs.
    ///
    /// # Errors
    /// The root is not valid then.
    pub(super) fn limit(&self, requested: Validity) -> Result<Validity, CaError> {
        let own = self.signer().validity;
        let limited = Validity {
            not_before: requested.not_before.max(own.not_before),
            not_after: requested.not_after.min(own.not_after),
        };
        if limited.not_before < limited.not_after {
            Ok(limited)
        } else {
            Err(CaError::Expired { root: self.kind })
        }
    }

    /// Signs a certificate; returns it in PEM.
    ///
    /// # Errors
    /// The key cannot sign.
    pub(super) fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<String, CaError> {
        let issuer = Issuer::from_ca_cert_der(&self.signer().der, &self.key)?;
        Ok(params.signed_by(key, &issuer)?.pem())
    }

    /// Puts a new root first. The second value is the new root's certificate as signed by the
    /// previous root; none if that one has expired.
    ///
    /// # Errors
    /// The roots are managed elsewhere, or too many.
    pub(super) fn rotate(&self, now: UnixSeconds) -> Result<(Self, Option<Root>), CaError> {
        if let Some(owner) = &self.owner {
            return Err(CaError::External {
                root: self.kind,
                owner: owner.clone(),
            });
        }
        if self.roots.len() >= MAX_ROOTS {
            return Err(CaError::TooManyRoots {
                root: self.kind,
                count: self.roots.len(),
            });
        }
        let trust_domain = self.signer().trust_domain.as_deref();
        let trust_domain = trust_domain.ok_or_else(|| CaError::External {
            root: self.kind,
            owner: "the program that created it".to_owned(),
        })?;
        let (root, key, params) = new_root(self.kind, trust_domain, now)?;
        let crossed = match self.limit(root.validity) {
            Ok(validity) => Some(self.cross_sign(params, &key, validity)?),
            Err(_) => None,
        };
        let mut rotated = self.clone();
        rotated.roots.insert(0, root);
        rotated.key = key;
        Ok((rotated, crossed))
    }

    fn cross_sign(
        &self,
        mut params: CertificateParams,
        key: &RootKey,
        validity: Validity,
    ) -> Result<Root, CaError> {
        template::cross_sign(&mut params, &Serial::random()?, validity);
        parse_own(&self.sign(&params, key)?)
    }
}

/// Certificates of authorities in a bundle; may be none.
///
/// # Errors
/// The file, the line and the problem.
pub(crate) fn parse_certificates(file: &str, bytes: &[u8]) -> Result<Vec<Root>, CaError> {
    let invalid = |block: &PemBlock, reason: String| CaError::Invalid {
        file: file.to_owned(),
        line: block.line,
        reason,
    };
    let mut roots = Vec::<Root>::new();
    for block in blocks(file, bytes)? {
        let root = Root::parse(&block).map_err(|reason| invalid(&block, reason))?;
        if roots.contains(&root) {
            return Err(invalid(&block, "this certificate is listed twice".to_owned()));
        }
        if roots.len() == MAX_ROOTS {
            return Err(invalid(&block, format!("more than {MAX_ROOTS} certificates")));
        }
        roots.push(root);
    }
    Ok(roots)
}

fn new_root(
    kind: RootKind,
    trust_domain: &str,
    now: UnixSeconds,
) -> Result<(Root, RootKey, CertificateParams), CaError> {
    let params = template::root(kind, trust_domain, &Serial::random()?, now)?;
    let mut pair = KeyPair::generate()?;
    let certificate = params.self_signed(&pair);
    let text = Zeroizing::new(pair.serialize_pem());
    pair.zeroize();
    let root = parse_own(&certificate?.pem())?;
    let key = RootKey::parse(&text).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
    Ok((root, key, params))
}

/// Parses a certificate that this program has just made.
fn parse_own(pem: &str) -> Result<Root, CaError> {
    let block = PemBlock {
        line: 1,
        text: Zeroizing::new(pem.to_owned()),
    };
    Root::parse(&block).map_err(|_| rcgen::Error::CouldNotParseCertificate.into())
}
