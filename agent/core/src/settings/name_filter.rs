//! Filter for the devices or mounts of a collector, by a regular expression that excludes or
//! includes them.

use std::collections::HashMap;

use regex_lite::Regex;

use super::RegistryError;

/// Maximum number of cached decisions; it bounds the memory if names change often.
const MAX_CACHED_NAMES: usize = 4096;

/// Decides by name, and caches its decisions.
#[derive(Debug)]
pub struct NameFilter {
    exclude: Option<Regex>,
    include: Option<Regex>,
    decided: HashMap<Box<str>, bool>,
}

impl NameFilter {
    /// Creates a filter. `keys` are the settings keys of the exclude and the include pattern. An
    /// empty pattern is ignored. `default` is the exclude pattern if neither is set, as in
    /// node_exporter.
    ///
    /// # Errors
    ///
    /// Both patterns are set, or a pattern is not a regular expression.
    pub fn new(
        keys: [&'static str; 2],
        exclude: Option<&str>,
        include: Option<&str>,
        default: Option<&str>,
    ) -> Result<Self, RegistryError> {
        let include = include.filter(|pattern| !pattern.is_empty());
        let exclude = exclude.or(if include.is_some() { None } else { default });
        let exclude = exclude.filter(|pattern| !pattern.is_empty());
        if exclude.is_some() && include.is_some() {
            return Err(RegistryError::Both {
                exclude: keys[0],
                include: keys[1],
            });
        }
        let compile = |key, pattern: Option<&str>| {
            pattern
                .map(|pattern| {
                    Regex::new(pattern).map_err(|source| RegistryError::Pattern {
                        key,
                        pattern: pattern.to_owned(),
                        source,
                    })
                })
                .transpose()
        };
        Ok(Self {
            exclude: compile(keys[0], exclude)?,
            include: compile(keys[1], include)?,
            decided: HashMap::new(),
        })
    }

    /// Whether the collector includes `name`.
    pub fn takes(&mut self, name: &str) -> bool {
        if self.exclude.is_none() && self.include.is_none() {
            return true;
        }
        if let Some(taken) = self.decided.get(name) {
            return *taken;
        }
        let matches = |pattern: &Option<Regex>| pattern.as_ref().map(|pattern| pattern.is_match(name));
        let taken = !matches(&self.exclude).unwrap_or(false) && matches(&self.include).unwrap_or(true);
        if self.decided.len() >= MAX_CACHED_NAMES {
            self.decided.clear();
        }
        self.decided.insert(name.into(), taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 2] = ["a.exclude", "a.include"];

    #[test]
    fn either_pattern_replaces_the_default() {
        for (exclude, include, default, taken) in [
            (None, None, Some("^a"), ["b"].as_slice()),
            (Some(""), None, Some("^a"), &["a", "b"]),
            (Some("^b"), None, Some("^a"), &["a"]),
            (None, Some("^a"), Some("^a"), &["a"]),
            (Some(""), Some("^b$"), Some("^a"), &["b"]),
            (None, None, None, &["a", "b"]),
            (None, Some(""), Some("^a"), &["b"]),
        ] {
            let mut filter = NameFilter::new(KEYS, exclude, include, default).unwrap();
            for _ in 0..2 {
                let found: Vec<_> = ["a", "b"].into_iter().filter(|n| filter.takes(n)).collect();
                assert_eq!(found, taken, "{exclude:?} {include:?} {default:?}");
            }
        }
    }

    #[test]
    fn errors_name_the_keys() {
        let both = NameFilter::new(KEYS, Some("a"), Some("b"), None).unwrap_err();
        assert_eq!(
            both.to_string(),
            "a.exclude and a.include are both set; keep one of them"
        );
        let bad = NameFilter::new(KEYS, None, Some("(a"), None).unwrap_err();
        assert_eq!(bad.to_string(), "a.include: \"(a\" is not a regular expression");
        assert!(std::error::Error::source(&bad).is_some());
    }

    #[test]
    fn cache_is_bounded() {
        let mut filter = NameFilter::new(KEYS, Some("^x"), None, None).unwrap();
        for n in 0..3 * MAX_CACHED_NAMES {
            assert!(filter.takes(&n.to_string()));
        }
        assert!(filter.decided.len() <= MAX_CACHED_NAMES);
    }
}
