//! Names in certificates.

use std::fmt;

use rustls::pki_types::CertificateDer;
use virtfleet_wire::ids::{Namespace, Uid, VmName};
use webpki::EndEntityCert;

/// The URIs, then the DNS names, of a certificate; empty if it cannot be parsed.
pub fn peer_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let uris = certificate.valid_uri_names().map(str::to_owned);
    uris.chain(certificate.valid_dns_names().map(str::to_owned))
        .collect()
}

/// `spiffe://<trust-domain>/vmi/<namespace>/<name>/<uid>`: the VM that an agent's certificate
/// identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmIdentity {
    /// The trust domain, whose authorities issue the identity.
    pub trust_domain: String,
    /// The VM's namespace in the infra cluster.
    pub namespace: Namespace,
    pub name: VmName,
    /// The VMI's UID, or the UID of its VirtualMachine.
    pub uid: Uid,
}

impl VmIdentity {
    /// Parses a SPIFFE URI; none for another form.
    pub fn from_uri(uri: &str) -> Option<Self> {
        let (trust_domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        let mut parts = path.split('/');
        if trust_domain.is_empty() || parts.next()? != "vmi" {
            return None;
        }
        let identity = Self {
            trust_domain: trust_domain.to_owned(),
            namespace: parts.next()?.parse().ok()?,
            name: parts.next()?.parse().ok()?,
            uid: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(identity)
    }

    /// The SPIFFE URI.
    pub fn to_uri(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for VmIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trust_domain,
            namespace,
            name,
            uid,
        } = self;
        write!(f, "spiffe://{trust_domain}/vmi/{namespace}/{name}/{uid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_form_is_parsed() {
        let identity = VmIdentity::from_uri("spiffe://example.org/vmi/cluster-a/worker-0/1b2c").unwrap();
        assert_eq!(
            (identity.namespace.as_str(), identity.name.as_str()),
            ("cluster-a", "worker-0")
        );
        assert_eq!(
            identity.to_uri(),
            "spiffe://example.org/vmi/cluster-a/worker-0/1b2c"
        );
        for other in [
            "https://example.org/vmi/a/b/c",
            "spiffe:///vmi/a/b/c",
            "spiffe://example.org/collector",
            "spiffe://example.org/vmi/a/b",
            "spiffe://example.org/vmi/a/b/c/d",
            "spiffe://example.org/vmi/A/b/c",
            "spiffe://example.org/vmi//b/c",
        ] {
            assert_eq!(VmIdentity::from_uri(other), None, "{other}");
        }
    }
}
