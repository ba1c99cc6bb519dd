//! Counts the contents of a report while parsing, and stores nothing. A value takes two bytes of
//! JSON and many times that in memory, so a limit in bytes does not bound the memory that a hostile
//! guest can use.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};

use super::ReportError;

/// Maximum number of values (scalars, lists, mappings) in a report.
pub const MAX_REPORT_VALUES: usize = 16 * 1024;
/// Maximum number of sections. Agents of this version have ten.
pub const MAX_SECTIONS: usize = 64;
/// Maximum number of items in a section.
pub const MAX_SECTION_ITEMS: usize = 1024;
/// Maximum number of findings.
pub const MAX_FINDINGS: usize = 256;
/// Maximum number of features of the agent.
pub const MAX_FEATURES: usize = 256;
/// Maximum number of interfaces. A node with many pods has a veth each.
pub const MAX_INTERFACES: usize = 2048;
/// Maximum number of labels that kubelet is configured to set.
pub const MAX_KUBELET_LABELS: usize = 512;

/// Rejects a report that exceeds a limit. Invalid JSON, or JSON of another shape, is rejected here
/// or later.
pub(super) fn check(json: &[u8]) -> Result<(), ReportError> {
    let found = Found {
        values: Cell::new(0),
        over: Cell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let top = Part {
        place: Place::Top,
        found: &found,
    };
    let counted = top.deserialize(&mut reader);
    match (counted, found.over.get()) {
        (_, Some((what, limit))) => Err(ReportError::TooMany { what, limit }),
        (Err(error), None) => Err(ReportError::Malformed(error)),
        (Ok(()), None) => Ok(()),
    }
}

struct Found {
    values: Cell<usize>,
    over: Cell<Option<(&'static str, usize)>>,
}

/// Position of a value in a report.
#[derive(Debug, Clone, Copy)]
enum Place {
    Top,
    Agent,
    Identity,
    /// List of interfaces in an identity, with its source.
    Sourced,
    Claims,
    Sections,
    Section,
    /// List or mapping with a maximum number of entries: name and limit.
    Counted(&'static str, usize),
    Other,
}

impl Place {
    /// Position of the value of a mapping's key.
    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Top, "agent") => Self::Agent,
            (Self::Top, "identity") => Self::Identity,
            (Self::Top, "claims") => Self::Claims,
            (Self::Top, "sections") => Self::Sections,
            (Self::Top, "findings") => Self::Counted("findings", MAX_FINDINGS),
            (Self::Agent, "features") => Self::Counted("features", MAX_FEATURES),
            (Self::Identity, "interfaces") => Self::Sourced,
            (Self::Sourced, "value") => Self::Counted("interfaces", MAX_INTERFACES),
            (Self::Claims, "kubeletLabels") => Self::Counted("kubelet labels", MAX_KUBELET_LABELS),
            (Self::Sections, _) => Self::Section,
            (Self::Section, "items") => Self::Counted("items in a section", MAX_SECTION_ITEMS),
            _ => Self::Other,
        }
    }

    fn limit(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Sections => Some(("sections", MAX_SECTIONS)),
            Self::Counted(what, limit) => Some((what, limit)),
            _ => None,
        }
    }
}

struct Part<'a> {
    place: Place,
    found: &'a Found,
}

impl Part<'_> {
    fn over<E: serde::de::Error>(&self, what: &'static str, limit: usize) -> E {
        self.found.over.set(Some((what, limit)));
        E::custom("too many")
    }

    /// Counts one value.
    fn value<E: serde::de::Error>(&self) -> Result<(), E> {
        let values = self.found.values.get() + 1;
        self.found.values.set(values);
        if values > MAX_REPORT_VALUES {
            return Err(self.over("values", MAX_REPORT_VALUES));
        }
        Ok(())
    }

    /// Checks the number of entries of this list or mapping so far.
    fn entries<E: serde::de::Error>(&self, count: usize) -> Result<(), E> {
        match self.place.limit() {
            Some((what, limit)) if count > limit => Err(self.over(what, limit)),
            _ => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }
    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.value()
    }
    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.value()
    }
    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.value()
    }
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.value()
    }
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.value()
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.value()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.value()?;
        let mut count = 0;
        let part = || Part {
            place: Place::Other,
            found: self.found,
        };
        while items.next_element_seed(part())?.is_some() {
            count += 1;
            self.entries(count)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.value()?;
        let mut count = 0;
        while let Some(key) = entries.next_key::<Cow<'_, str>>()? {
            count += 1;
            self.entries(count)?;
            let place = self.place.below(&key);
            entries.next_value_seed(Part {
                place,
                found: self.found,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        check(body.as_bytes()).unwrap_err().to_string()
    }

    fn times(text: &str, count: usize) -> String {
        vec![text; count].join(",")
    }

    fn named(count: usize) -> String {
        let entries: Vec<_> = (0..count).map(|n| format!(r#""{n}":{{}}"#)).collect();
        entries.join(",")
    }

    #[test]
    fn each_list_has_its_limit_and_is_named() {
        check(format!(r#"{{"sections":{{{}}}}}"#, named(MAX_SECTIONS)).as_bytes()).unwrap();
        let many = format!(r#"{{"sections":{{{}}}}}"#, named(20_000));
        assert_eq!(refusal(&many), "more than 64 sections");
        let items = |count| format!(r#"{{"sections":{{"x":{{"items":[{}]}}}}}}"#, times("{}", count));
        check(items(MAX_SECTION_ITEMS).as_bytes()).unwrap();
        assert_eq!(refusal(&items(1025)), "more than 1024 items in a section");
        let findings = format!(r#"{{"findings":[{}]}}"#, times("0", 257));
        assert_eq!(refusal(&findings), "more than 256 findings");
        let features = format!(r#"{{"agent":{{"features":[{}]}}}}"#, times("0", 257));
        assert_eq!(refusal(&features), "more than 256 features");
        let interfaces = format!(
            r#"{{"identity":{{"interfaces":{{"value":[{}]}}}}}}"#,
            times("0", 2049)
        );
        assert_eq!(refusal(&interfaces), "more than 2048 interfaces");
        let labels = format!(r#"{{"claims":{{"kubeletLabels":{{{}}}}}}}"#, named(513));
        assert_eq!(refusal(&labels), "more than 512 kubelet labels");
        let values = format!(r#"{{"other":[{}]}}"#, times("[]", MAX_REPORT_VALUES));
        assert_eq!(refusal(&values), "more than 16384 values");
    }

    #[test]
    fn depth_is_bounded_and_escaped_keys_count() {
        assert!(matches!(
            check("[".repeat(100_000).as_bytes()),
            Err(ReportError::Malformed(_))
        ));
        let escaped = r#"{"\u0066indings":[]}"#.replace("[]", &format!("[{}]", times("0", 257)));
        assert_eq!(refusal(&escaped), "more than 256 findings");
    }
}
