//! Client certificates: the caller and its rights, by the names in the certificate.

use std::collections::BTreeMap;

use virtfleet_collector_core::access::{AuthMethod, Caller};

use super::grant::{Grant, GrantError};
use crate::config::AccessSettings;

/// Name of a caller whose certificate has no URI and no DNS name.
const UNNAMED: &str = "certificate without names";

/// Rights of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CertificateGrants {
    named: BTreeMap<String, Grant>,
    others: Grant,
}

impl CertificateGrants {
    /// The rights in the settings.
    ///
    /// # Errors
    /// A word that is not a scope.
    pub(super) fn new(settings: &AccessSettings) -> Result<Self, GrantError> {
        let parse = |words: &[String]| Grant::parse(words.iter().map(String::as_str));
        let named = settings.certificates.iter();
        Ok(Self {
            named: named
                .map(|one| Ok((one.name.clone(), parse(&one.scope)?)))
                .collect::<Result<_, GrantError>>()?,
            others: parse(&settings.other_certificates)?,
        })
    }

    /// No certificate has rights.
    pub(super) fn none() -> Self {
        Self {
            named: BTreeMap::new(),
            others: Grant::NOTHING,
        }
    }

    /// The caller with a certificate of these names, and its rights: those of the first name in the
    /// settings.
    pub(super) fn caller(&self, names: &[String]) -> (Caller, &Grant) {
        let known = names.iter().find_map(|name| Some((name, self.named.get(name)?)));
        let (name, grant) = match known {
            Some((name, grant)) => (name.as_str(), grant),
            None => (names.first().map_or(UNNAMED, String::as_str), &self.others),
        };
        (Caller::new(name, AuthMethod::Certificate), grant)
    }
}

#[cfg(test)]
mod tests {
    use virtfleet_collector_core::access::AccessScope;

    use super::*;
    use crate::config::CertificateAccess;

    #[test]
    fn the_names_of_a_certificate_decide() {
        let mut settings = AccessSettings::default();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let all = CertificateGrants::new(&settings).unwrap();
        let (caller, grant) = all.caller(&names(&["prometheus"]));
        assert_eq!(
            (caller.name.as_str(), &grant.scope),
            ("prometheus", &AccessScope::All)
        );
        assert!(!grant.write, "reading is the default");
        settings.certificates = vec![CertificateAccess {
            name: "tenant".to_owned(),
            scope: names(&["namespace:team-a"]),
        }];
        settings.other_certificates = Vec::new();
        let grants = CertificateGrants::new(&settings).unwrap();
        let (caller, grant) = grants.caller(&names(&["spiffe://x/y", "tenant"]));
        assert_eq!(caller.name, "tenant");
        assert_eq!(
            grant.scope,
            AccessScope::of_namespaces(["team-a".parse().unwrap()])
        );
        assert_eq!(grants.caller(&names(&["other"])).1, &Grant::NOTHING);
        assert_eq!(grants.caller(&[]).0.name, UNNAMED);
        settings.other_certificates = names(&["everything"]);
        CertificateGrants::new(&settings).unwrap_err();
    }
}
