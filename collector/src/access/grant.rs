//! What a caller may do, as the settings and the file of static tokens write it.

use std::collections::BTreeSet;

use virtfleet_collector_core::access::AccessScope;
use virtfleet_wire::ids::InvalidId;

/// What a caller may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The part of the fleet that it may see.
    pub scope: AccessScope,
    /// Whether it may send requests that change something.
    pub write: bool,
}

/// A word that is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("{0:?} is not a scope; allowed: all, admin, namespace:<name>, cluster:<name>")]
    Unknown(String),
    /// The name after `namespace:` or `cluster:` is not valid.
    #[error("{0:?} is not a scope: {1}")]
    Name(String, #[source] InvalidId),
}

impl Grant {
    /// No rights.
    pub const NOTHING: Self = Self {
        scope: AccessScope::nothing(),
        write: false,
    };
    pub const ADMIN: Self = Self {
        scope: AccessScope::All,
        write: true,
    };

    /// The rights to which these words add up; none without words.
    ///
    /// # Errors
    /// The first word that is not a scope.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, GrantError> {
        let (mut namespaces, mut clusters) = (BTreeSet::new(), BTreeSet::new());
        let (mut all, mut write) = (false, false);
        for word in words {
            let wrong = |error| GrantError::Name(word.to_owned(), error);
            match word.split_once(':') {
                None if word == "all" => all = true,
                None if word == "admin" => (all, write) = (true, true),
                Some(("namespace", name)) => drop(namespaces.insert(name.parse().map_err(wrong)?)),
                Some(("cluster", name)) => drop(clusters.insert(name.parse().map_err(wrong)?)),
                _ => return Err(GrantError::Unknown(word.to_owned())),
            }
        }
        let scope = if all {
            AccessScope::All
        } else {
            AccessScope::Only { namespaces, clusters }
        };
        Ok(Self { scope, write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up() {
        let parse = |words: &[&str]| Grant::parse(words.iter().copied());
        assert_eq!(parse(&[]).unwrap(), Grant::NOTHING);
        assert_eq!(parse(&["admin"]).unwrap(), Grant::ADMIN);
        let all = parse(&["namespace:a", "all"]).unwrap();
        assert!(all.scope.is_all() && !all.write);
        let two = parse(&["namespace:team-a", "cluster:blue"]).unwrap();
        let expected = AccessScope::Only {
            namespaces: ["team-a".parse().unwrap()].into(),
            clusters: ["blue".parse().unwrap()].into(),
        };
        assert_eq!((two.scope, two.write), (expected, false));
        for wrong in [
            "",
            "ALL",
            "all ",
            "namespace:",
            "namespace:A",
            "cluster:",
            "group:x",
            "namespace",
        ] {
            let error = parse(&[wrong]).unwrap_err().to_string();
            assert!(error.contains("is not a scope"), "{wrong}: {error}");
        }
    }
}
